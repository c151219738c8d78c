import contextlib
import json
from dataclasses import replace

import pytest
import torch

from attention_on_edges import runs
from attention_on_edges.corpora.tokenization import BPE
from attention_on_edges.runs import EXPERIMENTS, Experiment, artifacts, load_data
from attention_on_edges.runs.json_files import read_json, sealed, write_json
from attention_on_edges.training.checkpoint_files import CheckpointError
from book_support import TINY
from edgewise.validation import InputError

pytestmark = pytest.mark.usefixtures("few")


@pytest.fixture(scope="module")
def finished(tmp_path_factory, few):
    run = runs.start(TINY, tmp_path_factory.mktemp("run"))
    run.train()
    return run, runs.finish(run, TINY)


def rewritten(artifact, folder, tokenizer=None, **parts):
    """The artifact once more, with other parts."""
    own = {"weights": artifacts.halved(artifact.weights), **vars(artifact)} | parts
    made = (own[name] for name in ("weights", "config", "metrics", "provenance"))
    return artifacts.write(folder / "copy", *made, tokenizer)


def test_an_artifact_tells_all_about_its_run(finished):
    run, artifact = finished
    assert Experiment.of(artifact.config) == TINY
    assert artifact.metrics["losses"] == run.losses
    facts = artifact.provenance
    assert facts["data"] == runs.digest_of(load_data(TINY))
    assert facts["seconds"] == sum(stage["seconds"] for stage in facts["stages"]) > 0
    assert facts["stages"][-1]["to_step"] == len(run.losses) == 18
    for fact in ("copy", facts["date"], facts["device"], facts["torch"], "seed 0", facts["commit"][:10]):
        assert fact in artifact.caption


def test_its_figures_are_those_of_the_weights_as_saved(finished):
    _, artifact = finished
    model, data = runs.restore(artifact)
    assert all(torch.equal(x, x.half().float()) for x in model.state_dict().values())
    assert runs.figures(model, data, "test") == pytest.approx(artifact.metrics["test"], rel=1e-5)


def test_decoded_figures_are_of_the_models_own_decoding():
    """A model that always ends at once gets nothing right, though it is never asked about later tokens."""
    data = load_data(TINY)
    model = TINY.build(data.vocab_size)
    model.generator.proj.bias.data[data.eos_id] = 100.0
    scores = runs.figures(model, data, "valid", limit=50)
    assert scores["exact_match"] == scores["token_accuracy"] == 0
    ends = sum(1 for _ in data.splits["valid"])
    tokens = sum(len(target) + 1 for _, target in data.splits["valid"])
    assert scores["accuracy"] == pytest.approx(ends / tokens)


def test_a_matrix_with_three_names_is_kept_once(tmp_path):
    shared = replace(TINY, model=replace(TINY.model, shared=True))
    run = runs.start(shared, tmp_path)
    run.train()
    artifact = runs.finish(run, shared)
    table = torch.Size((29, 16))
    assert sum(x.shape == table for x in artifact.weights.values()) == 1
    model, data = runs.restore(artifact)
    assert model.generator.proj.weight is model.src_embed.lut.weight
    assert runs.figures(model, data, "test") == pytest.approx(artifact.metrics["test"], rel=1e-5)


@pytest.mark.parametrize("other", ["pairs", "vocabulary"])
def test_a_run_does_not_go_on_with_other_data(other, tmp_path, monkeypatch):
    runs.start(TINY, tmp_path).train(max_steps=2)
    data = load_data(TINY)
    if other == "pairs":
        data.splits["train"][0] = data.splits["train"][1]
    else:
        data.symbols = [*data.symbols[:-2], *data.symbols[:-3:-1]]
    monkeypatch.setattr("attention_on_edges.runs.running.load_data", lambda *given: data)
    with pytest.raises(CheckpointError, match=rf"data\.{other} is '[0-9a-f]+' there and '[0-9a-f]+' here"):
        runs.start(TINY, tmp_path, resume=True)


def test_a_write_that_breaks_off_leaves_the_old_artifact(finished, tmp_path, monkeypatch):
    _, artifact = finished
    folder = rewritten(artifact, tmp_path).folder
    before = {p.name: p.read_bytes() for p in folder.iterdir()}

    def full(*arguments):
        raise OSError("No space left on device")

    monkeypatch.setattr(artifacts, "sha256_of", full)
    with pytest.raises(OSError, match="No space"):
        rewritten(artifact, tmp_path, metrics={"other": 1})
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == before
    monkeypatch.undo()
    assert rewritten(artifact, tmp_path, metrics={"other": 1}).metrics == {"other": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["copy"]


@pytest.mark.parametrize("file", ["config.json", "model.safetensors", "tokenizer.json", "provenance.json"])
def test_a_file_of_another_model_is_refused_by_name(file, finished, tmp_path):
    """Of the same size, in the place of the one that was written; a tokenizer, for instance."""
    _, artifact = finished
    rewritten(artifact, tmp_path, BPE.train(["a b"], 256).to_json())
    path = tmp_path / "copy" / file
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(InputError, match=rf"{file} (is damaged|holds no JSON)"):
        artifacts.load(tmp_path / "copy")


def test_of_sealed_json_no_bit_may_flip_that_tells(tmp_path):
    facts, path = {"figure": 39.6, "rows": [{"name": "ü", "of": None}, 1e-7]}, tmp_path / "a.json"
    write_json(path, sealed(facts))
    whole = path.read_bytes()
    for bit in range(8 * len(whole)):
        changed = bytearray(whole)
        changed[bit // 8] ^= 1 << bit % 8
        path.write_bytes(changed)
        with contextlib.suppress(InputError):
            assert read_json(path, is_sealed=True) == facts  # white space is no fact


def test_weights_that_are_not_numbers_are_refused(finished, tmp_path):
    _, artifact = finished
    weights = artifacts.halved(artifact.weights)
    weights["encoder.norm.weight"][0] = float("nan")
    with pytest.raises(InputError, match=r"encoder\.norm\.weight holds NaN or infinities"):
        runs.restore(rewritten(artifact, tmp_path, weights=weights))


@pytest.mark.parametrize(
    ("part", "change", "message"),
    [
        ("model", {"N": 0}, "model: N must be at least 1"),
        ("model", {"dim_model": "64"}, "config.json, model: dim_model must be an integer"),
        ("model", {"h": None}, "config.json, model: "),
        ("model", {"N": 2}, "weights must be those of the model"),
        ("training", {"more": 1}, "training: .*'more'"),
    ],
)
def test_a_configuration_that_fits_no_model_is_refused(part, change, message, finished, tmp_path):
    _, artifact = finished
    config = artifact.config | {part: (artifact.config[part] or {}) | change}
    with pytest.raises(InputError, match=message):
        runs.restore_model(rewritten(artifact, tmp_path, config=config), 29)


def test_experiments_go_by_their_names_and_through_json():
    for name, experiment in EXPERIMENTS.items():
        assert experiment.name == name
        assert Experiment.of(json.loads(json.dumps(experiment.config))) == experiment
