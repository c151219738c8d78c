import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

from attention_on_edges.studies.complexity import (
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


@given(st.floats(-3, 3), st.floats(0.1, 10), st.lists(st.integers(1, 500), min_size=2, unique=True))
def test_a_power_law_is_found_again(power, factor, sizes):
    assert fitted_exponent(sizes, [factor * s**power for s in sizes]) == pytest.approx(power, abs=1e-6)


@given(st.integers(1, 200), st.integers(2, 6))
def test_paths_are_as_long_as_the_closed_forms(n, k):
    """Plain: each layer reaches k - 1 further. Dilated: L layers reach k ** L - 1."""
    assert layers_between(n, k, dilated=False) == -(-(n - 1) // (k - 1))
    dilated = layers_between(n, k, dilated=True)
    assert k ** (dilated - 1) < n <= k**dilated or n == 1 == k**dilated


def test_the_fastest_call_counts_but_not_the_first(monkeypatch):
    monkeypatch.setattr("timeit.repeat", lambda function, number, repeat: function(number, repeat))
    assert fastest({4: lambda number, repeat: [1, 5, 2, 9][: repeat // number]}, repeats=3) == {4: 2}
