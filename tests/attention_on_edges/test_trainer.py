import json
import math
import os
import signal
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch

from attention_on_edges import training as learning
from attention_on_edges.models.transformer import make_model
from attention_on_edges.pool import GraphPool
from attention_on_edges.training import DivergedError, Trainer, TrainingConfig, trainer
from attention_on_edges.training.checkpoint_files import CheckpointError, locked
from attention_on_edges.tutorial import NoamOpt
from book_support import scale_states, small_model, sorting_data
from edgewise.validation import InputError
from processes import process

TRAINING = TrainingConfig(epochs=3, batch_size=8, warmup=10, average=2, clip=1.0, grad_accum=2)


def begin(folder, training=TRAINING, resume=False, dropout=0.2, **options):
    torch.manual_seed(training.seed)
    data = sorting_data()
    model = make_model(data.vocab_size, data.vocab_size, N=1, dim_model=8, dim_ff=8, h=2, dropout=dropout)
    run = Trainer(model, data, training, folder, asdict(training), score=lambda m: {"length": 1.0}, **options)
    run.start(resume)
    return run


def outcome(run):
    return {
        "log": (run.folder / "metrics.jsonl").read_text(),
        "losses": run.losses,
        "epochs": run.epochs,
        "weights": {name: x.clone() for name, x in run.model.state_dict().items()},
        "average": run.averaged_weights(),
        "random": {"state": torch.get_rng_state()},
    }


def assert_same_outcome(one, other):
    for name in ("log", "losses", "epochs"):
        assert one[name] == other[name], name
    for part in ("weights", "average", "random"):
        assert all(torch.equal(one[part][name], other[part][name]) for name in one[part])


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    run = begin(tmp_path_factory.mktemp("undisturbed"))
    run.train()
    return outcome(run)


def train_and_die(folder, event):
    """Train, with a checkpoint after each update, until this process kills itself.

    Events that are counted: batches, lines of the log, flushes to disk, renamings.
    """
    seen = 0

    def counted(function):
        def call(*given, **named):
            nonlocal seen
            seen += 1
            if seen == event:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*given, **named)

        return call

    os.fsync, os.replace = counted(os.fsync), counted(os.replace)
    run = begin(folder, resume=True, save_every=0.0)
    run._learn, run._write = counted(run._learn), counted(run._write)
    run.train()


KILLS = [(7,), (10, 12), (19, 27, 5, 14)]
"""When to kill a run, and the one that goes on from it; the nightly run has others, too."""

OTHERS = [(event,) for event in range(1, 40, 3)]


@pytest.mark.parametrize(
    "events", [*KILLS, *(pytest.param(each, marks=pytest.mark.nightly) for each in OTHERS)], ids=str
)
def test_a_run_that_is_killed_ends_as_if_nothing_had_been(events, tmp_path, undisturbed):
    for event in events:
        child = process(train_and_die, tmp_path, event)
        child.start()
        child.join(60)
        assert child.exitcode == -signal.SIGKILL
    run = begin(tmp_path, resume=True)
    run.train()
    assert_same_outcome(outcome(run), undisturbed)


@pytest.mark.parametrize("stop", [1, 3, 5])
def test_a_run_that_stops_after_any_update_goes_on_as_if_it_had_not(tmp_path, stop, undisturbed):
    run = begin(tmp_path)
    run.train(max_steps=stop)
    assert run.step == stop
    again = begin(tmp_path, resume=True)
    assert again.step == stop
    again.train()
    assert_same_outcome(outcome(again), undisturbed)
    assert [(stage["from_step"], stage["to_step"]) for stage in again.stages] == [(0, stop), (stop, 9)]


def test_the_log_tells_every_batch_and_epoch(undisturbed):
    lines = [json.loads(line) for line in undisturbed["log"].splitlines()]
    batches, epochs = ([x for x in lines if ("valid" in x) == kind] for kind in (False, True))
    assert [x["epoch"] for x in batches] == [1] * 6 + [2] * 6 + [3] * 6
    assert [x["loss"] for x in batches] == undisturbed["losses"]
    assert [x["step"] for x in batches][:6] == [0, 1, 1, 2, 2, 3]
    assert ["rate" in x for x in batches][:4] == [False, True] * 2
    assert epochs == undisturbed["epochs"]
    assert epochs[-1]["valid"].keys() == {"loss", "accuracy", "length"}
    assert epochs[2]["train"]["loss"] < epochs[0]["train"]["loss"]


def test_the_average_is_that_of_the_last_epochs(tmp_path):
    run, after = begin(tmp_path), []
    run.score = lambda model: after.append({n: x.clone() for n, x in model.state_dict().items()}) or {}
    run.train()
    assert len(after) == 3
    for name, average in run.averaged_weights().items():
        torch.testing.assert_close(average, (after[1][name] + after[2][name]) / 2)


@pytest.mark.parametrize(("figures", "epochs"), [([1, 3, 2, 3, 9], 4), (range(10), 10)])
def test_training_ends_after_as_many_epochs_without_improvement(figures, epochs, tmp_path):
    run = begin(tmp_path, replace(TRAINING, epochs=10, patience=2, monitor="length"))
    scores = iter(figures)
    run.score = lambda model: {"length": next(scores)}
    run.train()
    assert len(run.epochs) == epochs


class TestFaults:
    def test_a_nan_loss_ends_the_run_and_keeps_the_checkpoint(self, tmp_path):
        run = begin(tmp_path, save_every=0.0)
        scale_states(run.model, lambda: math.nan if run.step == 4 else 1)
        with pytest.raises(DivergedError, match="the loss is nan after step 4, in epoch 2"):
            run.train()
        assert begin(tmp_path, resume=True).step == 4

    def test_a_gradient_that_is_infinite_leaves_the_weights(self, tmp_path):
        run = begin(tmp_path)
        before = {name: x.clone() for name, x in run.model.state_dict().items()}
        run.model.generator.proj.bias.register_hook(lambda grad: grad * math.inf)
        with pytest.raises(DivergedError, match=r"the gradient's norm is (inf|nan) after step 0"):
            run.train()
        assert all(torch.equal(before[name], x) for name, x in run.model.state_dict().items())

    def test_nan_in_validation(self, tmp_path):
        run = begin(tmp_path)
        scale_states(run.model, lambda: 1 if run.model.training else math.nan)
        with pytest.raises(DivergedError, match="the loss in validation is nan after step 3, in epoch 1"):
            run.train()

    def test_a_split_without_a_pair(self, tmp_path):
        data = sorting_data()
        data.splits["valid"] = []
        with pytest.raises(ValueError, match=r"to validate with in \['valid'\]"):
            Trainer(small_model(), data, TRAINING, tmp_path, {})

    def test_patience_watches_a_figure_that_is_there(self, tmp_path):
        run = begin(tmp_path, replace(TRAINING, monitor="bleu", patience=1))
        with pytest.raises(ValueError, match="'bleu'"):
            run.train()

    def test_two_runs_do_not_write_into_one_folder(self, tmp_path):
        run = begin(tmp_path)
        with locked(tmp_path / "run"):
            for write in (run.train, lambda: run.start(resume=True)):
                with pytest.raises(InputError, match="another process is writing into"):
                    write()

    def test_a_folder_with_a_run_is_neither_overwritten_nor_continued_otherwise(self, tmp_path):
        run = begin(tmp_path)
        run.train(max_steps=1)
        with pytest.raises(FileExistsError, match="holds a run already"):
            begin(tmp_path)
        with pytest.raises(CheckpointError, match=r"clip is 1\.0 there and 2\.0 here"):
            begin(tmp_path, replace(TRAINING, clip=2.0), resume=True)
        run.log.write_text("")
        with pytest.raises(CheckpointError, match=r"metrics.jsonl ends before step-00000001.pt was written"):
            begin(tmp_path, resume=True)


@pytest.mark.parametrize(
    "change",
    [
        {"epochs": 0},
        {"batch_tokens": 5},
        {"batch_size": None},
        {"smoothing": 1.0},
        {"clip": 0.0},
        {"betas": (0.9, 1.0)},
        {"betas": (0.9, 0.9, 0.9)},
        {"factor": math.inf},
        {"decay_epochs": 3},
    ],
    ids=str,
)
def test_bad_recipes(change):
    with pytest.raises(ValueError, match=next(iter(change))):
        replace(TRAINING, **change)


class TestUpdates:
    def update(self, clip=None):
        """Make one update; return the norm that is reported, and the gradient."""
        torch.manual_seed(0)
        model, batch = small_model(), GraphPool()([[3, 4], [5]], [[0, 3, 4, 1], [0, 5, 1]])
        criterion = learning.LabelSmoothing(11, 2)
        opt = NoamOpt(8, 1.0, 1, torch.optim.SGD(model.parameters(), lr=0.0))
        loss, _ = learning.states_loss(model.generator, criterion, model.hidden(batch), batch.tgt_y)
        loss.backward()
        norm = learning.take_step(opt, batch.n_tokens, clip)
        return norm, torch.cat([p.grad.flatten() for p in model.parameters()])

    def test_every_token_of_an_update_counts_alike(self, tmp_path):
        """Two batches of unequal size make the update that one batch of both makes."""
        norms = []
        for size, batches in ((16, 1), (8, 2)):
            training = replace(TRAINING, batch_size=size, grad_accum=batches)
            run = begin(tmp_path / str(size), training, dropout=0)
            run.train()
            lines = map(json.loads, run.log.read_text().splitlines())
            norms.append([line["grad_norm"] for line in lines if "grad_norm" in line])
        assert len(norms[0]) == 9
        assert norms[1] == pytest.approx(norms[0], rel=1e-4)

    def test_the_last_batches_of_an_epoch_make_an_update_however_few_they_are(self, tmp_path):
        run = begin(tmp_path, replace(TRAINING, epochs=2, grad_accum=1000))
        run.train()
        assert run.step == 2

    def test_a_long_gradient_is_cut_and_a_short_one_is_not(self):
        (norm, whole), (other, cut), (_, same) = (self.update(clip=clip) for clip in (None, 1e-3, 1e3))
        assert norm == pytest.approx(float(whole.norm()), rel=1e-4)
        assert other == norm
        assert float(cut.norm()) == pytest.approx(1e-3, rel=1e-3)
        assert torch.equal(same, whole)


@pytest.mark.parametrize("supported", [True, False])
def test_half_precision_products_run_where_the_processor_has_them(tmp_path, monkeypatch, supported):
    monkeypatch.setattr(trainer, "multiplies_bfloat16", lambda device: supported)
    run = begin(tmp_path, replace(TRAINING, autocast=True))
    dtypes = set()
    run.model.encoder.layers[0].feed_forward.inner.register_forward_hook(
        lambda module, args, output: dtypes.add(output.dtype)
    )
    run.train()
    assert dtypes == {torch.bfloat16 if supported else torch.float32}
    assert run.epochs[-1]["train"]["loss"] < run.epochs[0]["train"]["loss"]
    assert {p.dtype for p in run.model.parameters()} == {torch.float32}


def test_the_rate_decays_in_equal_steps_over_the_last_epochs(tmp_path):
    training = TrainingConfig(epochs=10, batch_size=1, decay_epochs=3)
    assert [training.scale(epoch) for epoch in range(1, 11)] == [1] * 7 + [0.75, 0.5, 0.25]
    begin(tmp_path, replace(TRAINING, decay_epochs=2)).train()
    for line in map(json.loads, Path(tmp_path, "metrics.jsonl").read_text().splitlines()):
        if "rate" in line:
            noam = 8**-0.5 * min(line["step"] ** -0.5, line["step"] * 10**-1.5)
            assert line["rate"] == pytest.approx(noam * {1: 1, 2: 2 / 3, 3: 1 / 3}[line["epoch"]])
