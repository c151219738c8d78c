"""The steps from GAT to the Transformer: with all and with none it is the one and the other."""

from dataclasses import replace

import torch
from torch.nn.functional import elu

from attention_on_edges.runs import gat_steps
from attention_on_edges.runs.fitting import FitConfig
from attention_on_edges.runs.gat_steps import STEPS, StepLayer, nodes_right, train_steps
from edgewise.graphs import complete

GENERATOR = torch.Generator().manual_seed(0)
GRAPH, X = complete([5, 7]), torch.randn(12, 16, generator=GENERATOR)


def moved(layer):
    """The layer with every parameter moved away from its start value."""
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=GENERATOR))
    return layer


def test_rungs_are_their_formulas():
    """Each step acts whether or not those before it are there; with none it is GAT and its nonlinearity."""
    for steps in [*gat_steps.LADDER.values(), *gat_steps.WITHOUT.values()]:
        layer = moved(StepLayer(16, 4, 24, steps))
        sums = (lambda x, new: x + new) if "residual" in steps else (lambda x, new: new)
        norms = layer.norms if "norm" in steps else [lambda x: x] * 2
        if "dot product" in steps:
            q, k, v = layer.qkv(norms[0](X)).view(12, 3, 4, 4).unbind(1)
            scores = torch.einsum("jhd,ihd->hji", q, k) / 2
            weights = scores.masked_fill(~GRAPH.to_mask(), -torch.inf).softmax(-1)
            new = torch.einsum("hji,ihd->jhd", weights, v).flatten(1)
        else:
            new = layer.gat(GRAPH, norms[0](X))
        new = layer.out(new) if "output matrix" in steps else new
        if "feed-forward" in steps:
            x = sums(X, new)
            expected = sums(x, layer.feed_forward(norms[1](x)))
        else:
            expected = sums(X, elu(new))
        torch.testing.assert_close(layer(GRAPH, X), expected)


def test_two_hops_ask_a_neighbour_of_a_neighbour():
    batch = gat_steps.STEP_TASKS["two hops"].draw(3, torch.Generator().manual_seed(1))
    key, value, question = batch.symbols.T.tolist()
    mask = batch.enc.to_mask()
    assert mask.sum(1).tolist() == [6] * 48
    for node in range(48):
        asked = node
        for _ in range(2):
            (asked,) = [i for i in mask[asked].nonzero()[:, 0].tolist() if key[i] == question[asked]]
        assert batch.answers[node] == value[asked]
    assert all(mask[i, i] for i in range(48))


def test_a_run_learns_takes_the_rate_that_is_better_on_validation_and_is_repeatable(monkeypatch):
    monkeypatch.setattr(gat_steps, "TEST_GRAPHS", 50)
    training, rates = FitConfig(40, 8, warmup=10), (1e-9, 1e-2)
    found = gat_steps.measure_steps(training, "sorting", STEPS, rates)
    models = {rate: train_steps(replace(training, rate=rate), "sorting", STEPS) for rate in rates}
    valid = {rate: nodes_right(model, "sorting", gat_steps.VALIDATION) for rate, model in models.items()}
    assert found == {"rate": 1e-2, "right": nodes_right(models[1e-2], "sorting", gat_steps.TEST)}
    assert valid[1e-2] > 0.15 > valid[1e-9]
