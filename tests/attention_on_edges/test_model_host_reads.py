"""With a plan, passes, losses and updates of the book's models ask a GPU for nothing, as its layers do."""

import pytest
import torch
from torch import nn

from attention_on_edges.models.causal_lm import CausalLM, CausalLMConfig
from attention_on_edges.models.transformer import make_model
from attention_on_edges.models.universal import make_universal_model
from attention_on_edges.pool import GraphPool
from attention_on_edges.training import LabelSmoothing
from attention_on_edges.training.loss import batch_loss
from edgewise import AttentionGraph, causal, propagate_attention
from edgewise.propagation import precision
from support import Operations, assert_steps_read_nothing, planned


def a_translator():
    model = make_model(11, 11, N=1, dim_model=8, dim_ff=16, h=2).to("meta")
    batch = GraphPool()([[1, 2, 3] * 9, [4, 5]], [[6, 7] * 12, [8, 9, 10]])
    there = batch.to("meta")
    for name in ("enc", "dec", "cross"):
        getattr(there, name)._known.update(planned(getattr(batch, name), 2, 4)._known)
    criterion = LabelSmoothing(11, 0, 0.1)
    return model, lambda: criterion(model(there), there.tgt_y)


def a_language_model():
    model = CausalLM(CausalLMConfig(11, 1, 8, 16, 2, 1)).to("meta")
    graph, ids = planned(causal([40, 25]), 2, 4), torch.zeros(65, dtype=torch.int64, device="meta")
    return model, lambda: nn.functional.cross_entropy(model(ids, graph, ids), ids)


def test_a_device_without_float64_is_asked_for_none(monkeypatch):
    """As on Apple's GPU: a CPU plays it, after a step that makes the table of positions."""
    model, criterion = make_universal_model(11, 11, 3, 8, 16, 2), LabelSmoothing(11, 0, 0.1)
    ids, states = torch.arange(400), torch.randn(400, 1, 4)
    for _ in range(2):
        batch = GraphPool()([[1, 2, 3] * 9, [4, 5]], [[6, 7] * 12, [8, 9, 10]])
        links = AttentionGraph((ids[:, None] + ids[:9] ** 2).flatten() % 400, ids.repeat_interleave(9), 400)
        with Operations() as operations:
            found = batch_loss(model, batch, criterion)
            (found.total + found.extra).backward()
            assert all(side.mean_steps >= 1 and side.counts for side in found.pondered.values())
            propagate_attention(links, states, states, states, engine="tiles")
        assert operations.doubles or {"cpu"} == precision.WITHOUT_FLOAT64
        monkeypatch.setattr(precision, "WITHOUT_FLOAT64", {"cpu"})
    assert operations.doubles == []


@pytest.mark.parametrize("make", [a_translator, a_language_model])
def test_a_training_step_reads_nothing(make):
    assert_steps_read_nothing(*make())
