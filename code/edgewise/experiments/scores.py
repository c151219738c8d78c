"""What a model can do, by its own decoding."""

from collections.abc import Sequence

import torch
from torch import Tensor

from edgewise.adaptive import StepCount
from edgewise.decoding import greedy
from edgewise.experiments.catalogue import Experiment
from edgewise.experiments.data import TextDataset
from edgewise.experiments.translator import Translator
from edgewise.graphs import Batch, GraphPool
from edgewise.layers import evaluating
from edgewise.metrics import bleu, chrf, exact_match, moses, token_accuracy, tokenized_bleu
from edgewise.tasks import TranslationDataset
from edgewise.trainer import StateLossCompute
from edgewise.training import LabelSmoothing, run_epoch
from edgewise.transformer import Transformer

BEAM = 5
"""Beginnings kept where the final figures on text are worked out."""

Figures = dict[str, float]
"""Figures by name."""


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
        Beginnings kept in decoding text; one is greedy. A toy task is decoded greedily.
    """
    criterion = LabelSmoothing(data.vocab_size, data.pad_id)
    loss = StateLossCompute(model.generator, criterion)
    device, counted = next(model.parameters()).device, StepCount()

    def states(batch: Batch) -> Tensor:
        hidden = model.hidden(batch)
        counted.add(model.pondered)
        return hidden

    with evaluating(model), torch.no_grad():
        run_epoch(data(GraphPool(), mode, 250, device), states, loss, is_train=False)
    forced = {"loss": loss.avg_loss, "accuracy": loss.accuracy} | counted.figures
    return forced | decoded_figures(model, data, mode, limit, beam)


def final_figures(
    experiment: Experiment, model: Transformer, data: TranslationDataset, limit: int | None = None
) -> dict[str, Figures]:
    """Score a finished model on each split of ``experiment.tests``; text with a beam of ``BEAM``."""
    beam = BEAM if experiment.text else 1
    return {mode: figures(model, data, mode, limit, beam) for mode in experiment.tests}


def decoded_figures(
    model: Transformer, data: TranslationDataset, mode: str, limit: int | None = None, beam: int = 1
) -> Figures:
    """Decode a split and score it: text by BLEU and chrF, a toy task by what is exactly right."""
    if isinstance(data, TextDataset):
        return _text_figures(model, data, mode, limit, beam)
    pairs = data.splits[mode][:limit]
    predictions = decode(model, data, [source for source, _ in pairs])
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
    scores = {"bleu": bleu(found, references).value, "chrf": chrf(found, references).value}
    if mode in data.corpus.tokenised:
        published = [target for _, target in data.corpus.tokenised[mode][:limit]]
        lowered = moses(found, data.corpus.languages[1])
        scores["bleu_tokenised"] = tokenized_bleu(lowered, published).value
    return scores


def signatures() -> dict[str, str]:
    """Return how sacreBLEU describes each of the scores of text."""
    scores = {"bleu": bleu, "chrf": chrf, "bleu_tokenised": tokenized_bleu}
    return {name: score(["a"], ["a"]).signature for name, score in scores.items()}


def translate(
    model: Transformer, data: TextDataset, texts: Sequence[str], beam: int = 5, length_penalty: float = 0.6
) -> list[str]:
    """Translate texts; each is a source of its own."""
    found = Translator(model, data.splitter)(texts, beam, length_penalty)
    return [best.text for best, *_ in found]


def decode(
    model: Transformer, data: TranslationDataset, sources: Sequence[Sequence[str]], batch_size: int = 250
) -> list[list[str]]:
    """Decode symbol sequences greedily, ``batch_size`` at a time."""
    ids = [data.encode(source) for source in sources]
    hypotheses = [
        hypothesis
        for first in range(0, len(ids), batch_size)
        for hypothesis in greedy(model, ids[first : first + batch_size], data.sos_id, data.eos_id)
    ]
    return [data.decode(hypothesis.ids) for hypothesis in hypotheses]
