"""Chapter 8: a rule-based English-German caption corpus, for examples that must run without any files.

The German needs more than a word list: three genders and cases with their articles and endings, the finite
verb second in main clauses and last in subordinate ones, separable particles at the end, objects before or
after the place depending on definiteness, places in the dative and directions in the accusative.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from attention_on_edges.data.corpora.grammar import Adjective, Clause, Noun, Phrase, Place, Verb
from attention_on_edges.data.corpora.lexicon import (
    ADJECTIVES,
    CLASSES,
    FIXED_CASES,
    MANNERS,
    NOUNS,
    PREPOSITIONS,
    SEEN_OTHERWISE,
    STATES,
    TIMES,
    Scene,
    members,
)
from attention_on_edges.data.corpora.scenes import SCENES
from attention_on_edges.data.corpora.text import Corpus, Pair
from edgewise.validation import check_count

MOST = 100_000
"""Most pairs of one call; the grammar has many more."""

TO_BE = Verb("", "ist", "sind")

PEOPLE = {noun.english for noun in members("people")}

WORN = {noun.english for noun in members("clothes, headgear")}

SIMPLE_SCENES = [scene for scene in SCENES if not (scene.accusative and scene.dative)]

PASSING = ("tired", "happy", "hungry", "ill")
"""Adjectives of temporary states."""

POSTURES = ("sitting", "standing", "lying", "hanging")
"""Verbs that need a place."""

ALWAYS_KNOWN = {noun.english for noun in CLASSES["sites"]}

Item = TypeVar("Item")

Clauses = tuple[Clause, Clause | None, str]
"""One clause, or two and the conjunction that joins them."""


def load(train: int = 9000, valid: int = 500, test: int = 500, seed: int = 0) -> Corpus:
    """Return caption pairs in three splits; no pair, and no English or German sentence, is in two of them.

    Raises
    ------
    TypeError, ValueError
        If a size is no count, or they are more than ``MOST`` together.
    """
    sizes = {"train": train, "valid": valid, "test": test}
    left = iter(captions(sum(check_count(name, size) for name, size in sizes.items()), seed))
    splits = {name: [next(left) for _ in range(size)] for name, size in sizes.items()}
    return Corpus("captions", ("en", "de"), splits, "Made by rule; under this book's own licence.")


def captions(count: int = 5000, seed: int = 0) -> list[Pair]:
    """Return distinct pairs; a shorter list is a prefix of a longer one.

    Parameters
    ----------
    count : int
        How many, at most ``MOST``.
    seed : int
        For the draw.

    Raises
    ------
    TypeError, ValueError
        If one of them is no count, or there are too many.
    """
    return list(clauses_of(count, seed))


def clauses_of(count: int = 5000, seed: int = 0) -> dict[Pair, Clauses]:
    """Return pairs as :func:`captions` does, each with the clauses that it is made of."""
    if check_count("count", count) > MOST:
        raise ValueError(f"count must be at most {MOST}, got {count}")
    drawn = _Draw(check_count("seed", seed)).sentences()
    found: dict[str, tuple[str, Clauses]] = {}
    taken: set[str] = set()
    while len(found) < count:
        clauses = next(drawn)
        english, german = caption(*clauses)
        if english not in found and german not in taken:
            found[english] = german, clauses
            taken.add(german)
    return {(english, german): clauses for english, (german, clauses) in found.items()}


def caption(first: Clause, second: Clause | None = None, joined: str = "") -> Pair:
    """Write one clause, or two joined by ``"and"`` or ``"while"``, as a sentence in both languages."""
    english, german = first.english(), first.german()
    if second is not None and joined == "while":
        english += f" while {second.english()}"
        german += f", während {second.german_subordinate()}"
    elif second is not None:
        english += f" and {second.english()}"
        german += f" und {second.german()}"
    german = german.replace(",,", ",")
    return english[0].upper() + english[1:] + ".", german[0].upper() + german[1:] + "."


class _Draw:
    """Draws captions from a seed; uses ``random.random`` alone, which is the same in every Python version."""

    def __init__(self, seed: int):
        self._random = random.Random(seed).random

    def sentences(self) -> Iterator[Clauses]:
        """Iterate over what captions say, endlessly."""
        while True:
            if self.chance(0.08):
                yield self.state(), None, ""
            elif self.chance(0.12):
                joined = self.one_of(("and", "while"))
                first, second = (self.clause(self.one_of(SIMPLE_SCENES), plain=True) for _ in range(2))
                if self.differ(first, second):
                    yield first, second, joined
            else:
                yield self.clause(self.one_of(SCENES)), None, ""

    def chance(self, probability: float) -> bool:
        return self._random() < probability

    def one_of(self, items: Sequence[Item]) -> Item:
        return items[int(self._random() * len(items))]

    def differ(self, first: Clause, second: Clause) -> bool:
        """Whether two clauses are about two people doing two things."""
        subjects = [phrase.noun for clause in (first, second) for phrase in clause.subject]
        people = all(noun.english in PEOPLE for noun in subjects)
        return people and len(set(subjects)) == len(subjects) and first.verb.english != second.verb.english

    def state(self) -> Clause:
        """Draw a clause that says what somebody or something is like."""
        noun = NOUNS[self.one_of(list(STATES))]
        subject = Phrase(noun, "the", self.chance(0.3))
        time = self.one_of(list(TIMES.items())[:4]) if noun.english in PEOPLE and self.chance(0.4) else None
        state = self.one_of(STATES[noun.english])
        return Clause((subject,), TO_BE, state=state, time=time if state.english in PASSING else None)

    def clause(self, scene: Scene, plain: bool = False) -> Clause:
        """Draw a clause; a plain one is short and its subject comes first and alone."""
        subject = self.subject(scene, plain)
        plural = len(subject) > 1 or subject[0].plural
        taken = {phrase.noun for phrase in subject}
        accusative = self.object(scene, taken, plural, plain) if scene.accusative else None
        dative = self.phrase(self.other(scene.dative, taken), adjective=0.2) if scene.dative else None
        clause = Clause(subject, scene.verb, accusative, dative)
        if scene.directions:
            clause = replace(clause, direction=self.place(self.one_of(scene.directions), towards=True))
        elif scene.places and self.chance(self.placed(scene, plain)):
            clause = replace(clause, place=self.place(self.one_of(scene.places)))
        if scene.manners and self.chance(0.2):
            manner = self.one_of(scene.manners)
            clause = replace(clause, manner=(manner, MANNERS[manner]))
        return clause if plain else self.embellished(clause)

    def placed(self, scene: Scene, plain: bool) -> float:
        """Return the probability that a clause has a place."""
        if scene.verb.english in POSTURES:
            return 1.0
        return 0.3 if plain or (scene.accusative and scene.dative) else 0.75

    def embellished(self, clause: Clause) -> Clause:
        """Draw a time, the first constituent, and a relative clause or modifier of the subject."""
        if self.chance(0.2):
            clause = replace(clause, time=self.one_of(list(TIMES.items())))
            return replace(clause, front="time" if self.chance(0.5) else "")
        if clause.place and clause.accusative is None and self.chance(0.15):
            return replace(clause, front="place")
        person = clause.subject[0]
        alone = len(clause.subject) == 1 and person.noun.english in PEOPLE and person.modifier is None
        wears = clause.accusative is not None and clause.accusative.noun.english in WORN
        if alone and not wears and self.chance(0.15):
            return replace(clause, relative=self.relative(person))
        return clause

    def relative(self, person: Phrase) -> Clause:
        """Draw what a relative clause says: what somebody wears or is like."""
        if self.chance(0.7):
            worn = self.worn(self.one_of(members("clothes, headgear")), person.plural)
            return Clause((person,), Verb("wearing", "trägt", "tragen"), worn)
        states = [s for s in STATES[person.noun.english] if s.english in PASSING and s != person.adjective]
        return Clause((person,), TO_BE, state=self.one_of(states))

    def subject(self, scene: Scene, plain: bool) -> tuple[Phrase, ...]:
        first = self.one_of(scene.who)
        if not plain and len(scene.who) > 1 and self.chance(0.08):
            other = self.other(scene.who, {first})
            second = self.phrase(other, plural=0.0, adjective=0.2)
            return replace(
                self.phrase(first, plural=0.0, adjective=0.2), determiner=second.determiner
            ), second
        phrase = self.phrase(first, plural=0.25, adjective=0.15 if plain else 0.4)
        worn = {noun.english for noun in scene.accusative} & WORN
        if first.english in PEOPLE and not worn and not plain and self.chance(0.12):
            phrase = replace(phrase, modifier=self.attire(phrase.plural))
        return (phrase,)

    def object(self, scene: Scene, taken: set[Noun], plural: bool, plain: bool) -> Phrase:
        noun = self.other(scene.accusative, taken)
        if noun.english in WORN:
            worn = self.worn(noun, plural)
            return replace(worn, determiner="the") if scene.verb.english == "taking off" else worn
        return self.phrase(noun, plural=0.5 if plural else 0.15, adjective=0.15 if plain else 0.4)

    def worn(self, noun: Noun, plural: bool) -> Phrase:
        """Draw a piece of clothing: one if one wears it, several if several do."""
        return Phrase(noun, "" if plural else "a", plural, self.adjective(noun, 0.6))

    def attire(self, plural: bool) -> Place:
        """Draw what somebody is seen with or in."""
        noun = self.one_of(members("clothes, headgear, belongings"))
        preposition = "in" if noun in CLASSES["clothes"] else "with"
        return Place((preposition, PREPOSITIONS[preposition]), self.worn(noun, plural), "dat")

    def other(self, nouns: Sequence[Noun], taken: set[Noun]) -> Noun:
        return self.one_of([noun for noun in nouns if noun not in taken])

    def phrase(self, noun: Noun, plural: float = 0.15, adjective: float = 0.4) -> Phrase:
        several = self.chance(plural)
        some = ("the", "two", "three", "some", "many") if several else ("a", "the")
        return Phrase(noun, self.one_of(some), several, self.adjective(noun, adjective))

    def adjective(self, noun: Noun, probability: float) -> Adjective | None:
        return self.one_of(ADJECTIVES[noun.english]) if self.chance(probability) else None

    def place(self, text: str, towards: bool = False) -> Place:
        """Draw the phrase of a place, which is mostly a known one."""
        preposition, _, name = text.rpartition(" ")
        german = SEEN_OTHERWISE.get((preposition, name), PREPOSITIONS[preposition])
        case = FIXED_CASES.get(german, "acc" if towards else "dat")
        known = name in ALWAYS_KNOWN or self.chance(0.8)
        phrase = Phrase(NOUNS[name], "the" if known else "a", False, self.adjective(NOUNS[name], 0.15))
        return Place((preposition, german), phrase, case)
