import json
import math
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from edgewise import __main__ as cli
from edgewise import distributed, experiments, tasks
from edgewise.checkpoints import CheckpointError, checkpoints, load_tensors
from edgewise.commands import running
from edgewise.distributed import LostError, joined, joining
from edgewise.experiments import Experiment, Size, Universal
from edgewise.graphs import GraphPool
from edgewise.tasks import TranslationDataset
from edgewise.trainer import ALONE, Recipe, Run, StoppedError
from hypothesis import given
from hypothesis import strategies as st
from support import FEW, process
from test_trainer import small_data

TESTS = Path(__file__).parent


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def set_role(monkey, rank, size, port):
    """Give the environment that ``torchrun`` gives."""
    roles = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size}
    for name, value in (roles | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}).items():
        monkey[name] = str(value)


def work(rank, size, port, pipe, function, arguments):
    set_role(os.environ, rank, size, port)
    torch.set_num_threads(1)
    with joined("cpu") as (team, _):
        pipe.send(function(team, *arguments))


def in_team(function, *arguments, size=2):
    """Run ``function(team, *arguments)`` in several processes; return what each of them made of it."""
    port, pipes, processes = free_port(), [], []
    for rank in range(size):
        ours, theirs = multiprocessing.Pipe(duplex=False)
        processes.append(process(work, rank, size, port, theirs, function, arguments))
        processes[-1].start()
        theirs.close()
        pipes.append(ours)
    results = [pipe.recv() if pipe.poll(300) else None for pipe in pipes]
    for each in processes:
        each.join(60)
    assert [each.exitcode for each in processes] == [0] * size
    return results


PLAIN = Recipe(epochs=50, batch_size=7, warmup=20, factor=0.3, grad_accum=2, clip=1.0)
"""44 sentences make seven batches per epoch, the last one smaller and an update of its own."""

SMALL = Size(N=1, dim_model=8, dim_ff=8, h=2)

ACT = Universal(max_steps=3, dim_model=8, dim_ff=8, h=2, bias=0.0, ponder_weight=0.1)

ODD = replace(PLAIN, batch_size=43, grad_accum=1)
"""A batch of one sentence, of which one of two processes has nothing."""

COURSES = {
    "accumulated": (SMALL, PLAIN, 50),
    "by tokens": (
        replace(SMALL, shared=True),
        replace(PLAIN, batch_size=None, batch_tokens=12, bucketed=True, grad_accum=4),
        9,
    ),
    "two passes": (SMALL, replace(ODD, consistency=2.0), 6),
    "halting": (ACT, ODD, 6),
    "PonderNet": (replace(ACT, halting="pondernet"), ODD, 6),
}


def course(team, folder, size, recipe, steps):
    """Train; return losses, weights, figures of the epochs and the log."""
    data = small_data()
    data.splits["valid"] = data.splits["train"]  # whose last batch, too, one process may have nothing of
    experiment = Experiment("small", "", "sort", size, recipe)
    run = Run(experiment.build(data.vocab_size), data, recipe, Path(folder), {}, team=team)
    run.start()
    run.train(steps)
    weights = {name: x.detach().numpy() for name, x in run.model.named_parameters()}
    return run.losses, weights, run.epochs, run.step


def courses(team, folder):
    return {name: course(team, Path(folder, name), *COURSES[name]) for name in COURSES}


@pytest.fixture(scope="module")
def in_one_and_two(tmp_path_factory):
    torch.set_num_threads(1)
    one = courses(ALONE, tmp_path_factory.mktemp("one"))
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


pairs = st.lists(st.integers(1, 9), min_size=1, max_size=30)


@pytest.mark.proves(
    "12-beyond-one-machine", "batch for batch, the shares of all processes are what one process reads"
)
@given(pairs, st.integers(2, 5), st.integers(1, 40), st.booleans(), st.integers(0, 3))
def test_every_example_is_seen_once_over_all_processes(lengths, size, budget, bucketed, seed):
    """Batch for batch the shares are what one process gets, each sentence in one of them."""
    splits = {"train": [([str(i)], ["x"] * n) for i, n in enumerate(lengths)]}
    symbols = ["x", *map(str, range(len(lengths)))]

    def epochs(share):
        data = TranslationDataset(splits, symbols, seed)
        for _ in range(2):
            for batch in data(GraphPool(), "train", budget, share=share):
                yield [] if batch.stand_in else data.decode(batch.src[0].tolist())
            for batch in data.by_tokens(GraphPool(), "train", budget, bucketed, share=share):
                yield [] if batch.stand_in else data.decode(batch.src[0].tolist())

    whole = [sorted(batch) for batch in epochs((0, 1))]
    shares = zip(*(epochs((rank, size)) for rank in range(size)), strict=True)
    assert [sorted(name for part in parts for name in part) for parts in shares] == whole
    names = sorted(symbols[1:])
    assert sorted(name for batch in whole for name in batch) == sorted(names * 4)


def test_shares_of_a_batch_are_about_as_long():
    lengths = torch.randint(1, 60, (128,)).tolist()
    data = TranslationDataset({"train": [(["x"], ["x"] * n) for n in lengths]}, ["x"])
    tokens = [next(data(GraphPool(), "train", 128, share=(rank, 4))).n_tokens for rank in range(4)]
    assert max(tokens) - min(tokens) < 60


def dropout_course(team, folder):
    """Train with dropout in two stages and in one; tell whether both end alike, and what was drawn."""
    outcomes = []
    size, recipe = replace(SMALL, dropout=0.3), replace(PLAIN, epochs=1)
    for stops in ([2, None], [None]):
        target = Path(folder, str(len(stops)))
        for stop in stops:
            data = small_data()
            model = Experiment("small", "", "sort", size, recipe).build(data.vocab_size)
            run = Run(model, data, recipe, target, {}, team=team)
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
    assert len(load_tensors(path)[1]["tree"]["team"]) == 2


TINY = Experiment(
    "copy",
    "A tiny one, in several processes.",
    "copy",
    Size(N=1, dim_model=8, dim_ff=8, h=1, dropout=0.1),
    Recipe(epochs=2, batch_size=20, warmup=20),
)


def call(rank, size, port, words, folder, seeds):
    """The command line as one of several processes, its errors in a file."""
    set_role(os.environ, rank, size, port)
    os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "True"
    with open(Path(folder, f"errors-{rank}"), "w") as errors:
        os.dup2(errors.fileno(), 2)
    torch.set_num_threads(1)
    seed = replace(TINY.recipe, seed=seeds[rank])
    experiments.EXPERIMENTS["copy"], tasks.SIZES = replace(TINY, recipe=seed), FEW
    cli.app(words)


def call_all(words, folder, seeds=(0, 0)):
    """Exit codes of the processes, and the errors that they wrote; the store is here, as with torchrun."""
    port, size = free_port(), len(seeds)
    store = dist.TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False)
    rest = (size, port, [str(word) for word in words], folder, seeds)
    processes = [process(call, rank, *rest) for rank in range(size)]
    for each in processes:
        each.start()
    for each in processes:
        each.join(300)
    lines = [Path(folder, f"errors-{rank}").read_text().splitlines() for rank in range(size)]
    del store
    codes = [each.exitcode for each in processes]
    return codes, [line for part in lines for line in part if line.startswith("error: ")]


def test_processes_that_would_not_do_the_same_are_refused_in_one_line(tmp_path):
    codes, lines = call_all(["train", "copy", "--out", tmp_path / "run"], tmp_path, seeds=(0, 1))
    assert codes == [1, 1]
    assert lines == ["error: all processes must do the same, but recipe.seed is 0 on rank 0 and 1 on rank 1"]
    assert not checkpoints(tmp_path / "run" / "checkpoints")


def differ(team):
    """Other data, other steps: what is said of each."""
    said = []
    for name in ("data", "steps"):
        try:
            team.agree({"recipe": {"seed": 0}, "steps": 1} | {name: team.rank})
        except distributed.DisagreementError as error:
            said.append(str(error))
    team.agree({"data": "as there"})
    return said


def test_differences_are_named():
    first, second, third = in_team(differ, size=3)
    assert first == second == third
    assert first == [f"all processes must do the same, but {name} is 0 on rank 0 and 1 on rank 1"
                     for name in ("data", "steps")]  # fmt: skip


@pytest.mark.proves("12-beyond-one-machine", "the first process alone writes log, checkpoint and artifact")
def test_the_first_process_alone_writes(tmp_path, monkeypatch):
    """Artifact, log and checkpoint come once; a folder in use and a run that is there are one line each."""
    monkeypatch.setattr(tasks, "SIZES", FEW)
    words = ["train", "copy", "--out", tmp_path / "run"]
    assert call_all([*words, "--steps", 3], tmp_path) == ([0, 0], [])
    codes, lines = call_all(words, tmp_path)
    assert codes == [1, 1]
    assert len(lines) == 1
    assert "holds a run already" in lines[0]
    with pytest.raises(CheckpointError, match="processes is 2 there and 1 here"):
        experiments.start(TINY, tmp_path / "run", resume=True)
    assert call_all([*words, "--resume"], tmp_path) == ([0, 0], [])
    steps = [
        json.loads(line)["step"] for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    ]
    assert steps == [*range(1, 10), 9, *range(10, 19), 18]
    provenance = json.loads((tmp_path / "run" / "artifact" / "provenance.json").read_text())
    assert provenance["processes"] == 2
    with running.alone(tmp_path / "run"):
        codes, lines = call_all([*words, "--resume"], tmp_path)
    assert codes == [1, 1]
    assert len(lines) == 1
    assert "another process trains in" in lines[0]


def test_the_first_process_alone_says_what_takes_long(tmp_path, monkeypatch):
    monkeypatch.setenv("EDGEWISE_CACHE", str(tmp_path / "cache"))
    words = ["train", "wmt14", "--small", "--steps", 1, "--out", tmp_path / "run"]
    assert call_all(words, tmp_path) == ([0, 0], [])
    first, second = (Path(tmp_path, f"errors-{rank}").read_text() for rank in range(2))
    for line in ("learning 400 pieces", "splitting the training text"):
        assert first.count(line) <= 1  # none, if the other process had done it before this one asked
        assert line not in second


def test_wrong_usage_is_said_once_a_machine(tmp_path):
    codes, lines = call_all(["train", "copy", "--device", "cpu", "--nothing"], tmp_path)
    assert codes == [2, 2]
    assert len(lines) == 1


WORKER = """
import os, sys, time
from pathlib import Path
from edgewise import __main__ as cli, experiments, tasks
from edgewise.trainer import Run
from support import FEW
from test_distributed import TINY
experiments.EXPERIMENTS["copy"], tasks.SIZES = TINY, FEW
Path(sys.argv.pop(), os.environ["RANK"]).write_text(str(os.getpid()))
log = Run._log
Run._log = lambda run, **facts: (log(run, **facts), time.sleep(0.2))
cli.app()
"""


@pytest.mark.proves(
    "12-beyond-one-machine",
    "a killed process ends the job; resumed, the run ends with the same bytes as one left alone",
)
def test_a_process_that_is_killed_ends_the_job_and_the_run_goes_on(tmp_path):
    (tmp_path / "worker.py").write_text(WORKER)
    (tmp_path / "pids").mkdir()
    words = ["train", "copy", "--out", str(tmp_path / "run"), "--resume"]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1"]
    path = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    job = subprocess.Popen(
        [*torchrun, "--nproc-per-node", "2", str(tmp_path / "worker.py"), *words, str(tmp_path / "pids")],
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": path},
        stderr=subprocess.PIPE,
        text=True,
    )
    log, deadline = tmp_path / "run" / "metrics.jsonl", time.monotonic() + 120
    while not (log.exists() and '"step": 12,' in log.read_text()) and time.monotonic() < deadline:
        assert job.poll() is None, job.stderr.read()
        time.sleep(0.02)
    os.kill(int((tmp_path / "pids" / "1").read_text()), signal.SIGKILL)
    killed = time.monotonic()
    _, errors = job.communicate(timeout=90)
    assert time.monotonic() - killed < 60
    assert job.returncode != 0
    lines = [line for line in errors.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1, errors
    assert "another process of this run is gone" in lines[0]
    assert call_all(words, tmp_path) == ([0, 0], [])
    assert call_all(["train", "copy", "--out", tmp_path / "whole"], tmp_path) == ([0, 0], [])
    for part in ("metrics.jsonl", "artifact/model.safetensors"):
        assert (tmp_path / "run" / part).read_bytes() == (tmp_path / "whole" / part).read_bytes()


WAITS = "import signal, sys; print(*sys.argv[1:], file=sys.stderr, flush=True); signal.pause()"


def test_a_command_of_the_page_that_takes_too_long_shows_what_it_printed(tmp_path):
    twin = json.loads((TESTS.parent / "book" / "12-beyond-one-machine.ipynb").read_text("utf-8"))
    sources = ["".join(cell["source"]) for cell in twin["cells"]]
    imports, both = (text for text in sources if text.startswith(("# @title Imports", "# @title Run both")))
    for folder in ("edgewise", "torch", "torch/distributed"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "__init__.py").touch()
    (tmp_path / "torch" / "distributed" / "run.py").write_text(WAITS)
    exec(imports, names := {})
    names["edgewise"] = SimpleNamespace(__file__=tmp_path / "edgewise" / "__init__.py")
    with pytest.raises(RuntimeError, match=r"timed out .*:\n--standalone --local-addr 127\.0\.0\.1 --nproc"):
        exec(both.replace("280", "2").replace("(1, 2)", "(2,)"), names)


def lose(team):
    """The second process ends without a word; what the first one meets where it waits."""
    if team.rank == 1:
        os._exit(0)
    found = []
    weight = torch.nn.Linear(2, 1)
    for wait in (
        lambda: team.sum([1.0]),
        lambda: team.gather(torch.zeros(1)),
        lambda: team.agree({}),
        lambda: team.wrap(weight),
    ):
        try:
            wait()
        except LostError as error:
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
        with pytest.raises(error, match=message) as caught, joined(device):
            pass
        assert "\n" not in str(caught.value)
        assert not dist.is_initialized()

    def test_alone(self, monkeypatch):
        monkeypatch.delenv("WORLD_SIZE", raising=False)
        with joined("cuda:1") as found:
            assert found == (ALONE, "cuda:1")
        monkeypatch.setenv("WORLD_SIZE", "1")  # torchrun with one process is no team either
        with joined("cpu") as found:
            assert found == (ALONE, "cpu")

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
        assert " ".join(joining._command(2)) == f"{command} -m edgewise"

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
        role.setattr(joining, "STEP", timedelta(seconds=2))
        role.setattr(joining, "_meet", dist.HashStore)  # as under torchrun, where its own store is there
        self.refused("cpu", ConnectionError, "2 processes did not all come")

    def test_the_command_line_says_it_once_a_machine(self, role):
        from typer.testing import CliRunner

        for local, said in (("0", 1), ("1", 0)):
            role.setenv("LOCAL_RANK", local)
            result = CliRunner().invoke(cli.app, ["train", "copy", "--device", "mps"])
            assert result.exit_code == 1
            assert result.stderr.count("\n") == said


def stop_one(team, folder):
    """Ask one process alone to stop, at its third batch; tell where each of them stands then."""
    data = small_data()
    model = Experiment("small", "", "sort", SMALL, PLAIN).build(data.vocab_size)
    run = Run(model, data, PLAIN, Path(folder), {}, team=team)
    hidden, seen = model.hidden, []

    def count(batch):
        seen.append(batch)
        run.stop_requested |= team.rank == 1 and len(seen) == 3
        return hidden(batch)

    model.hidden = count
    run.start()
    try:
        run.train()
    except StoppedError:
        return run.step


def test_one_that_is_asked_to_stop_stops_all_of_them(tmp_path):
    assert in_team(stop_one, str(tmp_path)) == [2, 2]
    (path,) = checkpoints(tmp_path / "checkpoints")
    assert path.name == "step-00000002.safetensors"


def test_torchruns_signal_counts_as_ctrl_c_in_a_team_only():
    before = signal.getsignal(signal.SIGTERM)
    for size in (1, 2):
        run = SimpleNamespace(team=SimpleNamespace(size=size, rank=0), stop_requested=False)
        with running.stopping(run):
            assert (signal.getsignal(signal.SIGTERM) is before) == (size == 1)
            if size == 2:
                os.kill(os.getpid(), signal.SIGTERM)
        assert run.stop_requested == (size == 2)
        assert signal.getsignal(signal.SIGTERM) is before


def test_a_nan_loss_in_one_process_ends_all_alike(tmp_path):
    """At the same batch, with the same words."""
    said = in_team(diverge, str(tmp_path))
    assert said[0] == said[1]
    assert "the loss is nan at step 2, batch 3 of epoch 1" in said[0]


def diverge(team, folder):
    data = small_data()
    recipe = replace(PLAIN, batch_size=10)
    model = Experiment("small", "", "sort", SMALL, recipe).build(data.vocab_size)
    run = Run(model, data, recipe, Path(folder), {}, team=team)
    hidden = model.hidden
    bad = math.nan if team.rank == 1 else 1.0
    model.hidden = lambda batch: hidden(batch) * (bad if run.step == 1 else 1.0)
    run.start()
    try:
        run.train()
    except Exception as error:
        return str(error)
