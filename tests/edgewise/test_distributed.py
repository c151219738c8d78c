import math
import multiprocessing
import os
import socket
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from edgewise.training.launch import process_group

from edgewise.models.transformer import make_model
from edgewise.models.universal import make_universal_model
from edgewise.training import LOCAL, StoppedError, Trainer, TrainingConfig, launch
from edgewise.training.checkpoint_files import checkpoints, load_checkpoint
from edgewise.training.distributed import MismatchError, ProcessLostError
from processes import free_port, in_team, process, set_role, work
from support import SortingData, scale_states

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
    "two passes": (SMALL, replace(ODD, r_drop=2.0), 6),
    "halting": (ACT, ODD, 6),
    "PonderNet": (ACT | {"halting": "pondernet"}, ODD, 6),
}


def build(data, size, training):
    """A model of this size, from the seed of its training."""
    torch.manual_seed(training.seed)
    make = make_universal_model if "max_steps" in size else make_model
    return make(data.vocab_size, data.vocab_size, **{"dropout": 0.0} | size)


def course(team, folder, size, training, steps):
    """Train; return losses, weights, figures of the epochs and the log."""
    data = SortingData()
    data.splits["valid"] = data.splits["train"]  # whose last batch, too, one process may have nothing of
    run = Trainer(build(data, size, training), data, training, Path(folder), {}, communicator=team)
    run.start()
    run.train(steps)
    weights = {name: x.detach().numpy() for name, x in run.model.named_parameters()}
    return run.losses, weights, run.epochs, run.step


def courses(team, folder):
    return {name: course(team, Path(folder, name), *COURSES[name]) for name in COURSES}


@pytest.fixture(scope="module")
def in_one_and_two(tmp_path_factory):
    torch.set_num_threads(1)
    one = courses(LOCAL, tmp_path_factory.mktemp("one"))
    return one, in_team(courses, str(tmp_path_factory.mktemp("two")))


def without_key_biases(name, weight):
    """A bias of keys adds the same to all scores of a softmax: its gradient is zero, Adam follows noise."""
    if not name.endswith("in_proj.bias"):
        return torch.tensor(weight)
    q, _, v = torch.tensor(weight).chunk(3)
    return torch.cat([q, v])


@pytest.mark.proves(
    "12-beyond-one-machine", "two processes follow one through whole runs: losses to 1e-5, weights to 1e-4"
)
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
            assert theirs.get("steps", {}).keys() == ours.get("steps", {}).keys()
            for side, counts in ours.get("steps", {}).items():
                assert sum(theirs["steps"][side]) == sum(counts)
    assert team[0][name][2] == team[1][name][2]
    assert all((team[0][name][1][part] == team[1][name][1][part]).all() for part in weights)


def dropout_course(team, folder):
    """Train with dropout in two stages and in one; tell whether both end alike, and what was drawn."""
    outcomes = []
    size, training = SMALL | {"dropout": 0.3}, replace(PLAIN, epochs=1)
    for stops in ([2, None], [None]):
        target = Path(folder, str(len(stops)))
        for stop in stops:
            data = SortingData()
            model = build(data, size, training)
            run = Trainer(model, data, training, target, {}, communicator=team)
            run.start(resume=True)
            run.train(stop)
        weights = torch.cat([x.detach().flatten() for x in run.model.parameters()])
        outcomes.append((weights.tolist(), run.losses, run.epochs, torch.get_rng_state().tolist()))
    return outcomes[0] == outcomes[1], outcomes[1][3], outcomes[1][0]


@pytest.mark.proves(
    "12-beyond-one-machine", "each process samples its own dropout, and a resumed run goes on exactly"
)
def test_each_process_drops_by_itself_and_goes_on_exactly(tmp_path):
    (same, drawn, weights), (other_same, other_drawn, other_weights) = in_team(dropout_course, str(tmp_path))
    assert same
    assert other_same
    assert drawn != other_drawn
    assert weights == other_weights
    (path,) = checkpoints(tmp_path / "1" / "checkpoints")[-1:]
    assert len(load_checkpoint(path, {"processes": 2})["processes"]) == 2


def draw(team):
    torch.manual_seed(7)
    team.seed_by_rank(7)
    return torch.rand(3).tolist()


def test_the_first_process_keeps_its_seed_and_each_other_has_its_own():
    first, second, third = in_team(draw, size=3)
    torch.manual_seed(7)
    assert first == torch.rand(3).tolist()
    assert first != second != third != first


def differ(team):
    """Other data, other steps: what is said of each."""
    said = []
    for name in ("data", "steps"):
        try:
            team.assert_same({"training": {"seed": 0}, "steps": 1} | {name: team.rank})
        except MismatchError as error:
            said.append(str(error))
    team.assert_same({"data": "as there"})
    return said


def test_differences_are_named():
    first, second, third = in_team(differ, size=3)
    assert first == second == third
    assert first == [f"all processes must do the same, but {name} is 0 on rank 0 and 1 on rank 1"
                     for name in ("data", "steps")]  # fmt: skip


def lose(team):
    """The second process ends without a word; what the first one meets where it waits."""
    if team.rank == 1:
        os._exit(0)
    found = []
    weight = torch.nn.Linear(2, 1)
    for wait in (
        lambda: team.sum([1.0]),
        lambda: team.gather(torch.zeros(1)),
        lambda: team.assert_same({}),
        lambda: team.wrap(weight),
    ):
        try:
            wait()
        except ProcessLostError as error:
            found.append(str(error))
    return found


def test_a_lost_process_is_noticed_wherever_others_wait():
    ours, theirs = multiprocessing.Pipe(duplex=False)
    other, unused = multiprocessing.Pipe(duplex=False)
    port = free_port()
    ends = (theirs, unused)
    processes = [process(work, r, 2, port, ends[r], lose, ()) for r in (0, 1)]
    for each in processes:
        each.start()
    assert ours.poll(60)
    assert ours.recv() == ["another process of this run is gone: go on with --resume"] * 4
    other.close()
    for each in processes:
        each.join(60)


class TestJoining:
    @pytest.fixture
    def role(self, monkeypatch):
        given = {}
        set_role(given, 0, 2, free_port())
        for name, value in given.items():
            monkeypatch.setenv(name, value)
        monkeypatch.delenv("TORCHELASTIC_USE_AGENT_STORE", raising=False)
        return monkeypatch

    def refused(self, device, error, message):
        with pytest.raises(error, match=message) as caught, process_group(device):
            pass
        assert "\n" not in str(caught.value)
        assert not dist.is_initialized()

    def test_alone(self, monkeypatch):
        monkeypatch.delenv("WORLD_SIZE", raising=False)
        with process_group("cuda:1") as found:
            assert found == (LOCAL, "cuda:1")
        monkeypatch.setenv("WORLD_SIZE", "1")  # torchrun with one process is no team either
        with process_group("cpu") as found:
            assert found == (LOCAL, "cpu")

    def test_no_gpu(self, role):
        role.setattr(torch.cuda, "is_available", lambda: False)
        self.refused("cuda", ValueError, "needs NCCL and a GPU for each process, and here is none")

    def test_too_few_gpus(self, role):
        role.setattr(torch.cuda, "is_available", lambda: True)
        role.setattr(dist, "is_nccl_available", lambda: True)
        role.setattr(torch.cuda, "device_count", lambda: 1)
        self.refused("cuda", ValueError, "rank 0 of this machine has no GPU: 2 processes, 1 GPUs")

    @pytest.mark.parametrize("device", ["cuda:1", "mps", "gpu"])
    def test_a_device_that_cannot_be_shared_out(self, role, device):
        self.refused(device, ValueError, f"need --device cpu or --device cuda, got '{device}'")

    def test_a_port_in_use(self, role):
        with socket.socket() as other:
            other.bind(("", 0))
            other.listen()
            role.setenv("MASTER_PORT", str(other.getsockname()[1]))
            self.refused(
                "cpu", ConnectionError, "cannot meet at 127.0.0.1:.*the port is in use: name another"
            )

    @pytest.mark.parametrize(
        ("local", "command"),
        [("2", "torchrun --standalone --local-addr 127.0.0.1 --nproc-per-node 2"), ("1", "torchrun ...")],
        ids=["one machine", "several"],
    )
    def test_the_command_to_go_on_with(self, role, local, command):
        role.setenv("LOCAL_WORLD_SIZE", local)
        assert " ".join(launch._launcher(2)) == command

    def test_half_an_environment(self, role):
        role.delenv("RANK")
        self.refused(
            "cpu", ValueError, "RANK must be a number, got '': start several processes with torchrun"
        )

    @pytest.mark.parametrize("size", ["", "two"])
    def test_a_team_of_no_number(self, role, size):
        role.setenv("WORLD_SIZE", size)
        self.refused("cpu", ValueError, f"WORLD_SIZE must be a number, got '{size}'")

    def test_somebody_who_does_not_come(self, role):
        role.setattr(launch, "STEP_TIMEOUT", timedelta(seconds=2))
        role.setattr(launch, "_rendezvous", dist.HashStore)  # as under torchrun, where its own store is there
        self.refused("cpu", ConnectionError, "2 processes did not all come")


def stop_one(team, folder):
    """Ask one process alone to stop, at its third batch; tell where each of them stands then."""
    data = SortingData()
    model = build(data, SMALL, PLAIN)
    run = Trainer(model, data, PLAIN, Path(folder), {}, communicator=team)
    forward, seen = model.run, []

    def count(batch):
        seen.append(batch)
        run.stop_requested |= team.rank == 1 and len(seen) == 3
        return forward(batch)

    model.run = count
    run.start()
    try:
        run.train()
    except StoppedError:
        return run.step


def test_one_that_is_asked_to_stop_stops_all_of_them(tmp_path):
    assert in_team(stop_one, str(tmp_path)) == [2, 2]
    (path,) = checkpoints(tmp_path / "checkpoints")
    assert path.name == "step-00000002.safetensors"


def test_a_nan_loss_in_one_process_ends_all_alike(tmp_path):
    """At the same batch, with the same words."""
    said = in_team(diverge, str(tmp_path))
    assert said[0] == said[1]
    assert "the loss is nan at step 2, batch 3 of epoch 1" in said[0]


def diverge(team, folder):
    data = SortingData()
    training = replace(PLAIN, batch_size=10)
    model = build(data, SMALL, training)
    run = Trainer(model, data, training, Path(folder), {}, communicator=team)
    bad = math.nan if team.rank == 1 else 1.0
    scale_states(model, lambda: bad if run.step == 1 else 1.0)
    run.start()
    try:
        run.train()
    except Exception as error:
        return str(error)
