"""Circuits: edges that are enough for a translation, and edges that it needs, by ablation."""

import pytest
import torch

from attention_on_edges.runs import ModelConfig
from attention_on_edges.studies.cutting_edges import ABLATIONS, CutTranslation, ablating, mean_values, prune
from attention_on_edges.studies.enough_edges import by_ablation
from attention_on_edges.studies.specific_edges import choices, need, smallest, winning


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
            assert sentence.unchanged(own[None])
            assert one["edges"] == int(own.sum())
            assert one["enough"] == bool(sentence.unchanged(kept[None]))
            changed = [name for name, part in of.items() if not sentence.unchanged(~(own & part)[None])]
            assert one["needed"] == changed


def test_one_place_is_predicted_as_in_the_whole_translation(sentence):
    """Edges of receivers that come later than a place make no difference to it."""
    rows = {tuple(edge): i for i, edge in enumerate(sentence.edges.tolist())}
    kept = torch.rand(3, len(rows), generator=torch.Generator().manual_seed(0)) < 0.5
    for place, piece in enumerate(sentence.next.tolist()):
        at_place = sentence.one_place(place, piece)
        here = torch.tensor([rows[tuple(edge)] for edge in at_place.edges.tolist()])
        torch.testing.assert_close(
            at_place.log_probs(kept[:, here])[:, 0], sentence.log_probs(kept)[:, place]
        )
        assert torch.equal(at_place.predicted(kept[:, here])[:, 0], sentence.predicted(kept)[:, place])
        torch.testing.assert_close(at_place.weights, sentence.weights[here])


@pytest.mark.parametrize("how", ["cut", "mean"])
def test_a_smallest_set_is_pruned_from_one_in_which_the_piece_wins(sentence, means, how):
    found, climbed = 0, 0
    for piece in range(12):
        at_place = sentence.one_place(2, piece)
        order = at_place.weights.argsort()
        with ablating(sentence.model, how, means):
            row = smallest(at_place, order, seed=piece)
            start, climbs = winning(at_place, torch.Generator().manual_seed(piece))
            if start is None:
                assert "edges" not in row
                continue
            assert at_place.unchanged(start[None])
            kept = prune(at_place, order, start)
            assert at_place.unchanged(kept[None])
            probability = at_place.log_probs(kept[None])[0, 0, piece].exp().item()
        assert (row["edges"], row["climbs"]) == (int(kept.sum()), climbs)
        assert row["probability"] == pytest.approx(probability)
        found, climbed = found + 1, climbed + bool(climbs)
    assert found > climbed > 0


def test_words_differ_and_the_own_one_is_the_models_choice(sentence):
    other = CutTranslation(sentence.model, [7, 8, 9])
    for place, piece in enumerate(sentence.ids):
        found = choices([sentence, other], 0, place, torch.Generator().manual_seed(0))
        assert len({*found.values()}) == len(found)
        assert found["own"] == piece
        assert found.get("of the sentence", piece) in sentence.ids
        assert found.get("random", other.ids[0]) in other.ids


def test_matches_of_a_circuit(sentence):
    tried, unchanged = [], sentence.unchanged
    sentence.unchanged = lambda kept: tried.append(kept) or unchanged(kept)
    row = need(sentence)
    del sentence.unchanged
    circuit, paired, *matches = ~tried[-1]
    assert int(circuit.sum()) == row["edges"]
    assert row["circuit"]
    for chosen in matches:
        assert not bool((chosen & circuit).any())
        assert int(chosen.sum()) == int(paired.sum()) == row["pairs"]
        alike = [sentence.edges[part][:, :4].tolist() for part in (paired, chosen)]
        assert sorted(alike[0]) == sorted(alike[1])
