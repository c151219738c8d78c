"""The book's pages as sources: what they name exists, and what they use is explained."""

import inspect
import pkgutil
import re
from importlib import import_module
from pathlib import Path

import edgewise
import pytest

ROOT = Path(__file__).resolve().parents[1]
BOOK = ROOT / "book"
CHAPTERS = sorted(BOOK.glob("[0-9]*.md"))
CELL = re.compile(r"^(`{3,})\{code-cell\}.*?^\1$", re.DOTALL | re.MULTILINE)
MATHEMATICS = re.compile(r"\$\$(.*?)\$\$|\$([^$\n]+)\$", re.DOTALL)

GREEK = set(
    re.findall(
        r"\w+",
        "alpha beta gamma delta epsilon zeta eta theta kappa lambda mu nu xi pi rho sigma tau phi chi psi "
        "omega ell",
    )
)


def prose(path):
    """A page's text without its code."""
    text = CELL.sub("", path.read_text(encoding="utf-8"))
    text = re.sub(r"^ *(`{3,})(?!\{).*?^ *\1$", "", text, flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"`[^`\n]*`", "", text)


def letters(path):
    """The Latin and Greek letters of a page's formulas; words set upright or as operators are none."""
    found = set()
    for display, inline in MATHEMATICS.findall(prose(path)):
        formula = re.sub(r"\\(?:text|mathrm|operatorname|begin|end)\{[^}]*\}", " ", display or inline)
        found.update(re.findall(r"\\(?:mathcal|mathbb)\{? ?([A-Z])", formula))
        formula = re.sub(r"\\(?:mathcal|mathbb)\{? ?[A-Z]\}?", " ", formula)
        found.update(word for word in re.findall(r"\\([a-z]+)", formula) if word in GREEK)
        found.update(re.sub(r"\\[A-Za-z]+", " ", formula).replace("_", " "))
    return {letter for letter in found if letter in GREEK or re.fullmatch("[A-Za-z]", letter)}


@pytest.mark.parametrize("page", CHAPTERS, ids=lambda page: page.stem)
def test_every_letter_of_a_chapter_stands_in_the_notation(page):
    missing = letters(page) - letters(BOOK / "notation.md")
    assert not missing, f"{page.name} uses {sorted(missing)}, which book/notation.md does not list"


def code_names():
    tables = re.findall(r"^\|.*\|$", (BOOK / "notation.md").read_text(encoding="utf-8"), re.MULTILINE)
    return sorted({name for row in tables for name in re.findall(r"`([^`]+)`", row)})


def find(name):
    """The object that ``a.b.C.d`` names below edgewise; the class, where d is set by its ``__init__``."""
    parts, item = name.split("."), edgewise
    for number, part in enumerate(parts):
        path = ".".join(["edgewise", *parts[: number + 1]])
        submodules = [m.name for m in pkgutil.iter_modules(getattr(item, "__path__", []))]
        if inspect.ismodule(item) and part in submodules:
            item = import_module(path)
        elif inspect.isclass(item) and not hasattr(item, part):
            assert re.search(rf"\bself\.{part}\b|^    {part}:", inspect.getsource(item), re.MULTILINE), path
            return item
        else:
            item = getattr(item, part)
    return item


@pytest.mark.parametrize("name", code_names())
def test_every_code_name_of_the_notation_exists(name):
    path, _, argument = name.removesuffix(")").partition("(")
    item = find(path)
    if argument:
        assert argument in inspect.signature(item).parameters, f"{path} takes no {argument}"


def test_a_code_name_that_does_not_exist_is_noticed():
    for wrong in ("attention.MultiHeadAttention.width", "attention.Attention", "no_module.name"):
        with pytest.raises((AssertionError, AttributeError)):
            find(wrong)
