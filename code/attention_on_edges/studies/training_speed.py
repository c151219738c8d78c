"""Training throughput: the packed graph model against PyTorch's padded one."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from attention_on_edges.models.padded import PaddedTransformer
from attention_on_edges.models.transformer import make_model
from attention_on_edges.pool import Batch, GraphPool
from attention_on_edges.runs.baselines import PaddedAttention
from attention_on_edges.runs.harness import Case, Run, in_turns
from attention_on_edges.studies.memory import alone, peak
from attention_on_edges.training import LabelSmoothing, states_loss, take_step
from attention_on_edges.tutorial import NoamOpt

PACKED, PADDED = "packed", "nn.Transformer"
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
    trainings = [replace(each, dim_model=16, num_batches=1) if small else each for each in TRAININGS]
    return {each.name: in_turns(partial(training_case, each)) for each in trainings}


def training_case(training: Training, device: torch.device | str = "cpu") -> Case:
    """Updates of the same architecture on the same batches, by all of ``CONTESTANTS``."""
    device, batches = torch.device(device), training.batches()
    tokens = sum(len(target) - 1 for pairs in batches for _, target in pairs)
    return Case(
        training.name,
        {name: make(training, batches, device) for name, make in CONTESTANTS.items()},
        first=PACKED,
        facts=lambda _: {"tokens": tokens},
        peak=partial(alone, _peak_here, training) if device.type == "cpu" else None,
    )


def _peak_here(training: Training, contestant: str) -> int:
    """Peak of this process, which makes the last of the updates."""
    CONTESTANTS[contestant](training, training.batches()[-1:], torch.device("cpu"))()
    return peak()


Hidden = Callable[[Pairs], tuple[Tensor, Tensor]]
"""From a batch to the final states of its target tokens, [n, dim_model], and what is to be predicted."""


def _updates(
    training: Training, batches: list[Pairs], model: Any, hidden: Hidden, chunked: bool = True
) -> Callable[[], None]:
    """What makes one update per batch, with the loss of the trainer, in chunks, or with PyTorch's."""
    opt = NoamOpt(training.dim_model, 1.0, 4000, torch.optim.Adam(model.parameters()))
    criterion = LabelSmoothing(VOCAB, PAD, SMOOTHING)

    def update() -> None:
        for pairs in batches:
            opt.zero_grad()
            states, wanted = hidden(pairs)
            if chunked:
                states_loss(model.generator, criterion, states, wanted)[0].backward()
                take_step(opt, len(wanted))
            else:
                logits = model.generator.proj(states)
                cross_entropy(logits, wanted, label_smoothing=SMOOTHING).backward()
                opt.step()

    return update


def _packed_model(
    training: Training, batches: list[Pairs], device: torch.device, by_hand: bool = False
) -> Callable[[], None]:
    torch.manual_seed(0)
    model = make_model(VOCAB, VOCAB, *training.size, DROPOUT).to(device)
    pool = GraphPool()

    def hidden(pairs: Pairs) -> tuple[Tensor, Tensor]:
        batch = pool([source for source, _ in pairs], [target for _, target in pairs], device)
        if by_hand:
            model.propagate_attention = padded_around(batch)  # type: ignore[method-assign]
        return model.hidden(batch), batch.tgt_y

    return _updates(training, batches, model, hidden)


def padded_around(batch: Batch) -> Callable[..., Tensor]:
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
    return _updates(
        training, batches, model, lambda pairs: model.hidden(*zip(*pairs, strict=True)), chunked=tuned
    )


CONTESTANTS: dict[str, Callable[[Training, list[Pairs], torch.device], Callable[[], None]]] = {
    PACKED: _packed_model,
    PADDED: _padded_model,
    TUNED: partial(_padded_model, tuned=True),
    BY_HAND: partial(_packed_model, by_hand=True),
}
"""Each makes a function that makes the updates.

``PACKED`` is the trainer; ``PADDED`` PyTorch's model with its loss on real tokens only; ``TUNED`` this with
the dropout and the chunked loss of ``PACKED``; ``BY_HAND`` as ``PACKED``, but each attention pads its tokens
and calls ``scaled_dot_product_attention``.
"""
