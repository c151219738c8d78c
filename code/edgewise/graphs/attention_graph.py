"""The attention graph: edge ``e`` carries a message from token ``src[e]`` to token ``dst[e]``.

Its forms are in :mod:`edgewise.graphs.graph_forms`, its algebra in :mod:`edgewise.graphs.edge_sets`, and here
the ways in and out.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor

from edgewise.graphs import block_mask, packed_lengths
from edgewise.graphs.dgl_import import load_dgl
from edgewise.graphs.edge_sets import EdgeSet
from edgewise.graphs.graph_forms import check_lists, own
from edgewise.graphs.packed_lengths import Packed
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


class AttentionGraph(EdgeSet):
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
    packed : Packed, or None
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

    @classmethod
    def from_intervals(
        cls, start: Tensor, stop: Tensor, num_src: int, *, self_attention: bool, blocks: int | None = None
    ) -> Self:
        """Receiver ``i`` attends to senders ``start[i] .. stop[i] - 1``, or to none if the two are equal.

        Parameters
        ----------
        start, stop : Tensor
            int64 [num_dst], copied.
        num_src : int
            Number of sending tokens.
        self_attention : bool
            Whether senders and receivers are the same tokens.
        blocks : int, optional
            Into how many blocks of one size receivers and senders fall, if each attends within its block
            alone: rows of a padded batch, or of a cache. They are one dense call where most pairs are edges.

        Raises
        ------
        TypeError
            If ``start`` or ``stop`` is not a tensor of int64, or a count is not an integer.
        ValueError
            If ``start`` and ``stop`` are not two lists of one length on one device, or
            ``0 <= start <= stop <= num_src`` does not hold for every receiver, or self-attention does not
            have one interval per token, or blocks are not of one size, or an interval leaves its block.
        """
        num_src = check_count("num_src", num_src)
        check_ids("start", start, num_src + 1)
        check_ids("stop", stop, num_src + 1)
        check_lists("start and stop", start, stop)
        if start.is_cuda:
            assert_soon(start <= stop, "start must not exceed stop")
        elif bool((start > stop).any()):
            bad = int((start > stop).nonzero()[0])
            raise ValueError(f"start must not exceed stop, got {int(start[bad])} > {int(stop[bad])} at {bad}")
        if check_bool("self_attention", self_attention) and num_src != len(start):
            raise ValueError(
                f"self-attention has one interval per token, got {len(start)} for num_src={num_src}"
            )
        if blocks is not None:
            if num_src % check_count("blocks", blocks, 1) or len(start) % blocks:
                counts = f"{num_src} senders and {len(start)} receivers"
                raise ValueError(f"blocks must be of one size, got {blocks} for {counts}")
            first = torch.arange(blocks, device=start.device)[:, None] * (num_src // blocks)
            left, right = start.view(blocks, -1) >= first, stop.view(blocks, -1) <= first + num_src // blocks
            assert_soon(left & right, "each interval must lie in its receiver's block of senders")
        copies = own(start, copy=True), own(stop, copy=True)
        return cls._of(num_src, None if self_attention else len(start), copies, blocks=blocks)

    @classmethod
    def from_lengths(
        cls, lengths: Tensor | Sequence[int], *, causal: bool = False, num_tokens: int | None = None
    ) -> Self:
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
                packed_lengths.offsets_of_lengths(lengths), causal=causal, num_tokens=num_tokens
            )
        counts = tuple(check_counts("lengths", lengths))
        return cls.of_packed(Packed(counts, right=0 if causal else None), packed_lengths.device_of(lengths))

    @classmethod
    def from_cu_seqlens(
        cls,
        cu_q: Tensor | Sequence[int],
        cu_k: Tensor | Sequence[int] | None = None,
        *,
        causal: bool = False,
        window: int | tuple[int, int] = -1,
        num_tokens: int | tuple[int, int] | None = None,
    ) -> Self:
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
        told = num_tokens if isinstance(num_tokens, tuple) else (num_tokens, num_tokens)
        tokens = [x if x is None else check_count("num_tokens", x) for x in told]
        if len(tokens) != 2 or (cu_k is None and tokens[0] != tokens[1]):
            raise ValueError(f"num_tokens must be a count, of queries and keys two; got {num_tokens}")
        sizes = packed_lengths.lengths_of_offsets("cu_q", cu_q, tokens[0])
        others = sizes if cu_k is None else packed_lengths.lengths_of_offsets("cu_k", cu_k, tokens[1])
        if len(others) != len(sizes):
            raise ValueError(f"cu_q and cu_k must pair up, got {len(sizes)} and {len(others)} sequences")
        if tokens[0] is not None and tokens[1] is not None:
            intervals = packed_lengths.intervals_of(others, sizes, (tokens[1], tokens[0]), left, right)
            graph = cls._of(tokens[1], None if cu_k is None else tokens[0], intervals)
            graph._known["ascends"] = True
            return graph
        receivers = None if cu_k is None else tuple(sizes.tolist())
        return cls.of_packed(Packed(tuple(others.tolist()), receivers, left, right), sizes.device)

    @classmethod
    def from_position_ids(cls, position_ids: Tensor | Sequence[int], *, causal: bool = False) -> Self:
        """Sequences packed in one row; one begins where a position is not the one before it plus one.

        Parameters
        ----------
        position_ids : Tensor
            int [n], such as 0, 1, 2, 0, 1; of a batch of one row give ``position_ids[0]``.
        causal : bool
            As in :meth:`from_lengths`.
        """
        return cls.from_lengths(packed_lengths.lengths_of_positions(position_ids), causal=causal)

    @classmethod
    def from_document_ids(cls, document_ids: Tensor | Sequence[int], *, causal: bool = False) -> Self:
        """Documents packed in one row: tokens attend to those of the same id, int [n], which stand together.

        Raises
        ------
        ValueError
            If an id returns after another one.
        """
        return cls.from_lengths(packed_lengths.lengths_of_documents(document_ids), causal=causal)

    @classmethod
    def from_padding_mask(
        cls, padding_mask: Tensor | Sequence[Sequence[int]], *, causal: bool = False
    ) -> Self:
        """The real tokens of a padded batch, ``states[padding_mask.bool()]``, without the padding.

        Parameters
        ----------
        padding_mask : Tensor
            bool or 0 and 1 [B, n], true at real tokens, as in ``transformers``. In ``torch.nn`` it is true at
            padding: give ``~src_key_padding_mask``.
        causal : bool
            As in :meth:`from_lengths`.
        """
        return cls.from_lengths(packed_lengths.lengths_of_padding(padding_mask), causal=causal)

    @classmethod
    def from_edge_index(cls, edge_index: Tensor, num_nodes: int | tuple[int, int]) -> Self:
        """Edges in PyG's form: column ``e`` is sender and receiver of edge ``e``.

        Parameters
        ----------
        edge_index : Tensor
            int64 or int32 [2, E]; row 0 sends, row 1 receives. Its order is kept; an edge may occur twice.
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
        if isinstance(edge_index, Tensor) and edge_index.layout != torch.strided:
            raise TypeError(
                "edge_index is a sparse matrix, whose rows, as of adj.t(), are receivers: give "
                "edge_index.to_sparse_coo().coalesce().indices().flip(0)"
            )
        if not isinstance(edge_index, Tensor) or edge_index.dtype not in (torch.int64, torch.int32):
            raise TypeError(f"edge_index must be a tensor of int64, got {kind_of(edge_index)}")
        edge_index = edge_index.long()
        if edge_index.dim() != 2 or len(edge_index) != 2:
            raise ValueError(f"edge_index must be [2, E], got {list(edge_index.shape)}")
        if num_dst is None:
            num_src = check_count("num_nodes", num_src)
            check_ids("edge_index", edge_index, num_src)
            src, dst = own(edge_index, copy=True)
            return cls._of(num_src, None, edges=(src, dst))
        src, dst = edge_index
        try:
            return cls(src, dst, num_src, num_dst)
        except ValueError as error:
            fits = len(src) and int(src.max()) < num_dst and int(dst.max()) < num_src
            if fits:
                raise ValueError(f"{error}; row 0 sends, row 1 receives: they seem swapped") from None
            raise

    @classmethod
    def from_mask(cls, mask: Tensor, *, self_attention: bool) -> Self:
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
    def from_scipy(cls, matrix: Any, *, self_attention: bool) -> Self:
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
    def from_networkx(cls, graph: "networkx.Graph", self_loops: bool = False) -> Self:
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
        src, dst = torch.tensor(pairs, dtype=torch.int64, device=packed_lengths.device_of()).reshape(-1, 2).T
        found = cls(src, dst, len(number))
        return found.with_self_loops() if check_bool("self_loops", self_loops) else found

    @classmethod
    def from_dgl(cls, graph: Any) -> Self:
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

    def to_mask(self) -> Tensor:
        """Bool [num_dst, num_src]; True where the receiver attends to the sender.

        Raises
        ------
        ValueError
            If two edges have the same sender and the same receiver.
        """
        if self._intervals is not None:
            start, stop = self._intervals
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
        if self._intervals is not None:
            return block_mask.from_intervals(*self._intervals, self.num_src)
        self._check_no_multi_edges()
        return block_mask.from_edges(self._src, self._dst, self.num_src, self.num_dst)

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
