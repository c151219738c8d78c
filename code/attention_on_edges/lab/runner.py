"""Runs a reader's code and turns whatever goes wrong there into a finding."""

import inspect
import re
import sysconfig
import traceback
from collections.abc import Callable
from pathlib import Path
from traceback import FrameSummary
from types import CodeType
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from attention_on_edges.lab.report import Finding, Report

MOST_OPERATIONS = 30_000
"""Tensor operations after which a call counts as an endless loop."""

WORK = {"mm", "bmm", "addmm", "baddbmm", "mv", "dot", "mul", "sum", "exp", "_softmax", "_log_softmax"}
"""Operations whose number must not depend on how many heads, tokens or sentences there are."""

HERE = Path(__file__).parents[1]
LIBRARIES = (
    str(HERE),
    str(Path(torch.__file__).parent),
    *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
    "<frozen",
)
"""Folders of code that is not the reader's."""

LONGEST_MESSAGE = 300
"""Letters of an exception's message that are shown."""


class Wrong(Exception):  # noqa: N818 (a finding, not an error of this package)
    """A step found something wrong."""


class Unfinished(Exception):  # noqa: N818
    """A step met code that is yet to be written."""


class Exam:
    """One task's steps, carried out in order on the reader's class.

    A subclass names its ``steps``; each is a method that returns what it saw, or raises :class:`Wrong`. A
    step depends on all before it; one in ``independent`` on the first alone, and none depends on it.

    Parameters
    ----------
    subject : type
        The reader's class.
    seed : int
        For parameters and inputs.
    """

    title = ""
    steps: tuple[str, ...] = ()
    independent: tuple[str, ...] = ()

    def __init__(self, subject: Any, seed: int = 0):
        self.subject = subject
        self.seed = seed

    def report(self) -> Report:
        """Run the steps; only a keyboard interrupt is raised."""
        findings: list[Finding] = []
        with torch.random.fork_rng(devices=[]), torch.enable_grad():
            for number, name in enumerate(self.steps):
                torch.manual_seed(self.seed + number)
                if self._goes_on(findings, name):
                    findings.append(self._take(name))
                else:
                    findings.append(Finding(name, "not checked"))
        return Report(self.title, tuple(findings))

    def _goes_on(self, findings: list[Finding], name: str) -> bool:
        """Whether all that a step depends on has passed."""
        failed = [f.step for f in findings if f.status != "ok"]
        if name in self.independent:
            return self.steps[0] not in failed
        return all(step in self.independent for step in failed)

    def _take(self, name: str) -> Finding:
        try:
            return Finding(name, "ok", getattr(self, re.sub(r"\W+", "_", name))())
        except KeyboardInterrupt:
            raise
        except Unfinished as unfinished:
            return Finding(name, "unfinished", str(unfinished))
        except Wrong as wrong:
            return Finding(name, "wrong", str(wrong), _place(_own(_frames(wrong))))
        except BaseException as error:
            return self._failure(name, error)

    def _failure(self, name: str, error: BaseException) -> Finding:
        """Report an exception and the reader's line that it came from."""
        frames = _frames(error)
        own = _own(frames)
        if isinstance(error, NotImplementedError) and own is frames[-1]:
            return Finding(name, "unfinished", f"`{own.name}` is yet to be written.", _place(own))
        said = " ".join(str(traceback.format_exception_only(error)[-1]).split())
        said = said if len(said) <= LONGEST_MESSAGE else f"{said[:LONGEST_MESSAGE]} ..."
        return Finding(name, "wrong", said, _place(own or _definition(self.subject)))


def _frames(error: BaseException) -> list[FrameSummary]:
    return list(traceback.extract_tb(error.__traceback__))


def _own(frames: list[FrameSummary]) -> FrameSummary | None:
    """Return the innermost frame of the reader's own code."""
    own = [frame for frame in frames if not frame.filename.startswith(LIBRARIES)]
    return own[-1] if own else None


def _place(frame: FrameSummary | None) -> str:
    return f"line {frame.lineno}, in {frame.name}: {frame.line}".removesuffix(": ") if frame else ""


def _definition(subject: Any) -> FrameSummary | None:
    """Return where the reader's class defines ``forward``: for what goes wrong before its first line."""
    code = getattr(inspect.getattr_static(subject, "forward", None), "__code__", None)
    if not isinstance(code, CodeType) or code.co_filename.startswith(LIBRARIES):
        return None
    return FrameSummary(code.co_filename, code.co_firstlineno, code.co_name)


class Watch(TorchDispatchMode):
    """Counts tensor operations, and stops endless loops."""

    def __init__(self):
        super().__init__()
        self.all, self.work = 0, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Count an operation, then carry it out."""
        name = func.overloadpacket.__name__
        self.all += 1
        self.work += name in WORK or name.startswith("_scaled_dot_product")
        if self.all > MOST_OPERATIONS:
            raise Wrong(f"Broken off after {MOST_OPERATIONS:,} tensor operations: does a loop never end?")
        return func(*args, **(kwargs or {}))


def build(subject: Any, *sizes: int | float, seed: int = 0) -> nn.Module:
    """Construct the reader's module in evaluation mode, and give all its parameters random values.

    Raises
    ------
    Wrong
        If it is not a subclass of ``nn.Module``.
    """
    if not (isinstance(subject, type) and issubclass(subject, nn.Module)):
        given = subject.__name__ if isinstance(subject, type) else type(subject).__name__
        raise Wrong(f"Pass the class itself, a subclass of nn.Module; this is {given}.")
    module = subject(*sizes)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in module.named_parameters():
            noise = torch.randn(p.shape, generator=generator).to(p)
            middle = 1.0 if name.endswith("weight") else 0.0  # a norm's scale, or a bias
            p.copy_(noise / p.shape[1] ** 0.5 if p.dim() == 2 else middle + 0.3 * noise)
    return module.eval()


def need(module: nn.Module, **shapes: tuple[int, ...]) -> None:
    """Check that a module still has the layers that the lab gives it.

    Raises
    ------
    Wrong
        If a weight is missing or has another shape, or a bias is missing. A dot in a name is written ``__``.
    """
    weights = dict(module.named_parameters())
    for name, shape in shapes.items():
        name = name.replace("__", ".")
        weight = weights.get(f"{name}.weight")
        if weight is None or tuple(weight.shape) != shape:
            got = "there is none" if weight is None else f"its weight is {list(weight.shape)}"
            raise Wrong(
                f"The layer `{name}` should have a weight {list(shape)}, but {got}. Keep `__init__` as given."
            )
        if f"{name}.bias" not in weights and not isinstance(module.get_submodule(name), nn.Embedding):
            raise Wrong(
                f"The layer `{name}` should have a bias, but there is none. Keep `__init__` as given."
            )


def call(function: Callable[..., Any], *inputs: Any, **options: Any) -> Any:
    """Call the reader's code on copies of the inputs.

    Raises
    ------
    Unfinished
        If it returns ``...``.
    Wrong
        If it changes its inputs, or does not stop.
    """
    copies = [x.clone() if isinstance(x, Tensor) else x for x in inputs]
    with Watch():
        output = function(*copies, **options)
    if output is Ellipsis:
        raise Unfinished("It returns `...`: yet to be written.")
    for given, copy in zip(inputs, copies, strict=True):
        if isinstance(given, Tensor) and not torch.equal(given, copy):
            raise Wrong("It changes a tensor that it was given. Make a new one: `x = x + y`, not `x += y`.")
    return output


def work(function: Callable[..., Any], *inputs: Any, **options: Any) -> int:
    """Count the products, sums and softmaxes of a call."""
    with Watch() as watch, torch.no_grad():
        function(*inputs, **options)
    return watch.work
