"""Chains of pointers: the task, the readers, and the study; and the training loop of small models."""

from dataclasses import replace

import pytest
import torch

from attention_on_edges.runs import chains as study
from attention_on_edges.runs.fitting import FitConfig, fit
from attention_on_edges.tutorial import NoamOpt


def chains(count=4, deepest=5, seed=0):
    return study.draw_chains(count, deepest, torch.Generator().manual_seed(seed))


def test_the_answer_is_the_value_at_the_end():
    batch = chains()
    mask, depths = batch.enc.to_mask(), []
    is_end, value = batch.symbols.T
    for token in range(4 * study.TOKENS):
        at, steps = token, 0
        while not is_end[at]:
            (at,), steps = [i for i in mask[at].nonzero()[:, 0].tolist() if i != at], steps + 1
        assert mask[at].nonzero().tolist() == [[at]]
        assert at // study.TOKENS == token // study.TOKENS
        assert (batch.answers[token], batch.depth[token]) == (value[at], steps)
        depths.append(steps)
    assert max(depths) == 5
    assert set(chains(8, 0).depth.tolist()) == {0}


def test_no_answer_is_known_before_its_depth():
    """With fewer steps than a token's depth, its state does not depend on the end of its chain."""
    batch, other = chains(), chains()
    end = batch.symbols[:, 0] == 1
    other.symbols[end, 1] = (batch.symbols[end, 1] + 1) % study.VALUES
    for steps in (1, 2, 3):
        model = study.ChainReader("fixed", steps, 0.0).eval()
        with torch.no_grad():
            same = (model.run(batch).hidden == model.run(other).hidden).all(1)
        assert torch.equal(same, batch.depth > steps)


@pytest.mark.parametrize("kind", ["act", "fixed", "ordinary"])
def test_training_is_repeatable_and_lowers_the_loss(kind):
    config = FitConfig(30, 4, rate=0.01, warmup=5)
    model, again = (study.train_chains(kind, 3, 0.01, config) for _ in range(2))
    batch = chains(20, 2, 9)
    found, steps = model.answer(batch)
    assert torch.equal(found, again.answer(batch)[0])
    untrained = study.train_chains(kind, 3, 0.01, FitConfig(0, 1))
    with torch.no_grad():
        assert model.loss(batch, 100) < untrained.loss(batch, 100) - 0.2
    assert 1 <= int(steps.min()) <= int(steps.max()) <= 3
    if kind in ("fixed", "ordinary"):
        assert set(steps.tolist()) == {3}


def test_the_study_tests_longer_chains_with_more_steps():
    row = study.measure_chains(FitConfig(2, 1), "fixed", 3, 0.0)
    assert (row["steps"], row["steps longer"]) == (3.0, 6.0)
    assert [len(row[f"right by depth{name}"]) for name in ("", " longer")] == [7, 13]
    assert row["rank"] == 0
    counts = chains(500, 6, 2_000_000).depth.bincount().double()
    mean = sum(c * x for c, x in zip(counts, row["right by depth"], strict=True)) / counts.sum()
    assert row["right"] == pytest.approx(float(mean))


class Straight(torch.nn.Module):
    """A loss whose slope is that of its batch: Adam's steps show the rate, and SGD's the gradient."""

    def __init__(self):
        super().__init__()
        self.x = torch.nn.Parameter(torch.zeros(()))

    def loss(self, batch, step):
        assert batch == step + 1
        return -batch * self.x


def test_the_loop_makes_adams_steps_of_the_schedules_lengths():
    """While gradients are equal, each of Adam's steps is as long as the rate; clipping makes them equal."""

    def batches(generator):
        assert generator.initial_seed() == 3
        yield from range(1, 100)

    cosine = FitConfig(20, 1, rate=0.1, warmup=5, seed=3)
    model, losses = fit(Straight, batches, cosine)
    rise = [0.2, 0.4, 0.6, 0.8, 1.0]
    fall = [0.5 + 0.5 * float(torch.cos(torch.tensor(torch.pi * i / 15))) for i in range(15)]
    moves = torch.tensor([0.1 * share for share in rise + fall])
    assert model.x.item() == pytest.approx(float(moves.sum()), rel=1e-4)
    places = [-loss / (i + 1) for i, loss in enumerate(losses)]
    torch.testing.assert_close(torch.tensor(places), moves.cumsum(0) - moves, rtol=1e-4, atol=1e-6)
    assert not model.training
    half, _ = fit(Straight, batches, replace(cosine, eps=1.0))  # where gradients are 1
    assert half.x.item() == pytest.approx(float(moves.sum()) / 2, rel=1e-4)
    ends = (fit(Straight, batches, replace(cosine, warmup=1, clip=clip))[0].x.item() for clip in (1.0, None))
    assert len(set(ends)) == 2
    root, noam = FitConfig(1, 1, warmup=5, decay="root"), NoamOpt(16, 1.0, 5, torch.optim.SGD([model.x]))
    shares = [noam.rate(i + 1) / noam.rate(5) for i in range(30)]
    assert [root.share(i) for i in range(30)] == pytest.approx(shares)
