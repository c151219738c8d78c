"""Chapter 2: the cost of one layer of attention, recurrence or convolution, counted and timed."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from edgewise.attention import dot_product_attention
from edgewise.validation import check_choice, check_count


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
    n, d, k = _checked(kind, n, d, k)
    scores_and_sums = 2 * n * n * d
    state_and_input = 2 * n * d * d
    return {"self-attention": scores_and_sums, "recurrent": state_and_input, "convolution": k * n * d * d}[
        kind
    ]


def layer_run(kind: str, n: int, d: int, k: int = 3, batch: int = 4) -> Callable[[], object]:
    """Return a function that passes ``batch`` random sequences through a layer, forward.

    Attention is that of one head without projections, as in the table; the recurrent layer is ``nn.RNN``,
    one tanh of two matrix products per token; the convolution is ``nn.Conv1d``.

    Parameters
    ----------
    kind : str
        One of ``LAYERS``.
    n, d, k, batch : int
        Tokens, width, kernel and sequences.
    """
    n, d, k = _checked(kind, n, d, k)
    x = torch.randn(check_count("batch", batch, 1), n, d)
    if kind == "self-attention":
        return lambda: dot_product_attention(x, x, x)
    if kind == "recurrent":
        layer = nn.RNN(d, d, batch_first=True)
    else:
        layer, x = nn.Conv1d(d, d, k, padding="same"), x.transpose(1, 2).contiguous()
    return torch.no_grad()(lambda: layer(x))


def fastest(functions: Mapping[Any, Callable[[], object]], repeats: int = 7) -> dict[Any, float]:
    """Time functions in turns and return the shortest time of each, in seconds.

    Other load on the machine can only add to a time, so the shortest is closest to the work itself.

    Parameters
    ----------
    functions : mapping of name to callable
        Each is called once unmeasured, then ``repeats`` times.
    repeats : int
        At least 1.
    """
    check_count("repeats", repeats, 1)
    for function in functions.values():
        function()
    least = dict.fromkeys(functions, math.inf)
    for _ in range(repeats):
        for name, function in functions.items():
            begin = time.perf_counter()
            function()
            least[name] = min(least[name], time.perf_counter() - begin)
    return least


def fitted_exponent(sizes: Sequence[float], values: Sequence[float]) -> float:
    """Return b of the power law a * size ** b that fits best: least squares on the logarithms.

    Raises
    ------
    ValueError
        If there are fewer than two different sizes, not one value per size, or any of them is not positive.
    """
    if len(sizes) != len(values) or len(set(sizes)) < 2:
        raise ValueError(f"sizes must differ and pair up with values, got {sizes!r} and {values!r}")
    if min(*sizes, *values) <= 0:
        raise ValueError(f"sizes and values must be positive, got {sizes!r} and {values!r}")
    x, y = ([math.log(number) for number in numbers] for numbers in (sizes, values))
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    slope = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True))
    return slope / sum((a - mean_x) ** 2 for a in x)


def layers_between(n: int, k: int, dilated: bool) -> int:
    """Count causal layers of kernel size ``k`` until the last token's receptive field holds the first.

    Parameters
    ----------
    n, k : int
        Tokens, and kernel of at least 2.
    dilated : bool
        Whether the dilation grows by a factor of ``k`` from layer to layer; without it, it is 1.
    """
    check_count("n", n, 1)
    check_count("k", k, 2)
    field, layers, step = {n - 1}, 0, 1
    while 0 not in field:
        field = {i - step * tap for i in field for tap in range(k) if i >= step * tap}
        layers, step = layers + 1, step * k if dilated else step
    return layers


def _checked(kind: str, n: int, d: int, k: int) -> tuple[int, int, int]:
    check_choice("kind", kind, LAYERS)
    return check_count("n", n, 1), check_count("d", d, 1), check_count("k", k, 1)
