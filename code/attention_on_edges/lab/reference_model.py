"""What the lab's stacks and its model should compute, and what they compute with a mistake in them.

As in :mod:`~attention_on_edges.lab.reference`: plain functions of parameters, inputs and names of mistakes.
"""

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

from attention_on_edges.lab.reference import NONE, Faults, Params, attention, feed_forward, linear, part, same

Drop = Callable[[Tensor], Tensor]
"""Stand-in for the model's dropout."""


def add_norm(
    p: Params,
    number: int,
    x: Tensor,
    sublayer: Callable[[Tensor], Tensor],
    start: Tensor,
    drop: Drop,
    faults: Faults,
) -> Tensor:
    """LayerNorm(x + dropout(sublayer(x))), with norm ``number`` (Vaswani et al. 2017, sec. 5.4).

    ``start`` is the stack's input: only a mistake adds it.
    """
    kept = start if number == 2 and "second residual from the input" in faults else x
    q = part(p, "norm1" if "one norm for all" in faults else f"norm{number}")

    def norm(y: Tensor) -> Tensor:
        learned = {} if "norm not learned" in faults else q
        return F.layer_norm(y, y.shape[-1:], **learned)

    def dropped(y: Tensor) -> Tensor:
        elsewhere = {"no dropout", f"no dropout {number}", "dropout on the sum", "dropout after the norm"}
        return y if faults & elsewhere else drop(y)

    if "pre-norm" in faults:
        return kept + dropped(sublayer(norm(x)))
    if "norm before the addition" in faults:
        return kept + norm(dropped(sublayer(x)))
    y = dropped(sublayer(x))
    if not faults & {"no residuals", f"no residual {number}"}:
        y = kept + y
    y = drop(y) if "dropout on the sum" in faults else y
    y = y if faults & {"no norms", f"no norm {number}"} else norm(y)
    return drop(y) if "dropout after the norm" in faults else y


def encoder_stack(p: Params, h: int, x: Tensor, drop: Drop = same, faults: Faults = NONE) -> Tensor:
    """One encoder stack, post-norm, [batch, m, d] to [batch, m, d]."""

    def attend(y: Tensor) -> Tensor:
        return attention(part(p, "attention"), h, y, y, y, "maskout in the encoder" in faults)

    def transform(y: Tensor) -> Tensor:
        return feed_forward(part(p, "feed_forward"), y)

    steps = [(1, attend), (2, transform)]
    if "feed-forward first" in faults:
        steps = [(1, transform), (2, attend)]
    if "no attention" in faults:
        steps = steps[1:]
    if "no feed-forward" in faults:
        steps = steps[:1]
    start = x
    for number, sublayer in steps:
        x = add_norm(p, number, x, sublayer, start, drop, faults)
    return x


def decoder_stack(
    p: Params,
    h: int,
    x: Tensor,
    memory: Tensor,
    drop: Drop = same,
    faults: Faults = NONE,
) -> Tensor:
    """One decoder stack, post-norm: states [batch, n, d], encoder output [batch, m, d] to [batch, n, d]."""
    start = x
    shared = part(p, "self_attention")
    own = shared if "one attention for both" in faults else part(p, "cross_attention")
    if "attentions exchanged" in faults:
        shared, own = own, shared

    def attend(y: Tensor) -> Tensor:
        return attention(shared, h, y, y, y, "no maskout" not in faults)

    def attend_to_source(y: Tensor) -> Tensor:
        query = start if "queries from the stack's input" in faults else y
        roles = {
            "roles exchanged": (memory, query, query),
            "keys from the target": (query, query, memory),
            "values from the target": (query, memory, query),
            "all from the memory": (memory, memory, memory),
            "all from the target": (query, query, query),
        }
        chosen = next((r for name, r in roles.items() if name in faults), (query, memory, memory))
        return attention(own, h, *chosen, "maskout in both" in faults)

    def transform(y: Tensor) -> Tensor:
        return feed_forward(part(p, "feed_forward"), y)

    steps = [(1, attend), (2, attend_to_source), (3, transform)]
    if "cross-attention first" in faults:
        steps = [(1, attend_to_source), (2, attend), (3, transform)]
    left_out = {"no self-attention": 1, "no cross-attention": 2, "no feed-forward": 3}
    for number, sublayer in steps:
        if not any(name in faults and number == n for name, n in left_out.items()):
            x = add_norm(p, number, x, sublayer, start, drop, faults)
    return x


def positions(length: int, d: int) -> Tensor:
    """Sine and cosine waves (Vaswani et al. 2017, sec. 3.5), float64 [length, d]."""

    def wave(pos: int, column: int) -> float:
        angle = pos / 10000 ** (2 * (column // 2) / d)
        return math.cos(angle) if column % 2 else math.sin(angle)

    rows = [[wave(pos, column) for column in range(d)] for pos in range(length)]
    return torch.tensor(rows, dtype=torch.float64)


def embed(p: Params, side: str, ids: Tensor, drop: Drop, faults: Faults) -> Tensor:
    """Ids [batch, n] to states [batch, n, d]: embedding times √d, plus position, then dropout."""
    table = p[f"{side}_embed.weight"]
    x = table[ids] * (1.0 if "embedding not scaled" in faults else math.sqrt(table.shape[1]))
    if not faults & {"no positions", f"no {side} positions"}:
        first = 1 if "positions from 1" in faults else 0
        waves = positions(ids.shape[1] + 1, table.shape[1])[first : first + ids.shape[1]].to(x)
        x = x + waves * (math.sqrt(table.shape[1]) if "positions scaled too" in faults else 1.0)
    return x if "no dropout" in faults else drop(x)


def stacks(p: Params, side: str) -> Iterator[dict[str, Tensor]]:
    """Iterate over the parameters of each stack of encoder or decoder."""
    number = 0
    while parts := part(p, f"{side}.{number}"):
        yield parts
        number += 1


def encode(p: Params, h: int, source: Tensor, drop: Drop = same, faults: Faults = NONE) -> list[Tensor]:
    """Return each decoder stack's memory: the encoder's output [batch, m, d], once per stack."""
    start = embed(p, "src", source, drop, faults)
    outputs = [start]
    for parts in stacks(p, "encoder"):
        outputs.append(encoder_stack(parts, h, outputs[-1]))
    count = len(outputs) - 1
    if "stack by stack" in faults:
        return outputs[1:]
    if "encoder not used" in faults:
        return [start] * count
    if "one encoder stack" in faults:
        return [outputs[1]] * count
    return outputs[-1:] * count


def decode(
    p: Params, h: int, ids: Tensor, memories: list[Tensor], drop: Drop = same, faults: Faults = NONE
) -> Tensor:
    """Log-probabilities [batch, n, vocabulary] of what follows each of the ids that the decoder reads."""
    x = embed(p, "tgt", ids, drop, faults)
    last = 1 if "one decoder stack" in faults else len(memories)
    for parts, memory in list(zip(stacks(p, "decoder"), memories, strict=True))[:last]:
        x = decoder_stack(parts, h, x, memory)
    logits = linear(part(p, "output"), x)
    if "no softmax" in faults:
        return logits
    if "no logarithm" in faults:
        return logits.softmax(-1)
    return logits.log_softmax(1 if "softmax over positions" in faults else -1)


def forced(
    p: Params, h: int, source: Tensor, target: Tensor, sos: int, drop: Drop = same, faults: Faults = NONE
) -> Tensor:
    """Teacher forcing: source [batch, m], target [batch, n] to log-probabilities [batch, n, vocabulary]."""
    start = torch.full_like(target[:, :1], sos)
    read = torch.cat([start, target[:, :-1]], dim=1)
    if "not shifted" in faults:
        read = target
    if "shifted to the left" in faults:
        read = torch.cat([target[:, 1:], start], dim=1)
    if "shifted in a circle" in faults:
        read = target.roll(1, dims=1)
    return decode(p, h, read, encode(p, h, source, drop, faults), drop, faults)


def greedy(
    p: Params, h: int, source: Tensor, sos: int, eos: int, max_len: int, faults: Faults = NONE
) -> list[list[int]]:
    """Greedy decoding: each row the ids up to and with its end symbol, ``max_len`` of them at most."""
    memories = encode(p, h, source, faults=faults)
    ids = torch.full_like(source[:, :1], sos)
    while ids.shape[1] <= max_len:
        read = ids[:, -1:] if "only the last symbol is read" in faults else ids
        place = 0 if "first prediction taken" in faults else -1
        best = decode(p, h, read, memories, faults=faults)[:, place].argmax(-1, keepdim=True)
        ids = torch.cat([ids, best], dim=1)
        if "stops at the first end" in faults and (best == eos).any():
            break
    return rows(ids if "start symbol kept" in faults else ids[:, 1:], eos)


def rows(ids: Tensor, eos: int) -> list[list[int]]:
    """Cut each row of ids behind its first end symbol."""
    cut = [row.index(eos) + 1 if eos in row else len(row) for row in ids.tolist()]
    return [row[:end] for row, end in zip(ids.tolist(), cut, strict=True)]
