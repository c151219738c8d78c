"""Chapter 8: Multi30k, English captions of photographs with their German translations.

No licence; for research and education, not commercial, as Flickr30k is. Elliott, Frank, Sima'an and Specia:
Multi30K: Multilingual English-German Image Descriptions (2016).
"""

from attention_on_edges.corpora.files import File, fetch, github_file
from attention_on_edges.corpora.text import Corpus, Pair, pairs

NAMES = {"train": "train", "valid": "val", "test2016": "test_2016_flickr", "test2017": "test_2017_flickr"}
"""What the splits are called in the names of their files."""

CHECKSUMS = {
    "train.en.gz": "d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f",
    "train.de.gz": "726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6",
    "val.en.gz": "14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28",
    "val.de.gz": "f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a",
    "test_2016_flickr.en.gz": "611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9",
    "test_2016_flickr.de.gz": "9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8",
    "test_2017_flickr.en.gz": "76a444ee25172e72695cddb13ae4a3bda59430617be88e0bb46b60504f054074",
    "test_2017_flickr.de.gz": "a2c89666db00c495cd8513b9d708d5a3acc205d7de312ef2bf5fb7ebc1540aee",
    "tok/val.lc.norm.tok.en": "46573ce391ae227f1c72f873392436a20ef18e0a6d518098cfbd70b77c8572ec",
    "tok/val.lc.norm.tok.de": "97232bd273eceb7207f689527386a97e4be2616b18ada47576bdaf96c8ae1f00",
    "tok/test_2016_flickr.lc.norm.tok.en": "5b7f32627cf99eced828311b955dae9800bb52bc8b91cf8b6526829e605b29d2",
    "tok/test_2016_flickr.lc.norm.tok.de": "c6a33d39d48f9f510de147651316cd9d918e09ad0219df734a2f16b6baccacc4",
    "tok/test_2017_flickr.lc.norm.tok.en": "c9d1dfd7a26add989382e534af235af9f0f658b2a30e7eb0efdaf142496ee54f",
    "tok/test_2017_flickr.lc.norm.tok.de": "02067e4a9402786a4fcb8c1b6f4307e4a5073ced64800abead5273b54f5f31f6",
}


def _file(name: str) -> File:
    there = f"data/task1/{name}" if name.startswith("tok/") else f"data/task1/raw/{name}"
    commit = "a3d2e0d26b56f3846f66a952536ffed4e401d05a"
    return github_file(f"multi30k/{name}", CHECKSUMS[name], "multi30k/dataset", commit, there)


FILES = {name: _file(name) for name in CHECKSUMS}


def load() -> Corpus:
    """Return Multi30k's first task: 29,000 pairs to train on, 1,014 to validate, 1,000 in each of two tests.

    The text is cased and not tokenised. ``tokenised`` holds the published lower-cased, normalised,
    Moses-tokenised versions of all splits but the first. One sentence of ``valid`` occurs in ``train``, and
    two of ``test2017`` do; none of ``test2016``.

    Raises
    ------
    CorpusError
        If a file cannot be had.
    """

    def read(form: str, split: str) -> list[Pair]:
        return list(pairs(*(fetch(FILES[form.format(NAMES[split], side)]) for side in ("en", "de"))))

    return Corpus(
        "multi30k",
        ("en", "de"),
        {split: read("{}.{}.gz", split) for split in NAMES},
        tuple(FILES.values()),
        {split: read("tok/{}.lc.norm.tok.{}", split) for split in NAMES if split != "train"},
    )
