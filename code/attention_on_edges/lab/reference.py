"""What each task's class should compute, and what it computes with a mistake in it.

Plain functions of parameters and inputs, in their precision. ``faults`` names deliberate mistakes: if a
reader's output equals that of a mistake, the mistake is found. Parameters are a dict by name, as from
``named_parameters``.
"""

import math
from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional as F

Params = Mapping[str, Tensor]
Faults = frozenset[str]
NONE: Faults = frozenset()

INFINITE = -torch.inf


def part(p: Params, name: str) -> dict[str, Tensor]:
    """Return the parameters of one part of a module."""
    return {key.removeprefix(f"{name}."): x for key, x in p.items() if key.startswith(f"{name}.")}


def same(x: Tensor) -> Tensor:
    """Return ``x``: no dropout."""
    return x


def attention(
    p: Params,
    h: int,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    maskout: bool = False,
    faults: Faults = NONE,
) -> Tensor:
    """Multi-head attention (Vaswani et al. 2017, eq. 1 and sec. 3.2.2), [batch, n, d] to [batch, n, d]."""
    if "queries and keys exchanged" in faults:
        query, key = key, query
    if "values from keys" in faults:
        value = key
    if "all from the query" in faults:
        key = value = query
    if "not projected" in faults:
        q, k, v = query, key, value
    else:
        names = ("w_q", "w_v", "w_k") if "projections exchanged" in faults else ("w_q", "w_k", "w_v")
        names = ("w_q",) * 3 if "one projection for all" in faults else names
        q, k, v = (linear(part(p, name), x) for name, x in zip(names, (query, key, value), strict=True))
    q, k, v = (cut(x, h, faults) for x in (q, k, v))  # [batch, h, n or m, d_k]
    columns = k.transpose(-2, -1)  # [batch, h, d_k, m]
    columns = k.reshape(columns.shape) if "keys reshaped" in faults else columns
    scores = scaled(q @ columns, p["w_q.weight"].shape[0], h, faults)
    context = weigh(scores, maskout, faults) @ v
    joined = join(context, faults)
    return joined if "no output projection" in faults else linear(part(p, "w_o"), joined)


def linear(p: Params, x: Tensor, bias: bool = True) -> Tensor:
    """A linear map, as ``nn.Linear``."""
    return x @ p["weight"].T + p["bias"] * bias


def cut(x: Tensor, h: int, faults: Faults) -> Tensor:
    """Cut [batch, n, d] into heads [batch, h, n, d_k]."""
    batch, n, d = x.shape
    if "never cut" in faults:
        return x[:, None]
    if "heads not transposed" in faults:
        return x.reshape(batch, h, n, d // h)
    if "heads interleaved" in faults:
        return x.reshape(batch, n, d // h, h).permute(0, 3, 1, 2)
    heads = x.reshape(batch, n, h, d // h)
    return heads if "attention among heads" in faults else heads.transpose(1, 2)


def join(context: Tensor, faults: Faults) -> Tensor:
    """Join heads [batch, h, n, d_k] to [batch, n, d]."""
    if "joined without transposing" in faults:
        batch, h, n, d_k = context.shape
        return context.reshape(batch, n, h * d_k)
    if "attention among heads" in faults:
        return context.flatten(-2)
    order = (0, 2, 3, 1) if "heads interleaved" in faults else (0, 2, 1, 3)
    return context.permute(order).flatten(-2)


def scaled(dots: Tensor, d: int, h: int, faults: Faults) -> Tensor:
    """Divide the dot products by the root of a head's width."""
    width = d // h
    divisors = {
        "no scale": 1.0,
        "scaled by d_k": width,
        "scaled by dim_model": math.sqrt(d),
        "scaled by the heads": math.sqrt(h),
        "scaled the wrong way": 1 / math.sqrt(width),
    }
    return dots / next((value for name, value in divisors.items() if name in faults), math.sqrt(width))


def weigh(scores: Tensor, maskout: bool, faults: Faults) -> Tensor:
    """Turn scores into weights; with ``maskout`` later senders get none."""
    axes = {"softmax over queries": -2, "softmax over heads": 1, "softmax over the batch": 0}
    axis = next((value for name, value in axes.items() if name in faults), -1)

    def normalised(x: Tensor) -> Tensor:
        return x if "no softmax" in faults else x.softmax(axis)

    if not maskout or "maskout ignored" in faults:
        return normalised(scores)
    visible, fill = torch.ones_like(scores).tril() > 0, INFINITE
    if "mask the wrong way round" in faults:
        visible = torch.ones_like(scores).triu() > 0
    if "mask inverted" in faults:
        visible = ~visible
    if "diagonal hidden" in faults:
        visible = torch.ones_like(scores).tril(-1) > 0
    if "mask one place late" in faults:
        visible = torch.ones_like(scores).tril(1) > 0
    if "mask after the softmax" in faults:
        return normalised(scores) * visible
    if "masked with zero" in faults:
        fill = 0.0
    if "finite fill" in faults:
        fill = -1e9
    return normalised(scores.masked_fill(~visible, fill))


def feed_forward(p: Params, x: Tensor, faults: Faults = NONE) -> Tensor:
    """The position-wise network (Vaswani et al. 2017, eq. 2), [batch, n, d] to [batch, n, d]."""
    activations = {
        "no relu": same,
        "gelu": F.gelu,
        "sigmoid": torch.sigmoid,
        "tanh": torch.tanh,
        "leaky relu": F.leaky_relu,
        "softmax inside": lambda y: y.softmax(-1),
    }
    activate = next((f for name, f in activations.items() if name in faults), torch.relu)
    y = x.relu() if "relu first" in faults else x
    bias = "no biases" not in faults
    y = linear(part(p, "outer"), activate(linear(part(p, "inner"), y, bias)), bias)
    y = y.relu() if "relu last" in faults else y
    return x + y if "input added" in faults else y
