"""Models of Hugging Face's transformers on a graph, through their ``AttentionInterface``."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from edgewise.graphs import AttentionGraph
from edgewise.graphs.kept import kept
from edgewise.message_passing import propagate_attention
from edgewise.validation import InputError, kind_of

NAME = "edgewise"
"""The implementation's name in ``transformers``, and where a module keeps what its attention does."""

HARMLESS = {
    "is_causal", "position_ids", "cache_position", "use_cache", "num_items_in_batch",
    "output_hidden_states", "return_dict", "output_router_logits", "logits_to_keep",
}  # fmt: skip
"""What reaches attention and changes nothing there, or is the graph's to say; what is unknown is refused."""

Graphs = AttentionGraph | Callable[[int, int, int], AttentionGraph]
Biases = Tensor | Callable[[int], Tensor]


@contextmanager
def attend_along(
    model: nn.Module, graph: Graphs, edge_bias: Biases | None = None, engine: str = "auto"
) -> Iterator[None]:
    """Let every layer of a model of ``transformers`` attend along a graph, inside of a ``with``.

    ::

        with edgewise.attend_along(model, edgewise.causal([3, 5])):
            logits = model(ids[None], position_ids=places[None], use_cache=False).logits

    The graph says who attends to whom, in place of causality and padding; of its edges, a sliding window of
    the model still leaves out what it always does. Positions remain the model's: packed texts need
    ``position_ids``. The rows of a batch share the graph.

    With a cache, receivers are the new tokens, and senders all tokens in it, the new ones last; a sliding
    layer's cache forgets the oldest, so count from the end. A function makes the graph of each step: ``lambda
    layer, n, m: AttentionGraph.from_cu_seqlens([0, n], [0, m], causal=True)`` is what the model itself does.

    Parameters
    ----------
    model : transformers.PreTrainedModel
        An encoder or a decoder. If it recomputes activations (gradient checkpointing), ``backward`` belongs
        inside of the ``with`` too.
    graph : AttentionGraph or callable
        Over the tokens of a row; or a function of the layer's number, receivers and senders that returns it.
    edge_bias : Tensor or callable, optional
        [E, h], added to every layer's scores; or a function of the layer's number that returns it. Where
        layers have a window, both graph and bias are to be given by layer, within it.
    engine : str
        How attention is executed.

    Raises
    ------
    InputError
        If the model has what would be lost: a soft cap on scores, learned sinks, a bias by position, padding,
        a cache with room to spare; or layers that mix tokens without asking the interface.
    """
    if not hasattr(model, "set_attn_implementation"):
        raise TypeError(f"model must be a model of transformers, got {kind_of(model)}")
    config: Any = model.config
    kind, before, asked = config.model_type, config._attn_implementation, set[int]()
    outer = [(module, module.__dict__.get(NAME)) for module in model.modules()]
    if config.is_encoder_decoder or getattr(config, "add_cross_attention", False):
        raise InputError(f"{kind} attends from one text to another; attend_along is for a single text")
    _register()
    model.set_attn_implementation(NAME)  # type: ignore[operator]
    if config._attn_implementation != NAME:
        raise InputError(f"{kind} does not ask transformers' AttentionInterface")

    def attend(
        layer: int, window: int | None, rows: int, q: Tensor, k: Tensor, v: Tensor, **given: Any
    ) -> Tensor:
        asked.add(layer)
        taken = graph if isinstance(graph, AttentionGraph) else graph(layer, len(q), len(k))
        bias = edge_bias(layer) if callable(edge_bias) else edge_bias
        if window is not None:
            kept = _within(taken, window)
            if bias is not None and kept.num_edges < taken.num_edges:
                raise InputError(f"edge_bias is of edges that the model's window of {window} leaves out")
            taken = taken if bias is not None else kept
        if bias is not None:
            shape = [taken.num_edges, q.shape[1] // rows]
            if list(bias.shape) != shape:
                raise InputError(f"edge_bias must be [E, h] = {shape}, got {list(bias.shape)}")
            bias = bias.repeat(1, rows)  # the rows of a batch, which are heads here, share it
        return propagate_attention(taken, q, k, v, edge_bias=bias, engine=engine, **given)

    try:
        for module in model.modules():
            module.__dict__[NAME] = attend
        yield
    finally:
        for module, was in outer:
            del module.__dict__[NAME]
            if was is not None:
                module.__dict__[NAME] = was
        model.set_attn_implementation(before)  # type: ignore[operator]
    if missing := set(range(config.get_text_config().num_hidden_layers)) - asked:
        raise InputError(f"layers {sorted(missing)} of {kind} did not ask transformers' AttentionInterface")


@kept
def _within(graph: AttentionGraph, window: int) -> AttentionGraph:
    """Without edges from ``window`` places before the receiver, and farther."""
    senders = None if graph.self_attention else [0, graph.num_src]
    near = AttentionGraph.from_cu_seqlens([0, graph.num_dst], senders, window=(window - 1, -1))
    return graph & near.to(graph.device)


def _register() -> None:
    from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register(NAME, _attention)
    AttentionMaskInterface.register(NAME, _mask)


def _attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """``transformers``' attention function: queries [B, h, n, d] to [B, n, h, d_v]."""
    attend = module.__dict__.get(NAME)
    if attend is None:
        raise InputError("this model attends along a graph: call it inside of `with attend_along(...)`")
    for name, given in {"attention_mask": attention_mask, **others}.items():
        if given is not None and given is not False and name not in HARMLESS:
            raise InputError(f"{type(module).__name__} has {name}, which attention along a graph would lose")
    if sliding_window is not None and not getattr(module, "is_causal", True):
        raise InputError(
            f"{type(module).__name__} has a sliding_window to both sides; make it with the graph"
        )
    # Under autocast, rotated queries and keys are float32.
    q, k, v = (x.to(value.dtype).permute(2, 0, 1, 3).flatten(1, 2) for x in (query, key, value))
    output = attend(module.layer_idx, sliding_window, len(query), q, k, v, scale=scaling, dropout=dropout)
    return output.unflatten(1, query.shape[:2]).transpose(0, 1), None


def _mask(
    *,
    q_length: int,
    kv_length: int,
    q_offset: int | Tensor = 0,
    kv_offset: int = 0,
    attention_mask: Tensor | None = None,
    **_: Any,
) -> None:
    """``transformers``' mask function: nothing, if there is nothing that a graph would lose."""
    if attention_mask is not None and not bool(attention_mask.all()):
        raise InputError(
            "attention_mask marks padding, which a graph leaves out: pack the tokens, or cut edges"
        )
    if int(q_offset) + q_length != kv_offset + kv_length:
        raise InputError(
            f"the cache holds {kv_length} keys for {int(q_offset) + q_length} tokens: use one that grows"
        )
