"""Training throughput: the packed graph model against PyTorch's padded one and against DGL's built-ins."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd import DeviceType
from torch.nn.functional import cross_entropy

from attention_on_edges.bench.baselines import PaddedAttention, PaddedTransformer
from attention_on_edges.bench.harness import Case, Row, Run, chosen, in_turns
from attention_on_edges.bench.memory import alone, peak
from attention_on_edges.dgl_engines import builtin, in_dgl
from attention_on_edges.layers import Generator
from attention_on_edges.models.transformer import make_model
from attention_on_edges.pool import Batch, GraphPool
from attention_on_edges.training import LabelSmoothing, states_loss, take_step
from attention_on_edges.training.loss import multiplies_bfloat16
from attention_on_edges.tutorial import NoamOpt, SimpleLossCompute
from edgewise.message_passing.plan import forget_plans

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

    @property
    def size(self) -> tuple[int, int, int, int]:
        """Of a model: layers, widths, heads."""
        return self.num_layers, self.dim_model, self.dim_ff, self.num_heads

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
        pairs: Pairs = []
        for n in lengths.tolist():
            m = max(2, n + int(torch.randint(-2, 3, (), generator=generator)))
            source, target = (torch.randint(3, VOCAB, (size,), generator=generator) for size in (n, m + 1))
            pairs.append((source, target))
        return [pairs[i : i + count] for i in range(0, len(pairs), count)]


TRAININGS = (
    Training("d 128, random", 4, 128, 256, 4),
    Training("d 128, bucketed", 4, 128, 256, 4, bucketed=True),
    Training("d 512, 2 layers", 2, 512, 2048, 8, num_batches=1),
    Training("8 x 200-300, d 128", 4, 128, 256, 4, long=True, num_batches=1),
)


def training_plan(small: bool = False) -> dict[str, Run]:
    """All trainings, or narrow models on one batch each."""
    return {each.name: in_turns(partial(training_case, each)) for each in _trainings(small)}


def profile_plan(small: bool = False) -> dict[str, Run]:
    """The widest model."""
    return {each.name: partial(profile_training, each) for each in _trainings(small)[2:3]}


def _trainings(small: bool) -> list[Training]:
    return [replace(each, dim_model=16, num_batches=1) if small else each for each in TRAININGS]


def training_case(training: Training, device: torch.device | str = "cpu") -> Case:
    """Updates of the same architecture on the same batches, by all of ``CONTESTANTS`` that can run here."""
    device, batches = torch.device(device), training.batches()
    missing = {BUILTIN: not in_dgl(device.type), HALF: not multiplies_bfloat16(device)}
    here = {name: make for name, make in CONTESTANTS.items() if not missing.get(name)}
    tokens = sum(len(target) - 1 for pairs in batches for _, target in pairs)
    return Case(
        training.name,
        {name: make(training, batches, device) for name, make in here.items()},
        first=PACKED,
        work=matrix_work(training, batches),
        facts=lambda _: {"tokens": tokens},
        peak=partial(alone, _peak_here, training) if device.type == "cpu" else None,
    )


def _peak_here(training: Training, contestant: str) -> int:
    """Peak of this process, which makes the last of the updates."""
    CONTESTANTS[contestant](training, training.batches()[-1:], torch.device("cpu"))()
    return peak()


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
    half: bool = False,
    by_hand: bool = False,
    in_dgl: bool = False,
) -> Callable[[], None]:
    torch.manual_seed(0)
    model = make_model(VOCAB, VOCAB, *training.size, DROPOUT).to(device)
    opt = NoamOpt(training.dim_model, 1.0, 4000, torch.optim.Adam(model.parameters()))
    criterion, pool = LabelSmoothing(VOCAB, PAD, SMOOTHING), GraphPool()
    predict: Callable[[Batch], Tensor] = model.hidden
    learn: Callable[[Tensor, Tensor, int], object] = partial(_learn, model.generator, criterion, opt)
    if in_dgl:
        model.propagate_attention = builtin  # type: ignore[method-assign]
        predict, learn = model, SimpleLossCompute(criterion, opt)

    def update() -> None:
        for pairs in batches:
            batch = pool([source for source, _ in pairs], [target for _, target in pairs], device)
            if by_hand:
                model.propagate_attention = _padded_around(batch)  # type: ignore[method-assign]  # by hand
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
    model = PaddedTransformer(VOCAB, *training.size, DROPOUT, fast_dropout=tuned).to(device)
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
                logits, wanted = model(*sentences)
                cross_entropy(logits, wanted, label_smoothing=SMOOTHING).backward()
                opt.step()

    return update


CONTESTANTS: dict[str, Callable[[Training, list[Pairs], torch.device], Callable[[], None]]] = {
    PACKED: _graph_model,
    HALF: partial(_graph_model, half=True),
    PADDED: _padded_model,
    TUNED: partial(_padded_model, tuned=True),
    BY_HAND: partial(_graph_model, by_hand=True),
    BUILTIN: partial(_graph_model, in_dgl=True),
}
"""Each makes a function that makes the updates.

``PACKED`` is the trainer; ``HALF`` the same, matrix products in bfloat16 except the output layer's;
``PADDED`` PyTorch's model with its loss on real tokens only; ``TUNED`` this with the dropout and the chunked
loss of ``PACKED``; ``BY_HAND`` as ``PACKED``, but each attention pads its tokens and calls
``scaled_dot_product_attention``; ``BUILTIN`` as in the tutorial: DGL's built-in functions, a matrix of all
log-probabilities.
"""

SYNCHRONISING = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "aten::_local_scalar_dense")
"""Operations that wait for a GPU, and the one that asks it for a number."""

LISTED = 20
"""Other operations of a profile."""


def profile_training(
    training: Training, device: torch.device | str = "cpu", repeats: int = 1, only: Sequence[str] = ()
) -> list[Row]:
    """Profile updates with new plans: what waits for the device, then the longest operations.

    Each without the operations that it calls: ``calls`` in all batches, ``per_layer`` those that an encoder
    and a decoder layer add to one batch, seconds of the ``host`` and of the ``device``.
    """
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

    def row(key: str) -> Row:
        event = found[key]
        added = (deeper[key].count if key in deeper else 0) - event.count
        figures = {"calls": event.count, "per_layer": added / len(batches)}
        figures |= {"host": event.self_cpu_time_total / 1e6, "device": event.self_device_time_total / 1e6}
        return {"workload": training.name, "contestant": key} | figures

    waiting = [row(key) for key in SYNCHRONISING if key in found]
    others = [row(key) for key in chosen(found.keys() - set(SYNCHRONISING), only)]
    return waiting + sorted(others, key=lambda row: (row["device"], row["host"]), reverse=True)[:LISTED]
