"""What a model can do, by its own decoding."""

from collections.abc import Sequence

import torch

from edgewise.decoding import beam_search, evaluating, greedy
from edgewise.experiments.data import TextDataset
from edgewise.graphs import GraphPool
from edgewise.metrics import bleu, chrf, exact_match, moses, token_accuracy, tokenized_bleu
from edgewise.tasks import TranslationDataset
from edgewise.trainer import StateLossCompute
from edgewise.training import LabelSmoothing, run_epoch
from edgewise.transformer import Transformer

Figures = dict[str, float | str]
"""Figures by name; BLEU's and chrF's signatures are among them."""


def figures(
    model: Transformer, data: TranslationDataset, mode: str, limit: int | None = None, beam: int = 1
) -> Figures:
    """Score a model on a split: given the true tokens before each one, and by its own decoding.

    Parameters
    ----------
    model : Transformer
        Runs without dropout.
    data : TranslationDataset
        Holds the split.
    mode : str
        Which split.
    limit : int, optional
        Sequences to decode, the first ones; all if not given.
    beam : int
        Beginnings kept in decoding; one is greedy.
    """
    criterion = LabelSmoothing(data.vocab_size, data.pad_id)
    loss = StateLossCompute(model.generator, criterion)
    device = next(model.parameters()).device
    with evaluating(model), torch.no_grad():
        run_epoch(data(GraphPool(), mode, 250, device), model.hidden, loss, is_train=False)
    forced = {"loss": loss.avg_loss, "accuracy": loss.accuracy}
    return forced | decoded_figures(model, data, mode, limit, beam)


def decoded_figures(
    model: Transformer, data: TranslationDataset, mode: str, limit: int | None = None, beam: int = 1
) -> Figures:
    """Decode a split and score it: text by BLEU and chrF, a toy task by what is exactly right."""
    if isinstance(data, TextDataset):
        return _text_figures(model, data, mode, limit, beam)
    pairs = data.splits[mode][:limit]
    predictions = decode(model, data, [source for source, _ in pairs], beam)
    targets = [target for _, target in pairs]
    return {
        "exact_match": exact_match(predictions, targets),
        "token_accuracy": token_accuracy(predictions, targets),
    }


def _text_figures(model: Transformer, data: TextDataset, mode: str, limit: int | None, beam: int) -> Figures:
    """Cased BLEU and chrF of plain text; where published references are tokenised, BLEU on those too."""
    pairs = data.corpus.splits[mode][:limit]
    found = translate(model, data, [source for source, _ in pairs], beam)
    references = [target for _, target in pairs]
    cased, characters = bleu(found, references), chrf(found, references)
    scores = {"bleu": cased.value, "bleu_signature": cased.signature}
    scores |= {"chrf": characters.value, "chrf_signature": characters.signature}
    if mode in data.corpus.tokenised:
        published = [target for _, target in data.corpus.tokenised[mode][:limit]]
        lowered = tokenized_bleu(moses(found, data.corpus.languages[1]), published)
        scores |= {"bleu_tokenised": lowered.value, "bleu_tokenised_signature": lowered.signature}
    return scores


def translate(
    model: Transformer, data: TextDataset, texts: Sequence[str], beam: int = 5, length_penalty: float = 0.6
) -> list[str]:
    """Translate texts; each is a source of its own."""
    sources = [data.splitter.split(text) for text in texts]
    return [data.splitter.join(found) for found in decode(model, data, sources, beam, length_penalty)]


def decode(
    model: Transformer,
    data: TranslationDataset,
    sources: Sequence[Sequence[str]],
    beam: int = 1,
    length_penalty: float = 0.6,
    batch_size: int = 250,
) -> list[list[str]]:
    """Decode symbol sequences, ``batch_size`` at a time, those of similar length together."""
    ids = [data.encode(source) for source in sources]
    order = sorted(range(len(ids)), key=lambda i: len(ids[i]))
    found: dict[int, list[str]] = {}
    for first in range(0, len(order), batch_size):
        part = order[first : first + batch_size]
        batch = [ids[i] for i in part]
        if beam == 1:
            hypotheses = greedy(model, batch, data.sos_id, data.eos_id)
        else:
            lists = beam_search(model, batch, data.sos_id, data.eos_id, beam, length_penalty)
            hypotheses = [hypotheses[0] for hypotheses in lists]
        found |= {i: data.decode(h.ids) for i, h in zip(part, hypotheses, strict=True)}
    return [found[i] for i in range(len(ids))]
