"""The Universal Transformer with adaptive computation time, as message passing on a graph that shrinks."""

from functools import partial

import torch
from torch import Tensor

from attention_on_edges.layers import (
    Embeddings,
    Generator,
    PositionalEncoding,
    draw_weights,
    layer_pair,
    share_matrix,
)
from attention_on_edges.models.halting import HALTING, HaltingUnit, Pondering, Revision, ponder
from attention_on_edges.models.recording import current_recording
from attention_on_edges.models.transformer import Decoder, Encoder, Output, PreFunc, State, Transformer
from attention_on_edges.pool import Batch
from edgewise.graphs import AttentionGraph
from edgewise.propagation import ENGINES
from edgewise.validation import check_bool, check_choice, check_count, check_real


class UTransformer(Transformer):
    """Encoder and decoder of one layer each, applied to each token until it halts (Dehghani et al. 2019).

    At every step the encodings of position and step are added to a token's state. A halted token is still
    attended to, with keys and values that are projected once from its last state, without position and step,
    which copies that state forward; nothing more is computed for it. In :meth:`attention_of` a layer is a
    step, and a token that has halted before it attends to nothing.

    Parameters
    ----------
    encoder, decoder : Encoder, Decoder
        Of one layer.
    src_embed, tgt_embed, pos_enc, generator, engine
        As in :class:`Transformer`.
    time_enc : PositionalEncoding
        Encodes the step, from 0.
    halt_enc, halt_dec : HaltingUnit or None
        Halting units; not needed if ``halting`` is ``"fixed"``.
    max_steps : int
        Most steps per token.
    eps : float
        A token halts when its probabilities sum to ``1 - eps``; in (0, 1).
    halting : str
        ``"act"``: as in :func:`ponder`. ``"fixed"``: after ``max_steps``; the output is the last state.
    ponder_weight : float
        Of :meth:`extra_loss`, at least 0.
    ponder_warmup : int
        Updates of a linear warm-up of that weight.

    Raises
    ------
    TypeError, ValueError
        If an argument is not what it should be.
    """

    def __init__(
        self,
        encoder: Encoder,
        decoder: Decoder,
        src_embed: Embeddings,
        tgt_embed: Embeddings,
        pos_enc: PositionalEncoding,
        time_enc: PositionalEncoding,
        generator: Generator,
        halt_enc: HaltingUnit | None,
        halt_dec: HaltingUnit | None,
        max_steps: int = 8,
        eps: float = 0.01,
        halting: str = "act",
        ponder_weight: float = 0.01,
        ponder_warmup: int = 0,
        engine: str = "auto",
    ):
        super().__init__(encoder, decoder, src_embed, tgt_embed, pos_enc, generator, engine)
        for stack in (encoder, decoder):
            if stack.N != 1:
                raise ValueError(f"encoder and decoder must have one layer each, got {stack.N}")
        check_count("max_steps", max_steps, 1)
        check_choice("halting", halting, HALTING)
        if not 0 < check_real("eps", eps) < 1:
            raise ValueError(f"eps must lie in (0, 1), got {eps!r}")
        if check_real("ponder_weight", ponder_weight) < 0:
            raise ValueError(f"ponder_weight must be a finite number, at least 0, got {ponder_weight!r}")
        check_count("ponder_warmup", ponder_warmup)
        self.time_enc, self.halt_enc, self.halt_dec = time_enc, halt_enc, halt_dec
        self.max_steps, self.eps, self.halting = max_steps, eps, halting
        self.ponder_weight, self.ponder_warmup = ponder_weight, ponder_warmup

    def step_forward(self, positions: Tensor, n: int, rows: Tensor, x: Tensor) -> Tensor:
        """Add the encodings of position and step to states of tokens ``rows``, before step ``n``."""
        position = self.pos_enc(positions.index_select(0, rows))
        time = self.time_enc(positions.new_tensor([n]))
        return self.pos_enc.dropout(x + position.to(x.dtype) + time.to(x.dtype))

    def run(self, batch: Batch) -> Output:
        """Run encoder and decoder, and return the final states with each side's steps and weights."""
        source = self._ponder_source(batch)
        target = self._ponder_target(batch, self.encoder.norm(source.output))
        return Output(self.decoder.norm(target.output), {"enc": source, "dec": target})

    def encode(self, batch: Batch) -> State:
        """Embed the source and revise it until every token has halted."""
        return {"enc": self.encoder.norm(self._ponder_source(batch).output)}

    def decode(self, batch: Batch, state: State) -> State:
        """Embed the target and revise it until every token has halted."""
        return state | {"dec": self.decoder.norm(self._ponder_target(batch, state["enc"]).output)}

    def _ponder_source(self, batch: Batch) -> Pondering:
        ids, positions = batch.src
        return self.until_halted("enc", Encoding(self, batch), self.src_embed(ids), positions)

    def _ponder_target(self, batch: Batch, source: Tensor) -> Pondering:
        ids, positions = batch.tgt
        return self.until_halted("dec", Decoding(self, batch, source), self.tgt_embed(ids), positions)

    def until_halted(self, side: str, revision: Revision, x: Tensor, positions: Tensor) -> Pondering:
        """Revise states [N, dim_model] of tokens at ``positions``, int64 [N], by the model's halting rule.

        ``side`` is ``"enc"`` or ``"dec"``.
        """
        halt = self.halt_enc if side == "enc" else self.halt_dec
        step_forward = partial(self.step_forward, positions)
        return ponder(x, step_forward, revision, halt, self.max_steps, 1 - self.eps)

    def part_of(self, graph: AttentionGraph, rows: Tensor) -> AttentionGraph:
        """Return the graph into some receivers; while attention is recorded, remember its whole."""
        part = graph.select_receivers(rows)
        if (recording := current_recording()) is not None:
            recording.replace(graph, part, rows)
        return part

    def extra_loss(self, output: Output, step: int | None = None) -> Tensor | None:
        """Return the term that a pass adds to the loss per token: the weighted mean of steps plus remainder.

        Parameters
        ----------
        output : Output
            Of the pass.
        step : int, optional
            Updates made so far, for ``ponder_warmup``; the full weight if not given.

        Returns
        -------
        Tensor or None
            Scalar; ``None`` if there is nothing to regularise or the weight is zero.
        """
        weight = self.ponder_weight
        if step is not None and step < self.ponder_warmup:
            weight *= step / self.ponder_warmup
        if self.halting == "fixed" or weight == 0:
            return None
        return weight * torch.cat([side.cost for side in output.pondered.values()]).mean()


class Side:
    """The tokens of one side: the active ones, and everyone's current keys and values.

    Parameters
    ----------
    model : UTransformer
        Whose step this is.
    count : int
        Tokens, N.
    project : callable
        A step's input of active tokens, [A, dim_model], to queries, keys and values.
    project_left : callable
        Last states of halted tokens to keys and values.

    Attributes
    ----------
    keys_values : dict of str to Tensor
        Keys and values of all tokens at the latest step, [N, h, d_k] each.
    """

    def __init__(self, model: UTransformer, count: int, project: PreFunc, project_left: PreFunc):
        self.model, self.count = model, count
        self.project, self.project_left = project, project_left
        self.keys_values: dict[str, Tensor] = {}
        self._left: list[tuple[Tensor, Tensor]] = []
        self._parts: dict[AttentionGraph, AttentionGraph] = {}

    def active(self, graph: AttentionGraph, rows: Tensor) -> AttentionGraph:
        """Return the graph into active tokens only; rebuilt when some have halted."""
        if len(rows) == self.count:
            return graph
        if graph not in self._parts:
            self._parts[graph] = self.model.part_of(graph, rows)
        return self._parts[graph]

    def fields(self, rows: Tensor, y: Tensor) -> dict[str, Tensor]:
        """Queries of the active tokens, and keys and values of all, with those of active tokens updated."""
        fields = self.project(y)
        if len(rows) == self.count:
            self.keys_values = {name: fields[name] for name in "kv"}
            return fields
        fresh = [(rows, fields)] + [(halted, self.project_left(x)) for halted, x in self._left]
        places = torch.cat([place for place, _ in fresh])
        self.keys_values = {
            name: old.index_copy(0, places, torch.cat([fields[name] for _, fields in fresh]))
            for name, old in self.keys_values.items()
        }
        self._left = []
        return fields | self.keys_values

    def leave(self, n: int, rows: Tensor, x: Tensor) -> None:
        """Keep halted tokens' states, whose keys and values replace theirs from the next step on."""
        self._parts = {}
        self._left.append((rows, x))


class Encoding(Side):
    """The encoder's step on the source tokens of a batch."""

    def __init__(self, model: UTransformer, batch: Batch):
        encoder = model.encoder
        super().__init__(model, batch.enc.num_dst, encoder.pre_func(0), encoder.pre_func(0, "kv"))
        self.graph = batch.enc

    def revise(self, n: int, rows: Tensor, y: Tensor) -> Tensor:
        """Self-attention of active tokens, then feed-forward."""
        state = self.model.update_graph(
            self.active(self.graph, rows),
            {"enc": y},
            [(lambda x: self.fields(rows, x), "enc")],
            [(self.model.encoder.post_func(0, norm=False), "enc")],
        )
        return state["enc"]


class Decoding(Side):
    """The decoder's step on the target tokens of a batch; ``source`` is projected once for all steps."""

    def __init__(self, model: UTransformer, batch: Batch, source: Tensor):
        decoder = model.decoder
        super().__init__(model, batch.dec.num_dst, decoder.pre_func(0), decoder.pre_func(0, "kv"))
        self.graph, self.cross = batch.dec, batch.cross
        self.source = decoder.pre_func(0, "kv", 1)(source)

    def revise(self, n: int, rows: Tensor, y: Tensor) -> Tensor:
        """Causal self-attention of active tokens, cross-attention, then feed-forward."""
        model, decoder = self.model, self.model.decoder
        state = model.update_graph(
            self.active(self.graph, rows),
            {"dec": y},
            [(lambda x: self.fields(rows, x), "dec")],
            [(decoder.post_func(0), "dec")],
        )
        state = model.update_graph(
            self.active(self.cross, rows),
            state,
            [(decoder.pre_func(0, "q", 1), "dec"), (lambda _: self.source, "dec")],
            [(decoder.post_func(0, 1, norm=False), "dec")],
        )
        return state["dec"]


def make_universal_model(
    src_vocab: int,
    tgt_vocab: int,
    max_steps: int = 8,
    dim_model: int = 512,
    dim_ff: int = 2048,
    h: int = 8,
    dropout: float = 0.1,
    eps: float = 0.01,
    bias: float = 1.0,
    halting: str = "act",
    ponder_weight: float = 0.01,
    ponder_warmup: int = 0,
    engine: str = "auto",
    norm_first: bool = True,
    shared: bool = False,
) -> UTransformer:
    """Build a Universal Transformer; the defaults are those of DGL's example.

    Parameters
    ----------
    src_vocab, tgt_vocab, dim_model, dim_ff, h, dropout, engine, norm_first, shared
        As in :func:`attention_on_edges.models.transformer.make_model`.
    max_steps, eps, halting, ponder_weight, ponder_warmup
        As in :class:`UTransformer`.
    bias : float
        Initial bias of the halting units.

    Raises
    ------
    TypeError, ValueError
        If an argument is not what it should be; the message says which.
    """
    check_choice("engine", engine, ["auto", *ENGINES, "triton"])
    check_count("src_vocab", src_vocab, 1)
    check_count("tgt_vocab", tgt_vocab, 1)
    encoder_layer, decoder_layer = layer_pair(dim_model, dim_ff, h, dropout, norm_first)
    settings = (max_steps, eps, halting, ponder_weight, ponder_warmup, engine)
    model = UTransformer(
        Encoder(encoder_layer, 1),
        Decoder(decoder_layer, 1),
        Embeddings(src_vocab, dim_model),
        Embeddings(tgt_vocab, dim_model),
        PositionalEncoding(dim_model, dropout),
        PositionalEncoding(dim_model),
        Generator(dim_model, tgt_vocab),
        HaltingUnit(dim_model, bias) if halting != "fixed" else None,
        HaltingUnit(dim_model, bias) if halting != "fixed" else None,
        *settings,
    )
    draw_weights(model)
    if check_bool("shared", shared):
        share_matrix(model)
    return model
