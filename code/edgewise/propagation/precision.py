"""What several engines share: full precision, no second derivatives."""

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from edgewise.graphs import AttentionGraph
from edgewise.propagation.fields import Engine, Fields

HALF = (torch.float16, torch.bfloat16)

WITHOUT_DOUBLE = {"mps"}


def in_full_precision(engine: Engine) -> Engine:
    """Run an engine on half-precision input in float32: scores round, and sums over many in-edges stall."""

    @functools.wraps(engine)
    def wrapped(graph: AttentionGraph, fields: Fields) -> Tensor:
        if fields.q.dtype not in HALF:
            return engine(graph, fields)
        return engine(graph, fields.to(torch.float32)).to(fields.q.dtype)

    return wrapped


def widest(device: torch.device) -> torch.dtype:
    """The widest floating-point type that a device has."""
    return torch.float32 if device.type in WITHOUT_DOUBLE else torch.float64


def without_autocast(device: str) -> contextlib.AbstractContextManager[object]:
    """Under which engines would differ in the dtype that they return."""
    on = device != "meta" and torch.is_autocast_enabled(device)
    return torch.autocast(device, enabled=False) if on else contextlib.nullcontext()


def without_second_derivatives(
    instead: str, batches: bool = True
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make a ``backward`` refuse to be differentiated itself; ``instead`` says what can be.

    PyTorch's own ``once_differentiable`` refuses only where the gradient that comes from above is
    differentiable too, and takes the result for a constant elsewhere. Without ``batches``, several gradients
    at once are refused, too.
    """

    def decorated(backward: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(backward)
        def wrapped(*args: Any) -> Any:
            if torch.is_grad_enabled():  # as with create_graph=True
                raise RuntimeError(
                    f"this gradient cannot be differentiated again: for second derivatives use {instead}, "
                    "else leave create_graph=True out"
                )
            if not batches and any(
                torch._C._functorch.is_legacy_batchedtensor(x) for x in args[1:] if x is not None
            ):
                raise RuntimeError(f"for is_grads_batched and vectorized Jacobians use {instead}")
            return backward(*args)

        return wrapped

    return decorated
