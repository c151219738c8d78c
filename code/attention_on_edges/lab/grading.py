"""Runs a reader's class beside the model solution, and says what is wrong with it."""

import contextlib
import itertools
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from attention_on_edges.lab import solutions
from attention_on_edges.lab.report import Finding, Report
from attention_on_edges.lab.slips import SLIPS, faulty

BATCH, N, M, H, D, FF = 2, 5, 7, 3, 12, 8
"""Sizes in the checks, all different, so that no axis passes for another: ``BATCH`` sentences, ``N``
receivers, ``M`` senders, ``H`` heads, width ``D``, inner width ``FF``."""

SOURCES, TARGETS, LAYERS, LONGEST = 11, 9, 2, 8
"""Sizes of task 6: words in the vocabularies, stacks of a side, most words of a translation."""

MOST_OPERATIONS = 30_000
"""Tensor operations after which a call counts as an endless loop."""

WORK = {"mm", "bmm", "addmm", "baddbmm", "mv", "dot", "mul", "sum", "exp", "_softmax", "_log_softmax"}
"""Operations whose number must not depend on how many heads, tokens or sentences there are."""

LIBRARIES = (str(Path(__file__).parents[2]), str(Path(torch.__file__).parent))
"""Where code is from that is not the reader's."""


class Wrong(Exception):  # noqa: N818 (a finding, not an error of this package)
    """A step found something wrong."""


@dataclass(frozen=True)
class Task:
    """What a class is checked with.

    Attributes
    ----------
    solution : type
        The model solution.
    sizes : tuple of float
        What both are constructed with.
    steps : tuple of str
        In order; each is a method of :class:`Exam` that raises whatever is wrong.
    senders : int
        How many inputs there are beside the receivers' states.
    options : dict
        What both are called with.
    """

    solution: Any
    sizes: tuple[float, ...]
    steps: tuple[str, ...]
    senders: int = 0
    options: dict[str, Any] = field(default_factory=dict)


class Exam:
    """One task's steps, carried out in order on the reader's class until one fails.

    Parameters
    ----------
    number : int
        Of the task, by which its slips are found.
    tasks : dict of int to Task
        All of them.
    subject : type
        The reader's class.
    """

    def __init__(self, number: int, tasks: dict[int, Task], subject: Any):
        self.number, self.tasks, self.subject = number, tasks, subject
        self.task, self.solution = tasks[number], tasks[number].solution

    def report(self) -> Report:
        """Run the steps."""
        findings: list[Finding] = []
        with torch.random.fork_rng(devices=[]), torch.enable_grad():
            for number, name in enumerate(self.task.steps):
                torch.manual_seed(number)
                failed = any(finding.status != "ok" for finding in findings)
                findings.append(Finding(name, "not checked") if failed else self._take(name))
        return Report(f"Task {self.number}, {self.solution.__name__}", tuple(findings))

    def _take(self, name: str) -> Finding:
        try:
            return Finding(name, "ok", getattr(self, name.replace(" ", "_"))())
        except Exception as error:
            frames = traceback.extract_tb(error.__traceback__)
            own = next((f for f in reversed(frames) if not f.filename.startswith(LIBRARIES)), None)
            line = f"line {own.lineno}, in {own.name}: {own.line}" if own else ""
            if isinstance(error, NotImplementedError):
                where = own.name if own else "forward"
                return Finding(name, "unfinished", f"`{where}` is yet to be written.", line)
            said = "" if isinstance(error, Wrong) else f"{type(error).__name__}: "
            return Finding(name, "wrong", said + " ".join(str(error).split()), line)

    def fresh(self, *sizes: float, seed: int = 0) -> nn.Module:
        """Construct the reader's module in evaluation mode, with random values for all its parameters."""
        sizes = sizes or self.task.sizes
        module = self.subject(*sizes).eval()
        shapes = {name: list(p.shape) for name, p in module.named_parameters()}
        for name, p in self.solution(*sizes).named_parameters():
            if shapes.get(name) != list(p.shape):
                got = shapes.get(name, "missing")
                raise Wrong(f"`{name}` should be {list(p.shape)}, but is {got}. Keep `__init__` as given.")
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for name, p in module.named_parameters():
                noise = torch.randn(p.shape, generator=generator)
                middle = 1.0 if name.endswith("weight") else 0.0  # a norm's scale, or a bias
                p.copy_(noise / p.shape[1] ** 0.5 if p.dim() == 2 else middle + 0.3 * noise)
        return module

    def twin(self, module: nn.Module, solution: type[nn.Module]) -> nn.Module:
        """Return a model solution with a module's parameters and dropout, in double precision."""
        other = solution(*self.task.sizes).double().eval()
        other.load_state_dict(module.state_dict(), strict=False)
        if isinstance(getattr(module, "dropout", None), Tilt):
            other.dropout = Tilt()
        return other

    def inputs(self, n: int = N, m: int = N, batch: int = BATCH) -> list[Tensor]:
        """Random states of receivers and senders, or ids of source and target."""
        if self.solution is solutions.Transformer:
            return [torch.randint(2, SOURCES, (batch, m)), torch.randint(2, TARGETS, (batch, n))]
        return [torch.randn(batch, length, D) for length in (n, *[m] * self.task.senders)]

    def output(self, module: nn.Module, inputs: Sequence[Tensor], **options: Any) -> Tensor:
        """Call a module on copies of the inputs, in its own precision."""
        inputs = [like(x, module) for x in inputs]
        copies = [x.clone() for x in inputs]
        with Watch() if isinstance(module, self.subject) else contextlib.nullcontext():
            output = module(*copies, **self.task.options | options)
        if not isinstance(output, Tensor):
            raise Wrong(f"It returns a {type(output).__name__}, not a tensor. Is a `return` missing?")
        if not all(map(torch.equal, inputs, copies)):
            raise Wrong("It changes a tensor that it was given. Make a new one: `x = x + y`, not `x += y`.")
        return up_to_end(output) if "max_len" in options and output.dtype == torch.int64 else output

    def holds(self, module: nn.Module, inputs: Sequence[Tensor], **options: Any) -> None:
        """Compare with the model solution, and if there is a difference, with the slips' edits of it."""
        with torch.no_grad():
            output, again = (self.output(module, inputs, **options) for _ in range(2))
            if not near(again, output):
                raise Wrong(
                    "Two runs on the same input differ, in evaluation mode. Is there an `F.dropout`, which "
                    "is active there too, or a layer that is made in `forward`, with new weights each time?"
                )
            wanted = self.output(self.twin(module, self.solution), inputs, **options)
            if near(output, wanted):
                return
            known = SLIPS[self.number]
            for slips in [*((slip,) for slip in known), *itertools.combinations(known, 2)]:
                wrong = faulty(self.solution, *(edit for _, *edits in slips for edit in edits))
                with contextlib.suppress(RuntimeError, IndexError):  # where slips do not fit these shapes
                    if wrong and near(output, self.output(self.twin(module, wrong), inputs, **options)):
                        raise Wrong(" And: ".join(message for message, *_ in slips))
        raise Wrong(difference(output, wanted))

    def values(self) -> str:
        """Compare outputs, also where receivers and senders differ in number, or there is only one."""
        for lengths in ((N, N), (N, M), (M, N), (1, 1), (N, M, 1)):
            self.holds(self.fresh(), self.inputs(*lengths))
        return "equal to the model solution, for any lengths"

    def in_parallel(self) -> str:
        """Count operations for more tokens, more sentences and, in an attention, more heads."""
        few = work(self.fresh(), self.inputs(), self.task.options)
        lengths = {"tokens": (2 * N, 2 * N), "sentences": (N, M, 2 * BATCH)}
        if self.solution is solutions.MultiHeadAttention:
            lengths["heads"] = (N, M)
        for what, some in lengths.items():
            sizes = (2 * H, D) if what == "heads" else ()
            many = work(self.fresh(*sizes), self.inputs(*some), self.task.options)
            if many > few:
                raise Wrong(
                    f"More {what} take {many} products, sums and softmaxes, not {few}: is there a loop over "
                    f"{what}? Let one product serve all."
                )
        return f"{few} products, sums and softmaxes, however many {' and '.join(lengths)}"

    def submodules(self) -> str:
        """Compare the parts of a module first, so that a mistake is reported where it is."""
        module = self.fresh()
        right = self.twin(module, self.solution)
        for (name, part), (number, task) in itertools.product(right.named_modules(), self.tasks.items()):
            if part is right or type(part) is not task.solution or (task.options and "self" not in name):
                continue  # only self-attention in a decoder is called with maskout
            states = [torch.randn(BATCH, N, D)] * (1 + task.senders)
            mine, wanted = (
                m.get_submodule(name)(*(like(x, m) for x in states), **task.options) for m in (module, right)
            )
            if not near(mine, wanted):
                raise Wrong(
                    f"`{name}` by itself gives wrong numbers: see task {number}. Until then, "
                    f"`solutions.{type(part).__name__}` can replace it."
                )
        return "in order"

    def dropout(self) -> str:
        """Compare outputs with a dropout that shows where it was applied."""
        module = self.fresh()
        module.dropout = Tilt()
        self.holds(module, self.inputs())
        return "where it belongs, in training only"

    def without_maskout(self) -> str:
        """Compare outputs without the mask."""
        self.holds(self.fresh(), self.inputs(), maskout=False)
        return "unchanged"

    def large_scores(self) -> str:
        """See that nothing leaks from later tokens where scores are in the hundreds."""
        module, before = self.fresh(), [30 * x for x in self.inputs()]
        for j in range(N - 1):
            later = torch.arange(N)[:, None] > j
            after = [torch.where(later, 30 * torch.randn_like(x), x) for x in before]
            first, again = (self.output(module, x)[:, : j + 1] for x in (before, after))
            if not first.isfinite().all() or not near(again, first):
                raise Wrong(
                    f"Where scores are large, output {j} is not finite or changes when a later token does. "
                    "Set the hidden scores to -torch.inf, before the softmax."
                )
        return "no leak even where scores are in the hundreds"

    def decoding(self) -> str:
        """Compare translations of sentences that end at different places."""
        source, _ = self.inputs(batch=8)
        for seed in range(100):  # until sentences end at different places, so that mistakes show
            module = self.fresh(seed=seed)
            right = self.twin(module, self.solution)
            with torch.no_grad():
                usual = right(source, torch.randint(2, TARGETS, (len(source), LONGEST))).mean((0, 1))
                module.get_parameter("output.bias").sub_(usual)  # or one word wins everywhere
                ids = self.output(self.twin(module, self.solution), [source], max_len=LONGEST)
            ends = (ids == solutions.Transformer.EOS).int().argmax(1)
            if len(ends.unique()) > 2 and LONGEST in ends and len(ids.unique(dim=0)) > 4:
                break
        self.holds(module, [source[ends.argsort()]], max_len=LONGEST)  # the first to end comes first
        return f"{len(source)} sentences, which end at different places"

    def gradients(self) -> str:
        """Compare the gradients of inputs and parameters."""
        module, inputs = self.fresh(), self.inputs()
        right = self.twin(module, self.solution)
        names = [name for name, _ in right.named_parameters()]
        upstream, found = torch.randn_like(self.output(right, inputs)), []
        for model in (module, right):
            own = [like(x, model).requires_grad_(x.is_floating_point()) for x in inputs]
            output = model(*own, **self.task.options)
            if not output.requires_grad:
                raise Wrong("No gradient flows back at all: is there a `no_grad`, a `detach` or a `.data`?")
            parameters = dict(model.named_parameters())
            leaves = {f"input {i}": x for i, x in enumerate(own, 1) if x.requires_grad}
            leaves |= {f"`{name}`": parameters[name] for name in names}
            grads = torch.autograd.grad(output, [*leaves.values()], upstream.to(output), allow_unused=True)
            found.append(dict(zip(leaves, grads, strict=True)))
        for name, wanted in found[1].items():
            if found[0][name] is None:
                raise Wrong(f"No gradient reaches {name}: is there a `no_grad`, a `detach` or a `.data`?")
            if not near(found[0][name], wanted):
                raise Wrong(f"The output is right, but the gradient of {name} is not: is a part detached?")
        return f"they reach all {len(names)} parameters, and equal the model solution's"


class Tilt(nn.Dropout):
    """Replaces dropout: each feature is scaled by its own factor, from 1 to 3."""

    def forward(self, x: Tensor) -> Tensor:
        """Scale the features."""
        return x * torch.linspace(1, 3, x.shape[-1], dtype=x.dtype)


class Watch(TorchDispatchMode):
    """Counts tensor operations, and stops endless loops."""

    def __init__(self) -> None:
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


def up_to_end(ids: Tensor) -> Tensor:
    """Return translations in which everything from the end symbol on is the end symbol."""
    eos = solutions.Transformer.EOS
    ids = nn.functional.pad(ids, (0, LONGEST + 1 - ids.shape[1]), value=eos)
    return ids.masked_fill((ids == eos).cumsum(1) > 0, eos)


def work(module: nn.Module, inputs: list[Tensor], options: dict[str, Any]) -> int:
    """Count the products, sums and softmaxes of a call."""
    with Watch() as watch, torch.no_grad():
        module(*inputs, **options)
    return watch.work


def like(x: Tensor, module: nn.Module) -> Tensor:
    """Return a copy of states in a module's precision, or of ids."""
    return x.to(next(module.parameters()).dtype, copy=True) if x.is_floating_point() else x.clone()


def near(output: Tensor, wanted: Tensor) -> bool:
    """Whether two results are equal in the book's sense: within 1e-5 * max(1, largest of the second)."""
    bound = 1e-5 * max(1.0, float(wanted.detach().nan_to_num(0, 0, 0).abs().max()))
    return output.shape == wanted.shape and torch.allclose(
        output.double(), wanted.double(), rtol=0, atol=bound, equal_nan=True
    )


def difference(output: Tensor, wanted: Tensor) -> str:
    """Say how far an output is from what it should be, and where first."""
    if output.shape != wanted.shape:
        return f"It returns a tensor {list(output.shape)}, but a tensor {list(wanted.shape)} is asked for."
    if output.isnan().any():
        return "Some of its numbers are nan. A softmax over nothing but -inf gives nan, and so does 0 * inf."
    off = (output.double() - wanted).abs()
    place = tuple(int(i) for i in (off > 1e-5 * max(1.0, float(wanted.abs().max()))).nonzero()[0])
    index = "".join(f"[{i}]" for i in place)
    return (
        f"The numbers are wrong, by up to {float(off.max()):.2g}, and no common slip explains them. The "
        f"first is output{index}: {float(output[place]):.4f} should be {float(wanted[place]):.4f}."
    )
