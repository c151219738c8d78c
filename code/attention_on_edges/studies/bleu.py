"""Chapter 8's question: how sure is a translator's BLEU."""

from collections.abc import Mapping, Sequence
from typing import Any

from sacrebleu.metrics import BLEU
from sacrebleu.significance import PairedTest, Result

from attention_on_edges.runs.metrics import paired
from attention_on_edges.runs.study_results import Rows

Translations = Mapping[str, list[str]]
"""Each model's translations of one test set."""


TRIALS, RESAMPLES = 10_000, 1000
"""Of a paired test, and of an interval."""


def measure_bleu(found: Mapping[str, Translations], published: Mapping[str, Sequence[str]]) -> Rows:
    """Return BLEU of several models' translations, lower-cased and tokenised, with bootstrap intervals.

    Parameters
    ----------
    found : mapping
        For each test set each model's translations, tokenised; others are compared with the first.
    published : mapping
        The references of each test set.

    Returns
    -------
    list of dict
        For each ``test`` and ``model``: ``bleu``, half the width of its 95 % ``interval``, ``brevity`` (the
        brevity penalty), and ``p`` of its difference from the first model, which has none.
    """
    rows: Rows = []
    for test, by_model in found.items():
        first, *others = by_model
        systems = [by_model[name] for name in others]
        results = paired_tests(by_model[first], systems, published[test], tokenised=True)
        for name, result in zip(by_model, results, strict=True):
            brevity = _metric(True).corpus_score(by_model[name], [published[test]]).bp
            row = {"test": test, "model": name, "bleu": result.score, "interval": result.ci}
            rows.append(row | {"brevity": brevity, "p": result.p_value})
    return rows


def paired_tests(
    baseline: Sequence[str], systems: list[list[str]], references: Sequence[str], tokenised: bool = False
) -> list[Result]:
    """Return BLEU, half of its 95 % interval, and two-sided p-values of the differences from a baseline.

    Intervals are by bootstrap (Koehn 2004), of 1,000 resamples; p-values by approximate randomisation
    (Riezler and Maxwell 2005), of 10,000 trials. The baseline's result, which has no p-value, comes first.
    """
    for written in (baseline, *systems):
        paired(written, references, str)
    named = [("baseline", baseline), *((str(i), written) for i, written in enumerate(systems))]
    metrics = {"BLEU": _metric(tokenised, references)}
    _, scores = PairedTest(named, metrics, None, "ar", TRIALS, n_ar_confidence=RESAMPLES)()
    results: list[Any] = scores["BLEU"]
    for result in results[1:]:
        if result.score == results[0].score:
            result.p_value = 1.0  # for sacreBLEU, no difference is the most significant
    return results


def _metric(tokenised: bool, references: Sequence[str] | None = None) -> BLEU:
    held = None if references is None else [list(references)]
    return BLEU(tokenize="none" if tokenised else None, force=tokenised, references=held)
