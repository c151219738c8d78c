"""Graphs as sets of edges: parts of a graph, and what two graphs over the same tokens have in common."""

from typing import Self

import torch
from torch import Tensor

from edgewise.graphs.graph_forms import GraphForms, ascends, check_graph
from edgewise.graphs.ordering import cuthill_mckee, distinct_pairs, rows_and_positions
from edgewise.validation import check_ids


class EdgeSet(GraphForms):
    """Part of :class:`~edgewise.AttentionGraph`."""

    def restrict(self, active: Tensor) -> Self:
        """Keep only the edges into active receivers; the numbering does not change.

        Parameters
        ----------
        active : Tensor
            bool [num_dst].

        Raises
        ------
        ValueError
            If it is not that.
        """
        active = torch.as_tensor(active, device=self.device)
        if active.dtype != torch.bool or active.shape != (self.num_dst,):
            raise ValueError(f"active must be bool [{self.num_dst}], got {active.dtype} {list(active.shape)}")
        if self._intervals is not None:
            start, stop = self._intervals
            return self._like(intervals=(start, torch.where(active, stop, start)))
        return self._kept(active[self._dst])

    def _kept(self, keep: Tensor) -> Self:
        """Those edges for which bool [E] is true, in their order."""
        return self._like(edges=(self._src[keep], self._dst[keep]))

    def reorder(self, order: Tensor | None = None) -> tuple[Self, Tensor]:
        """Number the tokens anew; without an order, so that those that attend to each other are near.

        What a receiver gathers is then more often in the processor's cache, and tiles hold fewer pairs
        without an edge. States go along: ``x[order]`` belongs to the new graph, and ``y[order.argsort()]``
        brings results back. Edges keep their order, and so does what belongs to them.

        Parameters
        ----------
        order : Tensor, optional
            int64 [num_src]: the old number of each token. SciPy's reverse Cuthill-McKee (1969) if not given.

        Returns
        -------
        AttentionGraph, Tensor
            The graph and the order.

        Raises
        ------
        TypeError, ValueError
            If the order is no permutation of the tokens, or senders and receivers are not the same.
        MissingPackageError
            If an order is to be found and SciPy is not installed.
        """
        self._check_same_tokens("reorder")
        if order is None:
            order = cuthill_mckee(self._src, self._dst, self.num_src)
        check_ids("order", order, self.num_src)
        if order.shape != (self.num_src,) or len(order.unique()) != self.num_src:
            raise ValueError(f"order must be a permutation of 0..{self.num_src - 1}, got {list(order.shape)}")
        place = order.argsort()
        return self._like(edges=(place[self._src], place[self._dst])), order

    def select_receivers(self, receivers: Tensor) -> Self:
        """Return the graph into some receivers, renumbered in their order; senders do not change.

        Edges that were given keep their order; copies of one edge follow each other. Those of a graph in
        interval form are ordered by sender, as ever.

        Parameters
        ----------
        receivers : Tensor
            int64 [n]; repetitions are allowed.

        Raises
        ------
        TypeError, ValueError
            If it is not that, or a number is out of range.
        """
        check_ids("receivers", receivers, self.num_dst)
        if receivers.dim() != 1:
            raise ValueError(f"receivers must be a list, got {list(receivers.shape)}")
        if self._intervals is not None:
            start, stop = (x.index_select(0, receivers) for x in self._intervals)
            return self._of(self.num_src, len(receivers), intervals=(start, stop))
        order = self._dst.argsort(stable=True)
        degree = torch.bincount(self._dst, minlength=self.num_dst)
        first = (degree.cumsum(0) - degree)[receivers]
        dst, position = rows_and_positions(degree[receivers])
        edge, rank = order[first[dst] + position].sort(stable=True)
        return self._of(self.num_src, len(receivers), edges=(self._src[edge], dst[rank]))

    def subgraph(self, src: slice, dst: slice) -> Self:
        """Return the graph between a slice of senders and a slice of receivers, renumbered from zero.

        It is self-attention if this graph is and both slices are the same.

        Parameters
        ----------
        src, dst : slice
            As for a list.

        Raises
        ------
        ValueError
            If a slice has a step.
        """
        if any(not isinstance(s, slice) or s.step not in (None, 1) for s in (src, dst)):
            raise ValueError(f"src and dst must be slices without a step, got {src} and {dst}")
        (first_src, last_src), (first_dst, last_dst) = (
            (s.indices(n)[0], max(s.indices(n)[:2])) for s, n in ((src, self.num_src), (dst, self.num_dst))
        )
        same = self.self_attention and (first_src, last_src) == (first_dst, last_dst)
        sides = (last_src - first_src, None if same else last_dst - first_dst)
        if self._intervals is not None:
            start, stop = (x[dst].clamp(first_src, last_src) - first_src for x in self._intervals)
            return self._of(*sides, intervals=(start, stop))
        keep = (self._src >= first_src) & (self._src < last_src)
        keep &= (self._dst >= first_dst) & (self._dst < last_dst)
        return self._of(*sides, edges=(self._src[keep] - first_src, self._dst[keep] - first_dst))

    def reverse(self) -> Self:
        """Turn every edge around: those that were attended to attend.

        Intervals stay intervals if each sender's receivers are an interval, too, as in windows. Otherwise
        edge ``e`` of the result is edge ``e`` of this graph.
        """
        sides = self.num_dst, None if self.self_attention else self.num_src
        if self._intervals and ascends(self):
            sender = torch.arange(self.num_src, device=self.device)
            stop, start = (torch.searchsorted(ends, sender, right=True) for ends in self._intervals)
            return self._of(*sides, intervals=(start, stop))
        return self._of(*sides, edges=(self._dst, self._src))

    def to_undirected(self) -> Self:
        """Edges in both directions, ``graph | graph.reverse()``; each once, ordered by sender.

        Raises
        ------
        ValueError
            If senders and receivers are not the same tokens.
        """
        self._check_same_tokens("to_undirected")
        return self | self.reverse()

    def with_self_loops(self) -> Self:
        """Let each token attend to itself, too.

        Edges that are given keep their order, and those that are added follow them by token.

        Raises
        ------
        ValueError
            If senders and receivers are not the same tokens.
        """
        loops = self._loops("with_self_loops")
        if self._intervals:
            return self | loops
        added = (loops - self)._src
        return self._like(edges=(torch.cat([self._src, added]), torch.cat([self._dst, added])))

    def without_self_loops(self) -> Self:
        """Let no token attend to itself; the other edges keep their order.

        Raises
        ------
        ValueError
            If senders and receivers are not the same tokens.
        """
        loops = self._loops("without_self_loops")
        if self._intervals:
            return self - loops
        return self._kept(self._src != self._dst)

    def _loops(self, name: str) -> Self:
        self._check_same_tokens(name)
        token = torch.arange(self.num_src, device=self.device)
        return self._like(intervals=(token, token + 1))

    def _check_same_tokens(self, name: str) -> None:
        if not self.self_attention:
            raise ValueError(f"{name} is for graphs whose senders and receivers are the same tokens")

    def same_edges(self, other: Self) -> bool:
        """Whether both have the same tokens, and the same edges in the same order.

        What belongs to the edges of one then fits the other. Two graphs have the same edges in any order if
        ``graph - other`` and ``other - graph`` have none, multiple edges aside. ``==`` compares graphs of
        packed sequences by their lengths and device, and tells others apart as objects.

        Raises
        ------
        TypeError
            If the other one is not a graph.
        """
        if not self._has_tokens_of(other) or self.num_edges != other.num_edges:
            return False
        if self._intervals and other._intervals:
            return (self & other).num_edges == self.num_edges
        return torch.equal(self.edge_index, other.edge_index)

    def __and__(self, other: Self) -> Self:
        """Edges that both graphs over the same tokens have; each once, ordered by sender."""
        if intervals := self._both_intervals(other):
            start = torch.maximum(intervals[0], intervals[2])
            return self._like(
                intervals=(start, torch.maximum(start, torch.minimum(intervals[1], intervals[3])))
            )
        few, many = (other, self) if self._intervals else (self, other)
        common = few._find_in(many)
        return self._like(edges=distinct_pairs(few._src[common], few._dst[common], self.num_dst))

    def __sub__(self, other: Self) -> Self:
        """Edges of this graph that another one over the same tokens has not; each once, ordered by sender."""
        if intervals := self._both_intervals(other):
            a, b, *cut = intervals
            c, d = (end.clamp(a, b) for end in cut)
            c = torch.where(c == d, b, c)  # a .. c - 1 and d .. b - 1 are left
            first = (c == b) | (d == b)
            if bool((first | (a == c)).all()):
                return self._like(intervals=(torch.where(first, a, d), torch.where(first, c, b)))
        keep = ~self._find_in(other)
        return self._like(edges=distinct_pairs(self._src[keep], self._dst[keep], self.num_dst))

    def _find_in(self, other: Self) -> Tensor:
        """Bool [E]: which edges another graph over the same tokens has, too."""
        if other._intervals:  # whose edges are not listed
            start, stop = (ends[self._dst] for ends in other._intervals)
            return (start <= self._src) & (self._src < stop)
        return torch.isin(*(graph._src * graph.num_dst + graph._dst for graph in (self, other)))

    def __or__(self, other: Self) -> Self:
        """Edges that one of two graphs over the same tokens has, or both; each once, ordered by sender.

        What belonged to the edges of one graph no longer fits: where edges have attributes, concatenate both
        in the same order and make a graph of that.
        """
        if intervals := self._both_intervals(other):
            a, b, c, d = intervals
            first, second = a >= b, c >= d  # which are empty
            if bool((first | second | ((c <= b) & (a <= d))).all()):
                start = torch.where(first, c, torch.where(second, a, torch.minimum(a, c)))
                stop = torch.where(first, d, torch.where(second, b, torch.maximum(b, d)))
                return self._like(intervals=(start, stop))
        src, dst = (torch.cat(ends) for ends in ((self._src, other._src), (self._dst, other._dst)))
        return self._like(edges=distinct_pairs(src, dst, self.num_dst))

    def _both_intervals(self, other: Self) -> tuple[Tensor, ...] | None:
        """Starts and stops of both, if both are intervals; they must have the same tokens."""
        if not self._has_tokens_of(other):
            raise ValueError(f"&, | and - take graphs over the same tokens, got {self} and {other}")
        return self._intervals + other._intervals if self._intervals and other._intervals else None

    def _has_tokens_of(self, other: Self) -> bool:
        check_graph(other, "the other one")
        return all(getattr(self, x) == getattr(other, x) for x in ("num_src", "num_dst", "self_attention"))
