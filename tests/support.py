"""What tests share: references, graphs and trees drawn at random."""

from dataclasses import replace

import pytest
import torch
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from edgewise.graphs import AttentionGraph, bipartite, causal, complete, window
from edgewise.propagation import propagate_attention
from edgewise.propagation.engine_choice import Choice
from edgewise.propagation.tiles.tile_plan import plan_tiles, score_positions

TRITON = pytest.param("triton", marks=pytest.mark.triton)
"""The engine for GPUs, in Triton's interpreter where there is none."""


def attention_formula(
    graph, q, k, v, *, edge_bias=None, edge_attr=None, edge_proj=None, scale=None, factors=None
):
    """Attention receiver by receiver, by PyTorch's softmax: [num_dst, h, d_v]; and the weights, [E, h].

    Arguments are those of ``propagate_attention``. Weights are returned as they are before ``factors``
    [E, h], those of dropout, multiply them.
    """
    scale = q.shape[2] ** -0.5 if scale is None else scale
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    rows, weights, order = [q[:0] @ q.new_zeros(q.shape[2], v.shape[2])], [q[:0, :, 0]], [graph.src[:0]]
    for receiver, query in enumerate(q):
        edges = (graph.dst == receiver).nonzero()[:, 0]
        keys, values = k[graph.src[edges]], v[graph.src[edges]]  # [in-degree, h, d]
        if edge_attr is not None:
            added = torch.einsum("ec,chd->ehd", edge_attr[edges], edge_proj)
            keys, values = keys + added, values + added
        scores = torch.einsum("hd,ehd->eh", query, keys) * scale
        scores = scores if edge_bias is None else scores + edge_bias[edges]
        hidden = (scores == -torch.inf).all(0)
        weights.append(scores.masked_fill(hidden, 0.0).softmax(0).masked_fill(hidden, 0.0))
        order.append(edges)
        used = weights[-1] if factors is None else weights[-1] * factors[edges]
        rows.append(torch.einsum("eh,ehd->hd", used, values)[None])
    return torch.cat(rows), torch.cat(weights)[torch.cat(order).argsort()]


def assert_equal_as_stated(actual, reference, inputs=(), others=None):
    """The book's meaning of equal: within 1e-5 * max(1, |reference|), as a rule of a float64 reference.

    So are the gradients of ``inputs`` under one gradient from above; ``others`` are the reference's, if it
    has its own.
    """
    pairs, inputs = [(actual, reference)], list(inputs)
    if inputs:
        upstream = torch.randn(actual.shape, generator=torch.Generator().manual_seed(1))
        sides = (actual, inputs), (reference, inputs if others is None else list(others))
        gradients = (torch.autograd.grad(y, x, upstream.to(y), materialize_grads=True) for y, x in sides)
        pairs += zip(*gradients, strict=True)
    for found, expected in pairs:
        found, expected = (x.detach().double().cpu() for x in (found, expected))
        bound = 1e-5 * max(1.0, float(expected.abs().max())) if expected.numel() else 1e-5
        torch.testing.assert_close(found, expected, atol=bound, rtol=0)


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
    few, lengths, num_src = st.integers(0, 3), draw(sizes), draw(st.integers(1, 9))
    others = st.lists(st.integers(0, 7), min_size=len(lengths), max_size=len(lengths))
    ends = st.lists(st.tuples(*[st.integers(0, num_src)] * 2).map(sorted), min_size=1, max_size=9)
    graph = draw(
        st.one_of(
            st.sampled_from([complete(lengths), causal(lengths)]),
            st.builds(bipartite, st.just(lengths), others),
            st.builds(window, st.just(lengths), few, few),
            ends.map(
                lambda x: AttentionGraph.from_intervals(*torch.tensor(x).T, num_src, self_attention=False)
            ),
        )
    )
    active = draw(st.none() | st.lists(st.booleans(), min_size=graph.num_dst, max_size=graph.num_dst))
    return graph if active is None else graph.restrict(torch.tensor(active, dtype=torch.bool))


any_graphs = st.one_of(edge_graphs(), interval_graphs())
multigraphs = st.one_of(edge_graphs(multi=True), interval_graphs())


@st.composite
def trees(draw, max_words=20):
    """Heads of a random tree: each word but one hangs from a word that hangs in it already."""
    order = draw(st.permutations(range(draw(st.integers(1, max_words)))))
    heads = [-1] * len(order)
    for place in range(1, len(order)):
        heads[order[place]] = order[draw(st.integers(0, place - 1))]
    return heads


def refusals(*cases, model=None):
    """Return a test that each call is refused: its error, if that is no ``ValueError``, and the message.

    Calls take what ``model`` makes, if it is given.
    """

    @pytest.mark.parametrize("case", cases, ids=[case[-1] for case in cases])
    def test(case):
        call, message = case[0], case[-1]
        with pytest.raises(case[1] if len(case) == 3 else ValueError, match=message):
            call() if model is None else call(model())

    return test


def random_fields(graph, heads, width, dtype=torch.float32, seed=0):
    """q, k, v for a graph, from a seed of their own."""
    generator = torch.Generator().manual_seed(seed)
    counts = (graph.num_dst, graph.num_src, graph.num_src)
    fields = [torch.randn(n, heads, width, generator=generator, dtype=dtype) for n in counts]
    return [x.requires_grad_() for x in fields]


def dropout_mask(graph, heads, dropout, seed=0):
    """What dropout multiplies weights by when PyTorch's seed is ``seed``: [E, h], in float64."""
    torch.manual_seed(seed)
    return torch.empty(graph.num_edges, heads).bernoulli_(1 - dropout).double() / (1 - dropout)


def check_propagation(
    graph, engine, heads, width, highest=None, seed=0, bias=None, dropout=0.0, d_v=None, group=1, num_attr=0
):
    """Compare an engine's values and gradients with the formula in float64.

    ``engine`` is a name, or a function of graph and fields. ``highest`` is the score of an edge, ``bias`` the
    mean of biases; the draws of dropout are PyTorch's, by its seed. Keys and values have ``heads``, each for
    a ``group`` of the queries'. Edges have ``num_attr`` attributes. The engine runs where the graph is.
    """
    there, graph = graph, graph.to("cpu")
    torch.manual_seed(seed)
    q, k, v = random_fields(graph, heads * group, width, seed=seed)
    v = torch.randn(graph.num_src, heads, d_v) if d_v else v[:, :heads]
    fields = {}
    for i, (name, x) in enumerate({"q": q, "k": k[:, :heads], "v": v}.items()):
        order = [(0, 1, 2), (1, 0, 2), (0, 2, 1)][(seed + i) % 3]  # tokens, heads or numbers lie side by side
        fields[name] = x.detach().permute(order).contiguous().permute(order)
    if highest and graph.num_edges:
        keys = fields["k"].repeat_interleave(group, 1)
        scores = (fields["q"][graph.dst] * keys[graph.src]).sum(-1).flatten() / width**0.5
        largest = scores[scores.abs().argmax()]
        fields["q"] *= largest.sign() * (highest / largest.abs()).sqrt()
        fields["k"] *= (highest / largest.abs()).sqrt()
    if bias is not None:
        fields["edge_bias"] = torch.randn(graph.num_edges, heads * group) + bias
    if num_attr:
        fields["edge_attr"] = torch.randn(graph.num_edges, num_attr)
        fields["edge_proj"] = torch.randn(num_attr, heads * group, width)
    doubles = {name: x.double().requires_grad_() for name, x in fields.items()}
    fields = {name: x.to(there.device).requires_grad_() for name, x in fields.items()}
    torch.manual_seed(seed)
    options = {"engine": engine, "dropout": dropout} if isinstance(engine, str) else {}
    attend = propagate_attention if isinstance(engine, str) else engine
    actual = attend(there, **fields, **options)
    kept = dropout_mask(graph, heads * group, dropout, seed)
    expected, _ = attention_formula(graph, **doubles, factors=kept)
    assert (actual.shape, actual.device) == ((graph.num_dst, heads * group, d_v or width), there.device)
    assert_equal_as_stated(actual, expected, fields.values(), doubles.values())


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
    plan, places = plan_tiles(graph), [x.to("meta") for x in score_positions(graph)]
    there = graph.to("meta")
    taken = {f"_choose {num_heads} {head_dim} False False": Choice("tiles", "it is told to")}
    there._known.update(graph._known | taken | {"score_positions": places})
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
