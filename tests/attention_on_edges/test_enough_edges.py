"""Circuits: edges that are enough for a translation, and edges that it needs, by ablation."""

import pytest
import torch

from attention_on_edges.runs import ModelConfig
from attention_on_edges.studies.cutting_edges import ABLATIONS, CutTranslation, ablating, mean_values, prune
from attention_on_edges.studies.enough_edges import by_ablation


@pytest.fixture(scope="module")
def sentence():
    torch.manual_seed(1)
    model = ModelConfig(N=2, dim_model=16, dim_ff=16, h=2, shared=True).build(12).eval().requires_grad_(False)
    return CutTranslation(model, [3, 4, 5, 6])


@pytest.fixture(scope="module")
def means(sentence):
    return mean_values(sentence.model, [sentence])


def under(sentence, means, how, kept):
    with ablating(sentence.model, how, means):
        return sentence.log_probs(kept[None])


@pytest.mark.parametrize("how", ABLATIONS)
def test_with_all_edges_kept_no_ablation_changes_anything(sentence, means, how):
    everything = torch.ones(len(sentence.edges), dtype=torch.bool)
    torch.testing.assert_close(under(sentence, means, how, everything), sentence.log_probs(everything[None]))


def test_nothing_left_is_no_message_the_own_value_or_the_mean(sentence, means):
    nothing = torch.zeros(len(sentence.edges), dtype=torch.bool)
    own = (sentence.edges[:, 0] != 1) & (sentence.edges[:, 3] == sentence.edges[:, 4])
    cut, zero, self_, mean = (under(sentence, means, how, nothing) for how in ABLATIONS)
    torch.testing.assert_close(zero, cut)
    torch.testing.assert_close(self_, under(sentence, means, "cut", own))
    model, attention = sentence.model, sentence.model.encoder.layers[0].self_attn
    x = sentence._embedded(model.src_embed, sentence.source, 1)
    values = attention.get(model.encoder.layers[0].sublayer[0].norm(x), "kv")["v"][0]  # [n, h, d_k]
    torch.testing.assert_close(means[0], values.mean(0))
    assert not torch.allclose(mean, zero)


def test_what_becomes_of_one_edge_is_its_weight_times_another_value(sentence, means):
    """In one layer: the output of the first attention differs by weight times the difference of values."""
    attention, (x,) = sentence.model.encoder.layers[0].self_attn, torch.randn(1, 1, 4, 16)
    kept = torch.ones(1, 2, 4, 4, dtype=torch.bool)
    kept[0, 1, 2, 3] = False  # in head 1, token 2 attends to token 3
    whole, weights = attention(x)
    values = attention.get(x, "kv")["v"][0, :, 1]
    for how, instead in (("zero", 0.0), ("self", values[2]), ("mean", means[0][1])):
        with ablating(sentence.model, how, means):
            change = attention(x, mask=kept)[0] - whole
        heads = torch.zeros(1, 4, 2, 8)
        heads[0, 2, 1] = weights[0, 1, 2, 3] * (instead - values[3])
        torch.testing.assert_close(change, heads.flatten(-2) @ attention.out_proj.weight.T)


def test_circuits_are_enough_under_their_own_ablation_and_parts_are_told(sentence, means):
    kept = prune(sentence, sentence.weights.argsort())
    found = by_ablation(sentence, kept, means)
    assert [*found] == [*ABLATIONS]
    assert found["cut"]["edges"] == int(kept.sum())
    assert found["cut"]["enough"]
    kind, layer = sentence.edges[:, 0], sentence.edges[:, 1]
    of = {"all": kind >= 0, "e2e": kind == 0, "e2d": kind == 1, "d2d": kind == 2}
    of |= {"layer 0": layer == 0, "layer 1": layer == 1}
    for how, one in found.items():
        with ablating(sentence.model, how, means):
            own = kept if how == "cut" else prune(sentence, sentence.weights.argsort())
            assert sentence.keeps(own[None])
            assert one["edges"] == int(own.sum())
            assert one["enough"] == bool(sentence.keeps(kept[None]))
            changed = [name for name, part in of.items() if not sentence.keeps(~(own & part)[None])]
            others = sentence.weights.masked_fill(own, -1).topk(int(own.sum())).indices
            left = torch.ones_like(own).index_fill(0, others, False)
            assert ("heaviest others" in one["needed"]) != bool(sentence.keeps(left[None]))
            assert [name for name in one["needed"] if name in of] == changed
