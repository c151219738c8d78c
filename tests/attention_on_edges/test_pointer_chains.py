"""Chains of pointers: the task, the readers, and the study."""

import pytest
import torch

from attention_on_edges.analysis.pointer_chains import (
    MODELS,
    TOKENS,
    ChainConfig,
    ChainReader,
    draw_chains,
    rank_correlation,
    train_chains,
)
from attention_on_edges.experiments import get_study
from attention_on_edges.experiments.chain_study import KINDS, ChainRun


def chains(count=4, deepest=5, seed=0):
    return draw_chains(count, deepest, torch.Generator().manual_seed(seed))


def test_the_answer_is_the_value_at_the_end():
    batch = chains()
    mask, depths = batch.enc.to_mask(), []
    is_end, value = batch.symbols.T
    for token in range(4 * TOKENS):
        at, steps = token, 0
        while True:
            senders = mask[at].nonzero()[:, 0].tolist()
            assert at in senders
            others = [i for i in senders if i != at]
            assert bool(is_end[at]) == (not others)
            if not others:
                break
            (at,), steps = others, steps + 1
        assert at // TOKENS == token // TOKENS
        assert batch.answers[token] == value[at]
        assert batch.depth[token] == steps
        depths.append(steps)
    assert max(depths) == 5
    assert set(chains(8, 0).depth.tolist()) == {0}


def test_no_answer_is_known_before_its_depth():
    """With fewer steps than a token's depth, its state does not depend on the end of its chain."""
    batch = chains()
    end = batch.symbols[:, 0] == 1
    other = torch.where(end, (batch.symbols[:, 1] + 1) % 16, batch.symbols[:, 1])
    for steps in (1, 2, 3):
        torch.manual_seed(0)
        model = ChainReader("fixed", steps, 0.0).eval()
        with torch.no_grad():
            before = model.run(batch).hidden
            batch.symbols[:, 1], kept = other, batch.symbols[:, 1].clone()
            after = model.run(batch).hidden
            batch.symbols[:, 1] = kept
        same = (before == after).all(1)
        assert torch.equal(same, batch.depth > steps)


@pytest.mark.parametrize("kind", MODELS)
def test_training_is_repeatable_and_lowers_the_loss(kind):
    config = ChainConfig(updates=40, graphs=4, deepest=2, warmup=5)
    model, again = (train_chains(kind, 3, 0.01, config) for _ in range(2))
    batch = chains(20, 2, 9)
    found, steps = model.answer(batch)
    assert torch.equal(found, again.answer(batch)[0])
    untrained = train_chains(kind, 3, 0.01, ChainConfig(updates=1, graphs=1, rate=1e-9))
    with torch.no_grad():
        assert model.loss(batch, 100) < untrained.loss(batch, 100) - 0.2
    assert 1 <= int(steps.min()) <= int(steps.max()) <= 3
    if kind in ("fixed", "ordinary"):
        assert set(steps.tolist()) == {3}


@pytest.mark.parametrize(
    ("one", "two", "expected"),
    [
        ([1, 2, 3], [4, 5, 9], 1.0),
        ([1, 2, 3], [3, 2, 1], -1.0),
        ([1, 1, 2, 2], [0, 1, 2, 3], 0.8944272),  # ties share their mean rank
        ([1, 1, 1], [1, 2, 3], 0.0),
    ],
)
def test_rank_correlation(one, two, expected):
    assert rank_correlation(torch.tensor(one), torch.tensor(two)) == pytest.approx(expected)


def test_the_study_tests_longer_chains_with_more_steps():
    run = ChainRun("x", "fixed", 3, 0.0, ChainConfig(updates=2, graphs=1, deepest=6))
    row = run.figures()
    assert (row["steps"], row["steps longer"]) == (3.0, 6.0)
    assert [len(row[f"right by depth{name}"]) for name in ("", " longer")] == [7, 13]
    assert row["rank"] == 0
    batch = draw_chains(500, 6, torch.Generator().manual_seed(2_000_000))
    counts = batch.depth.bincount().double()
    mean = sum(c * x for c, x in zip(counts, row["right by depth"], strict=True)) / counts.sum()
    assert row["right"] == pytest.approx(float(mean))
    entries = get_study("chains").entries
    assert len(entries) == 3 * len(KINDS)
    assert len({(e.training.updates, e.training.graphs, e.training.rate) for e in entries}) == 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: train_chains("lstm", 2), "kind must be one of 'act', 'pondernet', 'fixed', 'ordinary'"),
        (lambda: train_chains("act", 0), "steps must be at least 1, got 0"),
        (lambda: ChainRun("x", "lstm", 2, 0.0, ChainConfig()), "model must be one of"),
        (lambda: ChainConfig(graphs=0), "graphs must be at least 1, got 0"),
        (lambda: chains(0), "count must be at least 1, got 0"),
        (lambda: ChainRun("x", "act", 2, 0.0, ChainConfig()).figures("cuda"), "device must be cpu"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()
