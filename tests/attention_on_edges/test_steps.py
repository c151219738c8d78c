"""Steps of tokens by position, piece and epoch."""

from dataclasses import replace

import torch

from attention_on_edges import tasks
from attention_on_edges.models.universal import UTransformer
from attention_on_edges.runs.experiment import UniversalConfig
from attention_on_edges.studies.steps import explained, measure_steps
from book_support import TINY


def test_steps_that_follow_from_a_group_are_explained_by_it_and_random_ones_are_not():
    group, other = torch.randint(50, (2, 5000), generator=torch.Generator().manual_seed(0))
    assert explained(group % 3, group) == 1
    assert abs(explained(group % 3, other)) < 0.01
    assert explained(torch.ones_like(group), group) == 0


def test_planted_steps_are_found_by_position_before_and_after_training(monkeypatch):
    ponder = UTransformer.until_halted
    monkeypatch.setattr(UTransformer, "until_halted", lambda *x: replace(ponder(*x), steps=1 + x[-1] % 3))
    monkeypatch.setattr(tasks, "SIZES", {"train": 40, "valid": 400})
    row = measure_steps(replace(TINY, model=UniversalConfig(4, 16, 16, 2)).config)
    for side, longest in (("enc", 17), ("dec", 18)):  # read by a hundred of 400 strings or more
        assert row[side]["epochs"][0] == row[side]["epochs"][1]
        assert row[side]["positions"] == [1.0 + p % 3 for p in range(longest)]
        assert row[side]["explained"]["piece"] < 0.3 < row[side]["explained"]["position"] == 1
