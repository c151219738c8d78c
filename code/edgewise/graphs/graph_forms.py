"""What a graph holds: edge ``e`` carries a message from token ``src[e]`` to token ``dst[e]``.

A graph is a value: it does not change. It is held in one of three forms, the least that determines it:

- *packed sequences*: their lengths and how far they attend, so complete, causal, bipartite and windowed
  graphs. Python's integers and a device, no tensor. Graphs of equal lengths are equal, and share what was
  found of them (:mod:`edgewise.graphs.per_graph`);
- *intervals*: receiver ``i`` attends to senders ``start[i] .. stop[i] - 1``, two numbers per token;
- *edges*: two lists, in the order that was given.

From each the next is derived when it is asked for. The library reads ``_intervals`` and ``_edges``, the
graph's own tensors; everybody else is handed copies (``intervals``, ``src``, ``dst``), so that nobody can
edit what plans were made of. What is given is copied, too.
"""

from collections.abc import Callable
from typing import Any, Self

import torch
from torch import Tensor

from edgewise.graphs import packed_lengths
from edgewise.graphs.ordering import rows_and_positions
from edgewise.graphs.packed_lengths import Packed
from edgewise.graphs.per_graph import Known, per_graph, shared
from edgewise.validation import check_count, check_ids


class GraphForms:
    """Edges in the form in which they are held; :class:`~edgewise.AttentionGraph` says what is given."""

    num_src: int
    num_dst: int
    self_attention: bool
    packed: Packed | None
    device: torch.device
    _blocks: int | None
    _held_intervals: tuple[Tensor, Tensor] | None
    _held_edges: tuple[Tensor, Tensor] | None
    _known: Known

    def __init__(self, src: Tensor, dst: Tensor, num_src: int, num_dst: int | None = None):
        num_src = check_count("num_src", num_src)
        num_dst = None if num_dst is None else check_count("num_dst", num_dst)
        check_ids("src", src, num_src)
        check_ids("dst", dst, num_src if num_dst is None else num_dst)
        check_lists("src and dst", src, dst)
        self._hold(num_src, num_dst, edges=(own(src, copy=True), own(dst, copy=True)))

    @classmethod
    def of_packed(cls, packed: Packed, device: torch.device | None = None) -> Self:
        """Build from checked lengths, which are the graph: nothing is made of them yet."""
        num_dst = None if packed.receivers is None else sum(packed.receivers)
        return cls._of(
            sum(packed.senders), num_dst, packed=packed, device=device or packed_lengths.device_of()
        )

    @classmethod
    def _of(cls, num_src: int, num_dst: int | None, *held: Any, **form: Any) -> Self:
        """Build from valid parts, unchecked; arguments as of :meth:`_hold`."""
        graph = cls.__new__(cls)
        graph._hold(num_src, num_dst, *held, **form)
        return graph

    def _hold(
        self,
        num_src: int,
        num_dst: int | None,
        intervals: tuple[Tensor, Tensor] | None = None,
        edges: tuple[Tensor, Tensor] | None = None,
        packed: Packed | None = None,
        device: torch.device | None = None,
        blocks: int | None = None,
    ) -> None:
        """Hold tensors that nobody else has.

        Parameters
        ----------
        num_src, num_dst : int
            Tokens of each side; ``num_dst`` is ``None`` for self-attention.
        intervals, edges : tuple of two Tensor
            One of the two: ``start`` and ``stop`` for each receiver, or ``src`` and ``dst``.
        packed, device : Packed and torch.device, optional
            What determines the whole graph, alone or with the intervals that follow from it.
        blocks : int, optional
            Of intervals: equal blocks of receivers and of senders, which attend to their own block alone.
        """
        if max(num_src, num_dst or 0) >= 2**31:  # pairs of tokens are numbered in int64
            raise ValueError(f"a graph has fewer than 2**31 tokens, got {max(num_src, num_dst or 0)}")
        held = intervals or edges
        if held is not None:
            device = held[0].device
        elif device is not None and device.index is None and device.type != "cpu":
            device = torch.empty(0, device=device).device  # "cuda" is one of several
        vars(self).update(
            num_src=num_src,
            num_dst=num_src if num_dst is None else num_dst,
            self_attention=num_dst is None,
            packed=packed,
            device=device,
            _blocks=blocks,
            _held_intervals=None if intervals is None else (own(intervals[0]), own(intervals[1])),
            _held_edges=None if edges is None else (own(edges[0]), own(edges[1])),
        )
        vars(self)["_known"] = {} if packed is None else shared(self._key)

    @property
    def _key(self) -> tuple[Packed, torch.device] | None:
        """What makes graphs equal, and lets them share what is known."""
        return None if self.packed is None else (self.packed, self.device)

    def __setattr__(self, name: str, value: object = None) -> None:
        raise AttributeError(f"a graph does not change, so {name} cannot be set: make another one")

    __delattr__ = __setattr__

    def _like(self, **form: Any) -> Self:
        """Build a graph over the same tokens."""
        return self._of(self.num_src, None if self.self_attention else self.num_dst, **form)

    @property
    def src(self) -> Tensor:
        """int64 [E]: the sender of each edge; a copy, like all that is handed out."""
        return own(self._src, copy=True)

    @property
    def dst(self) -> Tensor:
        """int64 [E]: the receiver of each edge."""
        return own(self._dst, copy=True)

    @property
    def edge_index(self) -> Tensor:
        """int64 [2, E], in PyG's form: senders, then receivers."""
        return torch.stack(self._edges)

    @property
    def intervals(self) -> tuple[Tensor, Tensor] | None:
        """``start`` and ``stop``, as in :meth:`from_intervals`, of a graph in interval form."""
        intervals = self._intervals
        return None if intervals is None else (own(intervals[0], copy=True), own(intervals[1], copy=True))

    @property
    def in_intervals(self) -> bool:
        """Whether each receiver's senders are held as an interval; nothing is derived to tell."""
        return self._held_edges is None

    @property
    def _intervals(self) -> tuple[Tensor, Tensor] | None:
        """The graph's own starts and stops."""
        return (
            self._held_intervals
            if self.packed is None or self._held_intervals
            else _intervals_of_packed(self)
        )

    @property
    def _edges(self) -> tuple[Tensor, Tensor]:
        """The graph's own senders and receivers."""
        return self._held_edges or _edges_of_intervals(self)

    @property
    def _src(self) -> Tensor:
        return self._edges[0]

    @property
    def _dst(self) -> Tensor:
        return self._edges[1]

    @property
    def num_edges(self) -> int:
        """E, counted without deriving the edges."""
        return len(self._src) if self._held_edges else _count(self)

    @property
    def has_multi_edges(self) -> bool:
        """Whether two edges have the same sender and the same receiver."""
        return not self.in_intervals and self._find_multi_edges()

    @per_graph
    def _find_multi_edges(self) -> bool:
        if self.num_dst * self.num_src <= max(4096, 4 * self.num_edges):
            return int(self._mask_of_edges().sum()) < self.num_edges
        pairs = (self._dst * self.num_src + self._src).sort().values
        return bool((pairs[1:] == pairs[:-1]).any())

    def _mask_of_edges(self) -> Tensor:
        mask = torch.zeros(self.num_dst, self.num_src, dtype=torch.bool, device=self.device)
        mask[self._dst, self._src] = True
        return mask

    def _check_no_multi_edges(self) -> None:
        if self.has_multi_edges:
            raise ValueError(
                "a matrix has one entry for each pair of tokens, the graph two edges of the same pair"
            )

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Self:
        """Return the same graph on another device."""
        return self._with_tensors(lambda x: x.to(torch.device(device), non_blocking=non_blocking))

    def pin_memory(self) -> Self:
        """Return the same graph in pinned memory, from which ``to(..., non_blocking=True)`` does not wait."""
        return self._with_tensors(Tensor.pin_memory)

    def _with_tensors(self, change: Callable[[Tensor], Tensor]) -> Self:
        held = self._intervals or self._edges
        first, second = map(change, held)
        if first is held[0]:
            return self
        form = "intervals" if self.in_intervals else "edges"
        graph = self._like(packed=self.packed, blocks=self._blocks, **{form: (first, second)})
        graph._known.update(self._facts())
        return graph

    def __eq__(self, other: object) -> bool:
        if self is other or not isinstance(other, GraphForms):
            return self is other
        return self._key is not None and self._key == other._key

    def __hash__(self) -> int:
        return id(self) if self._key is None else hash(self._key)

    def _facts(self) -> Known:
        """What is known of the graph itself, wherever it is."""
        return {name: x for name, x in self._known.items() if isinstance(x, int) and name != "prepared"}

    def __getstate__(self) -> dict[str, Any]:
        """What is held; and what has been derived from it, if edges in lists were prepared."""
        known: Known = {}
        if "prepared" in self._known and not self.in_intervals:
            tensors = (Tensor, tuple)  # a choice is a tuple, too
            known = {
                name: x for name, x in self._known.items() if isinstance(x, tensors) and "_choose" not in name
            }
            known |= self._facts() | {"prepared": True}
        place = torch.empty(0, device=self.device)  # which loading may map to another
        held = self._held_intervals, self._held_edges
        return {"sides": (self.num_src, self.num_dst), "held": held, "known": known, "place": place,
                "same": self.self_attention, "form": (self.packed, self._blocks)}  # fmt: skip

    def __setstate__(self, state: dict[str, Any]) -> None:
        (num_src, num_dst), (intervals, lists) = state["sides"], state["held"]
        one_set, device, (packed, blocks) = state["same"], state["place"].device, state["form"]
        self._hold(num_src, None if one_set else num_dst, intervals, lists, packed, device, blocks)
        real = not torch.is_inference_mode_enabled()  # whose tensors would not serve training
        self._known.update({name: x for name, x in state["known"].items() if real or isinstance(x, int)})

    def __repr__(self) -> str:
        sides = f"{self.num_src}" if self.self_attention else f"{self.num_src} -> {self.num_dst}"
        form = "intervals" if self.in_intervals else "edges"
        count = "?" if self.device.type == "meta" else self.num_edges
        return f"AttentionGraph({sides} tokens, {count} edges, held as {form})"


def check_graph(graph: object, name: str = "graph") -> None:
    """Raise a ``TypeError`` unless it is a graph."""
    if not isinstance(graph, GraphForms):
        hint = "; AttentionGraph.from_edge_index makes one of pairs" if isinstance(graph, Tensor) else ""
        raise TypeError(f"{name} must be an AttentionGraph, got {type(graph).__name__}{hint}")


@per_graph
def ascends(graph: GraphForms) -> bool:
    """Whether each receiver's senders are an interval, and each sender's receivers are one, too."""
    if graph.packed is not None:
        return True
    intervals = graph._intervals
    return intervals is not None and all(bool((ends[1:] >= ends[:-1]).all()) for ends in intervals)


@per_graph
def _intervals_of_packed(graph: GraphForms) -> tuple[Tensor, Tensor]:
    assert graph.packed is not None  # only called on those
    return graph.packed.intervals(graph.device)


@per_graph
def _edges_of_intervals(graph: GraphForms) -> tuple[Tensor, Tensor]:
    assert graph._intervals is not None  # only called on those
    start, stop = graph._intervals
    dst, position = rows_and_positions(stop - start)
    src, order = (start[dst] + position).sort(stable=True)
    return src, dst[order]


@per_graph
def _count(graph: GraphForms) -> int:
    if graph.packed is not None:
        return graph.packed.num_edges()
    assert graph._intervals is not None  # only called on those
    return int((graph._intervals[1] - graph._intervals[0]).sum())


def check_lists(names: str, one: Tensor, two: Tensor) -> None:
    """Raise a ``ValueError`` unless both are lists of one length on one device."""
    if one.dim() != 1 or one.shape != two.shape or one.device != two.device:
        raise ValueError(
            f"{names} must be two lists of the same length on one device, "
            f"got {list(one.shape)} on {one.device} and {list(two.shape)} on {two.device}"
        )


def own(x: Tensor, copy: bool = False) -> Tensor:
    """Return a copy, which nobody else edits, or a tensor of inference mode as one that serves training."""
    if not (copy or x.is_inference()):
        return x
    with torch.inference_mode(False):
        return x.clone(memory_format=torch.contiguous_format)
