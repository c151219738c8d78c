"""The steps from GAT to the Transformer: with all and with none it is the one and the other."""

from dataclasses import replace

import pytest
import torch
from torch.nn.functional import elu
from torch_geometric.nn import GATv2Conv

from attention_on_edges.analysis.gat_steps import (
    GATV2,
    STEP_TASKS,
    STEPS,
    GATv2Layer,
    StepConfig,
    StepLayer,
    StepModel,
    nodes_right,
    train_steps,
)
from attention_on_edges.experiments import get_study
from attention_on_edges.experiments.gat_steps import BY_GATV2, LADDER, WITHOUT, StepsRun
from edgewise.graphs import complete
from edgewise.models.gnn import GraphTransformerLayer

GENERATOR = torch.Generator().manual_seed(0)
GRAPH, X = complete([5, 7]), torch.randn(12, 16, generator=GENERATOR)


def moved(layer):
    """The layer with every parameter moved away from its start value."""
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=GENERATOR))
    return layer


def test_with_all_steps_it_is_the_transformers_layer():
    layer, wanted = moved(StepLayer(16, 4, 24)), GraphTransformerLayer(16, 4, 24)
    attention = wanted.self_attn
    with torch.no_grad():
        for theirs, ours in [
            (attention.in_proj, layer.qkv),
            (attention.out_proj, layer.out),
            (wanted.sublayer[0].norm, layer.norms[0]),
            (wanted.sublayer[1].norm, layer.norms[1]),
        ]:
            theirs.load_state_dict(ours.state_dict())
        wanted.feed_forward.load_state_dict(layer.feed_forward.state_dict())
    torch.testing.assert_close(layer(GRAPH, X), wanted(GRAPH, X))


def test_with_none_it_is_gat_and_its_nonlinearity():
    layer = moved(StepLayer(16, 4, 24, ()))
    torch.testing.assert_close(layer(GRAPH, X), elu(layer.gat(GRAPH, X)))


def test_gatv2_is_pygs():
    layer, theirs = moved(GATv2Layer(16, 16, 4)), GATv2Conv(16, 4, heads=4, add_self_loops=False)
    with torch.no_grad():
        for ours, wanted in ((layer.value, theirs.lin_l), (layer.receiver, theirs.lin_r)):
            wanted.weight.copy_(ours.weight)
            wanted.bias.zero_()
        theirs.att.copy_(layer.as_sender[None])
        theirs.bias.copy_(layer.bias)
    torch.testing.assert_close(layer(GRAPH, X), theirs(X, GRAPH.edge_index))
    assert {name for name, _ in layer.named_parameters()} == {
        "value.weight",
        "receiver.weight",
        "as_sender",
        "bias",
    }
    step = moved(StepLayer(16, 4, 24, (GATV2,)))
    torch.testing.assert_close(step(GRAPH, X), elu(step.gat(GRAPH, X)))
    assert isinstance(step.gat, GATv2Layer)


def test_rungs_are_their_formulas():
    """Each step acts whether or not those before it are there."""
    for steps in [*LADDER.values(), *WITHOUT.values()]:
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


def test_training_learns_and_depends_on_its_settings():
    model = train_steps("sorting", STEPS, StepConfig(updates=120, graphs=16), 2e-3)
    assert nodes_right(model, "sorting", 100) > 0.3
    short = StepConfig(updates=3, graphs=2, warmup=1)
    weights = [
        train_steps("sorting", STEPS, each, rate).predict.weight
        for each, rate in ((short, 1e-3), (short, 1e-4), (replace(short, warmup=3), 1e-3))
    ]
    assert not torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_two_hops_ask_a_neighbour_of_a_neighbour():
    batch = STEP_TASKS["two hops"].draw(3, torch.Generator().manual_seed(1))
    key, value, question = batch.symbols.T.tolist()
    mask = batch.graph.to_mask()
    assert mask.sum(1).tolist() == [6] * 48
    for node in range(48):
        asked = node
        for _ in range(2):
            (asked,) = [i for i in mask[asked].nonzero()[:, 0].tolist() if key[i] == question[asked]]
        assert batch.answers[node] == value[asked]
    assert all(mask[i, i] for i in range(48))


def test_strings_are_sorted():
    batch = STEP_TASKS["sorting"].draw(4, torch.Generator().manual_seed(1))
    letters, places = batch.symbols.T
    lengths = batch.graph.to_mask().sum(1)[places == 0].tolist()
    assert min(lengths) >= 8
    assert max(lengths) <= 16
    for string, place, answer in zip(
        *(x.split(lengths) for x in (letters, places, batch.answers)), strict=True
    ):
        assert sorted(string.tolist()) == answer.tolist()
        assert place.tolist() == list(range(len(place)))


def test_the_study_adds_and_leaves_out_every_step():
    assert [len(steps) for steps in LADDER.values()] == [0, 1, 2, 3, 4, 5]
    assert [set(STEPS) - set(steps) for steps in WITHOUT.values()] == [{step} for step in STEPS[:-1]]
    entries = get_study("gat-steps").entries
    assert [set(steps) - {GATV2} for steps in BY_GATV2.values()] == [set(), set(STEPS[1:])]
    assert len({(e.task, e.steps, e.training.seed) for e in entries}) == len(entries) == 72
    assert len({(e.training.updates, e.training.graphs, e.training.rates) for e in entries}) == 1


def test_a_run_takes_the_better_rate_and_is_repeatable():
    config = StepConfig(updates=4, graphs=2, rates=(1e-9, 1e-2))
    run = StepsRun("x", "sorting", STEPS, config)
    found = run.figures()
    assert found == run.figures()
    assert found["rate"] in config.rates
    model = train_steps("sorting", STEPS, config, found["rate"])
    assert found["right"] == nodes_right(model, "sorting", seed=2_000_000)
    other = next(rate for rate in config.rates if rate != found["rate"])
    worse = train_steps("sorting", STEPS, config, other)
    assert nodes_right(model, "sorting") >= nodes_right(worse, "sorting")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: StepLayer(8, 2, 8, ["glue"]), "step must be one of .*, got 'glue'|step must be one of"),
        (lambda: StepLayer(8, 2, 8, [*STEPS, GATV2]), "steps must have one score"),
        (lambda: StepsRun("x", "flying", (), StepConfig()), "task must be one of"),
        (lambda: StepsRun("x", "sorting", ("glue",), StepConfig()), "step must be one of"),
        (lambda: StepsRun("x", "sorting", (*STEPS, GATV2), StepConfig()), "steps must have one score"),
        (lambda: StepConfig(updates=0), "updates must be at least 1, got 0"),
        (lambda: StepConfig(rates=()), "at least one learning rate"),
        (lambda: StepsRun("x", "sorting", (), StepConfig()).figures("cuda"), "device must be cpu"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_a_model_predicts_for_each_node():
    batch = STEP_TASKS["sorting"].draw(2, torch.Generator().manual_seed(1))
    model = StepModel(2, 26, 26, STEPS, num_layers=1, dim=8, num_heads=2, dim_ff=8)
    assert model(batch.graph, batch.symbols).shape == (len(batch.answers), 26)
