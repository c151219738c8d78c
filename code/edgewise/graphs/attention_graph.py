"""The attention graph: edge ``e`` carries a message from token ``src[e]`` to token ``dst[e]``.

A graph is a value: it does not change. It is held in one of three forms, the least that determines it:

- *packed sequences*: their lengths and how far they attend, so complete, causal, bipartite and windowed
  graphs. Python's integers and a device, no tensor. Graphs of equal lengths are equal, and share what was
  found of them (:mod:`edgewise.graphs.per_graph`);
- *intervals*: receiver ``i`` attends to senders ``start[i] .. stop[i] - 1``, two numbers per token;
- *edges*: two lists, in the order that was given.

From each the next is derived when it is asked for. The library reads ``_runs`` and ``_lists``, the graph's
own tensors; everybody else is handed copies (``intervals``, ``src``, ``dst``), so that nobody can edit what
plans were made of. What is given is copied, too.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from edgewise.graphs import block_mask, packing
from edgewise.graphs.dgl import load_dgl
from edgewise.graphs.ordering import cuthill_mckee, once, places
from edgewise.graphs.packing import Packed
from edgewise.graphs.per_graph import Known, per_graph, shared
from edgewise.validation import (
    assert_soon,
    check_bool,
    check_count,
    check_counts,
    check_each,
    check_ids,
    check_real_device,
    kind_of,
)

if TYPE_CHECKING:
    import networkx
    from torch.nn.attention.flex_attention import BlockMask


class AttentionGraph:
    """Which token attends to which.

    Edges that are given keep their order, in every operation. Where a graph is made from something else,
    they are ordered by sender, those of one sender by receiver.

    Parameters
    ----------
    src, dst : Tensor
        int64 [E], copied. Receiver ``dst[e]`` attends to sender ``src[e]``; two edges between the same tokens
        are two edges.
    num_src : int
        Number of sending tokens.
    num_dst : int, optional
        Number of receiving tokens. Without it the two sides are the same ``num_src`` tokens
        (self-attention); with it they are two sets (cross-attention).

    Attributes
    ----------
    num_src, num_dst : int
        Sending and receiving tokens.
    self_attention : bool
        Whether senders and receivers are the same tokens.
    lengths : Packed, or None
        Of packed sequences: tokens of each and how far they attend, which determines the graph. Graphs of
        equal lengths on one device are equal.
    device : torch.device
        Device of the graph's tensors.

    Raises
    ------
    TypeError
        If an edge list is not a tensor of int64 or a count is not an integer.
    ValueError
        If the lists differ in length or device, or an edge is out of range.
    """

    num_src: int
    num_dst: int
    self_attention: bool
    lengths: Packed | None
    device: torch.device
    _given_runs: tuple[Tensor, Tensor] | None
    _given_lists: tuple[Tensor, Tensor] | None
    _known: Known

    def __init__(self, src: Tensor, dst: Tensor, num_src: int, num_dst: int | None = None):
        check_ids("src", src, check_count("num_src", num_src))
        check_ids("dst", dst, num_src if num_dst is None else check_count("num_dst", num_dst))
        _check_lists("src and dst", src, dst)
        self._hold(num_src, num_dst, edges=(_own(src, copy=True), _own(dst, copy=True)))

    @classmethod
    def from_intervals(
        cls, start: Tensor, stop: Tensor, num_src: int, *, self_attention: bool
    ) -> "AttentionGraph":
        """Receiver ``i`` attends to senders ``start[i] .. stop[i] - 1``, or to none if the two are equal.

        Parameters
        ----------
        start, stop : Tensor
            int64 [num_dst], copied.
        num_src : int
            Number of sending tokens.
        self_attention : bool
            Whether senders and receivers are the same tokens.

        Raises
        ------
        TypeError
            If ``start`` or ``stop`` is not a tensor of int64.
        ValueError
            If ``start`` and ``stop`` are not two lists of one length on one device, or
            ``0 <= start <= stop <= num_src`` does not hold for every receiver, or self-attention does not
            have one interval per token.
        """
        check_ids("start", start, check_count("num_src", num_src) + 1)
        check_ids("stop", stop, num_src + 1)
        _check_lists("start and stop", start, stop)
        if start.is_cuda:
            assert_soon(start <= stop, "start must not exceed stop")
        elif bool((start > stop).any()):
            bad = int((start > stop).nonzero()[0])
            raise ValueError(f"start must not exceed stop, got {int(start[bad])} > {int(stop[bad])} at {bad}")
        if check_bool("self_attention", self_attention) and num_src != len(start):
            raise ValueError(
                f"self-attention has one interval per token, got {len(start)} for num_src={num_src}"
            )
        copies = _own(start, copy=True), _own(stop, copy=True)
        return cls._of(num_src, None if self_attention else len(start), copies)

    @classmethod
    def from_lengths(
        cls, lengths: Tensor | Sequence[int], *, causal: bool = False, num_tokens: int | None = None
    ) -> "AttentionGraph":
        """Sequences packed one after the other, each of which attends within itself.

        Parameters
        ----------
        lengths : Tensor or sequence of int
            Tokens of each sequence; the graph is on a tensor's device. Offsets go to :meth:`from_cu_seqlens`.
        causal : bool
            Whether a token attends to itself and those before it only.
        num_tokens : int, optional
            Their sum; see :meth:`from_cu_seqlens`.

        Raises
        ------
        TypeError, ValueError
            If a length is not an integer, or negative, or ``causal`` is not a bool.
        """
        check_bool("causal", causal)
        if num_tokens is not None:
            return cls.from_cu_seqlens(
                packing.offsets_of_lengths(lengths), causal=causal, num_tokens=num_tokens
            )
        counts = tuple(check_counts("lengths", lengths))
        return cls.of_packed(Packed(counts, right=0 if causal else None), packing.device_of(lengths))

    @classmethod
    def from_cu_seqlens(
        cls,
        cu_q: Tensor | Sequence[int],
        cu_k: Tensor | Sequence[int] | None = None,
        *,
        causal: bool = False,
        window: int | tuple[int, int] = -1,
        num_tokens: int | tuple[int, int] | None = None,
    ) -> "AttentionGraph":
        """Packed sequences with FlashAttention's arguments, in its meaning.

        Parameters
        ----------
        cu_q : Tensor or sequence of int
            [B + 1]: 0, and where each of B sequences of queries ends.
        cu_k : Tensor or sequence of int, optional
            Those of keys, a set of tokens of its own. The last query and the last key of a pair stand at the
            same place, as in decoding with a cache. Without it both are the same tokens.
        causal : bool
            Whether a token attends to nothing after its own place.
        window : int or tuple of two int
            How many places before and after it a token attends to; -1 for all.
        num_tokens : int or tuple of two int, optional
            Tokens, or queries and keys. With it nothing is read from a GPU before the graph is trained on,
            when its edges are counted once; ``varlen`` does not take such a graph.

        Raises
        ------
        TypeError, ValueError
            If offsets are not integers that begin with 0 and never fall, there are not as many on both sides,
            or a side of the window is below -1.
        """
        left, right = (None if x < 0 else x for x in check_each("window", window, 2, "side", -1))
        right = 0 if check_bool("causal", causal) else right
        tokens = num_tokens if isinstance(num_tokens, tuple) else (num_tokens, num_tokens)
        for count in tokens if num_tokens is not None else ():
            check_count("num_tokens", count)
        if len(tokens) != 2 or (cu_k is None and tokens[0] != tokens[1]):
            raise ValueError(f"num_tokens must be a count, of queries and keys two; got {num_tokens}")
        sizes = packing.lengths_of_offsets("cu_q", cu_q, tokens[0])
        others = sizes if cu_k is None else packing.lengths_of_offsets("cu_k", cu_k, tokens[1])
        if len(others) != len(sizes):
            raise ValueError(f"cu_q and cu_k must pair up, got {len(sizes)} and {len(others)} sequences")
        if tokens[0] is not None and tokens[1] is not None:
            runs = packing.spans(others, sizes, (tokens[1], tokens[0]), left, right)
            graph = cls._of(tokens[1], None if cu_k is None else tokens[0], runs)
            graph._known["ascends"] = True
            return graph
        receivers = None if cu_k is None else tuple(sizes.tolist())
        return cls.of_packed(Packed(tuple(others.tolist()), receivers, left, right), sizes.device)

    @classmethod
    def of_packed(cls, packed: Packed, device: torch.device | None = None) -> "AttentionGraph":
        """Build from checked lengths, which are the graph: nothing is made of them yet."""
        num_dst = None if packed.receivers is None else sum(packed.receivers)
        return cls._of(sum(packed.senders), num_dst, lengths=packed, device=device or packing.device_of())

    @classmethod
    def from_position_ids(
        cls, position_ids: Tensor | Sequence[int], *, causal: bool = False
    ) -> "AttentionGraph":
        """Sequences packed in one row; one begins where a position is not the one before it plus one.

        Parameters
        ----------
        position_ids : Tensor
            int [n], such as 0, 1, 2, 0, 1; of a batch of one row give ``position_ids[0]``.
        causal : bool
            As in :meth:`from_lengths`.
        """
        return cls.from_lengths(packing.lengths_of_positions(position_ids), causal=causal)

    @classmethod
    def from_document_ids(
        cls, document_ids: Tensor | Sequence[int], *, causal: bool = False
    ) -> "AttentionGraph":
        """Documents packed in one row: tokens attend to those of the same id, int [n], which stand together.

        Raises
        ------
        ValueError
            If an id returns after another one.
        """
        return cls.from_lengths(packing.lengths_of_documents(document_ids), causal=causal)

    @classmethod
    def from_padding_mask(
        cls, padding_mask: Tensor | Sequence[Sequence[int]], *, causal: bool = False
    ) -> "AttentionGraph":
        """The real tokens of a padded batch, ``states[padding_mask.bool()]``, without the padding.

        Parameters
        ----------
        padding_mask : Tensor
            bool or 0 and 1 [B, n], true at real tokens, as in ``transformers``. In ``torch.nn`` it is true at
            padding: give ``~src_key_padding_mask``.
        causal : bool
            As in :meth:`from_lengths`.
        """
        return cls.from_lengths(packing.lengths_of_padding(padding_mask), causal=causal)

    @classmethod
    def from_edge_index(cls, edge_index: Tensor, num_nodes: int | tuple[int, int]) -> "AttentionGraph":
        """Edges in PyG's form: column ``e`` is sender and receiver of edge ``e``.

        Parameters
        ----------
        edge_index : Tensor
            int64 [2, E]; row 0 sends, row 1 receives. Its order is kept; an edge may occur twice.
        num_nodes : int or tuple of two int
            Nodes; or, of a graph between two sets, senders and receivers.

        Raises
        ------
        TypeError
            If it is not a tensor of int64, or a count is not an integer.
        ValueError
            If it is not [2, E], or an edge is out of range.
        """
        num_src, num_dst = num_nodes if isinstance(num_nodes, tuple) else (num_nodes, None)
        if not isinstance(edge_index, Tensor) or edge_index.dtype != torch.int64:
            raise TypeError(f"edge_index must be a tensor of int64, got {kind_of(edge_index)}")
        if edge_index.dim() != 2 or len(edge_index) != 2:
            raise ValueError(f"edge_index must be [2, E], got {list(edge_index.shape)}")
        if num_dst is None:
            check_ids("edge_index", edge_index, check_count("num_nodes", num_src))
            src, dst = _own(edge_index, copy=True)
            return cls._of(num_src, None, edges=(src, dst))
        src, dst = edge_index
        try:
            return cls(src, dst, num_src, num_dst)
        except ValueError as error:
            fits = len(src) and num_dst is not None and int(src.max()) < num_dst and int(dst.max()) < num_src
            if fits:
                raise ValueError(f"{error}; row 0 sends, row 1 receives: they seem swapped") from None
            raise

    @classmethod
    def from_mask(cls, mask: Tensor, *, self_attention: bool) -> "AttentionGraph":
        """Edges where a mask is true, ordered by sender.

        Parameters
        ----------
        mask : Tensor
            bool [num_dst, num_src]; true where the receiver attends to the sender.
        self_attention : bool
            Whether both sides are the same tokens.

        Raises
        ------
        TypeError
            If ``mask`` is not bool.
        ValueError
            If it is no matrix, or no square one for self-attention.
        """
        if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
            raise TypeError(f"mask must be a tensor of bool (True = attends), got {kind_of(mask)}")
        if mask.dim() != 2:
            raise ValueError(f"mask must be [num_dst, num_src], got {list(mask.shape)}")
        check_real_device("mask", mask)
        num_dst, num_src = mask.shape
        if check_bool("self_attention", self_attention) and num_dst != num_src:
            raise ValueError(f"self-attention needs a square mask, got {list(mask.shape)}")
        src, dst = mask.T.nonzero().unbind(1)
        return cls._of(num_src, None if self_attention else num_dst, edges=(src, dst))

    @classmethod
    def from_scipy(cls, matrix: Any, *, self_attention: bool) -> "AttentionGraph":
        """An edge for each entry that a sparse matrix [num_dst, num_src] stores, in the order of ``tocoo()``.

        Row ``j`` has an entry at ``i`` where ``j`` attends to ``i``, so that ``matrix @ x`` adds up what the
        receivers get. ``matrix.tocoo().data`` fits as biases.
        """
        if not hasattr(matrix, "tocoo"):
            raise TypeError(f"matrix must be sparse, such as scipy.sparse.csr_array, got {kind_of(matrix)}")
        entries = matrix.tocoo()
        num_dst, num_src = entries.shape
        if check_bool("self_attention", self_attention) and num_dst != num_src:
            raise ValueError(f"self-attention needs a square matrix, got {list(entries.shape)}")
        src, dst = (torch.from_numpy(x.astype("int64")) for x in (entries.col, entries.row))
        return cls(src, dst, num_src, None if self_attention else num_dst)

    @classmethod
    def from_networkx(cls, graph: "networkx.Graph", self_loops: bool = False) -> "AttentionGraph":
        """Let each node attend to its neighbours, along ``graph.to_directed().edges``, in that order.

        Parameters
        ----------
        graph : networkx.Graph or networkx.DiGraph
            Nodes are numbered in the graph's order. Neighbours attend to each other; in a directed graph the
            head of an edge attends to its tail.
        self_loops : bool
            Whether each node also attends to itself, if it does not already; these edges are the last.
        """
        number = {node: i for i, node in enumerate(graph)}
        pairs = [(number[a], number[b]) for a, b in graph.to_directed(as_view=True).edges()]
        src, dst = torch.tensor(pairs, dtype=torch.int64, device=packing.device_of()).reshape(-1, 2).T
        found = cls(src, dst, len(number))
        return found.with_self_loops() if check_bool("self_loops", self_loops) else found

    @classmethod
    def from_dgl(cls, graph: Any) -> "AttentionGraph":
        """Edges of a DGL graph with one type of edge, in its order.

        Raises
        ------
        ValueError
            If it has several types of edges.
        """
        if len(graph.canonical_etypes) != 1:
            raise ValueError(f"graph must have one type of edge, got {len(graph.canonical_etypes)}")
        [(sender, _, receiver)] = graph.canonical_etypes
        same = sender == receiver and not graph.is_block
        src, dst = (x.long() for x in graph.edges())
        return cls(src, dst, graph.num_src_nodes(), None if same else graph.num_dst_nodes())

    @classmethod
    def _of(cls, num_src: int, num_dst: int | None, *held: Any, **form: Any) -> "AttentionGraph":
        """Build without checks, of what is right by construction, as :meth:`_hold` takes it."""
        graph = cls.__new__(cls)
        graph._hold(num_src, num_dst, *held, **form)
        return graph

    def _hold(
        self,
        num_src: int,
        num_dst: int | None,
        intervals: tuple[Tensor, Tensor] | None = None,
        edges: tuple[Tensor, Tensor] | None = None,
        lengths: Packed | None = None,
        device: torch.device | None = None,
    ) -> None:
        """Hold tensors that nobody else has.

        Parameters
        ----------
        num_src, num_dst : int
            Tokens of each side; ``num_dst`` is ``None`` for self-attention.
        intervals, edges : tuple of two Tensor
            One of the two: ``start`` and ``stop`` for each receiver, or ``src`` and ``dst``.
        lengths, device : Packed and torch.device, optional
            What determines the whole graph, alone or with the intervals that follow from it.
        """
        if max(num_src, num_dst or 0) >= 2**31:  # pairs of tokens are numbered in int64
            raise ValueError(f"a graph has fewer than 2**31 tokens, got {max(num_src, num_dst or 0)}")
        held = intervals or edges
        if held is not None:
            device = held[0].device
        elif device is not None and device.index is None and device.type != "cpu":
            device = torch.empty(0, device=device).device  # "cuda" is one of several
        vars(self).update(
            num_src=check_count("num_src", num_src),
            num_dst=num_src if num_dst is None else check_count("num_dst", num_dst),
            self_attention=num_dst is None,
            lengths=lengths,
            device=device,
            _given_runs=None if intervals is None else (_own(intervals[0]), _own(intervals[1])),
            _given_lists=None if edges is None else (_own(edges[0]), _own(edges[1])),
        )
        vars(self)["_known"] = {} if lengths is None else shared(self._key)

    @property
    def _key(self) -> tuple[Packed, torch.device] | None:
        """By what graphs are equal and share what is known."""
        return None if self.lengths is None else (self.lengths, self.device)

    def __setattr__(self, name: str, value: object = None) -> None:
        raise AttributeError(f"a graph does not change, so {name} cannot be set: make another one")

    __delattr__ = __setattr__

    def _like(self, **form: Any) -> "AttentionGraph":
        """Build a graph over the same tokens."""
        return self._of(self.num_src, None if self.self_attention else self.num_dst, **form)

    @property
    def src(self) -> Tensor:
        """int64 [E]: the sender of each edge; a copy, like all that is handed out."""
        return _own(self._src, copy=True)

    @property
    def dst(self) -> Tensor:
        """int64 [E]: the receiver of each edge."""
        return _own(self._dst, copy=True)

    @property
    def edge_index(self) -> Tensor:
        """int64 [2, E], in PyG's form: senders, then receivers."""
        return torch.stack(self._lists)

    @property
    def intervals(self) -> tuple[Tensor, Tensor] | None:
        """``start`` and ``stop``, as in :meth:`from_intervals`, of a graph in interval form."""
        runs = self._runs
        return None if runs is None else (_own(runs[0], copy=True), _own(runs[1], copy=True))

    @property
    def in_intervals(self) -> bool:
        """Whether each receiver's senders are held as an interval; nothing is derived to tell."""
        return self._given_lists is None

    @property
    def _runs(self) -> tuple[Tensor, Tensor] | None:
        """The graph's own starts and stops."""
        return self._given_runs if self.lengths is None or self._given_runs else _spans(self)

    @property
    def _lists(self) -> tuple[Tensor, Tensor]:
        """The graph's own senders and receivers."""
        return self._given_lists or _lists_of_runs(self)

    @property
    def _src(self) -> Tensor:
        return self._lists[0]

    @property
    def _dst(self) -> Tensor:
        return self._lists[1]

    @property
    def num_edges(self) -> int:
        """E, counted without deriving the edges."""
        return len(self._src) if self._given_lists else _count(self)

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

    def to(self, device: torch.device | str, non_blocking: bool = False) -> "AttentionGraph":
        """Return the same graph on another device."""
        return self._with_tensors(lambda x: x.to(torch.device(device), non_blocking=non_blocking))

    def pin_memory(self) -> "AttentionGraph":
        """Return the same graph in pinned memory, from which ``to(..., non_blocking=True)`` does not wait."""
        return self._with_tensors(Tensor.pin_memory)

    def _with_tensors(self, change: Callable[[Tensor], Tensor]) -> "AttentionGraph":
        held = self._runs or self._lists
        first, second = map(change, held)
        if first is held[0]:
            return self
        form = "intervals" if self.in_intervals else "edges"
        graph = self._like(lengths=self.lengths, **{form: (first, second)})
        graph._known.update(self._numbers())
        return graph

    def restrict(self, active: Tensor) -> "AttentionGraph":
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
        if self._runs is not None:
            start, stop = self._runs
            return self._like(intervals=(start, torch.where(active, stop, start)))
        keep = active[self._dst]
        return self._like(edges=(self._src[keep], self._dst[keep]))

    def reorder(self, order: Tensor | None = None) -> tuple["AttentionGraph", Tensor]:
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

    def select_receivers(self, receivers: Tensor) -> "AttentionGraph":
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
        if self._runs is not None:
            start, stop = (x.index_select(0, receivers) for x in self._runs)
            return self._of(self.num_src, len(receivers), intervals=(start, stop))
        order = self._dst.argsort(stable=True)
        degree = torch.bincount(self._dst, minlength=self.num_dst)
        first = (degree.cumsum(0) - degree)[receivers]
        dst, place = places(degree[receivers])
        edge, kept = order[first[dst] + place].sort(stable=True)
        return self._of(self.num_src, len(receivers), edges=(self._src[edge], dst[kept]))

    def subgraph(self, src: slice, dst: slice) -> "AttentionGraph":
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
        if self._runs is not None:
            start, stop = (x[dst].clamp(first_src, last_src) - first_src for x in self._runs)
            return self._of(*sides, intervals=(start, stop))
        keep = (self._src >= first_src) & (self._src < last_src)
        keep &= (self._dst >= first_dst) & (self._dst < last_dst)
        return self._of(*sides, edges=(self._src[keep] - first_src, self._dst[keep] - first_dst))

    def reverse(self) -> "AttentionGraph":
        """Turn every edge around: those that were attended to attend.

        Intervals stay intervals if each sender's receivers are an interval, too, as in windows. Otherwise
        edge ``e`` of the result is edge ``e`` of this graph.
        """
        sides = self.num_dst, None if self.self_attention else self.num_src
        if self._runs and ascends(self):
            sender = torch.arange(self.num_src, device=self.device)
            stop, start = (torch.searchsorted(ends, sender, right=True) for ends in self._runs)
            return self._of(*sides, intervals=(start, stop))
        return self._of(*sides, edges=(self._dst, self._src))

    def to_undirected(self) -> "AttentionGraph":
        """Edges in both directions, ``graph | graph.reverse()``; each once, ordered by sender.

        Raises
        ------
        ValueError
            If senders and receivers are not the same tokens.
        """
        self._check_same_tokens("to_undirected")
        return self | self.reverse()

    def with_self_loops(self) -> "AttentionGraph":
        """Let each token attend to itself, too.

        Edges that are given keep their order, and those that are added follow them by token.

        Raises
        ------
        ValueError
            If senders and receivers are not the same tokens.
        """
        loops = self._loops("with_self_loops")
        if self._runs:
            return self | loops
        added = (loops - self)._src
        return self._like(edges=(torch.cat([self._src, added]), torch.cat([self._dst, added])))

    def without_self_loops(self) -> "AttentionGraph":
        """Let no token attend to itself; the other edges keep their order.

        Raises
        ------
        ValueError
            If senders and receivers are not the same tokens.
        """
        loops = self._loops("without_self_loops")
        if self._runs:
            return self - loops
        keep = self._src != self._dst
        return self._like(edges=(self._src[keep], self._dst[keep]))

    def _loops(self, name: str) -> "AttentionGraph":
        self._check_same_tokens(name)
        token = torch.arange(self.num_src, device=self.device)
        return self._like(intervals=(token, token + 1))

    def _check_same_tokens(self, name: str) -> None:
        if not self.self_attention:
            raise ValueError(f"{name} is for graphs whose senders and receivers are the same tokens")

    def same_edges(self, other: "AttentionGraph") -> bool:
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
        if self._runs and other._runs:
            return (self & other).num_edges == self.num_edges
        return torch.equal(self.edge_index, other.edge_index)

    def __eq__(self, other: object) -> bool:
        if self is other or not isinstance(other, AttentionGraph):
            return self is other
        return self._key is not None and self._key == other._key

    def __hash__(self) -> int:
        return id(self) if self._key is None else hash(self._key)

    def __and__(self, other: "AttentionGraph") -> "AttentionGraph":
        """Edges that both graphs over the same tokens have; each once, ordered by sender."""
        if runs := self._runs_with(other):
            start = torch.maximum(runs[0], runs[2])
            return self._like(intervals=(start, torch.maximum(start, torch.minimum(runs[1], runs[3]))))
        few, many = (other, self) if self._runs else (self, other)
        common = few._find_in(many)
        return self._like(edges=once(few._src[common], few._dst[common], self.num_dst))

    def __sub__(self, other: "AttentionGraph") -> "AttentionGraph":
        """Edges of this graph that another one over the same tokens has not; each once, ordered by sender."""
        if runs := self._runs_with(other):
            a, b, *cut = runs
            c, d = (end.clamp(a, b) for end in cut)
            c = torch.where(c == d, b, c)  # a .. c - 1 and d .. b - 1 are left
            first = (c == b) | (d == b)
            if bool((first | (a == c)).all()):
                return self._like(intervals=(torch.where(first, a, d), torch.where(first, c, b)))
        keep = ~self._find_in(other)
        return self._like(edges=once(self._src[keep], self._dst[keep], self.num_dst))

    def _find_in(self, other: "AttentionGraph") -> Tensor:
        """Bool [E]: which edges another graph over the same tokens has, too."""
        if other._runs:  # whose edges are not listed
            start, stop = (ends[self._dst] for ends in other._runs)
            return (start <= self._src) & (self._src < stop)
        return torch.isin(*(graph._src * graph.num_dst + graph._dst for graph in (self, other)))

    def __or__(self, other: "AttentionGraph") -> "AttentionGraph":
        """Edges that one of two graphs over the same tokens has, or both; each once, ordered by sender.

        What belonged to the edges of one graph no longer fits: where edges have attributes, concatenate both
        in the same order and make a graph of that.
        """
        if runs := self._runs_with(other):
            a, b, c, d = runs
            first, second = a >= b, c >= d  # which are empty
            if bool((first | second | ((c <= b) & (a <= d))).all()):
                start = torch.where(first, c, torch.where(second, a, torch.minimum(a, c)))
                stop = torch.where(first, d, torch.where(second, b, torch.maximum(b, d)))
                return self._like(intervals=(start, stop))
        src, dst = (torch.cat(ends) for ends in ((self._src, other._src), (self._dst, other._dst)))
        return self._like(edges=once(src, dst, self.num_dst))

    def _runs_with(self, other: "AttentionGraph") -> tuple[Tensor, ...] | None:
        """Starts and stops of both, if both are intervals; they must have the same tokens."""
        if not self._has_tokens_of(other):
            raise ValueError(f"&, | and - take graphs over the same tokens, got {self} and {other}")
        return self._runs + other._runs if self._runs and other._runs else None

    def _has_tokens_of(self, other: "AttentionGraph") -> bool:
        check_graph(other, "the other one")
        return all(getattr(self, x) == getattr(other, x) for x in ("num_src", "num_dst", "self_attention"))

    def to_mask(self) -> Tensor:
        """Bool [num_dst, num_src]; True where the receiver attends to the sender.

        Raises
        ------
        ValueError
            If two edges have the same sender and the same receiver.
        """
        if self._runs is not None:
            start, stop = self._runs
            sender = torch.arange(self.num_src, device=self.device)
            return (sender >= start[:, None]) & (sender < stop[:, None])
        self._check_no_multi_edges()
        return self._mask_of_edges()

    def to_block_mask(self) -> "BlockMask":
        """FlexAttention's ``BlockMask`` of 128 x 128: of intervals in (n / 128)^2 entries, never n^2 pairs.

        Raises
        ------
        ValueError
            If two edges have the same sender and receiver, or edges lie too scattered for blocks.
        """
        if self._runs is not None:
            return block_mask.of_intervals(*self._runs, self.num_src)
        self._check_no_multi_edges()
        return block_mask.of_edges(self._src, self._dst, self.num_src, self.num_dst)

    def to_matrix(self, edge_values: Tensor) -> Tensor:
        """Scatter values on edges [E, ...] to [..., num_dst, num_src], zero where there is no edge.

        Raises
        ------
        ValueError
            If there is not one row per edge, or two edges have the same sender and the same receiver.
        """
        edge_values = torch.as_tensor(edge_values)
        if len(edge_values) != self.num_edges:
            raise ValueError(
                f"edge_values must have one row per edge ({self.num_edges}), got {len(edge_values)}"
            )
        self._check_no_multi_edges()
        matrix = edge_values.new_zeros(self.num_dst, self.num_src, *edge_values.shape[1:])
        matrix[self._dst, self._src] = edge_values
        return matrix.movedim((0, 1), (-2, -1))

    def gather(self, matrix: Tensor) -> Tensor:
        """Read what a matrix [..., num_dst, num_src] holds at each edge: [E, ...], as biases are given.

        Raises
        ------
        ValueError
            If it is no such matrix.
        """
        matrix = torch.as_tensor(matrix)
        if matrix.shape[-2:] != (self.num_dst, self.num_src):
            expected = f"[..., {self.num_dst}, {self.num_src}]"
            raise ValueError(f"matrix must be {expected}, receivers by senders, got {list(matrix.shape)}")
        return matrix.movedim((-2, -1), (0, 1))[self._dst, self._src]

    def to_networkx(self) -> "networkx.DiGraph":
        """Return a directed graph: tokens ``0..n-1``, or ``("src", i)`` and ``("dst", j)`` for two sets."""
        import networkx

        self._check_no_multi_edges()
        src, dst = self._src.tolist(), self._dst.tolist()
        graph = networkx.DiGraph()
        if self.self_attention:
            graph.add_nodes_from(range(self.num_src))
            graph.add_edges_from(zip(src, dst, strict=True))
        else:
            graph.add_nodes_from((("src", i) for i in range(self.num_src)), side="src")
            graph.add_nodes_from((("dst", j) for j in range(self.num_dst)), side="dst")
            graph.add_edges_from((("src", i), ("dst", j)) for i, j in zip(src, dst, strict=True))
        return graph

    def to_dgl(self) -> Any:
        """Return a homogeneous ``DGLGraph``, or a heterograph ``src -attends-> dst`` for two sets of tokens.

        Edge ``e`` of the result is edge ``e`` of this graph.

        Raises
        ------
        MissingPackageError
            If DGL cannot be imported.
        """
        dgl, ends = load_dgl(), (self.src, self.dst)
        if self.self_attention:
            return dgl.graph(ends, num_nodes=self.num_src)
        return dgl.heterograph({("src", "attends", "dst"): ends}, {"src": self.num_src, "dst": self.num_dst})

    def _numbers(self) -> Known:
        """What is known of the graph itself, wherever it is."""
        return {name: x for name, x in self._known.items() if isinstance(x, int) and name != "prepared"}

    def __getstate__(self) -> dict[str, Any]:
        """Without what has been derived from it, which is made anew, unless edges in lists were prepared."""
        known: Known = {}
        if "prepared" in self._known and not self.in_intervals:
            tensors = (Tensor, tuple)  # a cost is a tuple, too, of a machine and a device
            known = {
                name: x for name, x in self._known.items() if isinstance(x, tensors) and "_cost" not in name
            }
            known |= self._numbers() | {"prepared": True}
        place = torch.empty(0, device=self.device)  # which loading may map to another
        held = self._given_runs, self._given_lists
        return {"sides": (self.num_src, self.num_dst), "held": held, "known": known, "place": place,
                "same": self.self_attention, "lengths": self.lengths}  # fmt: skip

    def __setstate__(self, state: dict[str, Any]) -> None:
        (num_src, num_dst), (runs, lists) = state["sides"], state["held"]
        one_set, device = state["same"], state["place"].device
        self._hold(num_src, None if one_set else num_dst, runs, lists, state["lengths"], device)
        real = not torch.is_inference_mode_enabled()  # whose tensors would not serve training
        self._known.update({name: x for name, x in state["known"].items() if real or isinstance(x, int)})

    def __repr__(self) -> str:
        sides = f"{self.num_src}" if self.self_attention else f"{self.num_src} -> {self.num_dst}"
        form = "intervals" if self.in_intervals else "edges"
        count = "?" if self.device.type == "meta" else self.num_edges
        return f"AttentionGraph({sides} tokens, {count} edges, held as {form})"


def check_graph(graph: object, name: str = "graph") -> None:
    """Raise a ``TypeError`` unless it is a graph."""
    if not isinstance(graph, AttentionGraph):
        hint = "; AttentionGraph.from_edge_index makes one of pairs" if isinstance(graph, Tensor) else ""
        raise TypeError(f"{name} must be an AttentionGraph, got {type(graph).__name__}{hint}")


@per_graph
def ascends(graph: AttentionGraph) -> bool:
    """Whether each receiver's senders are an interval, and each sender's receivers are one, too."""
    if graph.lengths is not None:
        return True
    runs = graph._runs
    return runs is not None and all(bool((ends[1:] >= ends[:-1]).all()) for ends in runs)


@per_graph
def _spans(graph: AttentionGraph) -> tuple[Tensor, Tensor]:
    assert graph.lengths is not None  # only called on those
    return graph.lengths.spans(graph.device)


@per_graph
def _lists_of_runs(graph: AttentionGraph) -> tuple[Tensor, Tensor]:
    assert graph._runs is not None  # only called on those
    start, stop = graph._runs
    dst, place = places(stop - start)
    src, order = (start[dst] + place).sort(stable=True)
    return src, dst[order]


@per_graph
def _count(graph: AttentionGraph) -> int:
    if graph.lengths is not None:
        return graph.lengths.num_edges()
    assert graph._runs is not None  # only called on those
    return int((graph._runs[1] - graph._runs[0]).sum())


def _check_lists(names: str, one: Tensor, two: Tensor) -> None:
    if one.dim() != 1 or one.shape != two.shape or one.device != two.device:
        raise ValueError(
            f"{names} must be two lists of the same length on one device, "
            f"got {list(one.shape)} on {one.device} and {list(two.shape)} on {two.device}"
        )


def _own(x: Tensor, copy: bool = False) -> Tensor:
    """A tensor that nobody else edits, if it is a copy, and that a later pass may need for gradients."""
    if not (copy or x.is_inference()):
        return x
    with torch.inference_mode(False):
        return x.clone(memory_format=torch.contiguous_format)
