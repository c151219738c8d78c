"""With a plan, passes, losses and updates ask a GPU for nothing: shown on a device without numbers."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from edgewise import GraphAttention, GraphPool, causal, cost, from_torch, window
from edgewise.message_passing.plan import plan_tiles, score_places
from edgewise.models.causal_lm import CausalLM, CausalLMConfig
from edgewise.models.transformer import make_model
from edgewise.training import LabelSmoothing


class Operations(TorchDispatchMode):
    """Keeps the names of operations that read numbers, on any device, to say what is executed next."""

    READING = ("_local_scalar_dense", "nonzero", "item", "equal", "masked_select", "unique", "bincount")

    def __init__(self):
        super().__init__()
        self.reads, self.count = [], 0

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        self.count += 1
        if operation.overloadpacket.__name__ in self.READING:
            self.reads.append(operation.name())
        return operation(*args, **kwargs or {})


def planned(graph, num_heads, head_dim):
    """The graph on the meta device, with the plan that was made for it on the CPU."""
    plan, places = plan_tiles(graph), [x.to("meta") for x in score_places(graph)]
    kept = {
        "num_edges": graph.num_edges,
        "tiles": replace(plan, lay_out=lambda: plan.tensors.to(torch.device("meta"))),
        "score places": places,
        f"cost {num_heads} x {head_dim}": cost(graph, num_heads, head_dim)._replace(engine="tiles"),
    }
    there = graph.to("meta")
    there._cache.update(kept)
    return there


def a_layer():
    graph = planned(window(90, 3, 3), 2, 4)
    bias = torch.randn(graph.num_edges, 2, device="meta")
    layer = GraphAttention(8, 2, dropout=0.1, device="meta")
    return layer, lambda: layer(graph, torch.randn(90, 8, device="meta"), edge_bias=bias).square().sum()


def a_layer_of_pytorch():
    graph = planned(causal([40, 25, 7]), 2, 4)
    layer = from_torch(nn.TransformerEncoderLayer(8, 2, 16)).to("meta")
    return layer, lambda: layer(graph, torch.randn(72, 8, device="meta")).square().sum()


def a_translator():
    model = make_model(11, 11, N=1, dim_model=8, dim_ff=16, h=2).to("meta")
    batch = GraphPool()([[1, 2, 3] * 9, [4, 5]], [[6, 7] * 12, [8, 9, 10]])
    there = batch.to("meta")
    for name in ("enc", "dec", "cross"):
        getattr(there, name)._cache.update(planned(getattr(batch, name), 2, 4)._cache)
    criterion = LabelSmoothing(11, 0, 0.1)
    return model, lambda: criterion(model(there), there.tgt_y)


def a_language_model():
    model = CausalLM(CausalLMConfig(11, 1, 8, 16, 2, 1)).to("meta")
    graph, ids = planned(causal([40, 25]), 2, 4), torch.zeros(65, dtype=torch.int64, device="meta")
    return model, lambda: nn.functional.cross_entropy(model(ids, graph, ids), ids)


@pytest.mark.parametrize("make", [a_layer, a_layer_of_pytorch, a_translator, a_language_model])
def test_a_training_step_reads_nothing(make):
    model, loss = make()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    with Operations() as operations:
        for _ in range(2):
            optimizer.zero_grad()
            loss().backward()
            optimizer.step()
    assert operations.reads == []
    assert operations.count > 50


def test_what_reads_is_noticed():
    with Operations() as operations, pytest.raises(RuntimeError):
        bool(torch.zeros(1, device="meta"))
    assert operations.reads
