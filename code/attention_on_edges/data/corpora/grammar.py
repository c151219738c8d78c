"""Noun phrases and clauses in English and German: the grammar behind the caption corpus.

Cases are ``"nom"``, ``"acc"`` and ``"dat"``; genders ``"m"``, ``"f"`` and ``"n"``.
"""

from dataclasses import dataclass, replace

ARTICLES = {
    "the": {"nom": "der die das die", "acc": "den die das die", "dat": "dem der dem den"},
    "a": {"nom": "ein eine ein", "acc": "einen eine ein", "dat": "einem einer einem"},
}
"""By case, for masculine, feminine, neuter and, where it exists, plural."""

ENDINGS = {
    "the": {"nom": "e e e en", "acc": "en e e en", "dat": "en en en en"},
    "a": {"nom": "er e es", "acc": "en e es", "dat": "en en en"},
    "": {"nom": "er e es e", "acc": "en e es e", "dat": "em er em en"},
}
"""Of adjectives after ``the``, after ``a`` and after anything else, ordered likewise."""

QUANTITIES = {"two": "zwei", "three": "drei", "four": "vier", "some": "einige", "many": "viele", "": ""}
"""Words before a plural noun; adjectives after them end as after none, but some decline themselves."""

CONTRACTIONS = {
    "in dem": "im",
    "in das": "ins",
    "an dem": "am",
    "an das": "ans",
    "von dem": "vom",
    "zu dem": "zum",
    "zu der": "zur",
}


@dataclass(frozen=True)
class Noun:
    """A noun in both languages.

    Attributes
    ----------
    english, english_plural : str
        Its forms in English.
    german, german_plural : str
        Its nominative forms in German.
    gender : str
        ``"m"``, ``"f"`` or ``"n"``.
    weak : bool
        Whether it takes the plural's form in every case of the singular but the nominative.
    """

    english: str
    english_plural: str
    german: str
    german_plural: str
    gender: str
    weak: bool = False

    def form(self, case: str, plural: bool) -> str:
        """Return its German form."""
        if plural:
            takes_n = case == "dat" and self.german_plural[-1] not in "ns"
            return self.german_plural + "n" * takes_n
        return self.german_plural if self.weak and case != "nom" else self.german


@dataclass(frozen=True)
class Adjective:
    """An adjective in both languages, in its predicative form."""

    english: str
    german: str

    def form(self, ending: str) -> str:
        """Return its German form before a noun."""
        return self.german.removesuffix("e") + ending


@dataclass(frozen=True)
class Phrase:
    """A noun with what belongs to it.

    Attributes
    ----------
    noun : Noun
        Its head.
    determiner : str
        ``"the"``, ``"a"``, one of ``QUANTITIES``, or nothing before a plural.
    plural : bool
        Its number.
    adjective : Adjective, optional
        Stands before the noun.
    modifier : Place, optional
        Stands after it: *with a red hat*.
    """

    noun: Noun
    determiner: str = "the"
    plural: bool = False
    adjective: Adjective | None = None
    modifier: "Place | None" = None

    @property
    def definite(self) -> bool:
        """Whether it is something known."""
        return self.determiner == "the"

    def english(self) -> str:
        """Return it in English."""
        noun = self.noun.english_plural if self.plural else self.noun.english
        words = [self.adjective.english, noun] if self.adjective else [noun]
        determiner = "an" if self.determiner == "a" and words[0][0] in "aeiou" else self.determiner
        words += [self.modifier.english()] if self.modifier else []
        return " ".join([determiner, *words]).strip()

    def german(self, case: str) -> str:
        """Return it in German."""
        column = 3 if self.plural else "mfn".index(self.noun.gender)
        if self.determiner in ARTICLES:
            words = [ARTICLES[self.determiner][case].split()[column]]
        else:
            words = [QUANTITIES[self.determiner]]
            if self.determiner in ("some", "many") and case == "dat":
                words[0] += "n"
        if self.adjective:
            endings = ENDINGS.get(self.determiner, ENDINGS[""])
            words.append(self.adjective.form(endings[case].split()[column]))
        words.append(self.noun.form(case, self.plural))
        words += [self.modifier.german()] if self.modifier else []
        return " ".join(words).strip()

    def pronoun(self) -> str:
        """Return the relative pronoun for it as a subject."""
        return "die" if self.plural else {"m": "der", "f": "die", "n": "das"}[self.noun.gender]


@dataclass(frozen=True)
class Place:
    """A preposition in both languages with its phrase.

    Attributes
    ----------
    preposition : tuple of str
        In English and German.
    phrase : Phrase
        What it governs.
    case : str
        In which case: ``"dat"`` where something is, ``"acc"`` where it goes, for prepositions that know both.
    """

    preposition: tuple[str, str]
    phrase: Phrase
    case: str

    def english(self) -> str:
        """Return it in English."""
        return f"{self.preposition[0]} {self.phrase.english()}"

    def german(self) -> str:
        """Return it in German, preposition and article contracted."""
        text = f"{self.preposition[1]} {self.phrase.german(self.case)}"
        for apart, contracted in CONTRACTIONS.items() if self.phrase.definite else ():
            if f"{apart} " in text:
                return text.replace(f"{apart} ", f"{contracted} ", 1)
        return text


@dataclass(frozen=True)
class Verb:
    """A verb in both languages.

    Attributes
    ----------
    english : str
        Its present participle and what belongs to it: *picking up*.
    singular, plural : str
        The third person of its German present tense.
    particle : str
        What German puts at the end of a main clause: *auf*; with a space at its end if it is a word of its
        own even where the verb follows it: *Fußball*.
    """

    english: str
    singular: str
    plural: str
    particle: str = ""


@dataclass(frozen=True)
class Clause:
    """Who does what to whom, when and where.

    Attributes
    ----------
    subject : tuple of Phrase
        One phrase, or two joined by *and*.
    verb : Verb
        What they do.
    accusative, dative : Phrase, optional
        Its objects.
    manner, time : tuple of str, optional
        Adverbials in English and German.
    place, direction : Place, optional
        Where, and where to.
    front : str
        ``"time"`` or ``"place"`` if that comes first, else the subject does.
    relative : Clause, optional
        Says more about the subject, whose place in it stays empty.
    state : Adjective, optional
        What they are, in place of a participle; the verb is then *to be*.
    """

    subject: tuple[Phrase, ...]
    verb: Verb
    accusative: Phrase | None = None
    dative: Phrase | None = None
    manner: tuple[str, str] | None = None
    time: tuple[str, str] | None = None
    place: Place | None = None
    direction: Place | None = None
    front: str = ""
    relative: "Clause | None" = None
    state: Adjective | None = None

    @property
    def plural(self) -> bool:
        """Number of its verb."""
        return len(self.subject) > 1 or self.subject[0].plural

    def english(self) -> str:
        """Return it in English, without a full stop."""
        time, place = self.time and self.time[0], self.place and self.place.english()
        subject = " and ".join(phrase.english() for phrase in self.subject)
        if self.relative:
            subject += f" who {self.relative._english_predicate()}"
        body = replace(self, **{self.front: None}) if self.front else self
        first = {"time": time, "place": place}.get(self.front)
        return (f"{first}, " if first else "") + f"{subject} {body._english_predicate()}"

    def _english_predicate(self) -> str:
        parts = ["are" if self.plural else "is", *(self.manner or ())[:1]]
        parts.append(self.state.english if self.state else self.verb.english)
        parts += [phrase.english() for phrase in (self.dative, self.accusative) if phrase]
        parts += [place.english() for place in (self.direction, self.place) if place]
        parts += [self.time[0]] if self.time else []
        return " ".join(parts)

    def german(self) -> str:
        """Return it in German as a main clause, the finite verb second."""
        subject = " und ".join(phrase.german("nom") for phrase in self.subject)
        if self.relative:
            subject += f", {self.subject[0].pronoun()} {self.relative._german_end()},"
        middle = replace(self, **{self.front: None})._middle() if self.front else self._middle()
        first = {"time": self.time and self.time[1], "place": self.place and self.place.german()}.get(
            self.front
        )
        fields = [first, self._finite(), subject] if first else [subject, self._finite()]
        return " ".join([*fields, *middle, self.verb.particle]).strip()

    def german_subordinate(self) -> str:
        """Return it in German as a subordinate clause, the finite verb last and joined to its particle."""
        return f"{' und '.join(phrase.german('nom') for phrase in self.subject)} {self._german_end()}"

    def _german_end(self) -> str:
        return " ".join([*self._middle(), self.verb.particle + self._finite()])

    def _finite(self) -> str:
        return self.verb.plural if self.plural else self.verb.singular

    def _middle(self) -> list[str]:
        """Definite objects come before the place, indefinite ones after it; directions come last."""
        known, new = {}, {}
        for case, phrase in (("dat", self.dative), ("acc", self.accusative)):
            if phrase:
                (known if phrase.definite else new)[case] = phrase.german(case)
        parts = [
            self.time and self.time[1],
            known.get("dat"),
            self.manner and self.manner[1],
            known.get("acc"),
            self.place and self.place.german(),
            new.get("dat"),
            new.get("acc"),
            self.direction and self.direction.german(),
            self.state and self.state.german,
        ]
        return [part for part in parts if part]
