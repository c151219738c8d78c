"""Chapter 8: what strangers type first, and whether its French translation would do."""

import json
import string
from importlib import resources

from attention_on_edges.runs.translator import Translator


def first_answers(translator: Translator) -> list[tuple[str, str, bool]]:
    """Translate the committed texts.

    Returns
    -------
    list of (str, str, bool)
        The text, its translation, and whether that is one of those that were written down as acceptable,
        but for capitals and marks at the ends.
    """
    file = resources.files("attention_on_edges.runs") / "first_inputs.json"
    rows: list[tuple[str, list[str]]] = json.loads(file.read_text("utf-8"))
    told = [found.text for found in translator([text for text, _ in rows])]
    return [(text, said, _plain(said) in wanted) for (text, wanted), said in zip(rows, told, strict=True)]


def _plain(text: str) -> str:
    return text.lower().strip(string.punctuation + " ")
