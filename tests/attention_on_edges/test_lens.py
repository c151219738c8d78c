"""States read as words: they are those of a pass, and the shares are counted over every place."""

import pytest
import torch

from attention_on_edges.decoding import greedy
from attention_on_edges.models import dense
from attention_on_edges.runs import ModelConfig, lens
from attention_on_edges.runs.lens import as_words, decoder_states, encoder_states
from attention_on_edges.studies.cutting_edges import KINDS, CutTranslation

SOURCES = [[3, 4, 5, 6], [7, 3], [8, 9, 10, 4, 5], [11, 6, 6]]


@pytest.fixture(params=[True, False], ids=["pre-norm", "post-norm"])
def model(request):
    torch.manual_seed(2)
    config = ModelConfig(N=2, dim_model=16, dim_ff=16, h=2, shared=True, norm_first=request.param)
    model = config.build(12).eval().requires_grad_(False)
    model.generator.proj.bias.data[1] = 1.0  # some translations end, some do not
    return model


def test_states_are_those_of_the_pass(model):
    """What the parts of the model return while it runs in matrices."""
    source, read, seen = torch.tensor(SOURCES[0]), torch.tensor([0, 5, 7, 5]), []
    for layer in model.decoder.layers:
        for connection in layer.sublayer:
            connection.register_forward_hook(lambda _, given, found: seen.append((given[0][0], found[0])))
    memory = dense.encode(model, source[None])
    last = dense.decode(model, read[None], memory)
    passed = [seen[0][0], *(found for _, found in seen)]
    assert len(passed) == len(lens.rows_of(model)) == 7
    memories = encoder_states(model, source)
    torch.testing.assert_close(memories[-1], memory[0])
    torch.testing.assert_close(
        memories[0], model.encoder.norm(model.embed(model.src_embed, source, torch.arange(4)))
    )
    states = decoder_states(model, read, memories[-1])
    torch.testing.assert_close(states, torch.stack(passed))
    torch.testing.assert_close(as_words(model, states[-1]), model.generator(last)[0])


def test_a_cut_is_that_of_all_layers_and_heads(model):
    sentence = CutTranslation(model, SOURCES[0])
    kind, _, _, receiver, sender = sentence.edges.T
    for cut in ((0, 2), (1, 3)):
        kept = ~((kind == KINDS.index("e2d")) & (receiver == cut[0]) & (sender == cut[1]))
        assert int((~kept).sum()) == 4  # layers times heads
        states = decoder_states(model, sentence.read, encoder_states(model, sentence.source)[-1], cut)
        torch.testing.assert_close(as_words(model, states[-1]), sentence.log_probs(kept[None])[0])


def test_translations_are_greedy(model):
    found = greedy(model, SOURCES, 0, 1)
    assert {one.finished for one in found} == {True, False}
    for source, one in zip(SOURCES, found, strict=True):
        assert tuple(lens.translate_from(model, encoder_states(model, torch.tensor(source))[-1])) == one.ids


def test_shares_are_counted_over_every_place(model):
    rows = lens.measure_lens(model, SOURCES)
    decoder, encoder = ([row for row in rows if row["side"] == side] for side in ("decoder", "encoder"))
    assert [(row["layer"], row["after"]) for row in decoder] == lens.rows_of(model)
    counts, places = torch.zeros(7, 2), 0
    for source, found in zip(SOURCES, greedy(model, SOURCES, 0, 1), strict=True):
        tokens = [0, *found.ids, 1] if found.finished else [0, *found.ids]
        memory = encoder_states(model, torch.tensor(source))[-1]
        words = as_words(model, decoder_states(model, torch.tensor(tokens[:-1]), memory)).argmax(-1).tolist()
        for row, line in enumerate(words):
            for word, old, new in zip(line, tokens[:-1], tokens[1:], strict=True):
                counts[row] += torch.tensor([word == old, word == new])
        places += len(tokens) - 1
    for row, expected in zip(decoder, (counts / places).tolist(), strict=True):
        assert [row["read"], row["next"]] == pytest.approx(expected)
        assert row["places"] == places
    assert decoder[-1]["next"] == 1
    assert encoder[-1]["same"] == 1
    assert all(row["same"] * len(SOURCES) % 1 == 0 for row in encoder)
