"""Scores of a model, teacher-forced and by its own decoding."""

from collections.abc import Sequence

from attention_on_edges.corpora.preparation import moses, plain
from attention_on_edges.corpora.text import listed
from attention_on_edges.corpora.text_dataset import TextDataset
from attention_on_edges.decoding import greedy
from attention_on_edges.models.transformer import Transformer
from attention_on_edges.pool import GraphPool
from attention_on_edges.runs.experiment import Experiment, Search
from attention_on_edges.runs.metrics import bleu, chrf, exact_match, token_accuracy, tokenized_bleu
from attention_on_edges.runs.translator import Translator
from attention_on_edges.tasks import TranslationDataset
from attention_on_edges.training import LabelSmoothing, evaluate

BEAM = 5
"""Beam size for the final metrics on text."""

PENALTIES = (0.0, 0.6, 1.0, 1.4, 1.8, 2.2)
"""Length penalties, of which one is chosen on validation."""

Figures = dict[str, float]
"""Figures by name."""


GREEDY = Search()


def figures(
    model: Transformer, data: TranslationDataset, mode: str, limit: int | None = None, search: Search = GREEDY
) -> Figures:
    """Score a model on a split, teacher-forced and by its own decoding.

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
    search : Search
        How text is decoded.
    """
    criterion = LabelSmoothing(data.vocab_size, data.pad_id)
    device = next(model.parameters()).device
    forced, _ = evaluate(model, data(GraphPool(), mode, 250, device), criterion)
    return forced | decoded_figures(model, data, mode, limit, search)


def final_figures(
    experiment: Experiment,
    model: Transformer,
    data: TranslationDataset,
    search: Search = GREEDY,
    limit: int | None = None,
) -> dict[str, Figures]:
    """Score a finished model on each split of ``experiment.tests``."""
    return {mode: figures(model, data, mode, limit, search) for mode in experiment.tests}


def choose_search(model: Transformer, data: TextDataset) -> tuple[Search, Figures]:
    """Choose the length penalty by BLEU on the validation split.

    Returns
    -------
    search : Search
        With the best penalty.
    figures : dict of str to float
        BLEU of each penalty that was tried.
    """
    pairs = data.corpus.splits["valid"]
    references = _plain(data, [target for _, target in pairs])

    def score(penalty: float) -> float:
        found = translate(model, data, [source for source, _ in pairs], Search(BEAM, penalty))
        return bleu(_plain(data, found), references).value

    found = {str(penalty): score(penalty) for penalty in PENALTIES}
    return validated_search(found), found


def validated_search(by_penalty: Figures) -> Search:
    """Return the search whose length penalty has the highest BLEU on validation."""
    return Search(BEAM, float(max(by_penalty, key=lambda penalty: by_penalty[penalty])))


def decoded_figures(
    model: Transformer, data: TranslationDataset, mode: str, limit: int | None = None, search: Search = GREEDY
) -> Figures:
    """Decode a split and score it: text by BLEU and chrF, a toy task by exact match."""
    if isinstance(data, TextDataset):
        return _text_figures(model, data, mode, limit, search)
    pairs = data.splits[mode][:limit]
    predictions = decode(model, data, [source for source, _ in pairs])
    targets = [target for _, target in pairs]
    return {
        "exact_match": exact_match(predictions, targets),
        "token_accuracy": token_accuracy(predictions, targets),
    }


def _text_figures(
    model: Transformer, data: TextDataset, mode: str, limit: int | None, search: Search
) -> Figures:
    """BLEU and chrF of plain text; if published references are tokenised, BLEU on those too.

    Also the share of those references that ours reproduce. Plain text is cased unless the corpus is not.
    """
    pairs = data.corpus.splits[mode][:limit]
    found = translate(model, data, [source for source, _ in pairs], search)
    references = [target for _, target in pairs]
    texts = _plain(data, found), _plain(data, references)
    scores = {"bleu": bleu(*texts).value, "chrf": chrf(*texts).value}
    if mode in data.corpus.tokenised:
        published = [target for _, target in data.corpus.tokenised[mode][:limit]]
        scores["bleu_tokenised"] = tokenized_bleu(tokenised(data, found), published).value
        again = zip(tokenised(data, references), published, strict=True)
        scores["references_reproduced"] = sum(ours == theirs for ours, theirs in again) / len(published)
    return scores


def _plain(data: TextDataset, texts: list[str]) -> list[str]:
    """Return texts of the target's language without the tokenisation of their corpus, if it has one."""
    return plain(texts, data.moses[1]) if data.moses else texts


def tokenised(data: TextDataset, texts: list[str]) -> list[str]:
    """Return texts of the target's language as by ``moses``; those of a prepared corpus are that already."""
    return texts if data.moses else moses(texts, data.corpus.languages[1])


def signatures() -> dict[str, str]:
    """Return sacreBLEU's signature of each score of text."""
    scores = {"bleu": bleu, "chrf": chrf, "bleu_tokenised": tokenized_bleu}
    return {name: score(["a"], ["a"]).signature for name, score in scores.items()}


def translate(
    model: Transformer, data: TextDataset, texts: Sequence[str], search: Search = GREEDY
) -> list[str]:
    """Translate texts, without the guard against loops."""
    found = Translator(model, data.splitter, search)(texts, search.beam, max_repeats=None)
    return [translation.text for translation in found]


def decode(
    model: Transformer, data: TranslationDataset, sources: Sequence[Sequence[str]], batch_size: int = 250
) -> list[list[str]]:
    """Decode symbol sequences greedily, ``batch_size`` at a time."""
    ids = [data.encode(source) for source in listed("sources", sources, (list, tuple))]
    hypotheses = [
        hypothesis
        for first in range(0, len(ids), batch_size)
        for hypothesis in greedy(model, ids[first : first + batch_size], data.sos_id, data.eos_id)
    ]
    return [data.decode(hypothesis.ids) for hypothesis in hypotheses]
