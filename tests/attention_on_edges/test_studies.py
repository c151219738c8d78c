import json
from dataclasses import replace
from pathlib import Path

import pytest

from attention_on_edges import runs, tasks
from attention_on_edges.runs import Experiment, ModelConfig, artifacts
from attention_on_edges.runs import study_results as studies
from attention_on_edges.runs.study_results import Results, Study, load_study, run_study
from attention_on_edges.studies import STUDIES
from attention_on_edges.training import TrainingConfig
from book_support import TINY
from edgewise.validation import InputError

SIZE = {"N": 1, "dim_model": 8, "dim_ff": 12, "h": 2}


@pytest.fixture
def small(monkeypatch):
    """A study of two variants and two seeds on forty strings."""
    monkeypatch.setattr(tasks, "SIZES", {"train": 40, "valid": 40})
    entries = [
        replace(TINY, name=f"h {h}", model=ModelConfig(**SIZE | {"h": h}), training=training)
        for h in (1, 2)
        for training in (TrainingConfig(1, batch_size=20, seed=seed) for seed in (0, 1))
    ]
    return Study("small", "Does it run?", tuple(entries))


class TestStudy:
    def test_it_runs_each_entry_once_and_goes_on_where_it_stopped(self, small, tmp_path, monkeypatch):
        folders = tmp_path, tmp_path / "whole"
        run_study(small, folders[1])
        assert run_study(small, tmp_path, limit=2) == 2
        assert not (tmp_path / "small.json").exists()
        with open(tmp_path / "small.jsonl", "a") as log:
            log.write('{"config": {"na')  # as a kill or a full disk leaves it
        started = []
        start = studies.start
        monkeypatch.setattr(
            studies, "start", lambda entry, *rest: started.append(entry) or start(entry, *rest)
        )
        assert run_study(small, tmp_path) == 0
        assert started == list(small.entries[2:])
        found, whole = (json.loads(Path(folder, "small.json").read_text("utf-8")) for folder in folders)
        assert found["rows"] == whole["rows"]
        assert found["config"] == small.config
        made = [(row["variant"], row["seed"]) for row in found["rows"]]
        assert made == [("h 1", 0), ("h 1", 1), ("h 2", 0), ("h 2", 1)]
        run = runs.start(small.entries[3], tmp_path / "again")
        run.train()
        assert found["rows"][3] == {"variant": "h 2", "seed": 1} | run.epochs[-1]["valid"]
        other = replace(small.entries[0], training=TrainingConfig(2, batch_size=20))
        with pytest.raises(ValueError, match="another version of this study"):
            run_study(replace(small, entries=(other, *small.entries[1:])), tmp_path)
        for line in ("[]", "{}", "not json"):
            (tmp_path / f"{small.name}.jsonl").write_text(line + "\n")
            with pytest.raises(ValueError, match="a line that no study wrote"):
                run_study(small, tmp_path)

    def test_a_run_that_diverges_is_a_result(self, small, tmp_path, monkeypatch):
        monkeypatch.setattr(artifacts, "artifacts_folder", lambda: tmp_path / "artifacts")
        wild = replace(
            small.entries[1], training=TrainingConfig(2, batch_size=20, factor=1e30, warmup=1, seed=1)
        )
        run_study(replace(small, entries=(small.entries[0], wild)), tmp_path / "studies")
        results = load_study("small")
        assert results.rows[1].keys() == {"variant", "seed", "diverged_at"}
        assert 1 <= results.rows[1]["diverged_at"] <= 4
        assert results.variants == ["h 1"]
        assert results.figures("h 1", "loss") == [results.rows[0]["loss"]]
        with pytest.raises(ValueError, match="variant must be one of h 1; got 'h 3'"):
            results.figures("h 3", "loss")
        (tmp_path / "studies" / "small.json").rename(tmp_path / "studies" / "other.json")
        with pytest.raises(InputError, match=r"other\.json is the study 'small'"):
            load_study("other")

    def test_variants_are_compared_by_their_ranges(self):
        def results(task="sort", updates=5):
            training = {"updates": 5, "rates": [0.1]}
            one = [{"task": "sort", "training": training | {"seed": seed}} for seed in (0, 1)]
            other = [{"task": task, "training": e["training"] | {"updates": updates}} for e in one]
            values = zip("aabb", [0.5, 0.7, 0.2, 0.3], strict=True)
            return Results({"entries": one + other}, [{"variant": v, "right": x} for v, x in values], {})

        found = results().difference("a", "b", "right")
        assert found[:3] == pytest.approx((0.35, 0.2, 0.5))
        assert found.counts
        assert not results().difference("a", "a", "right").counts
        assert results().difference("b", "a", "right").high == pytest.approx(-0.2)
        for changed, told in (
            ({"task": "copy"}, "'a' and 'b' cannot be compared: their task is sort and copy"),
            ({"updates": 6}, "their training is .*'updates': 5.* and .*'updates': 6"),
        ):
            with pytest.raises(InputError, match=told):
                results(**changed).difference("a", "b", "right")


@pytest.mark.parametrize("name", STUDIES)
def test_committed_figures_are_of_the_studies_there_are(name):
    results, study = load_study(name), STUDIES[name]
    made = list(zip(results.config["entries"], results.rows, strict=True))
    if name == "readouts":  # models with virtual nodes and other readouts are gone
        variants = {entry.name for entry in study.entries}
        made = [(config, row) for config, row in made if row["variant"] in variants]
        made = [({k: v for k, v in config.items() if k != "readout"}, row) for config, row in made]
    else:
        assert results.config["about"] == study.about
    for (config, row), entry in zip(made, study.entries, strict=True):
        if isinstance(entry, Experiment):  # settings that came later had their defaults
            config = Experiment.of(config).config
        assert config == entry.config
        assert row | entry.label == row
    assert not results.provenance["changed"]


def test_a_paired_difference_is_students_t_of_the_differences():
    """Differences 1, 2 and 3: mean 2, deviation 1; Student's t at 97.5 % is 4.303, of one degree 12.706."""
    values = {"a": [5.0, 1.0, 9.0], "b": [4.0, -1.0, 6.0]}
    rows = [{"variant": name, "seed": i, "x": x} for name, xs in values.items() for i, x in enumerate(xs)]
    entries = [{"training": {"rate": 1, "seed": row["seed"]}} for row in rows]
    found = Results({"entries": entries}, rows, {}).paired("a", "b", "x")
    del rows[0]["x"]  # seed 0 diverged, and 3 and 2 are left
    low = Results({"entries": entries}, rows, {}).paired("a", "b", "x")[1]
    assert low == pytest.approx(2.5 - 12.706 * 0.5, abs=1e-3)
    assert found == pytest.approx((2, 2 - 4.303 / 3**0.5, 2 + 4.303 / 3**0.5), abs=1e-3)
