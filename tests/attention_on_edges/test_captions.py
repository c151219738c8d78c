"""The caption grammar against other tables: forms, cases, agreement and word order, sentence by sentence."""

import itertools
import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attention_on_edges.analysis import gold_tree
from attention_on_edges.data import corpora
from attention_on_edges.data.corpora import captions as module
from attention_on_edges.data.corpora.captions import caption, captions
from attention_on_edges.data.corpora.gold_captions import gold_captions
from attention_on_edges.data.corpora.grammar import Adjective, Clause, Phrase, Place, Verb
from attention_on_edges.data.corpora.lexicon import ADJECTIVES, NOUNS, STATES
from attention_on_edges.data.corpora.scenes import SCENES
from workshop import corpus_of

# Article, nominative singular, nominative plural, dative plural.
DICTIONARY = """
der Mann Männer Männern; die Frau Frauen Frauen; der Vater Väter Vätern; die Mutter Mütter Müttern
der Großvater Großväter Großvätern; die Großmutter Großmütter Großmüttern; der Kellner Kellner Kellnern
die Kellnerin Kellnerinnen Kellnerinnen; der Polizist Polizisten Polizisten
die Polizistin Polizistinnen Polizistinnen; der Junge Jungen Jungen; das Mädchen Mädchen Mädchen
das Kind Kinder Kindern; der Hund Hunde Hunden; die Katze Katzen Katzen; das Pferd Pferde Pferden
die Kuh Kühe Kühen; die Ziege Ziegen Ziegen; das Schaf Schafe Schafen; das Kaninchen Kaninchen Kaninchen
der Vogel Vögel Vögeln; die Ente Enten Enten; der Affe Affen Affen; der Mantel Mäntel Mänteln
die Jacke Jacken Jacken; das Hemd Hemden Hemden; der Pullover Pullover Pullovern; der Hut Hüte Hüten
die Mütze Mützen Mützen; der Helm Helme Helmen; die Tasche Taschen Taschen
der Regenschirm Regenschirme Regenschirmen; der Korb Körbe Körben; der Rucksack Rucksäcke Rucksäcken
der Apfel Äpfel Äpfeln; der Kuchen Kuchen Kuchen; die Banane Bananen Bananen; das Brötchen Brötchen Brötchen
das Ei Eier Eiern; das Buch Bücher Büchern; die Zeitung Zeitungen Zeitungen; der Brief Briefe Briefen
das Bild Bilder Bildern; das Foto Fotos Fotos; der Ball Bälle Bällen; die Puppe Puppen Puppen
das Auto Autos Autos; das Fahrrad Fahrräder Fahrrädern; der Lastwagen Lastwagen Lastwagen
der Bus Busse Bussen; die Tasse Tassen Tassen; die Flasche Flaschen Flaschen; der Teller Teller Tellern
die Vase Vasen Vasen; der Tisch Tische Tischen; der Stuhl Stühle Stühlen; das Sofa Sofas Sofas
das Bett Betten Betten; die Bank Bänke Bänken; das Regal Regale Regalen; die Lampe Lampen Lampen
das Haus Häuser Häusern; die Kirche Kirchen Kirchen; der Turm Türme Türmen; die Brücke Brücken Brücken
die Mauer Mauern Mauern; das Dach Dächer Dächern; der Zaun Zäune Zäunen; das Zelt Zelte Zelten
der Baum Bäume Bäumen; die Blume Blumen Blumen; der Stein Steine Steinen; der See Seen Seen
der Fluss Flüsse Flüssen; die Wiese Wiesen Wiesen; der Wald Wälder Wäldern; das Feld Felder Feldern
der Garten Gärten Gärten; der Park Parks Parks; die Tür Türen Türen; das Fenster Fenster Fenstern
die Kiste Kisten Kisten; die Küche Küchen Küchen; die Straße Straßen Straßen; der Markt Märkte Märkten
der Bahnhof Bahnhöfe Bahnhöfen; der Strand Strände Stränden; die Schule Schulen Schulen
die Stadt Städte Städten; das Café Cafés Cafés; die Bühne Bühnen Bühnen; das Boot Boote Booten
der Spielplatz Spielplätze Spielplätzen; die Bibliothek Bibliotheken Bibliotheken
die Geschichte Geschichten Geschichten; der Schneemann Schneemänner Schneemännern
der Sonntag Sonntage Sonntagen; das Mittagessen Mittagessen Mittagessen; das Abendessen Abendessen Abendessen
der Regen Regen Regen
"""
FORMS = {row.split()[1]: row.split() for row in re.split("[;\n]", DICTIONARY) if row.strip()}
WEAK = {"Junge": "Jungen", "Polizist": "Polizisten", "Affe": "Affen"}

# How "big" stands before each kind of noun: nominative, accusative, dative.
BIG = {
    "der": {
        "der": "der große, den großen, dem großen",
        "die": "die große, die große, der großen",
        "das": "das große, das große, dem großen",
        "plural": "die großen, die großen, den großen",
    },
    "ein": {
        "der": "ein großer, einen großen, einem großen",
        "die": "eine große, eine große, einer großen",
        "das": "ein großes, ein großes, einem großen",
    },
    "": {"plural": "große, große, großen"},
    "zwei": {"plural": "zwei große, zwei große, zwei großen"},
    "drei": {"plural": "drei große, drei große, drei großen"},
    "einige": {"plural": "einige große, einige große, einigen großen"},
    "viele": {"plural": "viele große, viele große, vielen großen"},
}
CASES = ("nom", "acc", "dat")
DETERMINERS = {
    "der": "the",
    "ein": "a",
    "": "",
    "zwei": "two",
    "drei": "three",
    "einige": "some",
    "viele": "many",
}


def noun_form(noun, number, case):
    _, singular, plural, dative_plural = FORMS[noun]
    if number == "plural":
        return dative_plural if case == "dat" else plural
    return WEAK.get(noun, singular) if case != "nom" else singular


# Every "article (ending of an adjective) noun" that German allows, with the readings that it has.
READINGS = {}
for _determiner, table in BIG.items():
    for kind, row in table.items():
        for case, words in zip(CASES, row.split(", "), strict=True):
            *article, adjective = words.split()
            for noun, (gender, *_) in FORMS.items():
                if kind in ("plural", gender):
                    number = "plural" if kind == "plural" else "singular"
                    form = noun_form(noun, number, case)
                    for ending in (adjective.removeprefix("groß"), None):
                        key = (*article, ending, form)
                        READINGS.setdefault(key, set()).add((case, number))
ARTICLES = {word for key in READINGS for word in key[:-2]}
ALL_FORMS = {noun_form(n, number, case) for n in FORMS for number in ("singular", "plural") for case in CASES}

# Finite forms, particle | objects (a, d, da) or none | case of where (dat) and where to (acc)
VERB_TABLE = """
schläft schlafen | | dat; sitzt sitzen | | dat; steht stehen | | dat; liegt liegen | | dat
wartet warten | | dat; tanzt tanzen | | dat; singt singen | | dat; lacht lachen | | dat
kocht kochen | | dat; arbeitet arbeiten | | dat; spielt spielen | | dat; schwimmt schwimmen | | dat acc
fährt fahren Fahrrad | | dat; fährt fahren | | acc; spielt spielen Fußball | | dat
spielt spielen Gitarre | | dat; spielt spielen Karten | | dat; hört hören Musik | | dat
trinkt trinken Kaffee | | dat; isst essen Eis | | dat; sieht sehen fern | | dat; kauft kaufen ein | | dat
steht stehen auf | |; läuft laufen weg | |; wäscht waschen ab | | dat; räumt räumen auf | | dat
liest lesen | a | dat; schreibt schreiben | a | dat; isst essen | a | dat; frisst fressen | a | dat
kauft kaufen | a | dat; wäscht waschen | a | dat; putzt putzen | a |; malt malen | a | dat
repariert reparieren | a |; baut bauen | a | dat; füttert füttern | a | dat
streichelt streicheln | a | dat; bürstet bürsten | a | dat; fotografiert fotografieren | a |
beobachtet beobachten | a | dat; jagt jagen | a | acc; umarmt umarmen | a | dat
besucht besuchen | a | dat; sucht suchen | a | dat; hält halten | a |; versteckt verstecken | a | dat
parkt parken | a | dat; trägt tragen | a | acc; zieht ziehen an | a |; zieht ziehen aus | a |
setzt setzen auf | a |; setzt setzen ab | a |; macht machen auf | a |; macht machen zu | a |
hebt heben auf | a | dat; baut bauen auf | a | dat; schaut schauen an | a | dat
schaltet schalten ein | a | dat; schaltet schalten aus | a | dat; schließt schließen ab | a |
packt packen aus | a | dat; ruft rufen an | a |; lädt laden ein | a |; hilft helfen | d | dat
dankt danken | d |; folgt folgen | d | acc; winkt winken zu | d | dat; hört hören zu | d | dat
läuft laufen nach | d | dat; gibt geben | da | dat; zeigt zeigen | da |; bringt bringen | da |
verkauft verkaufen | da | dat; leiht leihen | da |; erzählt erzählen | da | dat
liest lesen vor | da | dat; wirft werfen zu | da | dat; geht gehen | | acc; läuft laufen | | acc
springt springen | | acc; klettert klettern | | acc; reitet reiten | | acc; fliegt fliegen | | acc
steigt steigen ein | | acc; steigt steigen aus | | acc; schiebt schieben | a | acc
wirft werfen | a | acc; stellt stellen | a | acc; legt legen | a | acc; hängt hängen | a | acc
hängt hängen | | dat; fällt fallen | | acc; ist sind | |
"""
VERBS = {}
for line in re.split("[;\n]", VERB_TABLE):
    if line.strip():
        forms, objects, where = (part.strip() for part in line.split("|"))
        singular, plural, *particle = forms.split()
        frame = (sorted({"a": "acc", "d": "dat"}[o] for o in objects), set(where.split()))
        for finite, number in ((singular, "singular"), (plural, "plural")):
            VERBS.setdefault((finite, *particle), []).append((number, *frame))
FINITE = {key[0] for key in VERBS}
PARTICLES = {key[1] for key in VERBS if len(key) == 2}

PREPOSITIONS = dict.fromkeys(["in", "an", "auf", "unter", "hinter", "vor", "neben", "über"])
PREPOSITIONS |= {
    "durch": "acc",
    "um": "acc",
    "mit": "dat",
    "aus": "dat",
    "zu": "dat",
    "von": "dat",
    "nach": "dat",
}
MELTED = {"im": "in dem", "ins": "in das", "am": "an dem", "ans": "an das", "zum": "zu dem", "zur": "zu der"}
MELTED["vom"] = "von dem"
ADVERBS = set(["heute", "jetzt", "leise", "langsam", "schnell", "fröhlich", "vorsichtig"])
WHEN = {"Morgen", "Abend", "Nachmittag"}
CLOTHES = ["Mantel", "Mäntel", "Mänteln", "Jacke", "Jacken", "Hemd", "Hemden", "Pullover", "Pullovern"]
STATE_WORDS = {adjective.german for adjectives in STATES.values() for adjective in adjectives}


class Chunks:
    """The parts of a German clause, in order: (kind, readings or words)."""

    def __init__(self, words):
        self.words, self.place, self.found = words, 0, []
        while self.place < len(words):
            self.found.append(self.chunk())

    def chunk(self):
        word = self.words[self.place]
        if word in ADVERBS or word in WHEN:
            self.place += 1
            return ("adverb", word)
        if word in FINITE:
            self.place += 1
            return ("verb", word)
        if word in STATE_WORDS and set(self.words[self.place + 1 :]) <= FINITE:
            self.place += 1
            return ("state", word)
        if word in MELTED:
            self.words[self.place : self.place + 1] = MELTED[word].split()
            return self.chunk()
        if word in PREPOSITIONS and self.place < len(self.words) - 1:
            self.place += 1
            return ("place", (word, *self.phrase()))
        joined = next(
            (p for p in PARTICLES if p[0].islower() and word[len(p) :] in FINITE and word[: len(p)] == p), ""
        )
        if joined:
            self.place += 1
            self.found.append(("particle", joined))
            return ("verb", word.removeprefix(joined))
        if word in PARTICLES and (word[0].isupper() or self.place == len(self.words) - 1):
            self.place += 1
            return ("particle", word)
        return ("phrase", self.phrase())

    def phrase(self):
        """Read an article, an adjective and a noun; return readings and noun."""
        words = []
        while not self.words[self.place][0].isupper():
            words.append(self.words[self.place])
            self.place += 1
        noun = self.words[self.place]
        self.place += 1
        article = words[:1] if words and words[0] in ARTICLES else []
        rest = words[len(article) :]
        assert len(rest) <= 1, (words, noun)
        ending = re.search("(e[rsnm]?)$", rest[0])[1] if rest else None
        key = (*article, ending, noun)
        assert key in READINGS, f"no German says {' '.join([*words, noun])}"
        return READINGS[key], noun


def check_clause(words, last=False, pronoun=None):
    """Check a clause's cases, agreement and order; return the number of its verb."""
    chunks = Chunks(list(words)).found
    if pronoun is not None:
        chunks.insert(0, ("phrase", pronoun))
    kinds = [kind for kind, _ in chunks]
    place = kinds.index("verb")
    finite = chunks[place][1]
    particle = [what for kind, what in chunks if kind == "particle"]
    if last:
        assert place == len(chunks) - 1, "the verb comes last"
        assert not particle or kinds[place - 1] == "particle"
    else:
        assert not particle or kinds[-1] == "particle", "the particle comes last"
    parts = []
    for kind, what in chunks:
        attire = kind == "place" and (what[0] == "mit" or (what[0] == "in" and what[2] in CLOTHES))
        if attire and parts and parts[-1][0] == "phrase":
            assert any(case == "dat" for case, _ in what[1]), what
            continue
        if kind == "adverb" and what in WHEN:
            continue  # heute Morgen
        parts.append((kind, what))
    if not last:
        assert [kind for kind, _ in parts].index("verb") == 1, "the verb comes second"
    phrases = [what for kind, what in parts if kind == "phrase"]
    frames = VERBS[(finite, *particle)]
    fitting = [f for f in frames if fits(phrases, f)]
    assert fitting, f"{finite} {particle} does not take {phrases}"
    for kind, what in parts:
        if kind == "place":
            check_place(what, fitting)
    return fitting[0][0]


def fits(phrases, frame):
    """Whether the first phrase can be the subject and the others, in some order, the objects."""
    number, objects, _ = frame
    subject, *others = phrases
    return ("nom", number) in subject[0] and any(
        all(any(c == case for c, _ in readings) for (readings, _), case in zip(order, objects, strict=True))
        for order in itertools.permutations(others)
        if len(order) == len(objects)
    )


def check_place(place, frames):
    preposition, readings, noun = place
    cases = {case for case, _ in readings}
    when = noun in ("Sonntag", "Mittagessen", "Abendessen", "Regen")
    if wanted := PREPOSITIONS[preposition]:
        assert wanted in cases, place
    elif when:
        assert "dat" in cases, place
    else:
        assert any(cases & frame[2] for frame in frames), (place, frames)


def merged(sentence):
    """Split a German sentence into clauses: (words, whether the verb comes last, relative pronoun)."""
    sentence = sentence.removesuffix(".")
    found = []
    relative = re.search(r", (der|die|das) ([^,]*),", sentence)
    if relative:
        before = sentence[: relative.start()].split()
        number = "plural" if noun_number(before) == "plural" else "singular"
        if number == "singular":
            names = [n for n in FORMS if noun_form(n, "singular", "nom") in before]
            assert FORMS[names[0]][0] == relative[1], sentence
        else:
            assert relative[1] == "die", sentence
        found.append((relative[2].split(), True, ({("nom", number)}, "")))
        sentence = sentence[: relative.start()] + " " + sentence[relative.end() :].strip()
    main, _, end = sentence.partition(", während ")
    found += [(end.split(), True, None)] if end else []
    found += [(part, False, None) for part in coordinated(lowered(main).split())]
    if end and "und" in end.split():
        raise AssertionError("subordinate clauses have one subject")
    return found


def noun_number(words):
    _, number = next(
        iter(r for r in Chunks(lowered(" ".join(words)).split()).found[0][1][0] if r[0] == "nom")
    )
    return number


def lowered(text):
    """Make the first word small unless it is a noun."""
    return text[0].lower() + text[1:] if text.split()[0] not in ALL_FORMS else text


def coordinated(words):
    """Split at an "und" that joins clauses; make two joined subjects one of plural number."""
    while "und" in words:
        place = words.index("und")
        first, second = words[:place], words[place + 1 :]
        if any(word in FINITE for word in first) and any(word in FINITE for word in second):
            return [first, second]
        start = max((i for i, word in enumerate(first) if word in FINITE), default=-1) + 1
        one = Chunks(first[start:]).found
        assert one[0][0] == "phrase"
        assert ("nom", "singular") in one[0][1][0]
        rest = Chunks(second).found
        assert rest[0][0] == "phrase"
        assert ("nom", "singular") in rest[0][1][0]
        length = next(i for i, word in enumerate(second) if word[0].isupper()) + 1
        words = [*first[:start], "viele", "Frauen", *second[length:]]  # stands for both
    return [words]


def check(sentence):
    return [check_clause(words, last, pronoun) for words, last, pronoun in merged(sentence)]


PAIRS = captions(6000)

PINNED = [
    (
        "The tired mother is watching a monkey in a garden.",
        "Die müde Mutter beobachtet in einem Garten einen Affen.",
    ),
    (
        "Three policemen are carrying many new dolls to the beautiful station.",
        "Drei Polizisten tragen viele neue Puppen zum schönen Bahnhof.",
    ),
]


class TestForms:
    def test_the_dictionary_holds_every_noun(self):
        assert {noun.german for noun in NOUNS.values()} <= set(FORMS)
        assert len({noun.german for noun in NOUNS.values()}) == len(NOUNS)

    @pytest.mark.parametrize("noun", NOUNS.values(), ids=lambda n: n.english)
    def test_every_phrase_has_the_ending_that_gender_number_and_case_demand(self, noun):
        gender = FORMS[noun.german][0]
        for determiner, table in BIG.items():
            for kind, row in table.items():
                if kind not in ("plural", gender):
                    continue
                plural = kind == "plural"
                for case, words in zip(CASES, row.split(", "), strict=True):
                    form = noun_form(noun.german, "plural" if plural else "singular", case)
                    phrase = Phrase(noun, DETERMINERS[determiner], plural, Adjective("big", "groß"))
                    assert phrase.german(case) == f"{words} {form}"
                    bare = Phrase(noun, DETERMINERS[determiner], plural)
                    assert bare.german(case) == " ".join([*words.split()[:-1], form])

    @pytest.mark.parametrize(
        ("place", "expected"),
        [
            (("in", "garden", "dat", "the"), "im Garten"),
            (("in", "house", "acc", "the"), "ins Haus"),
            (("an", "lake", "dat", "the"), "am See"),
            (("an", "window", "acc", "the"), "ans Fenster"),
            (("zu", "station", "dat", "the"), "zum Bahnhof"),
            (("zu", "school", "dat", "the"), "zur Schule"),
            (("von", "table", "dat", "the"), "vom Tisch"),
            (("in", "kitchen", "dat", "the"), "in der Küche"),
            (("in", "garden", "acc", "the"), "in den Garten"),
            (("auf", "roof", "acc", "the"), "auf das Dach"),
            (("in", "garden", "dat", "a"), "in einem Garten"),
        ],
    )
    def test_prepositions_and_articles_melt(self, place, expected):
        preposition, noun, case, determiner = place
        assert Place(("", preposition), Phrase(NOUNS[noun], determiner), case).german() == expected

    def test_adjectives_that_end_in_e_lose_it_before_an_ending(self):
        assert Phrase(NOUNS["man"], "a", False, Adjective("tired", "müde")).german("nom") == "ein müder Mann"

    @given(st.sampled_from(list(NOUNS.values())), st.sampled_from([*list(ADJECTIVES["horse"]), None]))
    def test_an_stands_before_vowels(self, noun, adjective):
        words = Phrase(noun, "a", False, adjective).english().split()
        assert words[0] == ("an" if words[1][0] in "aeiou" else "a")


def noun(name, determiner="the", plural=False, adjective=None):
    return Phrase(NOUNS[name], determiner, plural, adjective)


def scene(english, german):
    return next(s.verb for s in SCENES if s.verb.english == english and s.verb.singular == german)


READ, HELP, GIVE = scene("reading", "liest"), scene("helping", "hilft"), scene("giving", "gibt")
OPEN, FOOTBALL = scene("opening", "macht"), scene("playing football", "spielt")
GARDEN = Place(("in", "in"), noun("garden"), "dat")
TODAY = ("today", "heute")


class TestOrder:
    @pytest.mark.parametrize(
        ("clause", "english", "german"),
        [
            (
                Clause((noun("boy"),), READ, noun("book", "a"), place=GARDEN),
                "The boy is reading a book in the garden.",
                "Der Junge liest im Garten ein Buch.",
            ),
            (
                Clause((noun("boy"),), READ, noun("book"), place=GARDEN, time=TODAY),
                "The boy is reading the book in the garden today.",
                "Der Junge liest heute das Buch im Garten.",
            ),
            (
                Clause((noun("boy"),), READ, noun("book"), place=GARDEN, time=TODAY, front="time"),
                "Today, the boy is reading the book in the garden.",
                "Heute liest der Junge das Buch im Garten.",
            ),
            (
                Clause((noun("dog", "", True),), FOOTBALL, place=GARDEN, front="place"),
                "In the garden, dogs are playing football.",
                "Im Garten spielen Hunde Fußball.",
            ),
            (
                Clause(
                    (noun("boy"),),
                    HELP,
                    dative=noun("policeman"),
                    manner=("quickly", "schnell"),
                    place=GARDEN,
                ),
                "The boy is quickly helping the policeman in the garden.",
                "Der Junge hilft dem Polizisten schnell im Garten.",
            ),
            (
                Clause((noun("man"), noun("cat")), GIVE, noun("egg", "a"), noun("monkey"), place=GARDEN),
                "The man and the cat are giving the monkey an egg in the garden.",
                "Der Mann und die Katze geben dem Affen im Garten ein Ei.",
            ),
            (
                Clause((noun("man"),), GIVE, noun("egg"), noun("girl", "a")),
                "The man is giving a girl the egg.",
                "Der Mann gibt das Ei einem Mädchen.",
            ),
            (
                Clause((noun("child"),), OPEN, noun("door"), manner=("quietly", "leise")),
                "The child is quietly opening the door.",
                "Das Kind macht leise die Tür auf.",
            ),
            (
                Clause(
                    (noun("girl"),),
                    FOOTBALL,
                    relative=Clause((noun("girl"),), Verb("wearing", "trägt", "tragen"), noun("hat", "a")),
                ),
                "The girl who is wearing a hat is playing football.",
                "Das Mädchen, das einen Hut trägt, spielt Fußball.",
            ),
        ],
    )
    def test_one_clause(self, clause, english, german):
        assert caption(clause) == (english, german)

    def test_two_clauses(self):
        opening = Clause((noun("child"),), OPEN, noun("door"))
        playing = Clause((noun("man", "", True),), FOOTBALL, place=GARDEN)
        assert caption(opening, playing, "while") == (
            "The child is opening the door while men are playing football in the garden.",
            "Das Kind macht die Tür auf, während Männer im Garten Fußball spielen.",
        )
        assert caption(playing, opening, "while")[1] == (
            "Männer spielen im Garten Fußball, während das Kind die Tür aufmacht."
        )
        assert (
            caption(playing, opening, "and")[1]
            == "Männer spielen im Garten Fußball und das Kind macht die Tür auf."
        )


class TestCheckerItself:
    @pytest.mark.parametrize(
        "wrong",
        [
            "Der Mann liest einen Buch.",
            "Ein junge Mann liest ein Buch.",
            "Der Mann hilft die Frau.",
            "Der Mann sieht den Frau fern.",
            "Die Frauen liest das Buch.",
            "Heute die Frau liest das Buch.",
            "Der Mann macht auf die Tür.",
            "Der Junge, die einen Hut trägt, tanzt.",
            "Der Junge, der trägt einen Hut, tanzt.",
            "Der Mann stellt die Tasse auf dem Tisch.",
            "Der Mann schläft auf das Sofa.",
            "Der Mann hilft dem Polizist.",
            "Die Frau kocht, während der Mann liest ein Buch.",
            "Die Frau kocht, während der Mann die Tür macht auf.",
            "Der Mann geht durch dem Park.",
            "Der Mann hilft den Kinder.",
        ],
    )
    def test_wrong_german_is_noticed(self, wrong):
        with pytest.raises((AssertionError, KeyError, ValueError)):
            check(wrong)

    def test_right_german_is_not(self):
        for right in [
            "Der Mann liest ein Buch.",
            "Heute liest der junge Mann mit einem Hut das Buch.",
            "Ein Mann und eine Frau helfen den Kindern.",
            "Die Frau kocht, während der Mann die Tür aufmacht.",
            "Der Junge, der einen Hut trägt, stellt die Tasse auf den Tisch.",
        ]:
            check(right)


class TestCaptions:
    def test_there_are_thousands_of_distinct_pairs(self):
        assert len({english for english, _ in PAIRS}) == len({german for _, german in PAIRS}) == 6000

    def test_every_german_sentence_has_its_cases_agreement_and_order_right(self):
        for english, german in PAIRS:
            numbers = check(german)
            verbs = re.findall(r"\b(is|are)\b", english)
            assert len(verbs) == len(numbers), (english, german)
            assert sorted(verbs) == sorted({"singular": "is", "plural": "are"}[n] for n in numbers), (
                english,
                german,
            )

    def test_every_english_sentence_agrees_with_itself(self):
        singular, plural = ({getattr(n, f) for n in NOUNS.values()} for f in ("english", "english_plural"))
        for english, _ in PAIRS:
            for article, word in re.findall(r"\b([Aa]n?) (\w)", english):
                assert (article.lower() == "an") == (word.lower() in "aeiou"), english
            for count, words in re.findall(r"\b(an?|two|three|some|many) ([^,.]*)", english.lower()):
                head = next(w for w in words.split() if w in singular | plural)
                assert head in (singular if count in ("a", "an") else plural), english

    def test_both_sides_name_the_same_things_in_the_same_numbers(self):
        words = {"two": "zwei", "three": "drei", "some": "einige", "many": "viele"}
        names = {f: n.german for n in NOUNS.values() for f in (n.english, n.english_plural)}
        german_names = {
            noun_form(n, number, c): n for n in FORMS for number in ("singular", "plural") for c in CASES
        }
        outside = {"Sonntag", "Mittagessen", "Abendessen", "Regen", "Fahrrad"}
        for english, german in PAIRS:
            left = [w for w in re.findall(r"\w+", english.lower())]
            right = re.findall(r"\w+", german)
            counts = [sum(w.lower().removesuffix("n") == g for w in right) for g in words.values()]
            assert counts == [left.count(e) for e in words], (english, german)
            ours = Counter(names[w] for w in left if w in names) - Counter(outside)
            theirs = Counter(german_names[w] for w in right if w in german_names)
            for name in outside:
                ours.pop(name, None), theirs.pop(name, None)
            assert ours == theirs, (english, german)

    def test_sentences_are_written_as_sentences(self):
        for pair in PAIRS:
            for side in pair:
                assert side[0].isupper()
                assert side.endswith(".")
                assert side == " ".join(side.split())
                assert not re.search(r",,| ,|,\.|\.\.", side)
                assert len(side.split()) <= 30

    def test_everything_that_the_grammar_knows_occurs(self):
        text = " ".join(german for _, german in PAIRS)
        for what in (
            ", während ",
            " und ",
            ", der ",
            ", die ",
            ", das ",
            " im ",
            " ins ",
            " zum ",
            " zur ",
            "vom ",
        ):
            assert what in text
        for s in SCENES:
            assert re.search(rf"\b({s.verb.singular}|{s.verb.plural})\b", text, re.IGNORECASE)
        words = set(re.findall(r"\w+", text))
        assert not [n for n in NOUNS.values() if not {n.german, n.german_plural} & words]

    def test_a_seed_gives_the_same_pairs_and_a_shorter_list_its_beginning(self):
        assert captions(300) == PAIRS[:300]
        assert captions(300, seed=1)[:100] == captions(100, seed=1)
        assert not set(captions(100, seed=1)) & set(PAIRS[:100])

    def test_pairs_are_the_same_on_every_machine(self):
        assert captions(2) == PINNED

    def test_splits_share_no_sentence(self):
        found = corpora.load("captions", train=300, valid=20, test=30, seed=2)
        assert {name: len(split) for name, split in found.splits.items()} == {
            "train": 300,
            "valid": 20,
            "test": 30,
        }
        for side in (0, 1):
            assert len({pair[side] for split in found.splits.values() for pair in split}) == 350
        assert (found.languages, found.files) == (("en", "de"), ())

    def test_what_is_no_count_is_refused(self):
        with pytest.raises(ValueError, match="count must be at least 0, got -1"):
            captions(-1)
        with pytest.raises(ValueError, match="count must be at most 100000"):
            captions(module.MOST + 1)
        with pytest.raises(TypeError, match="seed must be an integer"):
            captions(1, seed=0.5)
        with pytest.raises(ValueError, match="valid must be at least 0"):
            corpora.load("captions", valid=-1)


GOLD = {" ".join(aligned.source): (aligned, parse) for aligned, parse in gold_captions(3000)}


class TestGold:
    """Alignments and parses against a few done by hand, and against what must hold for all of them."""

    BY_HAND = (
        (
            "The grandfather who is wearing a red hat is looking for a cat in the park.",
            "The-Der grandfather-Großvater, who-der wearing-trägt, a-einen red-roten hat-Hut "
            "looking-sucht a-eine cat-Katze. in-im park.-Park",
            "is-trägt, is-sucht for-sucht the-im",
            (1, 9, 4, 4, 1, 7, 7, 4, 9, -1, 12, 12, 9, 15, 15, 9),
        ),
        (
            "Three men are quickly taking off the new caps before dinner.",
            "Three-Drei men-Männer quickly-schnell taking-setzen off-ab. the-die new-neuen caps-Mützen "
            "dinner.-Abendessen",
            "are-setzen taking-ab. off-setzen before-vor before-dem before-Abendessen dinner.-vor "
            "dinner.-dem",
            (1, 4, 4, 4, -1, 4, 8, 8, 4, 10, 4),
        ),
        (
            "The tall girl and the policeman are cooking in front of the tent this evening.",
            "The-Das tall-große girl-Mädchen and-und the-der policeman-Polizist cooking-kochen the-dem "
            "tent-Zelt. this-heute evening.-Abend",
            "are-kochen in-vor front-vor of-vor this-Abend evening.-heute",
            (2, 2, 7, 5, 5, 2, 7, -1, 12, 8, 8, 12, 7, 14, 7),
        ),
        (
            "Three friendly waiters are getting into the car while a mother is drinking coffee.",
            "Three-Drei friendly-freundliche waiters-Kellner getting-steigen into-ins car-Auto while-während "
            "a-eine mother-Mutter drinking-trinkt. coffee.-Kaffee",
            "are-steigen getting-ein, the-ins is-trinkt. drinking-Kaffee coffee.-trinkt.",
            (2, 2, 4, 4, -1, 7, 7, 4, 12, 10, 12, 12, 4, 12),
        ),
        (
            "The friendly policewoman who is wearing a cap is giving a horse the banana in the garden.",
            "The-Die friendly-freundliche policewoman-Polizistin, who-die wearing-trägt, a-eine cap-Mütze "
            "giving-gibt a-einem horse-Pferd. the-die banana-Banane in-im garden.-Garten",
            "is-trägt, is-gibt the-im",
            (2, 2, 9, 5, 5, 2, 7, 5, 9, -1, 11, 9, 13, 9, 16, 16, 9),
        ),
    )

    @pytest.mark.parametrize(("text", "sure", "possible", "heads"), BY_HAND)
    def test_as_done_by_hand(self, text, sure, possible, heads):
        aligned, parse = GOLD[text]

        def named(links):
            return " ".join(f"{aligned.source[i]}-{aligned.target[j]}" for i, j in sorted(links))

        assert (named(aligned.sure), named(aligned.possible - aligned.sure)) == (sure, possible)
        assert parse.words == aligned.source
        assert parse.heads == heads

    def test_all_parses_are_trees_and_every_word_has_a_link(self):
        assert [(" ".join(a.source), " ".join(a.target)) for a, _ in GOLD.values()] == captions(3000)
        for aligned, parse in GOLD.values():
            assert len(gold_tree(parse.heads)) == len(parse.words) - 1
            assert aligned.sure <= aligned.possible
            assert {i for i, _ in aligned.possible} == set(range(len(aligned.source)))
            assert {j for _, j in aligned.possible} == set(range(len(aligned.target)))

    def test_relations_of_two_clauses(self):
        found = {(p.words[i], r) for _, p in GOLD.values() for i, r in enumerate(p.relations)}
        joined = {(word, relation) for word, relation in found if relation in ("cc", "mark", "conj", "advcl")}
        assert {word for word, relation in joined if relation == "cc"} == {"and"}
        assert {word for word, relation in joined if relation == "mark"} == {"while"}
        assert ("singing", "advcl") in joined

    RELATIONS = (
        (
            "Three friendly waiters are getting into the car while a mother is drinking coffee.",
            "det amod nsubj aux root case det obl mark det nsubj aux advcl obj",
        ),
        (
            "The friendly policewoman who is wearing a cap is giving a horse the banana in the garden.",
            "det amod nsubj nsubj aux acl:relcl det obj aux root det iobj det obj case det obl",
        ),
    )

    @pytest.mark.parametrize(("text", "relations"), RELATIONS)
    def test_relations_as_done_by_hand(self, text, relations):
        assert " ".join(GOLD[text][1].relations) == relations

    def test_a_modifier_depends_on_its_noun(self):
        parse = next(p for _, p in GOLD.values() if "nmod" in p.relations)
        modifier = parse.relations.index("nmod")
        assert parse.heads[modifier] < modifier
        assert parse.relations[parse.heads[modifier]] in ("nsubj", "obj", "conj", "iobj")

    def test_counts_are_checked(self):
        with pytest.raises(ValueError, match="count"):
            gold_captions(-1)
        with pytest.raises(TypeError, match="count"):
            gold_captions("x")
        with pytest.raises(ValueError, match="at most"):
            gold_captions(10**9)


@pytest.mark.corpus
def test_no_caption_is_a_sentence_of_a_corpus():
    ours = {side.lower() for pair in PAIRS for side in pair}
    for name in ("multi30k", "tatoeba"):
        theirs = {s.lower() for split in corpus_of(name).splits.values() for pair in split for s in pair}
        shared = {s for s in ours & theirs if len(s.split()) > 6}
        assert not shared
