"""What several engines share: full precision, transforms, no second derivatives."""

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from edgewise.graphs import AttentionGraph
from edgewise.propagation.fields import Engine, Fields

HALF = (torch.float16, torch.bfloat16)

WITHOUT_FLOAT64 = {"mps"}


def run_in_float32(engine: Engine) -> Engine:
    """Run an engine on half-precision input in float32: scores round, and sums over many in-edges stall."""

    @functools.wraps(engine)
    def wrapped(graph: AttentionGraph, fields: Fields, with_lse: bool = False) -> Any:
        if fields.q.dtype not in HALF:
            return engine(graph, fields, with_lse) if with_lse else engine(graph, fields)
        if with_lse:
            output, lse = engine(graph, fields.to(torch.float32), with_lse)
            return output.to(fields.q.dtype), lse
        return engine(graph, fields.to(torch.float32)).to(fields.q.dtype)

    return wrapped


def widest(device: torch.device) -> torch.dtype:
    """The widest floating-point type that a device has."""
    return torch.float32 if device.type in WITHOUT_FLOAT64 else torch.float64


def without_autocast(device: str) -> contextlib.AbstractContextManager[object]:
    """Without autocast, under which engines would return different dtypes."""
    on = device != "meta" and torch.is_autocast_enabled(device)
    return torch.autocast(device, enabled=False) if on else contextlib.nullcontext()


def in_a_transform() -> bool:
    """Whether this runs inside of ``torch.func``'s ``grad``, ``vmap`` and the like, or of forward mode."""
    return torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0


def refuse_second_derivatives(grad: object, instead: str = "engine='scatter'") -> None:
    """Raise if a gradient is to be differentiated itself, as with ``create_graph=True``: a tensor's hook."""
    if torch.is_grad_enabled():
        raise RuntimeError(
            f"this gradient cannot be differentiated again: for second derivatives use {instead}, "
            "else leave create_graph=True out"
        )


def refusing_second_derivatives(output: Tensor) -> Tensor:
    """Return an output whose gradient refuses to be differentiated, and says what can be."""
    if output.requires_grad:
        output.register_hook(refuse_second_derivatives)
    return output


def without_second_derivatives(
    instead: str = "engine='scatter'",
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make a ``backward`` refuse to be differentiated itself, and batched gradients.

    PyTorch's own ``refusing_second_derivatives`` refuses only where the gradient that comes from above is
    differentiable too, and takes the result for a constant elsewhere.
    """

    def decorated(backward: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(backward)
        def wrapped(ctx: Any, *grads: Any) -> Any:
            refuse_second_derivatives(None, instead)
            if any(torch._C._functorch.is_legacy_batchedtensor(x) for x in grads if x is not None):
                raise RuntimeError(f"for is_grads_batched and vectorized Jacobians use {instead}")
            return backward(ctx, *grads)

        return wrapped

    return decorated
