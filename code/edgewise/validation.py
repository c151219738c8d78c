"""Errors and argument checks shared by every module; messages say what was given and what is allowed."""

import math
import operator
from collections.abc import Iterable
from numbers import Real
from typing import SupportsIndex, cast

import torch
from torch import Tensor, nn


class InputError(ValueError):
    """A file, name or setting that somebody gave cannot be used; the message is for them.

    Unlike any other :class:`ValueError`, which may be a fault of the program, a command line shows it without
    a traceback.
    """


class UnknownNameError(InputError):
    """There is nothing of the name that somebody gave."""


class MissingPackageError(ImportError):
    """An optional package is not installed; the message says which."""


def check_count(name: str, value: object, minimum: int = 0) -> int:
    """Return ``value`` as an ``int``.

    Raises
    ------
    TypeError
        If it is not an integer (``True`` and ``3.0`` are not).
    ValueError
        If it is less than ``minimum``.
    """
    try:
        if isinstance(value, bool):
            raise TypeError
        count = operator.index(cast(SupportsIndex, value))
    except TypeError:
        raise TypeError(f"{name} must be an integer, got {value!r}") from None
    if count < minimum:
        raise ValueError(f"{name} must be at least {minimum}, got {count}")
    return count


def check_real_device(name: str, x: object) -> None:
    """Raise ``ValueError`` for a tensor on ``meta``, where modules are made that get their weights later."""
    if isinstance(x, Tensor) and x.is_meta:
        raise ValueError(f"{name} is on the meta device and has no numbers: make it with device='cpu'")


def check_counts(name: str, values: object, minimum: int = 0) -> list[int]:
    """Return one count or several as a list of ``int``.

    Raises
    ------
    TypeError
        If any of them is not an integer.
    ValueError
        If any of them is less than ``minimum``.
    """
    check_real_device(name, values)
    if hasattr(values, "tolist"):  # a tensor or an array
        values = values.tolist()
    if isinstance(values, list | tuple | range):
        if all(type(value) is int and value >= minimum for value in values):
            return list(values)
        return [check_count(f"{name}[{i}]", value, minimum) for i, value in enumerate(values)]
    return [check_count(name, values, minimum)]


def check_each(name: str, values: object, count: int, of: str, minimum: int = 0) -> list[int]:
    """Return a number for each of ``count`` things, say of sequences, from one for all or one for each.

    Raises
    ------
    TypeError, ValueError
        If a number is not an integer or less than ``minimum``, or there are neither one nor ``count``.
    """
    counts = check_counts(name, values, minimum)
    if len(counts) not in (1, count):
        raise ValueError(f"{name} must be one number or one per {of} ({count}), got {len(counts)} numbers")
    return counts if len(counts) == count else counts * count


def check_ends(eos_id: object, size: int) -> frozenset[int]:
    """Return the ids that end a text, given as one or several, all below ``size``."""
    ends = check_counts("eos_id", eos_id)
    for value in ends:
        if value >= size:
            raise ValueError(f"eos_id must lie in 0..{size - 1}, got {value}")
    return frozenset(ends)


def check_bool(name: str, value: object) -> bool:
    """Return ``value``, which must be ``True`` or ``False``."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, got {value!r}")
    return value


def check_probability(name: str, value: float) -> float:
    """Return ``value``, which must lie in [0, 1).

    Raises
    ------
    TypeError
        If it is not a number.
    ValueError
        If it does not lie there.
    """
    if not 0 <= check_real(name, value) < 1:
        raise ValueError(f"{name} must lie in [0, 1), got {value!r}")
    return value


def check_real(name: str, value: float) -> float:
    """Return ``value``, which must be a finite number."""
    if isinstance(value, bool) or not isinstance(value, (float, Real)):  # to type checkers no Real
        raise TypeError(f"{name} must be a number, got {value!r}")
    if not -math.inf < value < math.inf:
        raise ValueError(f"{name} must be a finite number, got {value!r}")
    return float(value)


def check_choice(name: str, value: object, allowed: Iterable[str]) -> None:
    """Raise :class:`UnknownNameError`, a ``ValueError``, unless ``value`` is one of ``allowed``."""
    allowed = list(allowed)
    if value not in allowed:
        raise UnknownNameError(f"{name} must be one of {', '.join(map(repr, allowed))}; got {value!r}")


def is_hooked(module: nn.Module) -> bool:
    """Whether a module has hooks on what it computes, of its class's own kinds too."""
    return any(x for name, x in vars(module).items() if name.endswith("_hooks") and "state_dict" not in name)


def is_plain(module: nn.Module, kind: type[nn.Module] = nn.Linear) -> bool:
    """Whether a module does what its class and weights say: not replaced, wrapped, patched or hooked."""
    return type(module) is kind and not is_hooked(module) and not vars(kind).keys() & vars(module).keys()


def check_plain(name: str, module: nn.Module, kind: type[nn.Module] = nn.Linear) -> None:
    """Raise a ``TypeError`` where weights would be copied of a module that does something else besides."""
    if not is_plain(module, kind):
        raise TypeError(
            f"{name} must be a plain {kind.__name__}; this {kind_of(module)} is of another class, wrapped, "
            "patched or hooked, and what it does would be lost"
        )


def kind_of(x: object) -> str:
    """What an argument is, for messages: a tensor's dtype, else the name of its type."""
    return str(x.dtype) if isinstance(x, Tensor) else type(x).__name__


def check_floats(name: str, x: object) -> None:
    """Raise ``TypeError`` unless ``x`` is a floating-point tensor."""
    if not isinstance(x, Tensor) or not x.is_floating_point() or x.itemsize < 2:
        raise TypeError(f"{name} must be a floating-point tensor, got {kind_of(x)}")
    if x.is_nested:
        raise TypeError(f"{name} is a nested tensor; its rows are wanted, torch.cat({name}.unbind())")
    if x.layout != torch.strided:
        raise TypeError(f"{name} must be a dense tensor, got one of layout {x.layout}")


def check_tokens(name: str, ids: Tensor, size: int) -> None:
    """As :func:`check_ids`, on a CPU. A GPU would have to halt; its lookups stop at what is outside."""
    if not isinstance(ids, Tensor) or ids.dtype != torch.int64 or ids.device.type == "cpu":
        check_ids(name, ids, size)


def check_ids(name: str, ids: Tensor, size: int) -> None:
    """Check that every id lies in ``[0, size)``; negative ids never count from the end.

    Raises
    ------
    TypeError
        If ``ids`` is not a tensor of int64.
    ValueError
        If an id is out of range; on a GPU see :func:`assert_soon`.
    """
    if not isinstance(ids, Tensor) or ids.dtype != torch.int64:
        raise TypeError(f"{name} must be a tensor of int64, got {kind_of(ids)}")
    check_real_device(name, ids)
    if ids.is_cuda:
        assert_soon(ids == ids.clamp(0, size - 1), f"{name} must lie in 0..{size - 1}")
    elif ids.numel():
        low, high = (int(x) for x in ids.aminmax())
        if low < 0 or high >= size:
            worst = low if low < 0 else high
            raise ValueError(f"{name} must lie in 0..{size - 1}, got {worst}")


def assert_soon(holds: Tensor, message: str) -> None:
    """Raise a ``ValueError`` unless something holds; a GPU, which would have to halt, stops later."""
    if holds.is_cuda:
        torch._assert_async(holds.all(), message)
    elif not bool(holds.all()):
        raise ValueError(message)
