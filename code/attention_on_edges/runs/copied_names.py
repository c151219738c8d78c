"""Chapter 8: names and numbers copied from a text into its translation, along the heaviest edges."""

from collections.abc import Sequence

from torch import Tensor

from attention_on_edges.corpora.tokenization import BPE

DOUBT = 0.5
"""A translation's word may be replaced if the model gives one of its pieces a lower probability."""


def lost_names(splitter: BPE, source: Sequence[str], target: Sequence[str]) -> list[int]:
    """Return which words of a text are names or numbers that its translation does not have.

    They begin with a digit or, if the tokeniser splits them in any case of letters, with a capital.

    Parameters
    ----------
    splitter : BPE
        Whose pieces these are.
    source, target : sequence of str
        Pieces of the text and of its translation.
    """
    there = {word.strip() for word, _ in splitter.words_of(target)}
    words = [word.strip() for word, _ in splitter.words_of(source)]
    return [i for i, word in enumerate(words) if word not in there and _is_name_or_number(word, splitter)]


def _is_name_or_number(word: str, splitter: BPE) -> bool:
    if word[:1].isdigit():
        return True
    rare = all(len(splitter.split(form)) > 1 for form in (word, word.lower()))
    return rare and word[:1].isupper() and not word.isupper()


def copy_names(
    splitter: BPE,
    source: Sequence[str],
    target: Sequence[str],
    lost: Sequence[int],
    weights: Tensor,
    probabilities: Sequence[float],
) -> str:
    """Return a translation into which lost names and numbers are copied.

    As Jean et al. 2015, section 3.3, replace unknown words: each takes the place of the word whose heaviest
    edge comes from it, if the model doubts that word (``DOUBT``); of several such words, the one with the
    heaviest edge. A name from which no such edge comes stays lost.

    Parameters
    ----------
    splitter : BPE
        Whose pieces these are.
    source, target : sequence of str
        Pieces of the text and of its translation.
    lost : sequence of int
        As :func:`lost_names` returns.
    weights : Tensor [pieces of the translation, pieces of the text]
        Attention in the rows that predict the pieces.
    probabilities : sequence of float
        Of the translation's pieces.
    """
    senders, receivers = splitter.words_of(source), splitter.words_of(target)
    names = {word.strip() for word, _ in senders}
    words = [word for word, _ in receivers]
    taken: dict[int, tuple[float, int]] = {}
    for place, (word, pieces) in enumerate(receivers):
        if not word[-1:].isalnum() or word.strip() in names or min(probabilities[pieces]) >= DOUBT:
            continue
        weight, sender = max(
            (float(weights[pieces, at].sum(1).mean()), number) for number, (_, at) in enumerate(senders)
        )
        if sender in lost and weight > taken.get(sender, (0.0, place))[0]:
            taken[sender] = weight, place
    for sender, (_, place) in taken.items():
        space = " " if words[place].startswith(" ") else ""
        words[place] = space + senders[sender][0].strip()
    return "".join(words).removeprefix(" ")
