"""Words of the caption corpus, and which of them go together.

Lists name nouns by their English, or whole classes of them.
"""

from dataclasses import dataclass

from attention_on_edges.data.corpora.grammar import Adjective, Noun, Verb

NOUN_TABLE = {
    "adults": """
        man men Mann Männer m, woman women Frau Frauen f, father fathers Vater Väter m,
        mother mothers Mutter Mütter f, grandfather grandfathers Großvater Großväter m,
        grandmother grandmothers Großmutter Großmütter f, waiter waiters Kellner Kellner m,
        waitress waitresses Kellnerin Kellnerinnen f, policeman policemen Polizist Polizisten m*,
        policewoman policewomen Polizistin Polizistinnen f""",
    "children": """
        boy boys Junge Jungen m*, girl girls Mädchen Mädchen n, child children Kind Kinder n""",
    "pets": """
        dog dogs Hund Hunde m, cat cats Katze Katzen f""",
    "cattle": """
        horse horses Pferd Pferde n, cow cows Kuh Kühe f, goat goats Ziege Ziegen f,
        sheep sheep Schaf Schafe n,
        rabbit rabbits Kaninchen Kaninchen n""",
    "fowl": """
        bird birds Vogel Vögel m, duck ducks Ente Enten f""",
    "apes": """
        monkey monkeys Affe Affen m*""",
    "clothes": """
        coat coats Mantel Mäntel m, jacket jackets Jacke Jacken f, shirt shirts Hemd Hemden n,
        jumper jumpers Pullover Pullover m""",
    "headgear": """
        hat hats Hut Hüte m, cap caps Mütze Mützen f, helmet helmets Helm Helme m""",
    "belongings": """
        bag bags Tasche Taschen f, umbrella umbrellas Regenschirm Regenschirme m,
        basket baskets Korb Körbe m,
        rucksack rucksacks Rucksack Rucksäcke m""",
    "food": """
        apple apples Apfel Äpfel m, cake cakes Kuchen Kuchen m, banana bananas Banane Bananen f,
        roll rolls Brötchen Brötchen n, egg eggs Ei Eier n""",
    "papers": """
        book books Buch Bücher n, newspaper newspapers Zeitung Zeitungen f,
        letter letters Brief Briefe m""",
    "pictures": """
        picture pictures Bild Bilder n, photograph photographs Foto Fotos n""",
    "toys": """
        ball balls Ball Bälle m, doll dolls Puppe Puppen f""",
    "vehicles": """
        car cars Auto Autos n, bicycle bicycles Fahrrad Fahrräder n, lorry lorries Lastwagen Lastwagen m,
        bus buses Bus Busse m""",
    "dishes": """
        cup cups Tasse Tassen f, bottle bottles Flasche Flaschen f, plate plates Teller Teller m,
        vase vases Vase Vasen f""",
    "furniture": """
        table tables Tisch Tische m, chair chairs Stuhl Stühle m, sofa sofas Sofa Sofas n,
        bed beds Bett Betten n,
        bench benches Bank Bänke f, shelf shelves Regal Regale n, lamp lamps Lampe Lampen f""",
    "buildings": """
        house houses Haus Häuser n, church churches Kirche Kirchen f, tower towers Turm Türme m,
        bridge bridges Brücke Brücken f, wall walls Mauer Mauern f, roof roofs Dach Dächer n,
        fence fences Zaun Zäune m, tent tents Zelt Zelte n""",
    "nature": """
        tree trees Baum Bäume m, flower flowers Blume Blumen f, stone stones Stein Steine m,
        lake lakes See Seen m,
        river rivers Fluss Flüsse m, meadow meadows Wiese Wiesen f, forest forests Wald Wälder m,
        field fields Feld Felder n, garden gardens Garten Gärten m, park parks Park Parks m""",
    "fixtures": """
        door doors Tür Türen f, window windows Fenster Fenster n, box boxes Kiste Kisten f""",
    "sites": """
        kitchen kitchens Küche Küchen f, street streets Straße Straßen f, market markets Markt Märkte m,
        station stations Bahnhof Bahnhöfe m, beach beaches Strand Strände m,
        school schools Schule Schulen f,
        town towns Stadt Städte f, café cafés Café Cafés n, stage stages Bühne Bühnen f,
        boat boats Boot Boote n,
        playground playgrounds Spielplatz Spielplätze m, library libraries Bibliothek Bibliotheken f""",
    "tales": """
        story stories Geschichte Geschichten f""",
    "snow": """
        snowman snowmen Schneemann Schneemänner m""",
}
"""English singular and plural, German singular and plural, gender; a star marks those of weak declension."""

UNIONS = {"people": "adults children", "animals": "pets cattle fowl apes"}

ADJECTIVE_TABLE = {
    "adults": "young jung, old alt, tall groß, tired müde, happy fröhlich, friendly freundlich, strong stark",
    "children": "small klein, tall groß, tired müde, happy fröhlich, friendly freundlich",
    "pets cattle": "black schwarz, white weiß, brown braun, small klein, young jung, hungry hungrig",
    "fowl apes": "brown braun, small klein, big groß, young jung, hungry hungrig",
    "clothes headgear": "red rot, blue blau, green grün, black schwarz, grey grau, new neu, old alt",
    "belongings toys": "red rot, blue blau, green grün, yellow gelb, colourful bunt, new neu, small klein",
    "food": "big groß, small klein, fresh frisch",
    "papers": "old alt, new neu, long lang",
    "pictures": "old alt, new neu, small klein, beautiful schön",
    "vehicles": "red rot, blue blau, green grün, white weiß, new neu, old alt",
    "dishes": "empty leer, small klein, big groß, white weiß, blue blau",
    "furniture fixtures": "old alt, new neu, small klein, big groß, brown braun",
    "buildings": "old alt, small klein, big groß, white weiß, beautiful schön",
    "nature": "big groß, small klein, beautiful schön",
    "sites": "small klein, old alt, beautiful schön, quiet ruhig",
    "tales": "long lang, new neu, beautiful schön",
    "snow": "small klein, big groß, beautiful schön",
}
"""English and German, by classes of nouns that they stand before."""

STATE_TABLE = {
    "people": "young jung, old alt, tall groß, tired müde, happy fröhlich, ill krank, hungry hungrig",
    "pets cattle": "black schwarz, white weiß, brown braun, small klein, hungry hungrig, tired müde",
    "vehicles": "red rot, blue blau, new neu, old alt, dirty schmutzig",
    "dishes": "empty leer, full voll, clean sauber, dirty schmutzig",
}
"""Adjectives of predicates, by classes of nouns that can be so."""

PREPOSITIONS = {
    "across": "über",
    "around": "um",
    "at": "an",
    "behind": "hinter",
    "from": "von",
    "in": "in",
    "in front of": "vor",
    "into": "in",
    "next to": "neben",
    "on": "auf",
    "onto": "auf",
    "out of": "aus",
    "over": "über",
    "through": "durch",
    "to": "zu",
    "under": "unter",
    "with": "mit",
}

SEEN_OTHERWISE = {
    ("on", "beach"): "an",
    ("at", "market"): "auf",
    ("in", "meadow"): "auf",
    ("in", "field"): "auf",
    ("in", "street"): "auf",
    ("in", "playground"): "auf",
}
"""Places for which German takes another preposition."""

FIXED_CASES = {"aus": "dat", "durch": "acc", "mit": "dat", "um": "acc", "von": "dat", "zu": "dat"}
"""Prepositions of one case only; the others say where with the dative, and where to with the accusative."""

MANNERS = {
    "quietly": "leise",
    "slowly": "langsam",
    "quickly": "schnell",
    "happily": "fröhlich",
    "carefully": "vorsichtig",
}

TIMES = {
    "today": "heute",
    "now": "jetzt",
    "this morning": "heute Morgen",
    "this evening": "heute Abend",
    "this afternoon": "heute Nachmittag",
    "on Sunday": "am Sonntag",
    "after lunch": "nach dem Mittagessen",
    "before dinner": "vor dem Abendessen",
    "after the rain": "nach dem Regen",
}


def split_list(text: str) -> list[str]:
    """Return the parts of a list, which commas divide."""
    return [" ".join(part.split()) for part in text.split(",") if part.strip()]


def _noun(row: str) -> Noun:
    english, english_plural, german, german_plural, gender = row.split()
    return Noun(english, english_plural, german, german_plural, gender[0], gender.endswith("*"))


def _adjectives(table: dict[str, str]) -> dict[str, list[Adjective]]:
    found: dict[str, list[Adjective]] = {}
    for classes, rows in table.items():
        for name in classes.split():
            for noun in members(name):
                found[noun.english] = [Adjective(*row.split()) for row in split_list(rows)]
    return found


CLASSES = {name: [_noun(row) for row in split_list(rows)] for name, rows in NOUN_TABLE.items()}

NOUNS = {noun.english: noun for nouns in CLASSES.values() for noun in nouns}


def members(names: str) -> list[Noun]:
    """Return the nouns of a list of nouns and classes."""
    found = []
    for name in split_list(names):
        if name in UNIONS:
            found += [noun for part in UNIONS[name].split() for noun in CLASSES[part]]
        else:
            found += CLASSES.get(name) or [NOUNS[name]]
    return found


ADJECTIVES = _adjectives(ADJECTIVE_TABLE)

STATES = _adjectives(STATE_TABLE)


@dataclass(frozen=True)
class Scene:
    """Something that may be seen in a picture.

    Attributes
    ----------
    verb : Verb
        What happens.
    who, accusative, dative : list of Noun
        Who may do it, and to what and whom, if anything.
    places, directions : list of str
        Where and where to: English prepositions with nouns.
    manners : list of str
        How, in English.
    """

    verb: Verb
    who: list[Noun]
    accusative: list[Noun]
    dative: list[Noun]
    places: list[str]
    directions: list[str]
    manners: list[str]


def read_scenes(table: str) -> list[Scene]:
    """Read scenes of eight columns, a line each; an indented line goes on from the one before it."""
    found = []
    for line in table.strip().replace("\n    ", " ").splitlines():
        english, german, who, accusative, dative, places, directions, manners = (
            part.strip() for part in line.split("|")
        )
        verb = Verb(english, *(part.replace("_", " ") for part in german.split()))
        nouns = (members(part) for part in (who, accusative, dative))
        found.append(Scene(verb, *nouns, *(split_list(part) for part in (places, directions, manners))))
    return found
