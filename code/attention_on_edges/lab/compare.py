"""Compares a reader's output with the reference, and finds the mistake that explains a difference."""

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from attention_on_edges.lab.reference import NONE, Faults, Params
from attention_on_edges.lab.runner import Wrong, call

Compute = Callable[[Params, Faults], Tensor]
"""Parameters and slips to an output: a reference with everything else filled in."""


def exact(module: nn.Module) -> Params:
    """Return copies of a module's parameters in double precision."""
    return {name: p.detach().double().requires_grad_() for name, p in module.named_parameters()}


def is_tensor(output: Any, shape: tuple[int, ...], meaning: str) -> Tensor:
    """Return ``output`` if it is a floating-point tensor of that shape.

    Raises
    ------
    Wrong
        If it is anything else.
    """
    asked = f"a tensor {list(shape)}, {meaning}, is asked for"
    if output is None:
        raise Wrong(f"It returns None, but {asked}. Is a `return` missing?")
    if not isinstance(output, Tensor):
        raise Wrong(f"It returns a {type(output).__name__}, but {asked}.")
    if tuple(output.shape) != shape:
        raise Wrong(f"It returns a tensor {list(output.shape)}, but {asked}.")
    if not output.is_floating_point():
        raise Wrong(f"It returns a tensor of {output.dtype}, but floating-point numbers are asked for.")
    return output


def near(output: Tensor, reference: Tensor) -> bool:
    """Whether two results are equal in the book's sense: within 1e-5 * max(1, largest of the reference)."""
    if output.shape != reference.shape:
        return False
    finite = reference.detach().nan_to_num(0, 0, 0).abs()
    bound = 1e-5 * max(1.0, float(finite.max())) if finite.numel() else 1e-5
    return torch.allclose(output.detach().double(), reference.detach(), rtol=0, atol=bound, equal_nan=True)


def steady(first: Tensor, again: Tensor) -> None:
    """Compare two outputs for the same input.

    Raises
    ------
    Wrong
        If they differ.
    """
    if not near(again, first.detach().double()):
        raise Wrong(
            "Two runs on the same input differ, in evaluation mode. Is there an `F.dropout`, which is active "
            "there too, or a layer that is made in `forward`, with new weights each time?"
        )


def judge(output: Tensor, module: nn.Module, compute: Compute, slips: Mapping[str, str]) -> None:
    """Compare a module's output with the reference.

    Raises
    ------
    Wrong
        If they differ; names the one or two mistakes that explain the output, if any do.
    """
    p = exact(module)
    with torch.no_grad():
        reference = compute(p, NONE)
    if near(output, reference):
        return
    found = diagnose(output, lambda faults: compute(p, faults), slips)
    raise Wrong(" And: ".join(slips[name] for name in found) if found else _difference(output, reference))


def diagnose(output: Any, compute: Callable[[Faults], Any], slips: Mapping[str, str]) -> tuple[str, ...]:
    """Return the one or two mistakes that give exactly this output, or none."""
    for count in (1, 2):
        for names in itertools.combinations(slips, count):
            try:
                with torch.no_grad():
                    wrong = compute(frozenset(names))
            except (RuntimeError, IndexError, ValueError):
                continue  # these mistakes do not fit these shapes, or each other
            if near(output, wrong) if isinstance(output, Tensor) else output == wrong:
                return names
    return ()


def _difference(output: Tensor, reference: Tensor) -> str:
    """Say how far an output is from the reference, and where first."""
    output = output.detach()
    bad = ~output.isfinite()
    if bad.any():
        kinds = sorted({str(x) for x in output[bad].tolist()})
        hint = (
            " A softmax over nothing but -inf gives nan, and so does 0 * inf." if output.isnan().any() else ""
        )
        return f"{int(bad.sum())} of its {bad.numel()} numbers are {' or '.join(kinds)}.{hint}"
    off = (output.double() - reference).abs()
    place = tuple(int(i) for i in (off > 1e-5 * max(1.0, float(reference.abs().max()))).nonzero()[0])
    index = "".join(f"[{i}]" for i in place)
    return (
        f"The numbers are wrong, by up to {float(off.max()):.2g}, and no common slip explains them. The "
        f"first is output{index}: {float(output[place]):.4f} should be {float(reference[place]):.4f}."
    )


def same_gradients(
    module: nn.Module, inputs: list[Tensor], compute: Callable[[Params, list[Tensor]], Tensor], **options: Any
) -> str:
    """Compare the gradients of inputs and parameters with the reference's.

    Raises
    ------
    Wrong
        If one is missing, not finite or not equal.
    """
    parameters, p = dict(module.named_parameters()), exact(module)
    leaves = [x.clone().requires_grad_() for x in inputs if x.is_floating_point()]
    rest = [x for x in inputs if not x.is_floating_point()]
    output = call(module, *leaves, *rest, **options)
    if not output.requires_grad:
        raise Wrong("No gradient flows back at all: is there a `no_grad`, a `detach` or a `.data`?")
    upstream = torch.randn_like(output)
    ours = torch.autograd.grad(output, [*leaves, *parameters.values()], upstream, allow_unused=True)
    doubles = [x.detach().double().requires_grad_() for x in leaves]
    reference = compute(p, [*doubles, *rest])
    wanted = torch.autograd.grad(reference, [*doubles, *p.values()], upstream.double(), allow_unused=True)
    for name, mine, other in zip([*_inputs(len(leaves)), *parameters], ours, wanted, strict=True):
        if other is None:
            continue
        if mine is None:
            raise Wrong(f"No gradient reaches {name}: is there a `no_grad`, a `detach` or a `.data`?")
        if not mine.isfinite().all():
            raise Wrong(f"The gradient of {name} is not finite, although the output is.")
        if not near(mine, other):
            raise Wrong(f"The output is right, but the gradient of {name} is not: is part of it detached?")
    return f"they reach all {len(parameters)} parameters, and equal the reference's"


def _inputs(count: int) -> list[str]:
    return ["the input"] if count == 1 else [f"input {i + 1}" for i in range(count)]
