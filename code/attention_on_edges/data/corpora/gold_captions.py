"""Chapter 9: word alignments and parses of the caption corpus, which its grammar knows.

Each noun, verb, ... of a clause is given a mark, a character of Unicode's private use area; the grammar
writes the mark wherever it writes the word, in both languages.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import NamedTuple

from attention_on_edges.data.corpora.annotated import AlignedPair, Link, Parse
from attention_on_edges.data.corpora.captions import Clauses, caption, clauses_of
from attention_on_edges.data.corpora.grammar import Adjective, Clause, Phrase, Place, Verb

FIRST_MARK = 0xE000

SUBORDINATE = ("advcl", "acl:relcl")
"""Relations of the clauses whose finite verb comes last in German."""

FUNCTION_WORDS = {"the": "det", "this": "det", "ice": "compound"} | dict.fromkeys(
    ("for", "at", "to", "after", "before", "on"), "case"
)
"""Relations of what is not the head of an expression of several words."""

PARTICLES = ("up", "on", "off", "away")

Key = tuple[str, int]
"""A role and the unit that it belongs to; words of both languages with one key translate each other."""


class _Unit(NamedTuple):
    """What is marked: a noun, an adjective, a preposition, an adverbial or a predicate."""

    kind: str
    relation: str
    head: int | None  # the unit that governs it


def gold_captions(count: int, seed: int = 0) -> list[tuple[AlignedPair, Parse]]:
    """Return captions with their alignment and the parse of the English side.

    Words are what spaces separate, with the punctuation that follows them. The parse is in the style of
    Universal Dependencies: prepositions, articles, auxiliaries and conjunctions depend on content words, a
    verb's particle on the verb. Words of one meaning are linked for sure; what a phrase of several words
    shares with one of another length, an auxiliary with the finite verb, and an article with the preposition
    that contains it, is possible.

    Parameters
    ----------
    count, seed : int
        As for :func:`~attention_on_edges.data.corpora.captions.captions`.

    Raises
    ------
    TypeError, ValueError
        Likewise.
    """
    return [_annotate(pair, clauses) for pair, clauses in clauses_of(count, seed).items()]


def _annotate(pair: tuple[str, str], clauses: Clauses) -> tuple[AlignedPair, Parse]:
    marks = _Marks()
    marked = caption(*marks.sentence(*clauses))
    english, german = (_roles(text.split(), marks.units, clauses[2]) for text in marked)
    words = [tuple(text.split()) for text in pair]
    sure, possible = _links(english, german, marks.units)
    heads, relations = _parse(words[0], english, marks.units)
    aligned = AlignedPair(words[0], words[1], frozenset(sure), frozenset(sure | possible))
    return aligned, Parse(words[0], heads, relations)


class _Marks:
    """Marks the words of clauses, and remembers what each mark stands for."""

    def __init__(self) -> None:
        self.units: list[_Unit] = []

    def sentence(self, first: Clause, second: Clause | None, joined: str) -> Clauses:
        marked = self.clause(first, "root", None)
        relation = "conj" if joined == "and" else "advcl"
        return marked, second and self.clause(second, relation, 0), joined

    def clause(self, clause: Clause, relation: str, head: int | None) -> Clause:
        verb = len(self.units)
        mark = self.unit("predicate", relation, head)
        subject = [self.phrase(clause.subject[0], "nsubj", verb)]
        noun = verb + 1
        subject += [self.phrase(phrase, "conj", noun) for phrase in clause.subject[1:]]
        said = _verb(clause.verb, mark) if clause.state is None else clause.verb
        return replace(
            clause,
            subject=tuple(subject),
            verb=said,
            state=clause.state and _adjective(clause.state, mark),
            accusative=clause.accusative and self.phrase(clause.accusative, "obj", verb),
            dative=clause.dative and self.phrase(clause.dative, "iobj" if clause.accusative else "obj", verb),
            manner=clause.manner and self.adverbial(clause.manner, verb),
            time=clause.time and self.adverbial(clause.time, verb),
            place=clause.place and self.place(clause.place, "obl", verb),
            direction=clause.direction and self.place(clause.direction, "obl", verb),
            relative=clause.relative and self.relative(clause.relative, noun),
        )

    def relative(self, clause: Clause, noun: int) -> Clause:
        """Mark a relative clause, whose subject is not written again."""
        return replace(self.clause(clause, "acl:relcl", noun), subject=clause.subject)

    def phrase(self, phrase: Phrase, relation: str, head: int) -> Phrase:
        noun, place = phrase.noun, len(self.units)
        mark = self.unit("noun", relation, head)
        return replace(
            phrase,
            noun=replace(
                noun,
                english=noun.english + mark,
                english_plural=noun.english_plural + mark,
                german=mark + noun.german,
                german_plural=mark + noun.german_plural,
            ),
            adjective=phrase.adjective
            and _adjective(phrase.adjective, self.unit("adjective", "amod", place)),
            modifier=phrase.modifier and self.place(phrase.modifier, "nmod", place),
        )

    def place(self, place: Place, relation: str, head: int) -> Place:
        noun = len(self.units)
        phrase = self.phrase(place.phrase, relation, head)
        mark = self.unit("preposition", "case", noun)
        return replace(place, preposition=_both(place.preposition, mark), phrase=phrase)

    def adverbial(self, texts: tuple[str, str], head: int) -> tuple[str, str]:
        return _both(texts, self.unit("adverbial", "advmod", head))

    def unit(self, kind: str, relation: str, head: int | None) -> str:
        self.units.append(_Unit(kind, relation, head))
        return chr(FIRST_MARK + len(self.units) - 1)


def _both(texts: tuple[str, str], mark: str) -> tuple[str, str]:
    """Mark each word: in English after it, since *a* depends on its beginning; in German its ending does."""
    english, german = (text.split() for text in texts)
    return " ".join(word + mark for word in english), " ".join(mark + word for word in german)


def _adjective(adjective: Adjective, mark: str) -> Adjective:
    return replace(adjective, english=adjective.english + mark, german=mark + adjective.german)


def _verb(verb: Verb, mark: str) -> Verb:
    english, _ = _both((verb.english, ""), mark)
    particle = mark + verb.particle if verb.particle else ""
    return Verb(english, mark + verb.singular, mark + verb.plural, particle)


def _roles(words: Sequence[str], units: Sequence[_Unit], joined: str) -> list[Key]:
    """Return each word's key: a marked word is its unit, the others belong to a unit near them."""
    marks = [next((ord(c) - FIRST_MARK for c in word if ord(c) >= FIRST_MARK), None) for word in words]

    def nearest(i: int, kind: str) -> int:
        return next(mark for mark in marks[i + 1 :] if mark is not None and units[mark].kind == kind)

    roles: list[Key] = []
    for i, (word, mark) in enumerate(zip(words, marks, strict=True)):
        text = word.strip(".,").lower()
        before = marks[i - 1] if i else None
        if mark is not None:
            roles.append(("word", mark))
        elif text in ("is", "are", "ist", "sind"):
            late = text in ("ist", "sind") and before is not None and units[before].kind == "predicate"
            roles.append(("verb", before if late and before is not None else nearest(i, "predicate")))
        elif text == "who" or (i and words[i - 1].endswith(",") and text in ("der", "die", "das")):
            predicates = [m for m in marks[i + 1 :] if m is not None and units[m].relation == "acl:relcl"]
            roles.append(("who", predicates[0]))
        elif text in ("and", "und", "while", "während"):
            roles.append(("joined", nearest(i, "predicate" if joined else "noun")))
        else:
            roles.append(("article", nearest(i, "noun")))
    return roles


def _links(english: list[Key], german: list[Key], units: Sequence[_Unit]) -> tuple[set[Link], set[Link]]:
    """Return links that are sure and links that are possible only."""
    sure: set[Link] = set()
    possible: set[Link] = set()
    places: tuple[dict[Key, list[int]], dict[Key, list[int]]] = (defaultdict(list), defaultdict(list))
    for side, roles in zip(places, (english, german), strict=True):
        for i, key in enumerate(roles):
            side[key].append(i)
    for key, here in places[0].items():
        role, unit = key
        there = places[1].get(key, [])
        if role == "word" and units[unit].relation in SUBORDINATE:
            there = there[::-1]  # the finite verb first, as in English
        possible.update(product(here, there))
        if len(here) == len(there):
            sure.update(zip(here, there, strict=True))
        elif there and units[unit].kind != "preposition":
            end = 0 if units[unit].kind == "predicate" else -1
            sure.add((here[end], there[end]))
        elif not there and role == "verb":  # "is", which is in the German verb's ending
            finite = -1 if units[unit].relation in SUBORDINATE else 0
            possible.update((i, places[1]["word", unit][finite]) for i in here)
        elif not there and role == "article":  # "the", which German has put into "im"
            governing = [u for u, other in enumerate(units) if other == _Unit("preposition", "case", unit)]
            possible.update(product(here, (i for u in governing for i in places[1]["word", u])))
    return sure, possible


def _parse(
    words: Sequence[str], roles: list[Key], units: Sequence[_Unit]
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Return each English word's head and its relation to it."""
    places: dict[int, list[int]] = defaultdict(list)
    for i, (role, unit) in enumerate(roles):
        if role == "word":
            places[unit].append(i)
    first = ("predicate", "preposition")
    top = {unit: some[0 if units[unit].kind in first else -1] for unit, some in places.items()}
    names = {"article": "det", "verb": "aux", "who": "nsubj"}
    heads, relations = [], []
    for i, (role, unit) in enumerate(roles):
        text = words[i].strip(".,").lower()
        if role == "joined":
            found = top[unit], "mark" if text == "while" else "cc"
        elif role != "word":
            found = top[unit], names[role]
        elif i == top[unit]:
            head = units[unit].head
            found = -1 if head is None else top[head], units[unit].relation
        elif units[unit].kind == "preposition":  # "in front of"
            found = top[unit], "fixed"
        elif units[unit].kind == "predicate" and i == places[unit][-1]:
            found = _end_of_predicate(text, unit, units, top)
        else:
            found = places[unit][-1], FUNCTION_WORDS[text]
        heads.append(found[0])
        relations.append(found[1])
    return tuple(heads), tuple(relations)


def _end_of_predicate(text: str, unit: int, units: Sequence[_Unit], top: dict[int, int]) -> tuple[int, str]:
    """Return head and relation of the last word of "getting up", "looking for" or "playing cards"."""
    objects = [u for u, other in enumerate(units) if other.head == unit and other.relation == "obj"]
    if text in PARTICLES:
        return top[unit], "compound:prt"
    if FUNCTION_WORDS.get(text) == "case":
        return top[objects[0]], "case"
    return top[unit], "obj"
