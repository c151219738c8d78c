"""Triton kernels for attention over edges: the output, the gradients, and the sum of a long list's pieces.

Edges are listed by receiver, and again by sender. Long lists are cut into *pieces* where an edge's position
is a multiple of ``CHUNK``. A *lane* is one head of one piece, and a program has ``LANES`` of them. A lane
reads ``WIDTH`` edges at a time. Each of these columns keeps its nonempty online softmax, and the columns are
merged after the loop; inside it only dot products cross threads.

E edges of n nodes make at most n + (E - 1) // CHUNK pieces, a number known without asking the GPU. The
results of a list in one piece are stored at once. Those of other pieces go to rows of ``PARTS``, and
``combine`` adds them up in a fixed order. There are no atomic operations: results are equal bit for bit.

Sums are float64 for float64 inputs, else float32 (``REAL``). A tensor that is not given is None.
"""

import triton
import triton.language as tl
from triton.language import constexpr

LISTS = ["RANGES", "NUMBERS", "OTHERS", "CUTS"]
"""Parts of larger tensors, which begin anywhere."""


@triton.jit
def _pieces(RANGES, OTHERS, CUTS, nodes, pieces,
            HEADS: constexpr, CHUNK: constexpr, PADDED: constexpr, LANES: constexpr):  # fmt: skip
    """Each lane's node and head, its positions from start to stop, and the place of its results.

    This is ``row`` if the lane has the ``whole`` list, and row ``slot`` of PARTS if it has a ``part``.
    The first piece of a list is numbered as its node. Piece ``nodes + cut`` starts at (cut + 1) * CHUNK
    and belongs to the node of the edge before. This piece is empty if that node's list ends there.
    """
    lane = tl.program_id(0).to(tl.int64) * LANES + tl.arange(0, LANES)
    piece, head = lane // PADDED, lane % PADDED
    active = (piece < pieces) & (head < HEADS)
    node, cut = piece, piece - nodes
    if CUTS is not None:
        node = tl.load(CUTS + cut, mask=active & (cut >= 0), other=piece.to(tl.int32)).to(tl.int64)
    start = tl.load(RANGES + node, mask=active, other=0).to(tl.int64)
    stop = tl.load(RANGES + node + (nodes if OTHERS is None else 1), mask=active, other=0).to(tl.int64)
    row = node * HEADS + head
    whole, part, slot = active, active, row
    if CUTS is not None:  # minima and maxima, for Triton 3.6 cannot compile a select here
        part = active & (stop > (start // CHUNK + 1) * CHUNK)
        whole = active & (cut < 0) & (part == 0)
        chunk = tl.maximum(start // CHUNK, cut + 1)
        slot = (2 * chunk - (cut >= 0).to(tl.int64)) * HEADS + head
        start, stop = tl.maximum(start, chunk * CHUNK), tl.minimum(stop, (chunk + 1) * CHUNK)
    return node, head, start, stop, (row, slot, whole, part)


@triton.jit
def _edges(position, valid, node, NUMBERS, OTHERS, BY_SENDER: constexpr):
    """The far ends of the edges at these positions, and the edges' numbers in the caller's order."""
    if OTHERS is not None:
        other = tl.load(OTHERS + position, mask=valid, other=0).to(tl.int64)
        edge = tl.load(NUMBERS + position, mask=valid, other=0).to(tl.int64)
    else:  # an interval: positions are the nodes themselves
        other, sender = position, tl.broadcast_to(node[:, None], position.shape) if BY_SENDER else position
        edge = tl.load(NUMBERS + sender, mask=valid, other=0) + position + node[:, None] - sender
    return other, edge


@triton.jit
def _load(X, offset, valid, D: constexpr, BLOCK: constexpr, REAL: constexpr):
    """Vectors of D numbers at these offsets, [lanes, columns, BLOCK]; zeros where there are none."""
    i = tl.arange(0, BLOCK)[None, None, :]
    return tl.load(X + offset[:, :, None] + i, mask=valid[:, :, None] & (i < D), other=0.0).to(REAL)


@triton.jit
def _store(x, X, PARTS, place, FIRST: constexpr, SIZE: constexpr, D: constexpr, BLOCK: constexpr):
    """Store vectors [lanes, BLOCK] as whole lists' results, or in rows of PARTS (SIZE numbers) from FIRST."""
    row, slot, whole, part = place
    i = tl.arange(0, BLOCK)[None, :]
    tl.store(X + row[:, None] * D + i, x.to(X.dtype.element_ty), mask=whole[:, None] & (i < D))
    if PARTS is not None:
        tl.store(PARTS + slot[:, None] * SIZE + FIRST + i, x, mask=part[:, None] & (i < D))


@triton.jit
def _rescale(high, score):
    """The new maximum, exponentials of scores relative to it, and the factor for earlier sums."""
    higher = tl.maximum(high, score)
    base = tl.where(higher == -float("inf"), 0.0, higher)
    return higher, tl.exp(score - base), tl.exp(high - base)


@triton.jit
def _merge(high, total):
    """The factor of each column's sums in the softmax [lanes, columns], and the log-sum-exp of each lane."""
    highest = tl.max(high, 1)
    base = tl.where(highest == -float("inf"), 0.0, highest)
    share = tl.exp(high - base[:, None])
    total = tl.sum(total * share, 1)
    lse = tl.where(total == 0, -float("inf"), base + tl.log(total))
    return share / tl.where(total == 0, 1.0, total)[:, None], lse


@triton.jit(do_not_specialize=["nodes", "pieces"], do_not_specialize_on_alignment=LISTS)
def attend(
    RANGES, NUMBERS, OTHERS, CUTS, Q, K, V, BIAS, FACTORS, Q_ATTR, ATTR, OUT, ATTR_SUMS, LSE, PARTS,
    q_n, q_h, k_n, k_h, v_n, v_h, scale: tl.float64, nodes, pieces,
    HEADS: constexpr, GROUP: constexpr, D: constexpr, D_V: constexpr, C: constexpr, CHUNK: constexpr,
    PADDED: constexpr, BLOCK_D: constexpr, BLOCK_V: constexpr, BLOCK_C: constexpr,
    LANES: constexpr, WIDTH: constexpr,
):  # fmt: skip
    """Receivers' outputs, weighted sums of attributes, and the log-sum-exp of their scores."""
    REAL: constexpr = LSE.dtype.element_ty
    SIZE: constexpr = D_V + C + 1
    node, head, start, stop, place = _pieces(RANGES, OTHERS, CUTS, nodes, pieces, HEADS, CHUNK, PADDED, LANES)
    n, h, nonempty, scale = (
        node[:, None],
        head[:, None],
        (start < stop)[:, None],
        tl.full([1, 1], scale, REAL),
    )
    q = _load(Q, n * q_n + h * q_h, nonempty, D, BLOCK_D, REAL)
    if ATTR is not None:
        q_attr = _load(Q_ATTR, (n * HEADS + h) * C, nonempty, C, BLOCK_C, REAL)
        attr_sums = tl.zeros([LANES, WIDTH, BLOCK_C], REAL)
    high, total = tl.full([LANES, WIDTH], -float("inf"), REAL), tl.zeros([LANES, WIDTH], REAL)
    out = tl.zeros([LANES, WIDTH, BLOCK_V], REAL)
    for step in range(0, tl.max(stop - start, 0), WIDTH):
        position = start[:, None] + step + tl.arange(0, WIDTH)[None, :]
        valid = position < stop[:, None]
        sender, edge = _edges(position, valid, node, NUMBERS, OTHERS, False)
        k = _load(K, sender * k_n + h // GROUP * k_h, valid, D, BLOCK_D, REAL)
        v = _load(V, sender * v_n + h // GROUP * v_h, valid, D_V, BLOCK_V, REAL)
        score = tl.sum(q * k, 2)
        if ATTR is not None:
            attr = _load(ATTR, edge * C, valid, C, BLOCK_C, REAL)
            score += tl.sum(q_attr * attr, 2)
        score *= scale
        if BIAS is not None:
            score += tl.load(BIAS + edge * HEADS + h, mask=valid, other=0.0).to(REAL)
        high, weight, shrink = _rescale(high, tl.where(valid, score, -float("inf")))
        total = total * shrink + weight
        if FACTORS is not None:
            weight *= tl.load(FACTORS + edge * HEADS + h, mask=valid, other=0.0).to(REAL)
        out = out * shrink[:, :, None] + weight[:, :, None] * v
        if ATTR is not None:
            attr_sums = attr_sums * shrink[:, :, None] + weight[:, :, None] * attr
    share, lse = _merge(high, total)
    _store(tl.sum(out * share[:, :, None], 1), OUT, PARTS, place, 0, SIZE, D_V, BLOCK_V)
    _store(lse[:, None], LSE, PARTS, place, D_V + C, SIZE, 1, 1)
    if ATTR is not None:
        _store(tl.sum(attr_sums * share[:, :, None], 1), ATTR_SUMS, PARTS, place, D_V, SIZE, C, BLOCK_C)


@triton.jit(do_not_specialize=["nodes", "pieces"], do_not_specialize_on_alignment=LISTS)
def differentiate_receivers(
    RANGES, NUMBERS, OTHERS, CUTS, Q, K, V, BIAS, FACTORS, Q_ATTR, ATTR, OUT, ATTR_SUMS, LSE,
    GRAD_OUT, GRAD_ATTR_SUMS, GRAD_LSE, WEIGHT, GRAD_SCORE, GRAD_ATTR, GRAD_Q, GRAD_Q_ATTR, PARTS,
    q_n, q_h, k_n, k_h, v_n, v_h, scale: tl.float64, nodes, pieces,
    HEADS: constexpr, GROUP: constexpr, D: constexpr, D_V: constexpr, C: constexpr, CHUNK: constexpr,
    PADDED: constexpr, BLOCK_D: constexpr, BLOCK_V: constexpr, BLOCK_C: constexpr,
    LANES: constexpr, WIDTH: constexpr,
):  # fmt: skip
    """Gradients of Q, ATTR and Q_ATTR; every edge's weight, times its factor, and its score's gradient."""
    REAL: constexpr = LSE.dtype.element_ty
    SIZE: constexpr = D + C + 1
    node, head, start, stop, place = _pieces(RANGES, OTHERS, CUTS, nodes, pieces, HEADS, CHUNK, PADDED, LANES)
    n, h, nonempty, scale = (
        node[:, None],
        head[:, None],
        (start < stop)[:, None],
        tl.full([1, 1], scale, REAL),
    )
    row = n * HEADS + h
    q = _load(Q, n * q_n + h * q_h, nonempty, D, BLOCK_D, REAL)
    lse = tl.load(LSE + row, mask=nonempty, other=0.0)
    lse = tl.where(lse == -float("inf"), float("inf"), lse)  # all weights of this row are zero
    grad_out = _load(GRAD_OUT, row * D_V, nonempty, D_V, BLOCK_V, REAL)
    mean = tl.sum(_load(OUT, row * D_V, nonempty, D_V, BLOCK_V, REAL) * grad_out, 2)
    if GRAD_LSE is not None:
        mean -= tl.load(GRAD_LSE + row, mask=nonempty, other=0.0)
    grad_q = tl.zeros([LANES, WIDTH, BLOCK_D], REAL)
    if ATTR is not None:
        q_attr = _load(Q_ATTR, row * C, nonempty, C, BLOCK_C, REAL)
        grad_attr_sums = _load(GRAD_ATTR_SUMS, row * C, nonempty, C, BLOCK_C, REAL)
        mean += tl.sum(_load(ATTR_SUMS, row * C, nonempty, C, BLOCK_C, REAL) * grad_attr_sums, 2)
        grad_q_attr = tl.zeros([LANES, WIDTH, BLOCK_C], REAL)
    for step in range(0, tl.max(stop - start, 0), WIDTH):
        position = start[:, None] + step + tl.arange(0, WIDTH)[None, :]
        valid = position < stop[:, None]
        sender, edge = _edges(position, valid, node, NUMBERS, OTHERS, False)
        k = _load(K, sender * k_n + h // GROUP * k_h, valid, D, BLOCK_D, REAL)
        v = _load(V, sender * v_n + h // GROUP * v_h, valid, D_V, BLOCK_V, REAL)
        at, score, grad_weight = edge * HEADS + h, tl.sum(q * k, 2), tl.sum(grad_out * v, 2)
        if ATTR is not None:
            attr = _load(ATTR, edge * C, valid, C, BLOCK_C, REAL)
            score += tl.sum(q_attr * attr, 2)
            grad_weight += tl.sum(grad_attr_sums * attr, 2)
        score *= scale
        if BIAS is not None:
            score += tl.load(BIAS + at, mask=valid, other=0.0).to(REAL)
        weight = tl.where(valid, tl.exp(score - lse), 0.0)
        used = weight
        if FACTORS is not None:
            factor = tl.load(FACTORS + at, mask=valid, other=0.0).to(REAL)
            grad_weight, used = grad_weight * factor, weight * factor
        grad_score = weight * (grad_weight - mean)
        tl.store(WEIGHT + at, used, mask=valid)
        tl.store(GRAD_SCORE + at, grad_score, mask=valid)
        grad_q += grad_score[:, :, None] * k
        if ATTR is not None:
            grad_q_attr += grad_score[:, :, None] * attr
        if GRAD_ATTR is not None:  # a program has all heads of its receivers: add them up
            grad_attr = (grad_score * scale)[:, :, None] * q_attr + used[:, :, None] * grad_attr_sums
            grad_attr = tl.sum(tl.reshape(grad_attr, [LANES // PADDED, PADDED, WIDTH, BLOCK_C]), 1)
            number = tl.reshape(tl.where(valid, edge, -1), [LANES // PADDED, PADDED, WIDTH])
            number, i = tl.max(number, 1)[:, :, None], tl.arange(0, BLOCK_C)[None, None, :]
            there = (number >= 0) & (i < C)
            tl.store(GRAD_ATTR + number * C + i, grad_attr.to(GRAD_ATTR.dtype.element_ty), mask=there)
    _store(tl.sum(grad_q, 1) * scale, GRAD_Q, PARTS, place, 0, SIZE, D, BLOCK_D)
    if ATTR is not None:
        _store(tl.sum(grad_q_attr, 1) * scale, GRAD_Q_ATTR, PARTS, place, D, SIZE, C, BLOCK_C)


@triton.jit(do_not_specialize=["nodes", "pieces"], do_not_specialize_on_alignment=LISTS)
def differentiate_senders(
    RANGES, NUMBERS, OTHERS, CUTS, Q, GRAD_OUT, WEIGHT, GRAD_SCORE, GRAD_K, GRAD_V, PARTS,
    q_n, q_h, scale: tl.float64, nodes, pieces,
    HEADS: constexpr, GROUP: constexpr, D: constexpr, D_V: constexpr, CHUNK: constexpr,
    PADDED: constexpr, BLOCK_D: constexpr, BLOCK_V: constexpr, LANES: constexpr, WIDTH: constexpr,
):  # fmt: skip
    """Gradients of keys and values. Each of HEADS serves GROUP heads of queries: GROUP turns per edge."""
    REAL: constexpr = WEIGHT.dtype.element_ty
    SIZE: constexpr = D + D_V + 1
    node, head, start, stop, place = _pieces(RANGES, OTHERS, CUTS, nodes, pieces, HEADS, CHUNK, PADDED, LANES)
    grad_k, grad_v = tl.zeros([LANES, WIDTH, BLOCK_D], REAL), tl.zeros([LANES, WIDTH, BLOCK_V], REAL)
    for step in range(0, tl.max(stop - start, 0) * GROUP, WIDTH):
        turn = step + tl.arange(0, WIDTH)[None, :]
        position = start[:, None] + turn // GROUP
        valid = position < stop[:, None]
        receiver, edge = _edges(position, valid, node, NUMBERS, OTHERS, True)
        h = head[:, None] * GROUP + turn % GROUP
        at = edge * (HEADS * GROUP) + h
        q = _load(Q, receiver * q_n + h * q_h, valid, D, BLOCK_D, REAL)
        grad_out = _load(GRAD_OUT, (receiver * (HEADS * GROUP) + h) * D_V, valid, D_V, BLOCK_V, REAL)
        grad_k += tl.load(GRAD_SCORE + at, mask=valid, other=0.0)[:, :, None] * q
        grad_v += tl.load(WEIGHT + at, mask=valid, other=0.0)[:, :, None] * grad_out
    grad_k = tl.sum(grad_k, 1) * tl.full([1, 1], scale, REAL)
    _store(grad_k, GRAD_K, PARTS, place, 0, SIZE, D, BLOCK_D)
    _store(tl.sum(grad_v, 1), GRAD_V, PARTS, place, D, SIZE, D_V, BLOCK_V)


@triton.jit(do_not_specialize=["num_cuts"], do_not_specialize_on_alignment=LISTS)
def combine(
    RANGES, CUTS, PARTS, X, Y, LSE, num_cuts, HEADS: constexpr, D_X: constexpr, D_Y: constexpr,
    CHUNK: constexpr, PADDED: constexpr, BLOCK: constexpr, LANES: constexpr, WIDTH: constexpr,
):  # fmt: skip
    """Add up the pieces of lists that were cut, weighted by their share of the softmax if there is an LSE.

    A lane is a cut. It works if the cut is the first of a list, and the list goes on after it.
    """
    REAL: constexpr = PARTS.dtype.element_ty
    SIZE: constexpr = D_X + D_Y + 1
    lane = tl.program_id(0).to(tl.int64) * LANES + tl.arange(0, LANES)
    cut, head = lane // PADDED, lane % PADDED
    active = (cut < num_cuts) & (head < HEADS)
    node = tl.load(CUTS + cut, mask=active, other=0).to(tl.int64)
    first = active & (tl.load(RANGES + node, mask=active, other=0).to(tl.int64) // CHUNK == cut)
    stop = tl.load(RANGES + node + 1, mask=first, other=0).to(tl.int64)
    count = (stop + CHUNK - 1) // CHUNK - cut
    both = tl.zeros([LANES, WIDTH, BLOCK], REAL)
    high, total = tl.full([LANES, WIDTH], -float("inf"), REAL), tl.zeros([LANES, WIDTH], REAL)
    for step in range(0, tl.max(count, 0), WIDTH):
        piece = step + tl.arange(0, WIDTH)[None, :]
        valid = piece < count[:, None]
        slot = tl.maximum(2 * (cut[:, None] + piece) - 1, 2 * cut[:, None])
        at = (slot * HEADS + head[:, None]) * SIZE
        lse = tl.where(valid, 0.0, -float("inf")).to(REAL)  # a plain sum: all shares are 1
        if LSE is not None:
            lse = tl.load(PARTS + at + D_X + D_Y, mask=valid, other=-float("inf"))
        high, share, shrink = _rescale(high, lse)
        total = total * shrink + share
        both = both * shrink[:, :, None] + share[:, :, None] * _load(PARTS, at, valid, D_X + D_Y, BLOCK, REAL)
    i, row, there = tl.arange(0, BLOCK)[None, :], (node * HEADS + head)[:, None], (count > 1)[:, None]
    if LSE is not None:
        share, whole_lse = _merge(high, total)
        both = both * share[:, :, None]
        tl.store(LSE + row, whole_lse[:, None], mask=there)
    both = tl.sum(both, 1)
    tl.store(X + row * D_X + i, both.to(X.dtype.element_ty), mask=there & (i < D_X))
    if Y is not None:
        there = there & (i >= D_X) & (i < D_X + D_Y)
        tl.store(Y + row * D_Y + i - D_X, both.to(Y.dtype.element_ty), mask=there)
