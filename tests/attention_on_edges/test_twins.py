"""A model that trains in PyTorch's layers, on its own weights."""

import pytest
import torch

from attention_on_edges.pool import GraphPool
from attention_on_edges.studies.twins import measure_twin, train_in_matrices
from book_support import TINY, random_pairs, small_model


def test_training_in_matrices_computes_the_same_on_the_same_weights():
    model = small_model().double().train()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    batch = GraphPool()(*random_pairs([(5, 4), (2, 3), (1, 1)]))
    found = []
    for _ in range(2):
        hidden = model.run(batch).hidden
        gradients = torch.autograd.grad(hidden.square().sum(), [*model.parameters()], allow_unused=True)
        found.append([hidden, *(g for g in gradients if g is not None)])
        train_in_matrices(model)
    assert len(found[0]) > 40
    for along_edges, in_matrices in zip(*found, strict=True):
        torch.testing.assert_close(along_edges, in_matrices)
    assert model.eval().run(batch).hidden.grad_fn.name() == found[0][0].grad_fn.name()


def test_both_ways_start_alike_and_are_scored(monkeypatch):
    monkeypatch.setattr("attention_on_edges.tasks.SIZES", {"train": 40, "valid": 40})
    one, other = (measure_twin(TINY.config, matrices) for matrices in (False, True))
    assert len(one["first_losses"]) == 3
    assert one.pop("first_losses") == pytest.approx(other.pop("first_losses"), rel=1e-4)
    assert one == pytest.approx(other, rel=0.01)  # without dropout
