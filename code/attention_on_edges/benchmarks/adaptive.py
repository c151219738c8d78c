"""The time of a step of the Universal Transformer by the share of active tokens."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from attention_on_edges.benchmarks.timing import interleave
from attention_on_edges.figures import Table, table
from edgewise.graphs import Batch, GraphPool
from edgewise.models.universal import Decoding, Encoding, Side, UTransformer, make_universal_model

SHARES = (1.0, 0.75, 0.5, 0.25, 0.1)
"""Active tokens, as a share of all."""

SIZE = {"dim_model": 128, "dim_ff": 256, "h": 4}


@dataclass(frozen=True)
class AdaptiveRow:
    """Time of one step, forward and backward; ``ratio`` is to the same side's step with all tokens active."""

    side: str
    share: float
    seconds: float
    ratio: float


def bench_adaptive(
    shares: Sequence[float] = SHARES, sentences: int = 128, length: int = 40, repeats: int = 5
) -> list[AdaptiveRow]:
    """Time one step of encoder and decoder with some tokens active, drawn uniformly.

    A step runs as in training, from states to halting probabilities and back; the graph into active tokens
    and its plan are rebuilt each time. Width 128, feed-forward 256, four heads.

    Parameters
    ----------
    shares : sequence of float
        Of active tokens, in (0, 1]. Ratios are to the full step, which is timed too if it is not among them.
    sentences, length : int
        Of the batch, on both sides.
    repeats : int
        Measured turns of each.

    Raises
    ------
    ValueError
        If a share lies outside (0, 1].
    """
    for share in shares:
        if not 0 < share <= 1:
            raise ValueError(f"shares must lie in (0, 1], got {share}")
    torch.manual_seed(0)
    model = make_universal_model(8, 8, dropout=0.0, **SIZE)
    ids = torch.randint(8, (sentences, length + 1))
    batch = GraphPool()(ids[:, 1:], ids)
    steps = {
        (side, share): _step(model, batch, side, share)
        for side in ("enc", "dec")
        for share in dict.fromkeys((1.0, *shares))
    }
    seconds = interleave(steps, repeats)
    return [
        AdaptiveRow(side, share, seconds[side, share], seconds[side, share] / seconds[side, 1.0])
        for side in ("enc", "dec")
        for share in shares
    ]


def _step(model: UTransformer, batch: Batch, name: str, share: float) -> Callable[[], None]:
    """Return a function that runs step 1, forward and backward, with a share of tokens active."""
    count = len(batch.src[0])
    rows = torch.randperm(count)[: max(round(share * count), 1)].sort().values
    shape = (count, SIZE["h"], SIZE["dim_model"] // SIZE["h"])
    states = torch.randn(count, SIZE["dim_model"], requires_grad=True)
    cached = {field: torch.randn(shape, requires_grad=True) for field in "kv"}
    source = {field: torch.randn(shape, requires_grad=True) for field in "kv"}
    advance = model.advance(batch.src[1])
    halt, stack = (model.halt_enc, model.encoder) if name == "enc" else (model.halt_dec, model.decoder)
    learned = [states, *cached.values(), *source.values(), *stack.layers.parameters(), *halt.parameters()]

    def side() -> Side:
        if name == "enc":
            return Encoding(model, batch)
        with torch.no_grad():
            decoding = Decoding(model, batch, states[:0])
        decoding.source = source
        return decoding

    def step() -> None:
        tokens = side()
        tokens.keys_values = cached
        x = states.index_select(0, rows)
        new = tokens.revise(1, rows, advance(1, rows, x))
        loss = (new.sum() + halt(new).sum()).square()
        torch.autograd.grad(loss, learned, allow_unused=True)

    return step


def format_adaptive(rows: Sequence[AdaptiveRow]) -> Table:
    """Format rows of :func:`bench_adaptive` as a table."""
    cells = {(row.side, row.share): f"{row.seconds * 1e3:.2f} ({row.ratio:.0%})" for row in rows}
    shares = dict.fromkeys(row.share for row in rows)
    lines = [(share, cells["enc", share], cells["dec", share]) for share in shares]
    return table(["active", "encoder, ms", "decoder, ms"], lines, [".0%", "", ""])
