"""With a plan, passes, losses and updates ask a GPU for nothing: shown on a device without numbers."""

import pytest
import torch
from torch import nn

from edgewise import GraphAttention, causal, from_torch, window
from support import Operations, assert_steps_read_nothing, planned


def a_layer():
    graph = planned(window(90, 3, 3), 2, 4)
    bias = torch.randn(graph.num_edges, 2, device="meta")
    layer = GraphAttention(8, 2, dropout=0.1, device="meta")
    return layer, lambda: layer(graph, torch.randn(90, 8, device="meta"), edge_bias=bias).square().sum()


def a_layer_of_pytorch():
    graph = planned(causal([40, 25, 7]), 2, 4)
    layer = from_torch(nn.TransformerEncoderLayer(8, 2, 16)).to("meta")
    return layer, lambda: layer(graph, torch.randn(72, 8, device="meta")).square().sum()


@pytest.mark.parametrize("make", [a_layer, a_layer_of_pytorch])
def test_a_training_step_reads_nothing(make):
    assert_steps_read_nothing(*make())


def test_what_reads_is_noticed():
    with Operations() as operations, pytest.raises(RuntimeError):
        bool(torch.zeros(1, device="meta"))
    assert operations.reads
