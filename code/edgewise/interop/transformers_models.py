"""Models of Hugging Face's transformers on a graph, through their ``AttentionInterface``."""

import asyncio
import copy
import sys
import threading
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, partial
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakTensorKeyDictionary

from edgewise.graphs import AttentionGraph
from edgewise.propagation import add_sinks, attention_weights, propagate_attention
from edgewise.validation import InputError, check_bool, check_count, kind_of

HARMLESS = {
    "is_causal", "position_ids", "cache_position", "use_cache", "num_items_in_batch",
    "output_hidden_states", "return_dict", "output_router_logits", "logits_to_keep",
}  # fmt: skip
"""What reaches attention and changes nothing there, or is the graph's to say; what is unknown is refused."""

Graphs = AttentionGraph | Callable[[int, int, int], AttentionGraph]
Biases = Tensor | Callable[[int], Tensor]


@contextmanager
def attend_along(
    model: nn.Module,
    graph: Graphs,
    edge_bias: Biases | None = None,
    engine: str = "auto",
    need_weights: bool = False,
) -> Iterator[dict[int, Tensor]]:
    """Let every layer of a model of ``transformers`` attend along a graph, inside of a ``with``.

    ::

        with edgewise.attend_along(model, edgewise.causal([3, 5])):
            logits = model(ids[None], position_ids=places[None], use_cache=False).logits

    The graph says who attends to whom, in place of causality and padding; of its edges, a sliding window of
    the model still leaves out what it always does. Positions remain the model's: packed texts need
    ``position_ids``. Layers that sound or pixels pass before the first attention are left as they are. The
    rows of a batch share the graph; where ``attention_mask`` pads a row on the left, its first tokens have no
    edges. Calls of other threads and tasks are not concerned.

    With a cache, receivers are the new tokens, and senders all tokens in it, the new ones last; a sliding
    layer's cache forgets the oldest, so count from the end. A function makes the graph of each step: ``lambda
    layer, n, m: AttentionGraph.from_cu_seqlens([0, n], [0, m], causal=True)`` is what the model itself does.

    Parameters
    ----------
    model : nn.Module
        A ``PreTrainedModel``, an encoder or a decoder, or what wraps one. If it recomputes activations
        (gradient checkpointing), ``backward`` belongs inside of the ``with`` too.
    graph : AttentionGraph or callable
        Over the tokens of a row; or a function of the layer's number, receivers and senders that returns it.
        Layers without a number are counted as they are called, after those that have one.
    edge_bias : Tensor or callable, optional
        [E, h], added to every layer's scores; or a function of the layer's number that returns it. Where
        layers have a window, both graph and bias are to be given by layer, within it.
    engine : str
        How attention is executed.
    need_weights : bool
        Whether to keep the attention weights, in another softmax, without a gradient.

    Yields
    ------
    dict of int to Tensor
        By layer, [rows, E, h], in the order of the given graph's ``src``: the weights of its last call, zero
        where the model's own window leaves an edge out; empty if none are needed.

    Raises
    ------
    InputError
        If the model has what would be lost: a soft cap on scores, a bias by position, padding
        elsewhere than on the left, or beside biases or weights, a cache with room to spare; or layers that
        mix tokens without asking the interface; or if a layer
        is called again in ``backward`` elsewhere.
    """
    if not isinstance(graph, AttentionGraph) and not callable(graph):
        raise TypeError(f"graph must be an AttentionGraph or a function, got {type(graph).__name__}")
    _register()
    inner = _model_in(model)
    stacks = _check_supported(inner)
    along = _Along(inner, graph, edge_bias, engine, check_bool("need_weights", need_weights))
    _mine.set((*_mine.get(), along))
    _anybodys.append(along)
    try:
        yield along.weights
    finally:  # perhaps in another thread or task, which closes a generator: see _open
        _mine.set(tuple(each for each in _mine.get() if each is not along))
        _anybodys.remove(along)
        along.arguments, along.cut, along.weights = None, None, {}
    numbered = set(along.numbers)
    silent = ([i for i, layer in enumerate(m) if numbered.isdisjoint(layer.modules())] for m in stacks)
    missing = min(silent, key=len, default=[])
    if missing and (along.called or (numbered and len(missing) == len(stacks[0]))):
        raise InputError(f"layers {missing} of {_kind(inner)} did not ask transformers' AttentionInterface")


class _Along:
    """An open ``with``: whose layers attend along what. It keeps no model alive."""

    def __init__(
        self, model: nn.Module, graph: Graphs, edge_bias: Biases | None, engine: str, need_weights: bool
    ):
        self.need_weights, self.weights = need_weights, dict[int, Tensor]()
        self.modules = WeakSet(model.modules())
        self.configs = {id(module.config) for module in self.modules if hasattr(module, "config")}
        self.arguments: tuple[Graphs, Biases | None, str] | None = (graph, edge_bias, engine)  # until its end
        self.called = False  # for a mask
        self.numbers = WeakKeyDictionary[nn.Module, int]()  # of the layers that have asked
        self.owner = _here()
        numbers = (getattr(module, "layer_idx", None) for module in model.modules())
        self.next = 1 + max((number for number in numbers if number is not None), default=-1)
        self.cut: tuple[AttentionGraph, int, AttentionGraph] | None = None  # the last one by a window
        self.mask_window: int | None = None  # the window or chunk of the model's masks
        self.rows: tuple[AttentionGraph, Tensor, AttentionGraph] | None = None  # the last, of a mask

    def _number(self, module: nn.Module) -> int:
        """A layer's own number, else the next after all that there are, as layers are called."""
        if module not in self.numbers:
            number: int | None = getattr(module, "layer_idx", None)
            if number is not None and number in self.numbers.values():
                raise InputError(
                    f"two layers have the number {number}: give the part of the model that is meant"
                )
            self.numbers[module] = self.next if number is None else number
            self.next += number is None
        return self.numbers[module]

    def _cut_by_window(self, graph: AttentionGraph, window: int) -> AttentionGraph:
        """Without edges from ``window`` places before the receiver, and farther."""
        packed = graph.packed
        if packed is not None and (graph.self_attention or len(packed.senders) == 1):
            left = window - 1 if packed.left is None else min(packed.left, window - 1)
            return AttentionGraph.of_packed(packed._replace(left=left), graph.device)
        if self.cut is None or self.cut[:2] != (graph, window):
            senders = None if graph.self_attention else [0, graph.num_src]
            near = AttentionGraph.from_cu_seqlens([0, graph.num_dst], senders, window=(window - 1, -1))
            near = near.to(graph.device)
            self.cut = (
                graph,
                window,
                graph & near if graph.in_intervals else graph._kept(graph._find_in(near)),
            )
        return self.cut[2]

    def _in_rows(self, graph: AttentionGraph, mask: Tensor) -> AttentionGraph:
        """A graph for each row, without edges of its padding; a cache may have forgotten columns."""
        if self.rows is None or self.rows[0] != graph or self.rows[1] is not mask:
            padding = _paddings[mask] - (mask.shape[-1] - graph.num_src)
            self.rows = graph, mask, in_rows(graph, padding.clamp(min=0))
        return self.rows[2]

    def attend(
        self,
        module: nn.Module,
        window: int | None,
        mask: Tensor | None,
        sinks: Tensor | None,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        **options: Any,
    ) -> Tensor:
        """Queries [rows, h, n, d] to what they receive, [rows, n, h, d_v].

        ``mask`` is one of :data:`_paddings`, ``sinks`` are scores [h].
        """
        if self.arguments is None:
            raise InputError(f"{type(module).__name__} is called after the end of its `with attend_along`")
        graph, edge_bias, engine = self.arguments
        layer, rows, sides = self._number(module), len(query), (query.shape[2], key.shape[2])
        taken = graph if isinstance(graph, AttentionGraph) else graph(layer, *sides)
        bias = edge_bias(layer) if callable(edge_bias) else edge_bias
        if (taken.num_dst, taken.num_src) != sides:
            raise InputError(
                f"the graph has {taken.num_dst} receivers and {taken.num_src} senders, the row {sides[0]} "
                f"and {sides[1]}; for a cache that grows, give a function of layer, receivers and senders"
            )
        near = taken if window is None else self._cut_by_window(taken, window)
        if bias is not None and near.num_edges < taken.num_edges:
            raise InputError(f"edge_bias is of edges that the model's window of {window} leaves out")
        if mask is not None:
            if bias is not None or self.need_weights:
                raise InputError(
                    "edge_bias and need_weights are for rows without padding: give the rows one by one"
                )
            # Under autocast, rotated queries and keys are float32.
            q, k, v = (x.to(value.dtype).transpose(1, 2).flatten(0, 1) for x in (query, key, value))
            whole = self._in_rows(near, mask)
            return _received(whole, q, k, v, sinks, engine=engine, **options).unflatten(0, (rows, -1))
        q, k, v = (x.to(value.dtype).permute(2, 0, 1, 3).flatten(1, 2) for x in (query, key, value))
        if bias is not None:
            shape = [taken.num_edges, q.shape[1] // rows]
            if list(bias.shape) != shape:
                raise InputError(f"edge_bias must be [E, h] = {shape}, got {list(bias.shape)}")
            bias = bias.repeat(1, rows)  # the rows of a batch, which are heads here, share it
        if self.need_weights and sinks is not None:
            raise InputError("need_weights does not know the model's learned sinks")
        if self.need_weights:
            hidden = bias
            if near.num_edges < taken.num_edges:  # what the window leaves out has a weight of zero
                left_out = ~taken._find_in(near)[:, None].expand(-1, q.shape[1])
                hidden = q.new_zeros(left_out.shape).masked_fill(left_out, -torch.inf)
            with torch.no_grad():
                weights = attention_weights(taken, q, k, scale=options["scale"], edge_bias=hidden)
            self.weights[layer] = weights.unflatten(1, (rows, -1)).movedim(1, 0)
        whole = near if bias is None else taken
        sinks = None if sinks is None else sinks.repeat(rows)
        output = _received(whole, q, k, v, sinks, edge_bias=bias, engine=engine, **options)
        return output.unflatten(1, (rows, -1)).transpose(0, 1)


def _received(
    graph: AttentionGraph, q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None, **options: Any
) -> Tensor:
    found: Any = propagate_attention(graph, q, k, v, return_lse=sinks is not None, **options)
    if sinks is None:
        return found
    output, lse = found
    return add_sinks(output, lse, sinks)


def in_rows(graph: AttentionGraph, first: Tensor) -> AttentionGraph:
    """Return a graph for each row, side by side, of which columns before ``first`` [rows] have no edges.

    Receivers are the last tokens of a row, all of them in self-attention.
    """
    rows, (num_src, num_dst) = len(first), (graph.num_src, graph.num_dst)
    first, row = first.to(graph.device)[:, None], torch.arange(rows, device=graph.device)[:, None]
    column = torch.arange(num_src - num_dst, num_src, device=graph.device)  # of each receiver
    sides = rows * num_src, None if graph.self_attention else rows * num_dst
    if graph._intervals is not None:
        start, stop = graph._intervals
        start = torch.maximum(start, first)
        stop = torch.where(column >= first, torch.maximum(start, stop), start)
        both = (start + row * num_src).flatten(), (stop + row * num_src).flatten()
        return AttentionGraph._of(*sides, both, blocks=rows)
    src, dst = graph._edges
    real = (src >= first) & (column[dst] >= first)
    return AttentionGraph._of(*sides, edges=((src + row * num_src)[real], (dst + row * num_dst)[real]))


def _here() -> tuple[object, ...]:
    """The thread and the task that this runs in."""
    try:
        task = asyncio.current_task()
    except RuntimeError:  # no loop runs
        task = None
    return threading.get_ident(), id(task)


_mine: ContextVar[tuple[_Along, ...]] = ContextVar("attend_along", default=())
"""The open ``with`` blocks of this thread or task."""

_anybodys: list[_Along] = []
"""Those of all threads and tasks; while there is none, models run as they always did."""

_last: WeakKeyDictionary[nn.Module, _Along] = WeakKeyDictionary()
"""In which ``with`` a layer was last called, if in one: it may be computed again there and nowhere else."""


def _open() -> tuple[_Along, ...]:
    """The ``with`` blocks around, innermost first; of this thread and task those that have not ended.

    Blocks inherited from a parent task are kept after they end, so that calls through them are refused.
    """
    mine = _mine.get()
    if any(each.arguments is None for each in mine):
        here = _here()
        mine = tuple(each for each in mine if each.arguments is not None or each.owner != here)
        _mine.set(mine)
    return mine[::-1]


def _along_of(module: nn.Module) -> _Along | None:
    """Return the ``with`` that a layer is called in."""
    along = next((each for each in _open() if module in each.modules), None)
    if torch._C._current_graph_task_id() != -1:  # in backward: autograd's own threads have no context
        before = _last.get(module)
        along = along or before
        if along is not before or (along is not None and along.arguments is None):
            raise InputError(
                f"{type(module).__name__} recomputes its activations: backward belongs inside of the `with "
                "attend_along` of the forward pass"
            )
    elif along is not None:
        _last[module] = along
    elif getattr(module, "_is_replica", False):
        raise InputError("DataParallel copies the model into threads of its own: use DistributedDataParallel")
    elif module.training:
        _last.pop(module, None)
    return along


LEAKING = {"mobilebert": "embeddings of neighbours", "pegasus_x": "an encoder that attends in blocks"}
"""Families of models in which tokens reach others past attention, found by :func:`check_along`, and how."""


def _kind(model: nn.Module) -> str:
    config: Any = model.config
    return str(config.model_type)


def _check_supported(model: nn.Module) -> list[nn.ModuleList]:
    """Return the stacks of a model's layers; refuse a model whose tokens also mix outside attention."""
    config: Any = model.config
    kind, text = _kind(model), config.get_text_config()
    modules = [*model.modules()]
    encoder = model.get_encoder() is model and not any(getattr(m, "is_decoder", False) for m in modules)  # type: ignore[operator]
    if (config.is_encoder_decoder and not encoder) or getattr(config, "add_cross_attention", False):
        raise InputError(f"{kind} attends from one text to another; attend_along is for a single text")
    if getattr(text, "index_topk", None):
        raise InputError(f"{kind} picks by an indexer of its own (index_topk) which tokens attend to which")
    if getattr(config, "token_dropout", False):
        raise InputError(f"{kind} scales all tokens by how many are masked: set token_dropout=False")
    if kind in LEAKING:
        raise InputError(f"{kind} mixes tokens past its attention: {LEAKING[kind]}")
    count = getattr(text, "num_hidden_layers", 0)
    stacks = [m for m in modules if isinstance(m, nn.ModuleList) and len(m) == count]
    inside = (part for stack in stacks for part in stack.modules())
    convolutions = (part for part in inside if isinstance(part, nn.modules.conv._ConvNd))
    if any(size > step for m in convolutions for size, step in zip(m.kernel_size, m.stride, strict=True)):
        raise InputError(f"{kind} has layers with a convolution, which mixes tokens past the graph")
    return stacks


def check_along(model: nn.Module, num_tokens: int = 7) -> None:
    """See that in a copy of a model inside of :func:`attend_along` no token is reached without an edge.

    The embedding of one token is made NaN, on a graph where each attends to itself alone: whoever else turns
    NaN was influenced by it. For models of a single text.

    Raises
    ------
    InputError
        If another token was, or if ``attend_along`` refuses the model.
    """
    whole: Any = copy.deepcopy(_model_in(model)).eval()
    inner, embedding = whole.base_model, whole.get_input_embeddings()
    position = check_count("num_tokens", num_tokens, 2) // 2
    if not isinstance(embedding, nn.Embedding):
        raise InputError(f"check_along is for models of a text; {_kind(inner)} embeds something else")
    middle = torch.tensor([position], device=embedding.weight.device)
    embedding.register_forward_hook(lambda module, args, output: output.index_fill(1, middle, torch.nan))
    ids = torch.arange(1, num_tokens + 1, device=middle.device)[None]
    no_cache = {"use_cache": False} if hasattr(inner.config, "use_cache") else {}
    loops = AttentionGraph.from_cu_seqlens(range(num_tokens + 1)).to(middle.device)
    with torch.no_grad(), torch.random.fork_rng(), attend_along(inner, loops, engine="scatter"):
        states = inner(ids, **no_cache)[0]  # [1, n, d]
    reached = states[0].isnan().any(1).nonzero().flatten().tolist()
    if reached != [position]:
        raise InputError(
            f"in {_kind(inner)} tokens {reached} are influenced by token {position} without an edge"
        )


def _model_in(model: nn.Module) -> nn.Module:
    """Return the model of ``transformers`` in what wraps it."""
    from transformers import AttentionInterface, PreTrainedModel

    modules = list(model.modules()) if isinstance(model, nn.Module) else []
    inner = next((module for module in modules if isinstance(module, PreTrainedModel)), None)
    if inner is None:
        raise TypeError(f"model must be or wrap a model of transformers, got {kind_of(model)}")
    if {m for m in modules if isinstance(m, PreTrainedModel)} - set(inner.modules()):
        raise InputError("model holds several models of transformers: give one")
    files = {type(module).__module__ for module in inner.modules()}
    if not any(isinstance(x, AttentionInterface) for file in files for x in vars(sys.modules[file]).values()):
        raise InputError(f"{inner.config.model_type} does not ask transformers' AttentionInterface")
    return inner


@cache
def _register() -> None:
    """Let every lookup of an attention or mask function, for good, ask whether a ``with`` is open."""
    from transformers import AttentionInterface, AttentionMaskInterface

    if not hasattr(AttentionInterface, "get_interface"):
        raise InputError("attend_along needs transformers 5 or newer")
    if "torch._dynamo" in sys.modules:
        torch._dynamo.reset()  # programs that were compiled before would not ask
    theirs, masks = AttentionInterface.get_interface, AttentionMaskInterface.__getitem__

    def get_interface(self: Any, attn_implementation: str, default: Callable[..., Any]) -> Callable[..., Any]:
        original = theirs(self, attn_implementation, default)
        concerned = _anybodys or (not torch.compiler.is_compiling() and (_last or _mine.get()))
        if not concerned:
            return original
        programs = "torch._dynamo" in sys.modules  # importing it takes a second, and slows what is eager
        return partial(torch.compiler.disable(_attention) if programs else _attention, original)

    def get_mask(self: Any, name: str) -> Callable[..., Any]:
        return partial(_mask, masks(self, name)) if _anybodys else masks(self, name)

    AttentionInterface.get_interface = get_interface
    AttentionMaskInterface.__getitem__ = get_mask


def _attention(original: Callable[..., Any], module: nn.Module, *args: Any, **options: Any) -> Any:
    along = _along_of(module)
    if along is not None:
        return _along_graph(along, module, *args, **options)
    if any(id(getattr(module, "config", None)) in each.configs for each in _open()):
        raise InputError("a model in attend_along has the very config of this one: give each a copy")
    return original(module, *args, **options)


def _along_graph(
    along: _Along,
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    s_aux: Tensor | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """``transformers``' attention function: queries [B, h, n, d] to [B, n, h, d_v]."""
    if sliding_window is None and along.mask_window is not None:  # the model may keep it in its mask alone
        kinds = getattr(getattr(module, "config", None), "layer_types", None)
        kind = kinds[module.layer_idx] if kinds else "sliding_attention"
        if kind == "chunked_attention" and key.shape[2] > along.mask_window:
            raise InputError(f"{type(module).__name__} attends in chunks, which a graph would lose")
        sliding_window = along.mask_window if kind == "sliding_attention" else None
    outputs: Any = sys.modules.get("transformers.utils.output_capturing")
    if outputs is not None and "attentions" in (outputs._active_collector.get() or ()):
        raise InputError("output_attentions would lose the weights: ask attend_along for need_weights=True")
    mask = attention_mask if attention_mask is not None and attention_mask in _paddings else None
    for name, given in {"attention_mask": attention_mask if mask is None else None, **others}.items():
        if given is not None and given is not False and name not in HARMLESS:
            raise InputError(f"{type(module).__name__} has {name}, which attention along a graph would lose")
    if sliding_window is not None and not getattr(module, "is_causal", True):
        raise InputError(
            f"{type(module).__name__} has a sliding_window to both sides: set it to None in each module, "
            "and give graphs by layer that have it"
        )
    output = along.attend(
        module, sliding_window, mask, s_aux, query, key, value, scale=scaling, dropout=dropout
    )
    return output, None


_paddings: MutableMapping[Tensor, Tensor] = WeakTensorKeyDictionary()
"""Of masks [rows, 1, 1, columns] that layers get in a ``with``: columns of padding in each row, [rows]."""


def _marked(mask: Tensor) -> Tensor:
    """The mask as one that layers find their padding by, so that masks of other layers do not count."""
    real = mask.long()
    rises = mask.dim() == 2 and torch.equal(real.cummax(1).values, real)
    if not rises or bool((real.clamp(0, 1) != real).any()):
        raise InputError("attention_mask must pad rows on the left alone, as generate() needs it: 0, then 1")
    if not bool(mask.any(1).all()):
        raise InputError("attention_mask has a row that is padding alone")
    marked = mask.bool()[:, None, None].clone()  # of the dimensions of masks, which some models edit
    _paddings[marked] = real.argmax(1)
    return marked


def _mask(original: Callable[..., Any], *, config: Any, **arguments: Any) -> Any:
    """``transformers``' mask function: in a ``with`` padding alone, if nothing else would be lost."""
    along = next((each for each in _open() if id(config) in each.configs), None)
    if along is None:
        return original(config=config, **arguments)
    along.called, along.mask_window = True, arguments.get("local_size") or along.mask_window
    mask, tokens = arguments.get("attention_mask"), int(arguments.get("q_offset", 0)) + arguments["q_length"]
    if tokens != arguments.get("kv_offset", 0) + arguments["kv_length"]:
        raise InputError(
            f"the cache holds {arguments['kv_length']} keys for {tokens} tokens: use one that grows"
        )
    return None if mask is None or bool(mask.all()) else _marked(mask)
