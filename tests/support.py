"""What tests share: references, graphs and trees drawn at random."""

from dataclasses import replace

import pytest
import torch
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from edgewise.graphs import AttentionGraph, bipartite, causal, complete, window
from edgewise.propagation import propagate_attention
from edgewise.propagation.engine_choice import Choice
from edgewise.propagation.tiles.tile_plan import plan_tiles, score_places

TRITON = pytest.param("triton", marks=pytest.mark.triton)
"""The engine for GPUs, in Triton's interpreter where there is none."""


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


def edges(graph):
    return list(zip(graph.src.tolist(), graph.dst.tolist(), strict=True))


def uneven(module):
    """Give every parameter a value of its own, in float64, so that no agreement is trivial."""
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return module.double()


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


@st.composite
def trees(draw, max_words=20):
    """Heads of a random tree: each word but one hangs from a word that hangs in it already."""
    order = draw(st.permutations(range(draw(st.integers(1, max_words)))))
    heads = [-1] * len(order)
    for place in range(1, len(order)):
        heads[order[place]] = order[draw(st.integers(0, place - 1))]
    return heads


def random_fields(graph, heads, width, dtype=torch.float32, seed=0):
    """q, k, v for a graph, from a seed of their own."""
    generator = torch.Generator().manual_seed(seed)
    counts = (graph.num_dst, graph.num_src, graph.num_src)
    fields = [torch.randn(n, heads, width, generator=generator, dtype=dtype) for n in counts]
    return [x.requires_grad_() for x in fields]


def check_propagation(
    graph, engine, heads, width, highest=None, seed=0, biased=False, dropout=0.0, d_v=None, group=1
):
    """Compare an engine's values and gradients with the dense formula in float64.

    ``engine`` is a name, or a function of graph and fields. ``highest`` is the score of an edge; the draws of
    dropout are PyTorch's, by its seed. Keys and values have ``heads``, each for a ``group`` of the queries'.
    """
    fields = random_fields(graph, heads * group, width, seed=seed)
    if d_v:
        fields[2] = torch.randn(graph.num_src, heads, d_v)
    for i, x in enumerate(fields):  # tokens, heads or numbers lie side by side
        order = [(0, 1, 2), (1, 0, 2), (0, 2, 1)][(seed + i) % 3]
        x = x.detach()[:, : heads if i else None].permute(order).contiguous().permute(order)
        fields[i] = x.requires_grad_()
    if highest and graph.num_edges:
        with torch.no_grad():
            keys = fields[1].repeat_interleave(group, 1)
            scores = (fields[0][graph.dst] * keys[graph.src]).sum(-1).flatten() / width**0.5
            largest = scores[scores.abs().argmax()]
            fields[1].mul_(largest.sign())
            for x in fields[:2]:
                x.mul_((highest / largest.abs()).sqrt())
    if biased:
        fields += [torch.randn(graph.num_edges, heads * group, requires_grad=True)]
    doubles = [x.detach().double().requires_grad_() for x in fields]
    torch.manual_seed(seed)
    options = {"edge_bias": fields[3]} if biased else {}
    if isinstance(engine, str):
        options |= {"engine": engine, "dropout": dropout}
    actual = (propagate_attention if isinstance(engine, str) else engine)(graph, *fields[:3], **options)
    torch.manual_seed(seed)
    kept = torch.empty(graph.num_edges, heads * group).bernoulli_(1 - dropout).double() / (1 - dropout)
    terms = graph.to_matrix(doubles[3]) if biased else 0.0, graph.to_matrix(kept)
    keys, values = (x.repeat_interleave(group, 1) for x in doubles[1:3])
    expected = dense_attention(graph.to_mask(), doubles[0], keys, values, *terms)
    assert actual.shape == (graph.num_dst, heads * group, d_v or width)
    assert_equal_as_stated(actual, expected)
    upstream = torch.randn(actual.shape, generator=torch.Generator().manual_seed(1))
    gradients = torch.autograd.grad(actual, fields, upstream)
    references = torch.autograd.grad(expected, doubles, upstream.double())
    for gradient, reference in zip(gradients, references, strict=True):
        assert_equal_as_stated(gradient, reference)


class Operations(TorchDispatchMode):
    """Keeps the names of operations that read numbers, on any device, to say what is executed next."""

    READING = ("_local_scalar_dense", "nonzero", "item", "equal", "masked_select", "unique", "bincount")

    def __init__(self):
        super().__init__()
        self.reads, self.count, self.doubles = [], 0, []

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        self.count += 1
        if operation.overloadpacket.__name__ in self.READING:
            self.reads.append(operation.name())
        output = operation(*args, **kwargs or {})
        if getattr(output, "dtype", None) == torch.float64:
            self.doubles.append(operation.name())
        return output


def planned(graph, num_heads, head_dim):
    """The graph on the meta device, with the plan that was made for it on the CPU."""
    plan, places = plan_tiles(graph), [x.to("meta") for x in score_places(graph)]
    there = graph.to("meta")
    taken = {f"_choice {num_heads} {head_dim} False False": Choice("tiles", "it is told to")}
    there._known.update(graph._known | taken | {"score_places": places})
    there._known["plan_tiles"] = replace(plan, lay_out=lambda: plan.tensors.to(torch.device("meta")))
    return there


def assert_steps_read_nothing(model, loss):
    """Two training steps read no number."""
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    with Operations() as operations:
        for _ in range(2):
            optimizer.zero_grad()
            loss().backward()
            optimizer.step()
    assert operations.reads == []
    assert operations.count > 50
