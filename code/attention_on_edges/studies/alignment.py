"""Chapter 9's question: does cross-attention say which word translates which."""

from collections.abc import Sequence
from itertools import product

import numpy as np
import torch

from attention_on_edges.corpora.gold_annotations import AlignedPair
from attention_on_edges.corpora.text_dataset import TextDataset
from attention_on_edges.corpora.tokenization import BPE
from attention_on_edges.layers import evaluating
from attention_on_edges.models.transformer import Transformer
from attention_on_edges.pool import GraphPool
from attention_on_edges.runs.metrics import Links, alignment_error_rate
from attention_on_edges.runs.study_results import Rows
from attention_on_edges.training import LabelSmoothing

Spans = list[range]
"""Places of each word's pieces."""


CHOSEN_ON = 100
"""Number of aligned pairs, the first ones, on which heads are chosen; the others score them."""


def split_words(splitter: BPE, words: Sequence[str]) -> tuple[list[str], Spans]:
    """Split a sentence of words; return its pieces and which of them belong to each word.

    A full stop or comma at a word's end belongs to no word: what attends to it says nothing of the word.
    """
    pieces: list[str] = []
    spans = []
    for word in words:
        found, own = splitter.split(word), splitter.split(word.rstrip(".,") or word)
        if found[: len(own)] != own:  # a piece holds the end of both
            own = found
        spans.append(range(len(pieces), len(pieces) + len(own)))
        pieces += found
    return pieces, spans


def pool_words(weights: np.ndarray, receivers: Spans, senders: Spans) -> np.ndarray:
    """Pool attention between pieces to attention between words.

    Summed over the pieces of the word attended to, averaged over those of the word that attends.

    Parameters
    ----------
    weights : array
        [..., receiving pieces, sending pieces]
    receivers, senders : list of range
        Places of each word's pieces, at least one each.

    Returns
    -------
    array
        [..., receiving words, sending words]
    """
    summed = np.stack([weights[..., list(span)].sum(-1) for span in senders], -1)
    return np.stack([summed[..., list(span), :].mean(-2) for span in receivers], -2)


def links_of(weights: np.ndarray) -> Links:
    """Link each target word to the source word that it attends to most: pairs (source, target).

    Parameters
    ----------
    weights : array
        [target words, source words]
    """
    return {(int(source), target) for target, source in enumerate(np.asarray(weights).argmax(-1))}


def diagonal_links(num_src: int, num_tgt: int) -> Links:
    """Link each target word to the source word at the same relative position: the baseline."""
    last = max(num_tgt - 1, 1)
    return {((2 * target * (num_src - 1) + last) // (2 * last), target) for target in range(num_tgt)}


def measure_alignment(
    model: Transformer, data: TextDataset, pairs: Sequence[AlignedPair], own: str = "test"
) -> Rows:
    """Return alignment error rates of cross-attention, and the model's loss on its own and the aligned text.

    Attention is pooled to words by :func:`~attention_on_edges.studies.pool_words`; a target word is linked
    to the source word that it attends to most: in the rows that predict its pieces (``row`` ``"predicts"``),
    or in those that read them (``"reads"``), one later.

    Returns
    -------
    list of dict
        ``kind`` ``"diagonal"``: the baseline. ``"head"``: one of each layer, row and head, where head
        ``"mean"`` is the mean over heads; ``chosen_on`` is the rate on the first pairs, ``aer`` of the rest.
        ``"loss"``: nats per piece of the model's own test split (named ``own``), and of the aligned pairs.
    """
    splits = {"chosen_on": slice(CHOSEN_ON), "aer": slice(CHOSEN_ON, None)}

    def rates(links: Sequence[Links]) -> dict[str, float]:
        return {
            name: alignment_error_rate(
                links[part], [set(p.sure) for p in pairs[part]], [set(p.possible) for p in pairs[part]]
            )
            for name, part in splits.items()
        }

    diagonal = [diagonal_links(len(pair.source), len(pair.target)) for pair in pairs]
    rows: Rows = [{"kind": "diagonal", "pairs": len(pairs)} | rates(diagonal)]
    attention = [_cross_attention(model, data, pair) for pair in pairs]
    layers, heads = model.decoder.N, model.decoder.layers[0].src_attn.h
    for layer, (row, name) in product(range(layers), enumerate(("predicts", "reads"))):
        for head in (*range(heads), "mean"):
            weights = [x[layer, row].mean(0) if head == "mean" else x[layer, row, head] for x in attention]
            place = {"layer": layer, "row": name, "head": head}
            rows.append({"kind": "head"} | place | rates([links_of(w) for w in weights]))
    home = data.splits[own][:1000]
    there = [[split_words(data.splitter, side)[0] for side in (p.source, p.target)] for p in pairs]
    for name, texts in (("own test", home), ("aligned", there)):
        rows.append({"kind": "loss", "text": name, "nats": _loss(model, data, texts)})
    return rows


def _cross_attention(model: Transformer, data: TextDataset, pair: AlignedPair) -> np.ndarray:
    """Return attention between words [layers, 2, heads, target words, source words]; see above for the 2."""
    (source, src_spans), (target, tgt_spans) = (
        split_words(data.splitter, side) for side in (pair.source, pair.target)
    )
    ids = [data.sos_id, *data.encode(target), data.eos_id]
    batch = GraphPool()([data.encode(source)], [ids])
    found = []
    for layer in range(model.decoder.N):
        weights = model.attention_of(batch, 0, layer)[1].numpy()  # [heads, pieces + 1, pieces]
        found.append([pool_words(rows, tgt_spans, src_spans) for rows in (weights[:, :-1], weights[:, 1:])])
    return np.array(found)


def _loss(model: Transformer, data: TextDataset, pairs: Sequence[Sequence[Sequence[str]]]) -> float:
    """Return the mean loss per target token, in nats."""
    criterion, total, tokens = LabelSmoothing(data.vocab_size, data.pad_id), 0.0, 0
    with evaluating(model), torch.no_grad():
        for first in range(0, len(pairs), 100):
            sources, targets = zip(*pairs[first : first + 100], strict=True)
            ids = [[data.sos_id, *data.encode(target), data.eos_id] for target in targets]
            batch = GraphPool()([data.encode(source) for source in sources], ids)
            total += float(criterion(model(batch), batch.tgt_y))
            tokens += batch.n_tokens
    return total / tokens
