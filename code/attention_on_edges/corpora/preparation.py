"""Chapter 8: text as in Multi30k's published files, lower-cased and Moses-tokenised; and back."""

from collections.abc import Iterable
from dataclasses import replace

from attention_on_edges.corpora import Corpus, Pair
from attention_on_edges.corpora.text import listed

Languages = tuple[str, str]
"""Codes of the source's and the target's language, such as ``("en", "de")``."""


def moses(lines: Iterable[str], language: str) -> list[str]:
    """Lower-case, normalise punctuation and tokenise as Multi30k's published references are."""
    from sacremoses import MosesPunctNormalizer, MosesTokenizer

    normalizer, tokenizer = MosesPunctNormalizer(language), MosesTokenizer(language)
    return [
        tokenizer.tokenize(normalizer.normalize(line.lower()), return_str=True, escape=True)
        for line in listed("lines", lines)
    ]


def plain(lines: Iterable[str], language: str) -> list[str]:
    """Undo the tokenisation of :func:`moses`; what it lower-cased or normalised stays so."""
    from sacremoses import MosesDetokenizer

    detokenize = MosesDetokenizer(language).detokenize
    return [detokenize(line.split()) for line in listed("lines", lines)]


def prepared(corpus: Corpus, languages: Languages) -> Corpus:
    """Return a corpus with every split prepared by :func:`moses`."""

    def prepare(pairs: list[Pair]) -> list[Pair]:
        texts = ([pair[side] for pair in pairs] for side in range(2))
        return list(zip(*map(moses, texts, languages), strict=True))

    return replace(corpus, splits={mode: prepare(pairs) for mode, pairs in corpus.splits.items()})
