import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

from attention_on_edges.experiments.complexity import (
    LAYERS,
    fastest,
    fitted_exponent,
    layer_run,
    layers_between,
    work,
)


@pytest.mark.parametrize("kind", LAYERS)
def test_counted_work_grows_as_the_table_says(kind):
    for name, power in vars(LAYERS[kind]).items():
        counts = [work(kind, **{"n": 16, "d": 16, "k": 3} | {name: size}) for size in (8, 16, 32)]
        assert fitted_exponent((8, 16, 32), counts) == pytest.approx(power)


@pytest.mark.parametrize("kind", LAYERS)
def test_counted_work_is_what_torch_multiplies(kind):
    """PyTorch's own counter of operations, two per multiplication; it counts matrix products."""
    n, d, k = 6, 5, 3
    run = layer_run(kind, n, d, k, batch=1)
    if kind == "recurrent":  # the counter does not see inside nn.RNN

        def run():
            state = torch.zeros(1, d)
            for token in torch.randn(n, 1, d):
                state = (token @ torch.randn(d, d) + state @ torch.randn(d, d)).tanh()

    with FlopCounterMode(display=False) as counter:
        run()
    assert counter.get_total_flops() == 2 * work(kind, n, d, k)


@pytest.mark.parametrize("kind", LAYERS)
def test_layers_map_sequences_to_sequences(kind):
    outcome = layer_run(kind, 6, 4, batch=2)()
    outcome = outcome[0] if isinstance(outcome, tuple) else outcome
    assert sorted(outcome.shape) == [2, 4, 6]
    assert not outcome.requires_grad


def test_the_least_of_several_turns_counts(monkeypatch):
    """On a clock that runs with the calls: ``b`` takes 5, 2, 9, ``a`` always 1; first calls do not count."""
    now, costs, order = [0.0], {"a": [50, 1, 1, 1], "b": [50, 5, 2, 9]}, []
    monkeypatch.setattr("attention_on_edges.experiments.complexity.time.perf_counter", lambda: now[0])

    def call(name):
        order.append(name)
        now[0] += costs[name].pop(0)

    assert fastest({name: lambda name=name: call(name) for name in "ab"}, repeats=3) == {"a": 1, "b": 2}
    assert order == list("abababab")


@given(st.floats(-3, 3), st.floats(0.1, 10), st.lists(st.integers(1, 500), min_size=2, unique=True))
def test_a_power_law_is_found_again(power, factor, sizes):
    assert fitted_exponent(sizes, [factor * s**power for s in sizes]) == pytest.approx(power, abs=1e-6)


@given(st.integers(1, 200), st.integers(2, 6))
def test_paths_are_as_long_as_the_closed_forms(n, k):
    """Plain: each layer reaches k - 1 further. Dilated: L layers reach k ** L - 1."""
    assert layers_between(n, k, dilated=False) == -(-(n - 1) // (k - 1))
    dilated = layers_between(n, k, dilated=True)
    assert k ** (dilated - 1) < n <= k**dilated or n == 1 == k**dilated


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: work("sparse", 2, 2), ValueError, "kind must be one of 'self-attention', .*; got 'sparse'"),
        (lambda: layer_run("recurrent", 0, 2), ValueError, "n must be at least 1, got 0"),
        (lambda: layer_run("recurrent", 1, 2, batch=0), ValueError, "batch must be at least 1, got 0"),
        (lambda: fastest({}, repeats=0), ValueError, "repeats must be at least 1, got 0"),
        (lambda: layers_between(4, 1, False), ValueError, "k must be at least 2, got 1"),
        (lambda: fitted_exponent([1, 1], [1, 2]), ValueError, "sizes must differ and pair up"),
        (lambda: fitted_exponent([1, 2], [1]), ValueError, "sizes must differ and pair up"),
        (lambda: fitted_exponent([1, 2], [1, 0]), ValueError, "sizes and values must be positive"),
    ],
)
def test_bad_input(call, error, message):
    with pytest.raises(error, match=message):
        call()
