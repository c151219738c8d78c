"""The idea in one file, against the library."""

import re
from pathlib import Path

import pytest
import torch

import one_file
from attention_on_edges.models.transformer import make_model
from attention_on_edges.pool import GraphPool
from edgewise.graphs import bipartite, causal, complete
from edgewise.propagation import propagate_attention
from support import assert_equal_as_stated, edges

FILE = Path(one_file.__file__)
SOURCES, TARGETS = [[3, 1, 4], [1], [5, 9, 2, 6, 5]], [[26, 3], [26, 1, 1], [26]]


def test_it_is_short_and_needs_torch_alone():
    text = FILE.read_text("utf-8")
    assert len(text.splitlines()) < 200
    imported = set(re.findall(r"^(?:from|import) (\w+)", text, re.MULTILINE))
    assert imported == {"math", "dataclasses", "torch"}


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (one_file.connect([3, 1], [3, 1]), complete([3, 1])),
        (one_file.connect([2, 4], [2, 4], causal=True), causal([2, 4])),
        (one_file.connect([2, 3, 1], [4, 1, 2]), bipartite([4, 1, 2], [2, 3, 1])),
    ],
    ids=["complete", "causal", "bipartite"],
)
def test_graphs_and_attention_are_the_packages(ours, theirs):
    assert {*edges(ours)} == {*edges(theirs)}
    q = torch.randn(theirs.num_dst, 2, 4, dtype=torch.float64)
    q[1::2] *= 3000.0  # one token's scores are far from the next's
    q.requires_grad_()
    k, v = torch.randn(2, theirs.num_src, 2, 4, dtype=torch.float64, requires_grad=True)
    for attend in (one_file.on_edges, one_file.in_tiles):
        assert_equal_as_stated(attend(ours, q, k, v), propagate_attention(theirs, q, k, v), (q, k, v))


NAMES = {
    "src_embed.lut": "source",
    "tgt_embed.lut": "target",
    "generator.proj": "output",
    "encoder.norm": "norms.0",
    "decoder.norm": "norms.1",
    "layers.": "",
    ".sublayer.": ".norms.",
    ".norm.": ".",
    "self_attn": "attention.0",
    "src_attn": "attention.1",
    "feed_forward.inner": "feed_forward.0",
    "feed_forward.outer": "feed_forward.2",
}


def named(model, of, factor):
    """What the package's parameters hold, as the one file names them; its embeddings hold the factor."""
    for name, parameter in model.named_parameters():
        for theirs, ours in NAMES.items():
            name = name.replace(theirs, ours)
        yield name, of(parameter) * (factor if name in ("source.weight", "target.weight") else 1)


def test_the_model_is_the_packages():
    theirs = make_model(27, 27, 2, 64, 256, 4, dropout=0.0)
    ours = one_file.Transformer(27)
    ours.load_state_dict(dict(named(theirs, torch.Tensor.detach, 8)))
    batch = GraphPool()(SOURCES, [[*target, 0] for target in TARGETS])
    expected = theirs.logits(batch)
    upstream = torch.randn_like(expected)
    expected.backward(upstream)
    for attend in (one_file.on_edges, one_file.in_tiles):
        for part in ours.modules():
            if isinstance(part, one_file.Attention):
                part.attend = attend
        found = ours(SOURCES, TARGETS)
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
        ours.zero_grad()
        found.backward(upstream)
        for name, value in named(theirs, lambda parameter: parameter.grad, 1 / 8):
            torch.testing.assert_close(ours.get_parameter(name).grad, value, atol=1e-5, rtol=1e-5, msg=name)


def test_it_learns_and_shows_what_it_attends_to(capsys):
    model = one_file.Transformer(27)
    one_file.train(model, updates=20, batch=16)
    losses = [float(line.split()[-1]) for line in capsys.readouterr().out.splitlines()]
    assert losses[-1] < losses[0] - 0.2
    one_file.show_attention(model, "edge")
    lines = capsys.readouterr().out.splitlines()
    assert [line[11] for line in lines[2:]] == list("edge")
    assert model.greedy([[1, 2]], 3)[0] == model.greedy([[5], [1, 2]], 3)[1]
