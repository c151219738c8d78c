"""Three engines of chapter 5, step by step: which tensors each writes to memory, and of how many numbers.

Counted are the tensors that the functions named below make in a forward pass: each number of them once, when
it is first written. Left out are results on the way that have at most one number per edge and head (a score
before its division, what a softmax makes in between), masks, zeros that sums begin with, and DGL's stacking
of outputs of several in-degrees. Tests of the live figures watch the engines and compare.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from edgewise.graphs import AttentionGraph
from edgewise.message_passing import plan_tiles
from edgewise.message_passing.plan import Placement, TilePlan


class Memory:
    """Tables of what is written, each with rows of a kind and a column for each tensor, and the steps.

    Parameters
    ----------
    start : str
        What is said before the first step.
    """

    def __init__(self, start: str):
        self.tables: list[dict] = []
        self.columns: dict[str, tuple[int, int, int]] = {}
        self.blocks: list[dict] = []
        self.steps: list[dict] = []
        self.total = 0
        self.step(start)

    def table(self, title: str, rows: Sequence[str], columns: Mapping[str, int]) -> None:
        """Lay out a table; ``columns`` gives the numbers in a row of each tensor."""
        for place, (name, width) in enumerate(columns.items()):
            self.columns[name] = (len(self.tables), place, width)
        self.tables.append({"title": title, "rows": list(rows), "columns": list(columns.items())})

    def step(self, told: str, writes: Mapping[str, Sequence[int]] | None = None, **more: Any) -> None:
        """Add a step; ``writes`` gives the rows that are written of each tensor."""
        written, cells = 0, []
        for name, rows in (writes or {}).items():
            table, column, width = self.columns[name]
            written += len(rows) * width
            cells.append([table, column, list(rows)])
        self.total += written
        self.steps.append({"told": told, "writes": cells, "written": written, "total": self.total, **more})

    @property
    def data(self) -> dict:
        """What the script draws."""
        return {"tables": self.tables, "blocks": self.blocks, "steps": self.steps}


def engine_steps(graph: AttentionGraph, tokens: Sequence[str], d_k: int, h: int) -> dict[str, dict]:
    """Steps of the engines ``mailbox``, ``scatter`` and ``tiles``; the last of each compares all three."""
    start = f"Every token has a query, a key and a value of {h * d_k} numbers. Nothing else is written yet."
    made = {}
    for name, write in (("mailbox", mailbox_steps), ("scatter", scatter_steps), ("tiles", tile_steps)):
        made[name] = Memory(start)
        write(made[name], graph, tokens, d_k, h)
    counts = ", ".join(f"{name} wrote {memory.total:,}" for name, memory in made.items())
    for memory in made.values():
        memory.step(f"The outputs are the same; the numbers written are not: {counts}.", compare=True)
    return {name: memory.data for name, memory in made.items()}


def edge_labels(graph: AttentionGraph, tokens: Sequence[str]) -> list[str]:
    """An arrow for each edge, from sender to receiver."""
    return [f"{tokens[i]} → {tokens[j]}" for i, j in zip(graph.src.tolist(), graph.dst.tolist(), strict=True)]


def quoted(tokens: Sequence[str], chosen: Sequence[int]) -> str:
    """Tokens in quotation marks."""
    return ", ".join(f"“{tokens[i]}”" for i in chosen)


def mailbox_steps(memory: Memory, graph: AttentionGraph, tokens: Sequence[str], d_k: int, h: int) -> None:
    """As ``edgewise.message_passing.dgl_engines`` does in ``send_score_and_value`` and ``read_mailbox``."""
    wide, edges = h * d_k, range(graph.num_edges)
    sent = {"key": wide, "query": wide, "products": wide, "score": h, "value": wide}
    read = {"score in mailbox": h, "value in mailbox": wide, "weight": h, "weighted value": wide}
    memory.table("per edge, sender → receiver", edge_labels(graph, tokens), {**sent, **read})
    memory.table("per receiver", tokens, {"output": wide})
    memory.step(
        "The message function copies the sender's key and the receiver's query to every edge.",
        {"key": edges, "query": edges},
    )
    memory.step(
        "It multiplies the two and adds the products up: a score on every edge.",
        {"products": edges, "score": edges},
    )
    memory.step(
        "It copies the sender's value to every edge: the message is the pair of score and value.",
        {"value": edges},
    )
    degree = torch.bincount(graph.dst, minlength=graph.num_dst)
    for count in degree.unique().tolist():  # as DGL does: one call of the reduce function for each in-degree
        receivers = (degree == count).nonzero().squeeze(1)
        mine = torch.isin(graph.dst, receivers).nonzero().squeeze(1).tolist()
        names = quoted(tokens, receivers.tolist())
        told = f"Nothing is sent to {names}: the output is zeros."
        if count:
            told = (
                f"In-degree {count}, of {names}: the mailbox gets copies of the messages, and the reduce "
                "function makes weights, weighted values and their sum, the output."
            )
        memory.step(told, {**dict.fromkeys(read, mine), "output": receivers.tolist()}, edges=mine)


def scatter_steps(memory: Memory, graph: AttentionGraph, tokens: Sequence[str], d_k: int, h: int) -> None:
    """As ``edge_softmax`` and ``scatter`` of ``edgewise.message_passing.scatter`` do."""
    wide, edges = h * d_k, range(graph.num_edges)
    columns = {"key": wide, "query": wide, "products": wide, "score": h, "weight": h}
    columns |= {"value": wide, "weighted value": wide}
    memory.table("per edge, sender → receiver", edge_labels(graph, tokens), columns)
    memory.table("per receiver", tokens, {"output": wide})
    memory.step(
        "The sender's key and the receiver's query are gathered for every edge.",
        {"key": edges, "query": edges},
    )
    memory.step(
        "They are multiplied, and the products are added up: a score on every edge.",
        {"products": edges, "score": edges},
    )
    memory.step(
        "A softmax over each receiver's in-edges turns scores into weights, all receivers at once.",
        {"weight": edges},
    )
    memory.step(
        "The sender's value is gathered for every edge, and multiplied by the weight.",
        {"value": edges, "weighted value": edges},
    )
    memory.step("Weighted values are added up at their receivers.", {"output": range(graph.num_dst)})


def tile_steps(memory: Memory, graph: AttentionGraph, tokens: Sequence[str], d_k: int, h: int) -> None:
    """As ``edgewise.message_passing.tiles.tiles`` does, by the plan that it follows.

    What the kernel keeps within a tile is not counted: PyTorch's on the CPU goes through blocks of scores
    that stay in the cache.
    """
    plan = plan_tiles(graph)
    assert plan.receivers is not None  # the graph has edges
    assert plan.senders is not None
    memory.blocks = tile_blocks(graph, plan, tokens)
    _gather(memory, plan, plan.receivers, plan.senders, tokens, h * d_k)
    _attend(memory, plan, h)
    if not plan.receivers.trivial:
        _collect(memory, plan.receivers, tokens)


def _gather(
    memory: Memory, plan: TilePlan, receivers: Placement, senders: Placement, tokens: Sequence[str], wide: int
) -> None:
    """The function ``spread``, which copies nothing where tokens are in place; lays out all tables."""
    gathered = {}
    if not receivers.trivial:
        columns = ["query", "answer"]
        columns += ["joined"] if len(plan.buckets) > 1 else []
        columns += [] if receivers.everywhere else ["collected"]
        title = "per receiver in a tile"
        memory.table(title, slot_labels(receivers, tokens), dict.fromkeys(columns, wide))
        gathered["query"] = range(len(receivers.source))
    if not senders.trivial:
        title, columns = "per sender in a tile", ["key", "value"]
        memory.table(title, slot_labels(senders, tokens), dict.fromkeys(columns, wide))
        gathered |= dict.fromkeys(columns, range(len(senders.source)))
    memory.table("per receiver", tokens, {"output": wide})
    count = sum(bucket.num_tiles for bucket in plan.buckets)
    tiles = "one tile" if count == 1 else f"{count} tiles"
    names = {"query": "queries", "key": "keys", "value": "values"}
    copied = "Their tokens are side by side already, so nothing is copied."
    if gathered:
        copied = f"What they need is copied side by side: {', '.join(names[name] for name in gathered)}."
    memory.step(f"Receivers that share senders are grouped into {tiles}. {copied}", gathered)


def _attend(memory: Memory, plan: TilePlan, h: int) -> None:
    """One call of ``scaled_dot_product_attention`` for each bucket of tiles."""
    answers = "answer" if "answer" in memory.columns else "output"
    first_row = first_block = 0
    for bucket in plan.buckets:
        rows = bucket.num_tiles * bucket.rows
        blocks = list(range(first_block, first_block + bucket.num_tiles))
        edges = sorted({edge for block in blocks for edge in memory.blocks[block]["edges"]})
        scores = h * rows * bucket.columns
        masked = scores - h * len(edges)
        rest = f"; {masked} of them belong to no edge and are masked" if masked else ", all of edges"
        memory.step(
            f"One dense call computes {scores} scores in fast memory{rest}. "
            "It writes what each receiver gets, and forgets the scores.",
            {answers: range(first_row, first_row + rows)},
            edges=edges,
            blocks=blocks,
        )
        first_row, first_block = first_row + rows, first_block + bucket.num_tiles


def _collect(memory: Memory, place: Placement, tokens: Sequence[str]) -> None:
    """``torch.cat`` of several calls' answers, then the function ``collect``."""
    writes: dict[str, Sequence[int]] = {"output": range(len(tokens))}
    if "joined" in memory.columns:
        writes["joined"] = range(len(place.source))
    if "collected" in memory.columns:
        writes["collected"] = place.slots.tolist()
    memory.step("The answers are copied back into the order of the tokens.", writes)


def slot_labels(place: Placement, tokens: Sequence[str]) -> list[str]:
    """The token in each slot of all tiles."""
    real = set(place.slots.tolist())
    return [tokens[t] if slot in real else "padding" for slot, t in enumerate(place.source.tolist())]


def tile_blocks(graph: AttentionGraph, plan: TilePlan, tokens: Sequence[str]) -> list[dict]:
    """Each tile: its receivers and senders by name, the cells that are edges, and which edges they are."""
    assert plan.receivers is not None
    assert plan.senders is not None
    number = {pair: e for e, pair in enumerate(zip(graph.dst.tolist(), graph.src.tolist(), strict=True))}
    names = [slot_labels(place, tokens) for place in (plan.receivers, plan.senders)]
    real = [set(place.slots.tolist()) for place in (plan.receivers, plan.senders)]
    blocks, row, column = [], 0, 0
    for bucket in plan.buckets:
        for _ in range(bucket.num_tiles):
            rows, columns = range(row, row + bucket.rows), range(column, column + bucket.columns)
            cells = {}
            for r in real[0].intersection(rows):
                for c in real[1].intersection(columns):
                    edge = number.get((int(plan.receivers.source[r]), int(plan.senders.source[c])))
                    if edge is not None:
                        cells[r - row, c - column] = edge
            blocks.append(
                {
                    "receivers": [names[0][r] for r in rows],
                    "senders": [names[1][c] for c in columns],
                    "cells": sorted(cells),
                    "edges": sorted(cells.values()),
                }
            )
            row, column = rows.stop, columns.stop
    return blocks
