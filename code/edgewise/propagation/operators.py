"""An engine as one operator of PyTorch, opaque to compilers; its backward pass is another one."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from edgewise.propagation.fields import KernelFields, MaybeTensor, Tensors
from edgewise.propagation.precision import without_second_derivatives

FACTORS_AT = KernelFields._fields.index("factors")
"""Dropout's, which have no gradient; in :class:`Fields` they are at the same place."""


def make_operator(
    name: str,
    forward: Callable[..., Sequence[Tensor]],
    fake_results: Callable[..., Sequence[Tensor]],
    backward: Callable[..., Sequence[MaybeTensor]],
    saved: slice,
) -> Callable[..., Tensors]:
    """Register ``edgewise::name`` and return it.

    Parameters
    ----------
    name : str
        Of the operator.
    forward : callable
        Takes fields, what is absent empty, the tensors of a graph's plan, and a count (heads at a time in
        ``csr``, edges in ``triton``). Returns results, of which at most the first three have gradients.
    fake_results : callable
        Takes the same; returns tensors of the results' shapes.
    backward : callable
        Takes the same, results that were saved, gradients of the first three, and for each field whether its
        gradient is wanted. Returns gradients of all fields.
    saved : slice
        Which results ``backward`` takes.
    """

    @torch.library.custom_op(f"edgewise::{name}", mutates_args=())
    def operator(fields: Tensors, plan: Tensors, count: int) -> Tensors:
        return [*forward(fields, plan, count)]

    @torch.library.custom_op(f"edgewise::{name}_backward", mutates_args=())
    def operator_backward(
        fields: Tensors, plan: Tensors, count: int, results: Tensors, grads: Tensors, wanted: list[bool]
    ) -> Tensors:
        found = backward(fields, plan, count, results, grads, wanted)
        return [x.contiguous() for x, want in zip(found, wanted, strict=True) if want and x is not None]

    @operator_backward.register_fake
    def _(fields: Tensors, *others: Any) -> Tensors:
        return [x.new_empty(x.shape) for x, want in zip(fields, others[-1], strict=True) if want]

    def save(ctx: Any, inputs: tuple[Any, ...], output: Tensors) -> None:
        fields, plan, ctx.count = inputs
        results = output[saved]
        ctx.wanted = [x.requires_grad and x.dim() > 1 and i != FACTORS_AT for i, x in enumerate(fields)]
        ctx.sizes = len(fields), len(plan), len(results)
        ctx.save_for_backward(*fields, *plan, *results)
        ctx.set_materialize_grads(False)  # or what leads nowhere would get zeros

    @without_second_derivatives()
    def differentiate(ctx: Any, *result_grads: MaybeTensor) -> tuple[Any, ...]:
        nothing: list[Any] = [[None] * size for size in ctx.sizes[:2]]
        if all(x is None for x in result_grads[:3]):  # from above comes nothing
            return *nothing, None
        tensors = iter(ctx.saved_tensors)
        fields, plan, results = ([next(tensors) for _ in range(size)] for size in ctx.sizes)
        grads = [fields[0].new_empty(0) if x is None else x for x in result_grads[:3]]
        found = iter(operator_backward(fields, plan, ctx.count, results, grads, ctx.wanted))
        return [next(found) if want else None for want in ctx.wanted], nothing[1], None

    operator.register_fake(lambda *args: [*fake_results(*args)])
    operator.register_autograd(lambda ctx, grads: differentiate(ctx, *grads), setup_context=save)
    return operator
