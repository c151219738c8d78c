"""Training throughput: the packed graph model against PyTorch's padded one and against DGL's built-ins."""

import math
import multiprocessing
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd import DeviceType
from torch.nn.functional import cross_entropy

from attention_on_edges.benchmarks.baselines import PaddedAttention, PaddedTransformer
from attention_on_edges.benchmarks.memory import peak
from attention_on_edges.benchmarks.timing import interleave, matrix_product, peak_on
from attention_on_edges.figures import Table, table
from edgewise.graphs import Batch, GraphPool
from edgewise.layers import Generator
from edgewise.message_passing import available_engines
from edgewise.message_passing.plan import forget_plans
from edgewise.models.transformer import make_model
from edgewise.training import LabelSmoothing, NoamOpt, SimpleLossCompute, states_loss, take_step
from edgewise.training.loss import multiplies_bfloat16
from edgewise.validation import check_choice

PACKED, HALF, PADDED, BUILTIN = "packed", "packed, bfloat16", "nn.Transformer", "builtin"
TUNED, BY_HAND = "nn.Transformer, our dropout and loss", "packed by hand"

VOCAB, PAD, SMOOTHING, DROPOUT = 6000, 2, 0.1, 0.3

Pairs = list[tuple[Tensor, Tensor]]
"""Ids of source and target sentences; targets from start to end symbol."""


@dataclass(frozen=True)
class Training:
    """Batches, and the size of the model that they train."""

    name: str
    num_layers: int
    dim_model: int
    dim_ff: int
    num_heads: int
    bucketed: bool = False
    long: bool = False
    num_batches: int = 4

    def batches(self) -> list[Pairs]:
        """Draw the batches; lengths as in Multi30k (log-normal, mean 14, at most 45), or 200 to 300."""
        generator = torch.Generator().manual_seed(0)
        count = 8 if self.long else 128
        if self.long:
            lengths = torch.randint(200, 301, (self.num_batches * count,), generator=generator)
        else:
            drawn = torch.randn(self.num_batches * count, generator=generator) * 0.4 + math.log(14) - 0.08
            lengths = drawn.exp().round().clamp(3, 45).long()
        if self.bucketed:
            lengths = lengths.sort().values
        pairs = []
        for n in lengths.tolist():
            m = max(2, n + int(torch.randint(-2, 3, (), generator=generator)))
            pairs.append(tuple(torch.randint(3, VOCAB, (size,), generator=generator) for size in (n, m + 1)))
        return [pairs[i : i + count] for i in range(0, len(pairs), count)]


TRAININGS = (
    Training("d 128, random", 4, 128, 256, 4),
    Training("d 128, bucketed", 4, 128, 256, 4, bucketed=True),
    Training("d 512, 2 layers", 2, 512, 2048, 8, num_batches=1),
    Training("8 x 200-300, d 128", 4, 128, 256, 4, long=True, num_batches=1),
)


@dataclass(frozen=True)
class TrainingRow:
    """Throughput of one contestant.

    Attributes
    ----------
    training, contestant : str
        What was run, and the contestant.
    tokens_per_second : float
        Target tokens, whole updates: from lists of ids to new weights.
    ratio : float
        Throughput of ``packed`` to this one.
    share : float
        Of this machine's rate on one large float32 matrix product.
    peak : int
        Peak memory, in bytes, of a process that makes the last of the updates; on CUDA of the updates here.
    """

    training: str
    contestant: str
    tokens_per_second: float
    ratio: float
    share: float
    peak: int


def bench_training(
    trainings: Sequence[Training] = TRAININGS,
    contestants: Sequence[str] | None = None,
    repeats: int = 3,
    device: torch.device | str = "cpu",
) -> list[TrainingRow]:
    """Measure updates of the same architecture on the same batches.

    Parameters
    ----------
    trainings : sequence of Training
        What to run.
    contestants : sequence of str, optional
        Among ``packed`` (the trainer), ``packed, bfloat16`` (the same, matrix products in bfloat16 except
        the output layer's), ``nn.Transformer`` (padded, loss on real tokens only), the same with the dropout
        and the chunked loss of ``packed``, ``packed by hand`` (as ``packed``, but each attention pads its
        tokens and calls ``scaled_dot_product_attention``) and ``builtin`` (as in the tutorial: DGL's built-in
        functions, a matrix of all log-probabilities); all that can run here if not given.
    repeats : int
        Measured turns of each.
    device : torch.device or str
        Where; ``builtin`` runs on the CPU only.
    """
    device = torch.device(device)
    if contestants is None:
        missing = {BUILTIN: BUILTIN not in available_engines(device), HALF: not multiplies_bfloat16(device)}
        contestants = [name for name in CONTESTANTS if not missing.get(name)]
    for name in contestants:
        check_choice("contestant", name, CONTESTANTS)
    rows = []
    for training in trainings:
        batches = training.batches()
        tokens = sum(len(target) - 1 for pairs in batches for _, target in pairs)
        functions: dict[str, Callable[[], object]] = {
            name: CONTESTANTS[name](training, batches, device) for name in contestants
        }
        product, work = matrix_product(device, torch.float32)
        seconds = interleave(functions | {"product": product}, repeats, device)
        rate, first = work / seconds.pop("product"), seconds[contestants[0]]
        peaks: dict[str, int | None] = {name: peak_on(device, update) for name, update in functions.items()}
        if device.type == "cpu":
            peaks = _peaks_of(training, contestants)
        rows += [
            TrainingRow(
                training.name,
                name,
                tokens / s,
                s / first,
                matrix_work(training, batches) / s / rate,
                peaks[name],
            )
            for name, s in seconds.items()
        ]
    return rows


def matrix_work(training: Training, batches: list[Pairs]) -> float:
    """Floating-point operations of all matrix products of an update, without padding.

    A product with a weight costs two per weight and token, and as much again for each of its two gradients;
    attention costs four per edge and feature, and twice that again.
    """
    d, ff, layers = training.dim_model, training.dim_ff, training.num_layers
    total = 0.0
    for pairs in batches:
        for source, target in pairs:
            n, m = len(source), len(target) - 1
            weights = n * layers * (4 * d * d + 2 * d * ff)
            weights += m * (layers * (6 * d * d + 2 * d * ff) + d * VOCAB) + n * layers * 2 * d * d
            edges = layers * (n * n + n * m + m * (m + 1) / 2)
            total += 3 * (2 * weights + 4 * d * edges)
    return total


def _graph_model(
    training: Training,
    batches: list[Pairs],
    device: torch.device,
    engine: str = "auto",
    half: bool = False,
    by_hand: bool = False,
) -> Callable[[], None]:
    torch.manual_seed(0)
    size = (training.num_layers, training.dim_model, training.dim_ff, training.num_heads)
    model = make_model(VOCAB, VOCAB, *size, DROPOUT, engine).to(device)
    opt = NoamOpt(training.dim_model, 1.0, 4000, torch.optim.Adam(model.parameters()))
    criterion, pool = LabelSmoothing(VOCAB, PAD, SMOOTHING), GraphPool()
    if engine == BUILTIN:
        predict, learn = model, SimpleLossCompute(criterion, opt)
    else:
        predict, learn = model.hidden, partial(_learn, model.generator, criterion, opt)

    def update() -> None:
        for pairs in batches:
            batch = pool(*zip(*pairs, strict=True), device=device)
            if by_hand:
                model.propagate_attention = _padded_around(batch)
            with torch.autocast(device.type, torch.bfloat16, enabled=half):
                prediction = predict(batch)
            learn(prediction, batch.tgt_y, batch.n_tokens)

    return update


def _learn(
    generator: Generator,
    criterion: LabelSmoothing,
    opt: NoamOpt,
    hidden: Tensor,
    target: Tensor,
    n_tokens: int,
) -> None:
    """Update from the final states of a batch."""
    opt.zero_grad()
    states_loss(generator, criterion, hidden, target)[0].backward()
    take_step(opt, n_tokens)


def _padded_around(batch: Batch) -> Callable[..., Tensor]:
    """Attention of a packed model on a batch, each padded by hand."""
    sources, targets, device = batch.src_lengths, batch.tgt_lengths, batch.device
    of = {
        id(batch.enc): PaddedAttention(sources, device),
        id(batch.dec): PaddedAttention(targets, device, causal=True),
        id(batch.cross): PaddedAttention(targets, device, senders=sources),
    }
    return lambda graph, q, k, v: of[id(graph)](q, k, v)


def _padded_model(
    training: Training, batches: list[Pairs], device: torch.device, tuned: bool = False
) -> Callable[[], None]:
    torch.manual_seed(0)
    size = (training.num_layers, training.dim_model, training.dim_ff, training.num_heads)
    model = PaddedTransformer(VOCAB, *size, DROPOUT, fast_dropout=tuned).to(device)
    opt = NoamOpt(training.dim_model, 1.0, 4000, torch.optim.Adam(model.parameters()))
    learn = partial(_learn, model.generator, LabelSmoothing(VOCAB, PAD, SMOOTHING), opt)

    def update() -> None:
        for pairs in batches:
            sentences = zip(*pairs, strict=True)
            if tuned:
                states, wanted = model.hidden(*sentences)
                learn(states, wanted, len(wanted))
            else:
                opt.zero_grad()
                cross_entropy(*model(*sentences), label_smoothing=SMOOTHING).backward()
                opt.step()

    return update


CONTESTANTS: dict[str, Callable[[Training, list[Pairs], torch.device], Callable[[], None]]] = {
    PACKED: _graph_model,
    HALF: partial(_graph_model, half=True),
    PADDED: _padded_model,
    TUNED: partial(_padded_model, tuned=True),
    BY_HAND: partial(_graph_model, by_hand=True),
    BUILTIN: partial(_graph_model, engine=BUILTIN),
}


def _peaks_of(training: Training, contestants: Sequence[str]) -> dict[str, int]:
    """Peaks of processes of their own, two at a time."""
    with multiprocessing.get_context("spawn").Pool(2, maxtasksperchild=1) as pool:
        peaks = pool.starmap(_peak_here, [(training, name) for name in contestants], chunksize=1)
    return dict(zip(contestants, peaks, strict=True))


def _peak_here(training: Training, contestant: str) -> int:
    CONTESTANTS[contestant](training, training.batches()[-1:], torch.device("cpu"))()
    return peak()


def format_training(rows: Sequence[TrainingRow]) -> Table:
    """Format rows of :func:`bench_training` as a table."""
    lines = [
        (
            row.training,
            row.contestant,
            row.tokens_per_second,
            row.ratio,
            row.share,
            row.peak / 2**20,
        )
        for row in rows
    ]
    head = ["", "", "tokens/s", "time, packed = 1", "of the float32 rate", "peak MiB"]
    return table(head, lines, ["", "", ",.0f", ".2f", ".0%", ".0f"])


@dataclass(frozen=True)
class ProfileRow:
    """An operation in updates of ``packed``, without the operations that it calls.

    Attributes
    ----------
    training, operation : str
        What was run, and PyTorch's or CUDA's name.
    calls : int
        In all updates.
    per_layer : float
        Calls that an encoder and a decoder layer add to one update.
    host, device : float
        Seconds on the CPU, and on another device.
    """

    training: str
    operation: str
    calls: int
    per_layer: float
    host: float
    device: float


SYNCHRONISING = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "aten::_local_scalar_dense")
"""Operations that wait for a GPU, and the one that asks it for a number."""

LISTED = 20
"""Other operations of a profile."""


def profile_training(training: Training, device: torch.device | str = "cpu") -> list[ProfileRow]:
    """Profile updates with plans made anew: what waits for the device, then the longest operations."""
    device, batches = torch.device(device), training.batches()

    def profiled(model: Training) -> dict[str, Any]:
        update = CONTESTANTS[PACKED](model, batches, device)
        update()
        forget_plans()
        with torch.profiler.profile() as profile:
            update()
        events = profile.key_averages()
        return {event.key: event for event in events if event.device_type == DeviceType.CPU}  # no kernels

    deeper = profiled(replace(training, num_layers=training.num_layers + 1))
    found = profiled(training)

    def row(key: str) -> ProfileRow:
        event = found[key]
        added = (deeper[key].count if key in deeper else 0) - event.count
        seconds = event.self_cpu_time_total / 1e6, event.self_device_time_total / 1e6
        return ProfileRow(training.name, key, event.count, added / len(batches), *seconds)

    waiting = [row(key) for key in SYNCHRONISING if key in found]
    others = [row(key) for key in found.keys() - set(SYNCHRONISING)]
    return waiting + sorted(others, key=lambda row: (row.device, row.host), reverse=True)[:LISTED]


def format_profile(rows: Sequence[ProfileRow]) -> Table:
    """Format rows of :func:`profile_training` as a table."""
    lines = [(r.training, r.operation, r.calls, r.per_layer, r.host * 1e3, r.device * 1e3) for r in rows]
    head = ["", "operation", "calls", "for a layer more", "ms, CPU", "ms, GPU"]
    return table(head, lines, ["", "", ",.0f", ".1f", ".2f", ".2f"])
