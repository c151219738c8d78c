"""With a plan, passes, losses and updates of the book's models ask a GPU for nothing, as its layers do."""

import pytest
import torch
from torch import nn

from attention_on_edges.models.causal_lm import CausalLM, CausalLMConfig
from attention_on_edges.models.transformer import make_model
from attention_on_edges.pool import GraphPool
from attention_on_edges.training import LabelSmoothing
from edgewise import causal
from support import assert_steps_read_nothing, planned


def a_translator():
    model = make_model(11, 11, N=1, dim_model=8, dim_ff=16, h=2).to("meta")
    batch = GraphPool()([[1, 2, 3] * 9, [4, 5]], [[6, 7] * 12, [8, 9, 10]])
    there = batch.to("meta")
    for name in ("enc", "dec", "cross"):
        getattr(there, name).kept |= planned(getattr(batch, name), 2, 4).kept
    criterion = LabelSmoothing(11, 0, 0.1)
    return model, lambda: criterion(model(there), there.tgt_y)


def a_language_model():
    model = CausalLM(CausalLMConfig(11, 1, 8, 16, 2, 1)).to("meta")
    graph, ids = planned(causal([40, 25]), 2, 4), torch.zeros(65, dtype=torch.int64, device="meta")
    return model, lambda: nn.functional.cross_entropy(model(ids, graph, ids), ids)


@pytest.mark.parametrize("make", [a_translator, a_language_model])
def test_a_training_step_reads_nothing(make):
    assert_steps_read_nothing(*make())
