"""What tests of the library share: references, graph strategies, small models and data."""

from dataclasses import replace

import numpy as np
import torch
from hypothesis import strategies as st

from edgewise.graphs import AttentionGraph, GraphPool, bipartite, causal, complete, window
from edgewise.message_passing import propagate_attention
from edgewise.models.transformer import make_model

VOCAB = 11


def dense_attention(mask, q, k, v, bias=0.0, factor=1.0):
    """Masked attention with the formula written out; q, k, v are [tokens, h, d], the others [h, n, m].

    Weights are multiplied by ``factor``, as dropout does.
    """
    q, k, v = (x.transpose(0, 1) for x in (q, k, v))
    scores = q @ k.transpose(1, 2) / q.shape[-1] ** 0.5 + bias
    scores = scores - scores.detach().masked_fill(~mask, -torch.inf).amax(-1, keepdim=True).clamp(min=-1e30)
    weights = torch.where(mask, scores.clamp(max=0).exp(), 0.0)
    total = weights.sum(-1, keepdim=True)
    return (factor * weights / torch.where(total > 0, total, 1.0) @ v).transpose(0, 1)


def assert_equal_as_stated(actual, reference):
    """The book's meaning of equal: within 1e-5 * max(1, |reference|) of a float64 reference."""
    bound = 1e-5 * max(1.0, float(reference.detach().abs().max())) if reference.numel() else 1e-5
    torch.testing.assert_close(actual.double(), reference, atol=bound, rtol=0)


def scale_states(model, factor):
    """Multiply the final states of each pass by what ``factor`` returns then."""
    run = model.run

    def scaled(batch):
        output = run(batch)
        return replace(output, hidden=output.hidden * factor())

    model.run = scaled


@st.composite
def edge_graphs(draw, max_tokens=9, multi=False):
    """Graphs held as edges: any degrees, edges in any order, isolated tokens, one token, two sets or one.

    With ``multi``, edges may occur twice.
    """
    num_src = draw(st.integers(1, max_tokens))
    num_dst = draw(st.one_of(st.none(), st.integers(1, max_tokens)))
    pairs = [(i, j) for i in range(num_src) for j in range(num_src if num_dst is None else num_dst)]
    chosen = draw(st.lists(st.sampled_from(pairs), unique=not multi))
    src, dst = (torch.tensor([pair[side] for pair in chosen], dtype=torch.int64) for side in (0, 1))
    return AttentionGraph(src, dst, num_src, num_dst)


sizes = st.lists(st.integers(0, 7), min_size=1, max_size=4).filter(any)


@st.composite
def interval_graphs(draw):
    """Sentences, windows and arbitrary intervals, some of their receivers without in-edges."""
    lengths = draw(sizes)
    kind = draw(st.sampled_from(["complete", "causal", "bipartite", "window", "any"]))
    if kind == "bipartite":
        other = draw(st.lists(st.integers(0, 7), min_size=len(lengths), max_size=len(lengths)))
        graph = bipartite(lengths, other)
    elif kind == "window":
        graph = window(lengths, draw(st.integers(0, 3)), draw(st.integers(0, 3)))
    elif kind == "any":
        num_src = draw(st.integers(1, 9))
        ends = draw(st.lists(st.tuples(*[st.integers(0, num_src)] * 2), min_size=1, max_size=9))
        start, stop = torch.tensor([sorted(pair) for pair in ends]).T
        graph = AttentionGraph.from_intervals(start, stop, num_src, self_attention=False)
    else:
        graph = {"complete": complete, "causal": causal}[kind](lengths)
    if draw(st.booleans()) and graph.num_dst:
        silent = draw(st.lists(st.booleans(), min_size=graph.num_dst, max_size=graph.num_dst))
        graph = graph.restrict(torch.tensor(silent))
    return graph


def random_fields(graph, heads, width, dtype=torch.float32, seed=0):
    """q, k, v for a graph, from a seed of their own."""
    generator = torch.Generator().manual_seed(seed)
    counts = (graph.num_dst, graph.num_src, graph.num_src)
    fields = [torch.randn(n, heads, width, generator=generator, dtype=dtype) for n in counts]
    return [x.requires_grad_() for x in fields]


def check_propagation(graph, engine, heads, width, highest=None, seed=0, biased=False, dropout=0.0, d_v=None):
    """Compare an engine's values and gradients with the dense formula in float64.

    ``engine`` is a name, or a function of graph and fields. ``highest`` is the largest score; the draws of
    dropout are PyTorch's, by its seed.
    """
    fields = random_fields(graph, heads, width, seed=seed)
    if highest and graph.num_dst:
        with torch.no_grad():
            scores = torch.einsum("jhd,ihd->hji", *fields[:2]) / width**0.5
            for x in fields[:2]:
                x.mul_((highest / scores.abs().max()).sqrt())
    if d_v:
        fields[2] = torch.randn(graph.num_src, heads, d_v, requires_grad=True)
    if biased:
        fields += [torch.randn(graph.num_edges, heads, requires_grad=True)]
    doubles = [x.detach().double().requires_grad_() for x in fields]
    torch.manual_seed(seed)
    options = {"edge_bias": fields[3]} if biased else {}
    if isinstance(engine, str):
        options |= {"engine": engine, "dropout": dropout}
    actual = (propagate_attention if isinstance(engine, str) else engine)(graph, *fields[:3], **options)
    torch.manual_seed(seed)
    kept = torch.empty(graph.num_edges, heads).bernoulli_(1 - dropout).double() / (1 - dropout)
    terms = graph.to_matrix(doubles[3]) if biased else 0.0, graph.to_matrix(kept)
    expected = dense_attention(graph.to_mask(), *doubles[:3], *terms)
    assert actual.shape == (graph.num_dst, heads, d_v or width)
    assert_equal_as_stated(actual, expected)
    upstream = torch.randn(actual.shape, generator=torch.Generator().manual_seed(1))
    gradients = torch.autograd.grad(actual, fields, upstream)
    references = torch.autograd.grad(expected, doubles, upstream.double())
    for gradient, reference in zip(gradients, references, strict=True):
        assert_equal_as_stated(gradient, reference)


def small_model(engine="auto", N=2, h=2, dim_model=8, dim_ff=12, norm_first=True):
    """A small Transformer in evaluation mode whose norms and biases differ from their start values."""
    size = {"N": N, "h": h, "dim_model": dim_model, "dim_ff": dim_ff}
    model = make_model(VOCAB, VOCAB, **size, engine=engine, norm_first=norm_first).eval()
    for parameter in model.parameters():
        if parameter.dim() == 1:
            torch.nn.init.normal_(parameter, mean=parameter.mean().item(), std=0.2)
    return model


def random_pairs(lengths, seed=0):
    """Source and target id lists of the given (source, target) lengths; targets hold one id more."""
    generator = torch.Generator().manual_seed(seed)
    return tuple(
        [torch.randint(0, VOCAB, (pair[side] + side,), generator=generator).tolist() for pair in lengths]
        for side in (0, 1)
    )


def copy_to_torch(model, twin):
    """Copy layers and norms into a ``torch.nn.Transformer``; return the pairs of parameters."""
    pairs = []
    for side in ("encoder", "decoder"):
        ours, theirs = getattr(model, side), getattr(twin, side)
        pairs += copy_parts([(ours.norm, theirs.norm)])
        for layer, other in zip(ours.layers, theirs.layers, strict=True):
            pairs += copy_layer_to_torch(layer, other)
    return pairs


def copy_layer_to_torch(layer, other):
    """Copy an encoder or decoder layer into PyTorch's; return the pairs of parameters."""
    parts = [(layer.feed_forward.inner, other.linear1), (layer.feed_forward.outer, other.linear2)]
    parts += [(s.norm, getattr(other, f"norm{i}")) for i, s in enumerate(layer.sublayer, 1)]
    attentions = [(layer.self_attn, other.self_attn)]
    if hasattr(layer, "src_attn"):
        attentions.append((layer.src_attn, other.multihead_attn))
    for mine, its in attentions:
        parts.append((mine.out_proj, its.out_proj))
        parts.append((mine.in_proj.weight, its.in_proj_weight))
        parts.append((mine.in_proj.bias, its.in_proj_bias))
    return copy_parts(parts)


def copy_parts(parts):
    """Copy modules or parameters to others alike; return the pairs of parameters."""
    pairs = []
    for mine, its in parts:
        alone = isinstance(mine, torch.Tensor)
        pairs += [(mine, its)] if alone else zip(mine.parameters(), its.parameters(), strict=True)
    with torch.no_grad():
        for mine, its in pairs:
            its.copy_(mine)
    return pairs


@torch.no_grad()
def dropped_and_doubled(model, continue_):
    """Grow three targets, drop one, double another, swap them, and grow on.

    Returns their last states, and the model's for the same targets computed at once.
    """
    sources, targets = random_pairs([(3, 6), (5, 6), (2, 6)])
    ids = torch.tensor(targets)
    continuation = continue_(model, sources)
    for position in range(3):
        continuation.step(ids[:, position])
    rows = torch.tensor([2, 0, 2])
    continuation.keep(rows)
    for position in range(3, 6):
        states = continuation.step(ids[rows, position])
    batch = GraphPool()([sources[i] for i in rows], [targets[i] for i in rows])
    return states, model.hidden(batch).view(3, 6, -1)[:, -1]


class SortingData:
    """Letters to put in order, as ids: no more than a trainer needs of its data.

    Ids 0 to 2 are start, end and padding.
    """

    vocab_size, pad_id, epoch = 7, 2, 1

    def __init__(self, seed=0):
        self.splits, self._generator = {}, np.random.default_rng(seed)
        for mode, size in (("train", 44), ("valid", 10)):
            lengths = self._generator.integers(1, 9, size)
            self.splits[mode] = [self._generator.integers(3, 7, n).tolist() for n in lengths]

    @property
    def order_state(self):
        return self._generator.bit_generator.state

    @order_state.setter
    def order_state(self, state):
        self._generator.bit_generator.state = state

    def __call__(self, graph_pool, mode="train", batch_size=8, device="cpu", *, share=(0, 1)):
        order = self._order(mode)
        chosen = [order[first : first + batch_size] for first in range(0, len(order), batch_size)]
        return self._batches(graph_pool, mode, chosen, device, share)

    def by_tokens(
        self, graph_pool, mode="train", batch_tokens=64, bucketed=False, device="cpu", share=(0, 1)
    ):
        chosen, room = [], 0
        for number in self._order(mode):
            length = len(self.splits[mode][number]) + 1
            chosen, room = (chosen, room) if length <= room else ([*chosen, []], batch_tokens)
            chosen[-1].append(number)
            room -= length
        return self._batches(graph_pool, mode, chosen, device, share)

    def _order(self, mode):
        count = len(self.splits[mode])
        return self._generator.permutation(count).tolist() if mode == "train" else list(range(count))

    def _batches(self, graph_pool, mode, chosen, device, share):
        rank, size = share
        for numbers in chosen:
            own = numbers[rank::size] or numbers[:1]
            sources = [self.splits[mode][number] for number in own]
            batch = graph_pool(sources, [[0, *sorted(source), 1] for source in sources], device=device)
            yield batch if numbers[rank::size] else replace(batch, stand_in=True)
