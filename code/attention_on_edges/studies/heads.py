"""Chapter 9's question: which heads does a translator need."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from attention_on_edges.attention import MultiHeadAttention
from attention_on_edges.corpora.text_dataset import TextDataset
from attention_on_edges.layers import evaluating
from attention_on_edges.models.transformer import Transformer
from attention_on_edges.pool import Batch, GraphPool
from attention_on_edges.runs.metrics import bleu
from attention_on_edges.runs.scores import translate
from attention_on_edges.runs.study_results import Rows
from attention_on_edges.studies.bleu import paired_tests
from attention_on_edges.training import LabelSmoothing

GRAPHS = ("enc", "dec", "cross")
"""The three attentions: within the source, within the target, from target to source."""

Place = tuple[str, int]
"""A graph and a layer."""


@dataclass(frozen=True, order=True)
class Head:
    """One head of a model: on which of ``GRAPHS``, in which layer, and its number there, both from 0."""

    graph: str
    layer: int
    number: int

    def __str__(self) -> str:
        return f"{self.graph}, layer {self.layer + 1}, head {self.number + 1}"


def attention_at(model: Transformer, graph: str, layer: int) -> MultiHeadAttention:
    """Return the attention of one layer on one of ``GRAPHS``."""
    stack = model.encoder if graph == "enc" else model.decoder
    return stack.layers[layer].src_attn if graph == "cross" else stack.layers[layer].self_attn


def heads_of(model: Transformer) -> list[Head]:
    """Return all heads of a model, graph by graph, layer by layer."""
    return [
        Head(graph, layer, number)
        for graph in GRAPHS
        for layer in range(model.encoder.N if graph == "enc" else model.decoder.N)
        for number in range(attention_at(model, graph, layer).h)
    ]


@contextmanager
def without_heads(model: Transformer, heads: Collection[Head]) -> Iterator[None]:
    """Prune heads: their outputs are set to zero (Michel et al. 2019, eq. 1).

    The weights are unchanged. Decoding is affected too.
    """
    gates: dict[Place, Tensor] = {}
    for head in heads:
        place = head.graph, head.layer
        attention = attention_at(model, *place)
        ones = torch.ones(attention.h, 1, device=attention.out_proj.weight.device)
        gates.setdefault(place, ones)[head.number] = 0.0
    with _gated(model, gates):
        yield


@contextmanager
def _gated(model: Transformer, gates: Mapping[Place, Tensor]) -> Iterator[None]:
    """Multiply heads' outputs by the gates of their graph and layer, [h, 1] or one for each token."""
    with ExitStack() as hooks:
        for place, gate in gates.items():
            layer = attention_at(model, *place).out_proj
            hooks.callback(layer.register_forward_pre_hook(partial(_scale, gate)).remove)
        yield


def _scale(gate: Tensor, module: torch.nn.Module, inputs: tuple[Tensor]) -> Tensor:
    (x,) = inputs
    return (x.unflatten(-1, (gate.shape[-2], -1)) * gate.to(x.dtype)).flatten(-2)


def importance(model: Transformer, batches: Iterable[Batch], criterion: LabelSmoothing) -> dict[Head, float]:
    r"""Return how much the loss depends on each head (Michel et al. 2019, eq. 2).

    With :math:`a_h(x)` the output of head h on a sentence pair x, and L(x) the pair's loss:

    .. math::
        I_h = \mathrm{mean}_x \bigl| \langle a_h(x), \partial L(x) / \partial a_h(x) \rangle \bigr|

    It is the change of the loss when the head is pruned, to first order.

    Parameters
    ----------
    model : Transformer
        Runs each layer once, without dropout; its parameters and gradients are unchanged.
    batches : iterable of Batch
        Sentence pairs.
    criterion : LabelSmoothing
        The loss.

    Returns
    -------
    dict of Head to float
        In nats, at least 0.
    """
    places = dict.fromkeys((head.graph, head.layer) for head in heads_of(model))
    total, pairs = dict.fromkeys(places, torch.zeros(())), 0
    with evaluating(model), torch.enable_grad():
        for batch in batches:
            lengths = {"enc": batch.src_lengths, "dec": batch.tgt_lengths, "cross": batch.tgt_lengths}
            gates = {
                place: torch.ones(
                    sum(lengths[place[0]]), attention_at(model, *place).h, 1, device=batch.device
                )
                for place in places
            }
            for gate in gates.values():
                gate.requires_grad_()
            with _gated(model, gates):
                loss = criterion(model(batch), batch.tgt_y)
            for place, gradient in zip(places, torch.autograd.grad(loss, [*gates.values()]), strict=True):
                sums = [sentence.sum(0).abs() for sentence in gradient[..., 0].split(lengths[place[0]])]
                total[place] = total[place] + torch.stack(sums).sum(0).cpu()
            pairs += len(batch.src_lengths)
    return {head: float(total[head.graph, head.layer][head.number]) / pairs for head in heads_of(model)}


def measure_pruning(
    model: Transformer, data: TextDataset, split: str = "test2016", step: int = 4, seeds: int = 3
) -> Rows:
    """Return BLEU with each head pruned, and with heads pruned cumulatively in three orders.

    Heads are ranked by :func:`~attention_on_edges.studies.importance` on the validation split; BLEU is that
    of greedy decoding on ``split``. A single head's loss comes with its p-value by :func:`paired_tests`.

    Returns
    -------
    list of dict
        First the whole model's (``kind`` ``"whole"``); for each head one of kind ``"one"``; then, with
        ``kind`` ``"least first"``, ``"most first"`` or ``"random"``, one for each number pruned.
    """
    criterion = LabelSmoothing(data.vocab_size, data.pad_id)
    weight = importance(model, data(GraphPool(), "valid", 100), criterion)
    ranked = sorted(weight, key=lambda head: (weight[head], head))
    sources, references = zip(*data.corpus.splits[split], strict=True)

    def without(heads: list[Head]) -> list[str]:
        with without_heads(model, heads):
            return translate(model, data, sources)

    whole = without([])
    rows: Rows = [{"kind": "whole", "bleu": bleu(whole, references).value, "heads": len(ranked)}]
    heads = heads_of(model)
    found = [without([head]) for head in heads]
    results = paired_tests(whole, found, references)[1:]
    for head, written, result in zip(heads, found, results, strict=True):
        place = {"graph": head.graph, "layer": head.layer, "head": head.number}
        figures = {"importance": weight[head], "bleu": bleu(written, references).value, "p": result.p_value}
        rows.append({"kind": "one"} | place | figures)
    drawn = [np.random.default_rng(seed).permutation(len(ranked)) for seed in range(seeds)]
    orders = [("least first", 0, ranked), ("most first", 0, ranked[::-1])]
    orders += [("random", seed, [ranked[i] for i in order]) for seed, order in enumerate(drawn)]
    for kind, seed, order in orders:
        for count in range(step, len(order) + 1, step):
            score = bleu(without(order[:count]), references).value
            rows.append({"kind": kind, "seed": seed, "removed": count, "bleu": score})
    return rows
