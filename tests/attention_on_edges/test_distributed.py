import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from attention_on_edges.models.sparse_translator import on_source_graph
from attention_on_edges.models.transformer import make_model
from attention_on_edges.models.universal import make_universal_model
from attention_on_edges.pool import GraphPool
from attention_on_edges.training import StoppedError, Trainer, TrainingConfig, distributed
from attention_on_edges.training.checkpoint_files import checkpoints
from attention_on_edges.training.distributed import assert_same, process_group, rank, seed_by_rank
from book_support import scale_states, small_model, sorting_data
from processes import free_port, in_team, set_role

PLAIN = TrainingConfig(epochs=50, batch_size=7, warmup=20, factor=0.3, grad_accum=2, clip=1.0)
"""44 sentences make seven batches per epoch, the last one smaller and an update of its own."""

SMALL = {"N": 1, "dim_model": 8, "dim_ff": 8, "h": 2}

ACT = {"max_steps": 3, "dim_model": 8, "dim_ff": 8, "h": 2, "dropout": 0.0, "bias": 0.0, "ponder_weight": 0.1}

ODD = replace(PLAIN, batch_size=43, grad_accum=1)
"""A batch of one sentence, of which one of two processes has nothing."""

COURSES = {
    "accumulated": (SMALL, PLAIN, 50),
    "by tokens": (
        SMALL | {"shared": True},
        replace(PLAIN, batch_size=None, batch_tokens=12, bucketed=True, grad_accum=4),
        9,
    ),
    "one sentence": (SMALL, ODD, 6),
    "halting": (ACT, ODD, 6),
}


def begin(folder, size, training):
    """A run of this size, from the seed of its training."""
    data = sorting_data()
    data.splits["valid"] = data.splits["train"]  # whose last batch, too, one process may have nothing of
    torch.manual_seed(training.seed)
    make = make_universal_model if "max_steps" in size else make_model
    model = make(data.vocab_size, data.vocab_size, **{"dropout": 0.0} | size)
    run = Trainer(model, data, training, Path(folder), {})
    run.start(resume=True)
    return run


def courses(folder):
    """Train each; return losses, weights, figures of the epochs and updates."""
    found = {}
    for name, (size, training, steps) in COURSES.items():
        run = begin(Path(folder, name), size, training)
        run.train(steps)
        weights = {part: x.detach().numpy() for part, x in run.model.named_parameters()}
        found[name] = run.losses, weights, run.epochs, run.step
    return found


@pytest.fixture(scope="module")
def in_one_and_two(tmp_path_factory):
    return courses(tmp_path_factory.mktemp("one")), in_team(courses, str(tmp_path_factory.mktemp("two")))


def without_key_biases(name, weight):
    """A bias of keys adds the same to all scores of a softmax: its gradient is zero, Adam follows noise."""
    if not name.endswith("in_proj.bias"):
        return torch.tensor(weight)
    q, _, v = torch.tensor(weight).chunk(3)
    return torch.cat([q, v])


@pytest.mark.parametrize("name", COURSES)
def test_two_processes_with_half_of_each_batch_are_one_with_the_whole(name, in_one_and_two):
    alone, team = in_one_and_two
    losses, weights, epochs, steps = alone[name]
    assert steps == COURSES[name][2]
    for other_losses, other_weights, other_epochs, other_steps in (found[name] for found in team):
        assert other_steps == steps
        torch.testing.assert_close(torch.tensor(other_losses), torch.tensor(losses), atol=1e-5, rtol=0)
        for part, weight in weights.items():
            pair = without_key_biases(part, other_weights[part]), without_key_biases(part, weight)
            torch.testing.assert_close(*pair, atol=1e-4, rtol=0, msg=lambda text, part=part: part + text)
        for theirs, ours in zip(other_epochs, epochs, strict=True):
            assert theirs["valid"] == pytest.approx(ours["valid"], abs=1e-3)
            for side, counts in ours.get("steps", {}).items():
                assert sum(theirs["steps"][side]) == sum(counts)
    assert all((team[0][name][1][part] == team[1][name][1][part]).all() for part in weights)


def with_dropout(folder):
    """Train in two stages and in one; return losses, weights and what was drawn, of both."""
    outcomes = []
    for stops in ([2, None], [None]):
        for stop in stops:
            run = begin(Path(folder, str(len(stops))), SMALL | {"dropout": 0.3}, replace(PLAIN, epochs=1))
            run.train(stop)
        weights = torch.cat([x.detach().flatten() for x in run.model.parameters()]).tolist()
        outcomes.append((run.losses, weights, torch.get_rng_state().tolist()))
    return outcomes


def test_each_process_drops_by_itself_and_goes_on_exactly(tmp_path):
    (first, again), (other_first, other_again) = in_team(with_dropout, str(tmp_path))
    assert first == again
    assert other_first == other_again
    assert first[:2] == other_first[:2]
    assert first[2] != other_first[2]


def draw_and_differ():
    torch.manual_seed(7)
    seed_by_rank(7)
    try:
        assert_same({"data": "as there", "training": {"seed": rank()}})
    except ValueError as error:
        return torch.rand(1).item(), str(error)


def test_seeds_differ_and_other_differences_are_named():
    drawn, messages = zip(*in_team(draw_and_differ, size=3), strict=True)
    torch.manual_seed(7)
    assert len({*drawn}) == 3
    assert drawn[0] == torch.rand(1).item()
    message = "all processes must do the same, but training.seed is 0 on rank 0 and 1 on rank 1"
    assert messages == (message,) * 3


def stop_one(folder):
    """Ask one process alone to stop, at its third batch; tell where each of them stands then."""
    run, seen = begin(folder, SMALL, PLAIN), []

    def count():
        seen.append(1)
        run.stop_requested |= rank() == 1 and len(seen) == 3
        return 1

    scale_states(run.model, count)
    try:
        run.train()
    except StoppedError:
        return run.step


def test_one_that_is_asked_to_stop_stops_and_saves_all_of_them(tmp_path):
    assert in_team(stop_one, str(tmp_path)) == [2, 2]
    assert [path.name for path in checkpoints(tmp_path / "checkpoints")] == ["step-00000002.pt"]


def diverge(folder):
    run = begin(folder, SMALL, PLAIN)
    scale_states(run.model, lambda: math.nan if rank() == run.step == 1 else 1.0)
    try:
        run.train()
    except Exception as error:
        return str(error)


def test_a_nan_loss_in_one_process_ends_all_alike(tmp_path):
    assert in_team(diverge, str(tmp_path)) == ["the loss is nan after step 1, in epoch 1"] * 2


def test_processes_need_a_device_that_can_be_shared_out(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with process_group("cuda:1") as device:
        assert device == "cuda:1"
    given = {}
    set_role(given, 0, 2, free_port())
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    with (
        pytest.raises(ValueError, match="need --device cpu or --device cuda, got 'mps'"),
        process_group("mps"),
    ):
        pass
    monkeypatch.setenv("RANK", "2")
    with pytest.raises(ConnectionError, match=r"RANK must lie in 0\.\.1, got 2"), process_group("cpu"):
        pass


def test_models_of_which_a_batch_needs_a_part_are_trained_in_parallel(process_group, monkeypatch):
    monkeypatch.setattr(distributed, "world_size", lambda: 2)
    model = on_source_graph(small_model(), "window", 1)
    call = distributed.parallel(model, lambda model, batch: model.hidden(batch).sum())
    for _ in range(2):
        call(GraphPool()([[3, 4, 5]], [[0, 5, 6]])).backward()
    assert model.span.grad is None
