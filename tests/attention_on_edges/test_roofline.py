from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

from attention_on_edges.benchmarks.training import VOCAB, Training, matrix_work
from attention_on_edges.experiments.roofline import (
    ADAM_BYTES,
    KINDS,
    Cost,
    Counted,
    Machines,
    Plan,
    Tally,
    lagrange,
    step_of,
    tally_pass,
)

PLAN = Plan(length=6, rows=1000)

FAST = Machines(peak=100.0, bandwidth=10.0, link=8.0, network=2.0, per_machine=4, power=1.0, overlap=0.5)


class TestTally:
    def test_products_are_what_torch_counts(self):
        a, b, c = torch.randn(3, 4, requires_grad=True), torch.randn(4, 5), torch.randn(7, 3, 4)
        with Tally() as tally, FlopCounterMode(display=False) as counter:
            torch.addmm(torch.zeros(5), a, b).sum().backward()
            torch.bmm(c, c.mT)
            torch.baddbmm(torch.zeros(7, 3, 3), c, c.mT)
            torch.mm(b, b.T, out=torch.empty(4, 4))
        assert tally.costs["products"].flops == counter.get_total_flops()
        assert tally.costs["products"].calls == 5

    def test_bytes_and_calls(self):
        """Of what is read and of what is written; views move nothing, tables what is read of them."""
        x, table = torch.randn(6, 4), torch.randn(1000, 4)
        with Tally() as tally:
            x.relu()
            x.t().unsqueeze(0)[0].detach()
            torch.empty(100)
            table[torch.tensor([1, 2, 3])]
            x.add_(1)
        # the index is made by an operation of its own, which copies nothing here
        added = tally.costs["rest"].moved - (2 + 2) * 6 * 4 * 4 - 2 * 3 * 4 * 4
        assert 0 <= added <= 2 * 3 * 8
        assert tally.costs["products"] == tally.costs["attention"] == Cost()

    def test_half_precision_moves_half(self):
        x = torch.randn(8, 8)
        with Tally() as tally:
            x @ x
        with Tally() as half:
            x.bfloat16() @ x.bfloat16()
        assert half.costs["products"].moved == tally.costs["products"].moved / 2 == 3 * 64 * 2
        assert half.costs["rest"].moved == 2 * 64 * (4 + 2)

    def test_a_pass_is_the_closed_form(self):
        """Products with weights as the training benchmark counts them; attention 12 a score and feature."""
        plan = Plan(length=9, rows=1000, autocast=False)
        costs = tally_pass(plan, 2, 64, VOCAB, 3)
        training = Training("", 2, 64, 256, 1)
        pair = (torch.zeros(9), torch.zeros(10))
        edges = 3 * 2 * (9 * 9 + 9 * 9 + 9 * 10 / 2)
        assert costs["products"].flops == matrix_work(training, [[pair] * 3]) - 12 * 64 * edges
        assert costs["attention"].flops == 12 * 64 * 3 * 2 * 3 * 9 * 9  # a causal tile is worked out whole


class TestCounted:
    def test_other_sizes_are_exact(self):
        counted = Counted(PLAN)
        for sizes in ((3, 256, 50, 5), (2, 192, 300, 3)):
            found, truth = counted.at(*sizes), tally_pass(PLAN, *sizes)
            for kind in KINDS:
                assert found[kind] == pytest.approx(truth[kind], rel=1e-9)

    def test_so_are_full_chunks(self):
        plan = replace(PLAN, rows=6)
        found, truth = Counted(plan).at(1, 256, 50, 7), tally_pass(plan, 1, 256, 50, 7)
        for kind in KINDS:
            assert found[kind] == pytest.approx(truth[kind], rel=1e-9)
        assert truth["rest"].calls > tally_pass(PLAN, 1, 256, 50, 7)["rest"].calls

    def test_weights(self):
        model = PLAN.model(3, 64, 50)
        assert PLAN.weights(3, 64, 50) == sum(p.numel() for p in model.parameters())
        with pytest.raises(ValueError, match=r"dim_model \(100\) must be a multiple of 64"):
            PLAN.weights(3, 100, 50)


@given(st.lists(st.integers(-50, 50), min_size=1, max_size=4, unique=True), st.integers(-50, 50))
def test_polynomials_pass_through_their_nodes(nodes, x):
    weights = lagrange(nodes, x)
    for power in range(len(nodes)):
        value = sum(w * a**power for w, a in zip(weights, nodes, strict=True))
        assert value == pytest.approx(x**power, rel=1e-6, abs=1e-3)


class TestMachines:
    def test_the_longer_of_two_times(self):
        half = replace(FAST, of_peak=0.5, of_bandwidth=0.25)
        assert FAST.seconds(Cost(200.0, 10.0)) == 2.0
        assert FAST.seconds(Cost(200.0, 50.0)) == 5.0
        assert half.seconds(Cost(200.0, 1.0)) == 4.0
        assert half.seconds(Cost(0.0, 10.0)) == 4.0

    def test_a_ring_sends_each_byte_twice_but_for_a_share(self):
        assert FAST.reduce_seconds(80.0, 1) == 0
        assert FAST.reduce_seconds(80.0, 2) == 10.0
        assert FAST.reduce_seconds(80.0, 4) == 15.0
        assert FAST.reduce_seconds(80.0, 8) == 15.0 + 2 * 1 / 2 * 20 / 2
        assert FAST.reduce_seconds(80.0, 16) == 15.0 + 2 * 3 / 4 * 20 / 2
        assert replace(FAST, of_link=0.5).reduce_seconds(80.0, 2) == 20.0

    @pytest.mark.parametrize(
        ("part", "value"),
        [("peak", 0.0), ("of_peak", 1.5), ("overlap", -0.1), ("overlap", 2.0), ("call", -1.0)],
    )
    def test_impossible_machines_are_refused(self, part, value):
        with pytest.raises(ValueError, match=f"{part} is out of range: {value}"):
            replace(FAST, **{part: value})

    def test_gpus_are_counted(self):
        with pytest.raises(ValueError, match="gpus must be at least 1, got 0"):
            FAST.reduce_seconds(1.0, 0)


COSTS = {"products": Cost(300.0, 0.0, 10), "attention": Cost(0.0, 20.0, 5), "rest": Cost(0.0, 10.0, 15)}


class TestStep:
    def test_parts_add_up(self):
        step = step_of(COSTS, 5, FAST, 1)
        assert step[:4] == (3.0, 2.0, 1.0, ADAM_BYTES * 5 / 10)
        assert (step.starting, step.reducing) == (0, 0)
        assert step.total == 6.0 + step.adam

    def test_the_slower_of_cpu_and_gpu_decides(self):
        step = step_of(COSTS, 5, replace(FAST, call=1.0), 1)
        assert step.starting == 30.0
        assert step.total == 30.0 + step.adam

    def test_what_the_backward_pass_does_not_hide_comes_on_top(self):
        """Two thirds of 6 s are the backward pass; during half of them gradients travel."""
        for weights in (1, 8):
            step = step_of(COSTS, weights, FAST, 2)
            assert step.reducing == 4 * weights / 8
            assert step.total == pytest.approx(6.0 + max(0.0, step.reducing - 2.0) + step.adam)
