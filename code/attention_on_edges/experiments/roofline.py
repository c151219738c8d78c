"""Chapter 12: the cost of an update, counted, and its time on given machines by the roofline model."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import product
from operator import mul
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from edgewise.graphs import GraphPool
from edgewise.message_passing.plan import forget_plans
from edgewise.models.transformer import Transformer, make_model
from edgewise.training import LabelSmoothing, output_loss
from edgewise.validation import check_count

KINDS = ("products", "attention", "rest")
"""Matrix products with weights; attention inside its tiles; everything else: norms, sums, dropout, copies."""

HEAD = 64
"""Width of a head."""

PRODUCTS = ("mm", "addmm", "bmm", "baddbmm")

ROWS = ("embedding", "gather", "index", "index_select")
"""Operations that read some rows of a table: as many bytes as they write."""

ADAM_BYTES = 28
"""Bytes per weight that Adam moves: it reads four float32 numbers and writes three."""


class Cost(NamedTuple):
    """Floating-point operations; bytes read and written; calls."""

    flops: float = 0.0
    moved: float = 0.0
    calls: float = 0.0


Costs = Mapping[str, Cost]
"""By kind, one of ``KINDS``."""


UNCOUNTED = ("empty", "new_empty", "_local_scalar", "linalg_vector_norm")
"""What computes nothing, and a check of attention's input that is made on CPUs alone."""


class Tally(TorchDispatchMode):
    """Counts, while it is entered, what PyTorch computes: a hook on every operation, forward and backward.

    Each operation counts the bytes of the tensors that it reads and of those that it writes, as if nothing
    stayed in a cache and no two were fused; views count nothing. Attention counts the scores of its tiles
    once, though its backward pass recomputes them.

    Attributes
    ----------
    costs : dict of str to Cost
        So far.
    """

    def __init__(self) -> None:
        super().__init__()
        self.costs: dict[str, Cost] = dict.fromkeys(KINDS, Cost())

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: Any = None) -> Any:
        """Run an operation and count it."""
        out = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if not _is_view(func) and not name.startswith(UNCOUNTED):
            kind, flops = _kind_and_flops(name, args, out)
            old = self.costs[kind]
            moved = _bytes(out) + _bytes(out if name in ROWS else (args, kwargs))
            self.costs[kind] = Cost(old.flops + flops, old.moved + moved, old.calls + 1)
        return out


def _is_view(func: Any) -> bool:
    """Whether an operation returns a view of its argument."""
    aliases = [result.alias_info for result in func._schema.returns]
    return any(alias is not None and not alias.is_write for alias in aliases)


def _bytes(tensors: Any) -> int:
    return sum(x.numel() * x.element_size() for x in tree_leaves(tensors) if isinstance(x, Tensor))


def _kind_and_flops(name: str, args: tuple, out: Any) -> tuple[str, float]:
    if name in PRODUCTS:
        first = args[1] if "add" in name else args[0]
        return "products", 2.0 * out.numel() * first.shape[-1]
    if name.startswith("_scaled_dot_product"):
        backward = name.endswith("backward")
        q, k = args[1:3] if backward else args[:2]
        return "attention", (8.0 if backward else 4.0) * q.numel() * k.shape[-2]
    return "rest", 0.0


@dataclass(frozen=True)
class Plan:
    """What models of several sizes share: the proportions of Vaswani et al. 2017, table 3.

    A feed-forward layer is four times as wide as a state, a head 64 wide; one matrix serves both embeddings
    and the output layer.

    Attributes
    ----------
    length : int
        Tokens of every sentence, source and target.
    rows : int
        Tokens whose logits exist at a time; see :func:`edgewise.training.output_loss`.
    dropout : float
        In training.
    autocast : bool
        Whether matrix products run in bfloat16.
    """

    length: int
    rows: int
    dropout: float = 0.1
    autocast: bool = True

    def model(self, layers: int, dim_model: int, vocab: int) -> Transformer:
        """Build a model; tiles are what comes nearest to a GPU's kernels, whatever the length."""
        if check_count("dim_model", dim_model, HEAD) % HEAD:
            raise ValueError(f"dim_model ({dim_model}) must be a multiple of {HEAD}")
        size = (layers, dim_model, 4 * dim_model, dim_model // HEAD, self.dropout)
        return make_model(vocab, vocab, *size, engine="tiles", shared=True)

    def weights(self, layers: int, dim_model: int, vocab: int) -> int:
        """Count a model's weights."""
        with torch.device("meta"):
            return sum(p.numel() for p in self.model(layers, dim_model, vocab).parameters())


def tally_pass(plan: Plan, layers: int, dim_model: int, vocab: int, sentences: int) -> dict[str, Cost]:
    """Count one pass over a batch of random sentences, forward and backward, on the CPU."""
    shape = (check_count("sentences", sentences, 1), plan.length + 1)
    ids = torch.randint(3, vocab, shape, generator=torch.Generator().manual_seed(0))
    batch = GraphPool()([row[1:] for row in ids], list(ids))
    model, criterion = plan.model(layers, dim_model, vocab).train(), LabelSmoothing(vocab, 2, 0.1)
    output = model.generator.proj

    forget_plans()  # each batch of a training has its own
    with Tally() as tally:
        with torch.autocast("cpu", torch.bfloat16, enabled=plan.autocast):
            states = model.hidden(batch)
            loss, _ = output_loss(
                states, output.weight, output.bias, batch.tgt_y, criterion, plan.rows * vocab
            )
        loss.backward()
    return tally.costs


class Counted:
    """Costs of any model and batch, extrapolated exactly from small passes.

    Costs are linear in layers, symbols and sentences of one length, and quadratic in the width: two values of
    each, and three widths, determine all others.

    Parameters
    ----------
    plan : Plan
        What all have in common.
    sentences : int
        Sentences in the smaller of the two batches counted. Where batches are large enough to fill the output
        layer's chunk of rows, take as many as fill it.
    """

    def __init__(self, plan: Plan, sentences: int = 1):
        self._nodes = (1, 2), (HEAD, 2 * HEAD, 3 * HEAD), (64, 128), (sentences, 2 * sentences)
        self._passes = {sizes: tally_pass(plan, *sizes) for sizes in product(*self._nodes)}

    def at(self, layers: int, dim_model: int, vocab: int, sentences: float) -> dict[str, Cost]:
        """Return the costs of a pass, forward and backward; ``sentences`` may be a fraction, for a mean."""
        place = zip(self._nodes, (layers, dim_model, vocab, sentences), strict=True)
        weights = [math.prod(some) for some in product(*(lagrange(nodes, x) for nodes, x in place))]
        return {
            kind: Cost(*(sum(map(mul, weights, part)) for part in zip(*costs, strict=True)))
            for kind, costs in ((k, [costs[k] for costs in self._passes.values()]) for k in KINDS)
        }


def lagrange(nodes: Sequence[float], x: float) -> list[float]:
    """Return the Lagrange weights of the values at ``nodes`` for interpolation at ``x``."""
    return [math.prod((x - b) / (a - b) for b in nodes if b != a) for a in nodes]


@dataclass(frozen=True)
class Machines:
    """GPUs and their interconnects.

    Attributes
    ----------
    peak, bandwidth : float
        Of one GPU: floating-point operations and memory bytes, per second.
    link, network : float
        Bytes per second that one GPU sends, to others in its machine and in other machines.
    per_machine : int
        GPUs in a machine.
    power : float
        Watts per GPU, with its share of the machine.
    of_peak, of_bandwidth, of_link : float
        Shares of these rates reached in practice, in (0, 1].
    call : float
        Seconds the CPU needs to launch an operation.
    overlap : float
        Share of the backward pass during which gradients travel, 0 to 1.
    """

    peak: float
    bandwidth: float
    link: float
    network: float
    per_machine: int
    power: float
    of_peak: float = 1.0
    of_bandwidth: float = 1.0
    of_link: float = 1.0
    call: float = 0.0
    overlap: float = 1.0

    def __post_init__(self):
        for part in fields(self):
            value = getattr(self, part.name)
            least_allowed = value >= 0 if part.name in ("call", "overlap") else value > 0
            most = 1 if part.name.startswith("of_") or part.name == "overlap" else math.inf
            if not (least_allowed and value <= most and math.isfinite(value)):
                raise ValueError(f"{part.name} is out of range: {value!r}")

    def seconds(self, cost: Cost) -> float:
        """Return the longer of compute time and memory time (Williams et al. 2009)."""
        arithmetic = cost.flops / (self.peak * self.of_peak)
        return max(arithmetic, cost.moved / (self.bandwidth * self.of_bandwidth))

    def reduce_seconds(self, size: float, gpus: int) -> float:
        """Return the time of a ring all-reduce of ``size`` bytes (Patarasuk and Yuan 2009).

        Each of g sends 2 (g - 1) / g of its data: first all of it within the machine, then its part of that
        to its counterparts in other machines.
        """
        inside = min(check_count("gpus", gpus, 1), self.per_machine)
        machines = math.ceil(gpus / self.per_machine)
        seconds = 2 * (inside - 1) / inside * size / self.link
        seconds += 2 * (machines - 1) / machines * size / inside / self.network
        return seconds / self.of_link


class Step(NamedTuple):
    """Seconds of an update's parts, on one of several GPUs; those of its kinds and of Adam add up.

    Attributes
    ----------
    products, attention, rest, adam : float
        On the GPU.
    starting : float
        For the CPU to launch all operations, which happens concurrently.
    reducing : float
        For the all-reduce of gradients.
    total : float
        Of the update.
    """

    products: float
    attention: float
    rest: float
    adam: float
    starting: float
    reducing: float
    total: float


def step_of(costs: Costs, weights: int, machines: Machines, gpus: int) -> Step:
    """Compute how long an update takes; ``costs`` are those of one GPU's share of the batch.

    GPU and CPU work concurrently, and the slower decides. Gradients, in float32, are reduced during
    ``overlap`` of the backward pass, two thirds of the computing without Adam; the excess is added.
    """
    on_gpu = [machines.seconds(costs[kind]) for kind in KINDS]
    starting = machines.call * sum(cost.calls for cost in costs.values())
    adam = machines.seconds(Cost(moved=ADAM_BYTES * weights))
    reducing = machines.reduce_seconds(4 * weights, gpus)
    computing = max(sum(on_gpu), starting)
    waiting = max(0.0, reducing - machines.overlap * computing * 2 / 3)
    return Step(*on_gpu, adam, starting, reducing, computing + waiting + adam)
