"""The model on graphs against the same weights in masked matrices, in float64, on every engine."""

import copy
import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attention_on_edges.models.dense import decoder_layer, encoder_layer
from attention_on_edges.models.transformer import make_model
from attention_on_edges.pool import GraphPool
from book_support import VOCAB, random_pairs, small_model
from edgewise.graphs import AttentionGraph
from edgewise.propagation import ENGINES
from support import assert_equal_as_stated, refusals

lengths = st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6)), min_size=1, max_size=4)
pool = GraphPool()


def dense_logits(model, batch):
    """The whole model again, all sentences in one row, with masks in place of graphs."""
    x, y = (
        model.embed(table, *ids)[None]
        for table, ids in ((model.src_embed, batch.src), (model.tgt_embed, batch.tgt))
    )
    for layer in model.encoder.layers:
        x = encoder_layer(layer, x, batch.enc.to_mask())
    memory = model.encoder.norm(x)
    for layer in model.decoder.layers:
        y = decoder_layer(layer, y, memory, batch.dec.to_mask(), batch.cross.to_mask())
    return model.generator.logits(model.decoder.norm(y))[0]


def check(model, batch):
    """Logits and gradients of all parameters against matrices in float64."""
    twin = copy.deepcopy(model).double()
    expected = dense_logits(twin, batch)
    assert_equal_as_stated(model.logits(batch), expected, model.parameters(), twin.parameters())


@pytest.mark.parametrize("engine", ENGINES)
@settings(max_examples=8)
@given(lengths, st.booleans())
def test_equals_a_dense_model_with_masks(engine, lengths, norm_first):
    check(small_model(engine, norm_first=norm_first), pool(*random_pairs(lengths)))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("which", ["enc", "cross", "dec"])
def test_deleting_an_edge_is_masking_a_pair_in_the_whole_model(engine, which):
    model, batch = small_model(engine), pool(*random_pairs([(3, 4), (2, 2)]))
    graph = getattr(batch, which)
    rest = torch.arange(graph.num_edges) != 7
    ends, dst = (graph.src[rest], graph.dst[rest]), None if graph.self_attention else graph.num_dst
    changed = dataclasses.replace(batch, **{which: AttentionGraph(*ends, graph.num_src, dst)})
    check(model, changed)
    assert not torch.allclose(model.logits(batch), model.logits(changed), atol=1e-6)


def test_dropout_acts_where_the_paper_has_it():
    """On both embeddings, on what attention and feed-forward add: once per sub-layer."""
    model = make_model(VOCAB, VOCAB, N=2, dim_model=8, dim_ff=12, h=2, dropout=0.5)
    acted = []
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Dropout) and module.p == 0.5:
            module.register_forward_hook(lambda *_, name=name: acted.append(name))
    model(pool(*random_pairs([(2, 2)])))
    expected = ["pos_enc.dropout"] * 2
    for side, sublayers in (("encoder", 2), ("decoder", 3)):
        for i in range(2):
            expected += [f"{side}.layers.{i}.sublayer.{k}.dropout" for k in range(sublayers)]
    assert sorted(acted) == sorted(expected)


def test_a_shared_matrix_is_one_parameter_under_three_names_drawn_as_an_embedding():
    model = make_model(VOCAB, VOCAB, N=1, dim_model=256, dim_ff=8, h=2, shared=True)
    named = model.named_parameters(remove_duplicate=False)
    assert [name for name, p in named if p is model.generator.proj.weight] == [
        "src_embed.lut.weight", "tgt_embed.lut.weight", "generator.proj.weight"
    ]  # fmt: skip
    assert model.generator.proj.weight.std().item() == pytest.approx(1 / 16, rel=0.1)


test_bad_input = refusals(
    (lambda m: make_model(5, 5, N=0), "N must be at least 1, got 0"),
    (lambda m: make_model(5, 5, engine="fast"), "engine must be one of 'auto', .*; got 'fast'"),
    (lambda m: make_model(0, 5), "src_vocab must be at least 1, got 0"),
    (lambda m: make_model(6, 5, 1, shared=True), "one vocabulary, got src_vocab 6 and tgt_vocab 5"),
    (lambda m: setattr(m, "engine", "slow") or m(pool([[1]], [[0, 1]])), "engine must be .* 'slow'"),
    (lambda m: m.encoder.pre_func(2), r"i must lie in 0\.\.1, got 2"),
    (lambda m: m.encoder.post_func(-1), "i must be at least 0, got -1"),
    (lambda m: m.decoder.pre_func(0, "q", 2), r"l must be 0 .* or 1 .*, got 2"),
    (lambda m: m(pool([[VOCAB]], [[0, 1]])), rf"token id must lie in 0\.\.{VOCAB - 1}, got {VOCAB}"),
    model=small_model,
)
