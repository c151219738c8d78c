import itertools
import json
import math
import os
import random
import signal
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch

from edgewise.graphs import GraphPool
from edgewise.models.transformer import make_model
from edgewise.training import (
    DivergedError,
    LabelSmoothing,
    NoamOpt,
    SimpleLossCompute,
    StateLossCompute,
    StoppedError,
    Trainer,
    TrainingConfig,
    chunked_loss,
    run_epoch,
)
from edgewise.training import step as step_module
from edgewise.training.checkpoint_files import CheckpointError, checkpoints
from processes import process
from support import SortingData, scale_states, small_model

TRAINING = TrainingConfig(epochs=3, batch_size=8, warmup=10, average=2, clip=1.0, grad_accum=2)


def begin(folder, training=TRAINING, resume=False, **options):
    torch.set_num_threads(1)
    torch.manual_seed(training.seed)
    data = SortingData()
    model = make_model(data.vocab_size, data.vocab_size, N=1, dim_model=8, dim_ff=8, h=2, dropout=0.2)
    config = json.loads(json.dumps(asdict(training)))
    for last in ("epochs", "decay_epochs", "average"):
        config.pop(last)
    run = Trainer(model, data, training, Path(folder), config, score=lambda m: {"length": 1.0}, **options)
    run.start(resume)
    return run


def outcome(run):
    return {
        "log": (run.folder / "metrics.jsonl").read_text(),
        "losses": run.losses,
        "epochs": run.epochs,
        "weights": {name: x.clone() for name, x in run.model.state_dict().items()},
        "average": run.averaged_weights(),
        "random": torch.get_rng_state(),
    }


def assert_same_outcome(one, other):
    for name in ("log", "losses", "epochs"):
        assert one[name] == other[name], name
    assert torch.equal(one["random"], other["random"])
    for part in ("weights", "average"):
        assert all(torch.equal(one[part][name], other[part][name]) for name in one[part])


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    run = begin(tmp_path_factory.mktemp("undisturbed"))
    run.train()
    return outcome(run)


def train_to_the_end(folder):
    run = begin(folder, resume=True, save_every=0.0)
    forward = run.model.run
    run.model.run = lambda batch: (time.sleep(0.03), forward(batch))[1]  # time to be killed in
    run.train()


def test_a_run_that_is_killed_again_and_again_ends_as_if_nothing_had_been(tmp_path, undisturbed):
    chance, kills = random.Random(0), 0
    while True:
        newest = checkpoints(tmp_path / "checkpoints")[-1:]
        training = process(train_to_the_end, tmp_path)
        training.start()
        while training.is_alive() and checkpoints(tmp_path / "checkpoints")[-1:] == newest:
            time.sleep(0.002)
        time.sleep(chance.uniform(0, 0.1))
        if training.is_alive() and kills < 2:
            os.kill(training.pid, signal.SIGKILL)
            kills += 1
        training.join(60)
        if training.exitcode == 0:
            break
        assert training.exitcode == -signal.SIGKILL
    assert kills == 2
    run = begin(tmp_path, resume=True)
    assert run.finished
    stages = run.stages
    assert_same_outcome(outcome(run), undisturbed)
    assert len(stages) >= 3
    assert stages[0]["from_step"] == 0
    assert all(a["to_step"] <= b["from_step"] for a, b in itertools.pairwise(stages))


@pytest.mark.parametrize("stop", [1, 2, 3, 5, 6, 8])
def test_a_run_that_stops_after_any_update_goes_on_as_if_it_had_not(tmp_path, stop, undisturbed):
    run = begin(tmp_path)
    run.train(max_steps=stop)
    assert run.step == stop
    again = begin(tmp_path, resume=True)
    assert again.step == stop
    again.train()
    assert_same_outcome(outcome(again), undisturbed)


def test_a_request_to_stop_saves_and_loses_nothing(tmp_path, undisturbed):
    run = begin(tmp_path)
    ask_at_batch(run, 5)
    with pytest.raises(StoppedError):
        run.train()
    assert 0 < run.step < 9
    again = begin(tmp_path, resume=True)
    assert again.step == run.step
    again.train()
    assert_same_outcome(outcome(again), undisturbed)


def ask_at_batch(run, number):
    seen = 0
    forward = run.model.run

    def count(batch):
        nonlocal seen
        seen += run.model.training
        run.stop_requested |= seen == number
        return forward(batch)

    run.model.run = count


def test_a_log_that_was_lost_is_not_filled_with_zeros(tmp_path):
    begin(tmp_path).train(2)
    (tmp_path / "metrics.jsonl").unlink()
    with pytest.warns(UserWarning, match="lacks the last [0-9]+ bytes"):
        run = begin(tmp_path, resume=True)
    run.train(4)
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert lines[-1]["step"] == 4
    assert lines[-1]["loss"] == run.losses[-1]


def test_the_log_tells_every_batch_and_epoch(undisturbed):
    lines = [json.loads(line) for line in undisturbed["log"].splitlines()]
    batches, epochs = ([x for x in lines if ("valid" in x) == kind] for kind in (False, True))
    assert [x["epoch"] for x in batches] == [1] * 6 + [2] * 6 + [3] * 6
    assert [x["loss"] for x in batches] == undisturbed["losses"]
    assert [x["step"] for x in batches][:6] == [0, 1, 1, 2, 2, 3]
    assert epochs == undisturbed["epochs"]
    assert epochs[-1]["valid"].keys() == {"loss", "accuracy", "length"}
    assert epochs[2]["train"]["loss"] < epochs[0]["train"]["loss"]


def test_the_average_is_that_of_the_last_epochs(tmp_path):
    run = begin(tmp_path)
    with pytest.raises(ValueError, match="before the first epoch is over"):
        run.averaged_weights()
    after = []
    run.score = lambda model: after.append({n: x.clone() for n, x in model.state_dict().items()}) or {}
    run.train()
    assert len(after) == 3
    for name, average in run.averaged_weights().items():
        torch.testing.assert_close(average, (after[1][name] + after[2][name]) / 2)


class TestStopping:
    def run(self, tmp_path, figures, patience=2, monitor="length"):
        training = replace(TRAINING, epochs=10, patience=patience, monitor=monitor)
        run = begin(tmp_path, training)
        scores = iter(figures)
        run.score = lambda model: {"length": next(scores)}
        run.train()
        return len(run.epochs)

    def test_training_ends_after_as_many_epochs_without_improvement(self, tmp_path):
        assert self.run(tmp_path, [1, 3, 2, 3, 9]) == 4

    def test_improvement_goes_on(self, tmp_path):
        assert self.run(tmp_path, range(10)) == 10


class TestFaults:
    def test_a_nan_loss_ends_the_run_and_keeps_the_checkpoint(self, tmp_path):
        run = begin(tmp_path, save_every=0.0)
        scale_states(run.model, lambda: math.nan if run.step == 4 else 1)
        where = "the loss is nan at step 5, batch 3 of epoch 2; the newest checkpoint, step-00000004"
        with pytest.raises(DivergedError, match=where):
            run.train()
        assert checkpoints(tmp_path / "checkpoints")[-1].name == "step-00000004.safetensors"
        assert begin(tmp_path, resume=True).step == 4

    def test_a_gradient_that_is_infinite_leaves_the_weights(self, tmp_path):
        run = begin(tmp_path)
        before = {name: x.clone() for name, x in run.model.state_dict().items()}
        run.model.generator.proj.bias.register_hook(lambda grad: grad * math.inf)
        with pytest.raises(DivergedError, match=r"the gradient's length is (inf|nan) at step 1, batch 2"):
            run.train()
        assert all(torch.equal(before[name], x) for name, x in run.model.state_dict().items())

    def test_nan_in_validation_names_its_epoch(self, tmp_path):
        run = begin(tmp_path)
        scale_states(run.model, lambda: 1 if run.model.training else math.nan)
        where = "the loss is nan after step 3, at the end of epoch 1 or in its validation; there is no checkp"
        with pytest.raises(DivergedError, match=where):
            run.train()

    def test_a_run_must_be_begun(self, tmp_path):
        begun = begin(tmp_path / "one")
        run = Trainer(begun.model, begun.data, TRAINING, tmp_path / "two", begun.run_config)
        with pytest.raises(RuntimeError, match=r"call start\(\) first"):
            run.train()

    def test_patience_watches_a_figure_that_is_there(self, tmp_path):
        run = begin(tmp_path, replace(TRAINING, monitor="bleu", patience=1))
        with pytest.raises(ValueError, match="one of 'loss', 'accuracy', 'length'; got 'bleu'"):
            run.train()

    def test_a_folder_with_a_run_is_not_overwritten(self, tmp_path):
        begin(tmp_path).train(max_steps=1)
        with pytest.raises(FileExistsError, match="holds a run already"):
            begin(tmp_path)

    def test_another_recipe_is_refused(self, tmp_path):
        begin(tmp_path).train(max_steps=1)
        with pytest.raises(
            CheckpointError, match=r"of another configuration: clip is 1\.0 there and 2\.0 here"
        ):
            begin(tmp_path, replace(TRAINING, clip=2.0), resume=True)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epochs": 0}, "epochs must be at least 1, got 0"),
        ({"batch_tokens": 5}, "batch_size or batch_tokens, one of the two; got 8 and 5"),
        ({"batch_size": None}, "batch_size or batch_tokens, one of the two; got None and None"),
        ({"smoothing": 1.0}, "smoothing"),
        ({"clip": 0.0}, "clip must be a positive number, got 0.0"),
        ({"factor": -1}, "factor must be a positive number, got -1"),
        ({"betas": (0.9, 1.0)}, "betas"),
        ({"patience": 0}, "patience must be at least 1, got 0"),
        ({"r_drop": -1.0}, "r_drop must be a finite number, at least 0, got -1.0"),
        ({"r_drop": float("nan")}, "r_drop must be a finite number"),
        ({"seed": -1}, "seed must"),
    ],
)
def test_bad_recipes(change, message):
    with pytest.raises(ValueError, match=message):
        replace(TRAINING, **change)


class TestStateLoss:
    def test_an_epoch_over_states_is_an_epoch_over_log_probabilities(self):
        data, models = SortingData(), []
        for packed in (True, False):
            torch.manual_seed(0)
            model = small_model().train()
            criterion = LabelSmoothing(11, 2, 0.1)
            opt = NoamOpt(8, 1.0, 10, torch.optim.SGD(model.parameters(), lr=0.0))
            if packed:
                loss = StateLossCompute(model.generator, criterion, opt)
                result = run_epoch(data(GraphPool(), "valid", 4), model.hidden, loss)
            else:
                result = run_epoch(data(GraphPool(), "valid", 4), model, SimpleLossCompute(criterion, opt))
            models.append((result, model.state_dict()))
        (one, weights), (other, expected) = models
        assert one.losses == pytest.approx(other.losses, rel=1e-5)
        assert one.accuracy == other.accuracy
        for name in weights:
            torch.testing.assert_close(weights[name], expected[name], atol=1e-5, rtol=1e-5)

    def test_every_token_of_an_update_counts_alike(self):
        """Two batches of unequal size make the update that one batch of both makes."""
        pairs = [([3, 4], [0, 3, 4, 1]), ([5], [0, 5, 1]), ([6, 7, 8], [0, 6, 7, 8, 8, 1])]
        grads = []
        for cuts in ([pairs], [pairs[:1], pairs[1:]]):
            torch.manual_seed(0)
            model = small_model()
            opt = NoamOpt(8, 1.0, 1, torch.optim.SGD(model.parameters(), lr=0.0))
            loss = StateLossCompute(model.generator, LabelSmoothing(11, 2), opt, grad_accum=len(cuts))
            for part in cuts:
                batch = GraphPool()(*zip(*part, strict=True))
                loss(model.hidden(batch), batch.tgt_y, batch.n_tokens)
            grads.append({name: p.grad for name, p in model.named_parameters()})
        for name in grads[0]:
            torch.testing.assert_close(grads[1][name], grads[0][name], atol=1e-6, rtol=1e-5)

    def test_two_equal_passes_count_as_one(self):
        """Without dropout two passes are equal: loss, accuracy and gradient are those of one."""
        grads, counts = [], []
        batch = GraphPool()([[3, 4], [5]], [[0, 3, 4, 1], [0, 5, 1]])
        for passes in (1, 2):
            torch.manual_seed(0)
            model = small_model()
            opt = NoamOpt(8, 1.0, 1, torch.optim.SGD(model.parameters(), lr=0.0))
            loss = StateLossCompute(model.generator, LabelSmoothing(11, 2), opt, r_drop=passes - 1.0)
            hidden = torch.stack([model.hidden(batch) for _ in range(passes)]).squeeze(0)
            loss(hidden, batch.tgt_y, batch.n_tokens)
            counts.append((loss.avg_loss, loss.accuracy))
            grads.append({name: p.grad for name, p in model.named_parameters()})
        assert counts[0] == pytest.approx(counts[1], rel=1e-5)
        for name in grads[0]:
            torch.testing.assert_close(grads[1][name], grads[0][name], atol=1e-6, rtol=1e-5)

    def test_a_long_gradient_is_cut_and_a_short_one_is_not(self):
        lengths = {}
        for clip in (None, 1e-3, 1e3):
            torch.manual_seed(0)
            model = small_model()
            opt = NoamOpt(8, 1.0, 1, torch.optim.SGD(model.parameters(), lr=0.0))
            loss = StateLossCompute(model.generator, LabelSmoothing(11, 2), opt, clip=clip)
            batch = GraphPool()([[3, 4]], [[0, 3, 4, 1]])
            loss(model.hidden(batch), batch.tgt_y, batch.n_tokens)
            total = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
            lengths[clip] = (loss.grad_norm, float(total.norm()))
        assert lengths[None][0] == pytest.approx(lengths[None][1], rel=1e-4)
        assert lengths[1e3] == pytest.approx(lengths[None])
        assert lengths[1e-3][0] == pytest.approx(lengths[None][0])
        assert lengths[1e-3][1] == pytest.approx(1e-3, rel=1e-3)


@pytest.mark.parametrize("wide", [True, False])
@pytest.mark.parametrize("tiles", [True, False])
def test_an_x86_processor_has_half_precision_in_wide_registers_or_in_tiles(monkeypatch, wide, tiles):
    monkeypatch.setattr(step_module.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: wide)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: tiles)
    assert step_module.multiplies_bfloat16(torch.device("cpu")) == (wide or tiles)
    assert step_module.multiplies_bfloat16(torch.device("cuda"))


@pytest.mark.parametrize("supported", [True, False])
def test_half_precision_products_run_where_the_processor_has_them(tmp_path, monkeypatch, supported):
    monkeypatch.setattr(step_module, "multiplies_bfloat16", lambda device: supported)
    run = begin(tmp_path, replace(TRAINING, autocast=True))
    dtypes = set()
    run.model.encoder.layers[0].feed_forward.inner.register_forward_hook(
        lambda module, args, output: dtypes.add(output.dtype)
    )
    products = set()
    write_logits = chunked_loss._write_logits
    monkeypatch.setattr(
        chunked_loss,
        "_write_logits",
        lambda logits, states, *rest: (products.add(states.dtype), write_logits(logits, states, *rest)),
    )
    run.train()
    assert dtypes == products == {torch.bfloat16 if supported else torch.float32}
    assert run.epochs[-1]["train"]["loss"] < run.epochs[0]["train"]["loss"]
    assert {p.dtype for p in run.model.parameters()} == {torch.float32}


def test_r_drop_brings_two_passes_closer(tmp_path):
    """Dropout separates two passes; with R-Drop they end closer to each other."""
    apart = {}
    for weight in (0.0, 20.0):
        run = begin(tmp_path / str(weight), replace(TRAINING, r_drop=weight, epochs=6))
        run.train()
        run.model.train()
        torch.manual_seed(0)
        batch = next(run.data(GraphPool(), "valid", 8))
        with torch.no_grad():
            first, second = (run.model(batch) for _ in range(2))
        apart[weight] = float(((first.exp() - second.exp()) * (first - second)).sum(1).mean())
        assert run.epochs[-1]["train"]["loss"] < run.epochs[0]["train"]["loss"]
    assert apart[20.0] < 0.7 * apart[0.0]


class TestCooldown:
    def test_the_rate_falls_in_equal_steps_over_the_last_epochs(self):
        training = TrainingConfig(epochs=10, batch_size=1, decay_epochs=3)
        assert [training.scale(epoch) for epoch in range(1, 11)] == [1] * 7 + [0.75, 0.5, 0.25]
        assert {TrainingConfig(epochs=4, batch_size=1).scale(epoch) for epoch in range(1, 5)} == {1}
        with pytest.raises(ValueError, match=r"decay_epochs \(4\) must be less than epochs \(4\)"):
            TrainingConfig(epochs=4, batch_size=1, decay_epochs=4)

    def test_the_rates_of_a_run(self, tmp_path):
        run = begin(tmp_path, replace(TRAINING, decay_epochs=2))
        run.train()
        for line in map(json.loads, (tmp_path / "metrics.jsonl").read_text().splitlines()):
            if "rate" in line:
                noam = 8**-0.5 * min(line["step"] ** -0.5, line["step"] * 10**-1.5)
                scale = {1: 1, 2: 2 / 3, 3: 1 / 3}[line["epoch"]]
                assert line["rate"] == pytest.approx(noam * scale)
        assert [epoch.get("scale", 1) for epoch in run.epochs] == [1, 2 / 3, 1 / 3]

    def test_learning_rate_decay_may_be_added_to_a_run_before_it_begins(self, tmp_path):
        decayed = replace(TRAINING, decay_epochs=1)
        straight = begin(tmp_path / "straight", decayed)
        straight.train()
        run = begin(tmp_path / "late", replace(TRAINING, epochs=2))
        run.train()
        run = begin(tmp_path / "late", decayed, resume=True)
        run.train()
        assert_same_outcome(outcome(run), outcome(straight))

    def test_a_run_does_not_resume_with_another_decay(self, tmp_path):
        begin(tmp_path, replace(TRAINING, decay_epochs=1)).train()
        for other in (replace(TRAINING, epochs=4, decay_epochs=1), TRAINING):
            with pytest.raises(
                ValueError, match=r"epoch 3 of .* was run at 0\.5 of the rate, and this configuration"
            ):
                begin(tmp_path, other, resume=True)

    def test_nor_does_an_epoch_that_was_left_in_its_middle(self, tmp_path):
        begin(tmp_path, replace(TRAINING, epochs=4)).train(4)
        begin(tmp_path, replace(TRAINING, epochs=5), resume=True)
        for other in (
            replace(TRAINING, epochs=2, decay_epochs=1),
            replace(TRAINING, epochs=3, decay_epochs=2),
        ):
            with pytest.raises(ValueError, match=r"epoch 2 of .* was run at 1 of the rate"):
                begin(tmp_path, other, resume=True)


def test_what_was_not_kept_is_not_averaged(tmp_path):
    begin(tmp_path, replace(TRAINING, average=1)).train()
    run = begin(tmp_path, replace(TRAINING, average=2), resume=True)
    with pytest.raises(ValueError, match="weights of 2 epochs should be averaged, and 1 were kept"):
        run.averaged_weights()


def test_a_run_that_paused_goes_on_in_its_own_order(tmp_path, undisturbed):
    run = begin(tmp_path)
    for steps in (2, 5, None):
        run.train(steps)
    found = outcome(run)
    assert found["losses"] == undisturbed["losses"]
    assert [e["train"] for e in found["epochs"]] == [e["train"] for e in undisturbed["epochs"]]


def test_what_was_begun_on_a_cpu_does_not_go_on_on_a_gpu(tmp_path):
    run = begin(tmp_path)
    run.train(2)
    run.device = torch.device("cuda")
    with pytest.raises(ValueError, match="was begun without a GPU: go on so, or name another folder"):
        run.start(resume=True)
