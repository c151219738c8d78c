"""The lab's Table 1: the cost of one layer of attention, recurrence or convolution, counted and timed."""

import math
import statistics
import timeit
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from attention_on_edges.attention import dot_product_attention


@dataclass(frozen=True)
class Exponents:
    """Exponents of the length n, the width d and the kernel size k in the cost of a layer."""

    n: int
    d: int
    k: int = 0


LAYERS = {"self-attention": Exponents(2, 1), "recurrent": Exponents(1, 2), "convolution": Exponents(1, 2, 1)}
"""Kinds of layer, with the exponents of Vaswani et al. 2017, table 1."""


def work(kind: str, n: int, d: int, k: int = 3) -> int:
    """Count the multiplications of one layer on one sequence, without biases and non-linearities.

    Parameters
    ----------
    kind : str
        One of ``LAYERS``.
    n, d, k : int
        Tokens, width and, for the convolution, kernel.
    """
    scores_and_sums, state_and_input = 2 * n * n * d, 2 * n * d * d
    counts = {"self-attention": scores_and_sums, "recurrent": state_and_input, "convolution": k * n * d * d}
    return counts[kind]


def layer_run(kind: str, n: int, d: int, k: int = 3, batch: int = 4) -> Callable[[], object]:
    """Return a function that passes ``batch`` random sequences through a layer, forward.

    Attention is that of one head without projections, as in the table; the recurrent layer is ``nn.RNN``,
    one tanh of two matrix products per token; the convolution is ``nn.Conv1d``. Other parameters are as in
    :func:`work`.
    """
    x = torch.randn(batch, n, d)
    if kind == "self-attention":
        return lambda: dot_product_attention(x, x, x)
    if kind == "recurrent":
        layer: nn.Module = nn.RNN(d, d, batch_first=True)
    else:
        layer, x = nn.Conv1d(d, d, k, padding="same"), x.transpose(1, 2).contiguous()
    return torch.no_grad()(lambda: layer(x))


def fastest(functions: Mapping[int, Callable[[], object]], repeats: int = 7) -> dict[int, float]:
    """Return the shortest time of each function in seconds; its first call does not count.

    Other load on the machine can only add to a time, so the shortest is closest to the work itself.
    """
    return {size: min(timeit.repeat(f, number=1, repeat=1 + repeats)[1:]) for size, f in functions.items()}


def fitted_exponent(sizes: Sequence[float], values: Sequence[float]) -> float:
    """Return b of the power law a * size ** b that fits best: least squares on the logarithms."""
    return statistics.linear_regression(*(list(map(math.log, numbers)) for numbers in (sizes, values))).slope


def layers_between(n: int, k: int, dilated: bool) -> int:
    """Count causal layers of kernel size ``k`` until the last of ``n`` tokens has received from the first.

    With ``dilated`` the dilation grows by a factor of ``k`` from layer to layer; else it is 1.
    """
    field, layers, step = {n - 1}, 0, 1
    while 0 not in field:
        field = {i - step * tap for i in field for tap in range(k) if i >= step * tap}
        layers, step = layers + 1, step * k if dilated else step
    return layers
