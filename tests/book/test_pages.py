"""The book's pages as sources: what they name exists, and what they use is explained."""

import inspect
import pkgutil
import re
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
import torch
import torch_geometric.nn
import transformers
import yaml

import edgewise
from places import BOOK, CHAPTERS, ROOT

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
    whole = name if name.startswith("attention_on_edges.") else f"edgewise.{name}"
    root, *parts = whole.split(".")
    item = import_module(root)
    for number, part in enumerate(parts):
        path = ".".join([root, *parts[: number + 1]])
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


FAULTY = {
    "index.md": "# Index\n\n[Nowhere](nowhere.md)\n",
    "lonely.md": "# A page that nobody lists\n",
    "hashed.md": "# A picture\n\n![0123456789abcdef.png](_static/picture.svg)\n",
    "picture.md": "# Pictures\n\n![](_static/picture.svg)\n",
    "chapter.md": (
        "---\njupytext:\n  text_representation:\n    extension: .md\n    format_name: myst\n"
        "kernelspec:\n  display_name: Python 3\n  language: python\n  name: python3\n---\n\n# Chapter\n"
        "\n```{code-cell} ipython3\nassert True\n```\n"
    ),
    "chapter.ipynb": '{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}',
}


def configuration():
    return yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def small_book(tmp_path_factory):
    """One build of a small book, a fork, with an address and seven faults: its folder, what became of it."""
    tmp_path = tmp_path_factory.mktemp("book")
    shutil.copytree(BOOK / "_ext", tmp_path / "book" / "_ext", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "book" / "_static").mkdir()
    shutil.copy(BOOK / "_static" / "picture.svg", tmp_path / "book" / "_static")
    shutil.copy(BOOK / "references.bib", tmp_path / "book")
    for name, text in FAULTY.items():
        (tmp_path / "book" / name).write_text(text, encoding="utf-8")
    config = configuration()
    config["execute"] = {"execute_notebooks": "off"}
    del config["html"]["favicon"]
    config["html"]["baseurl"] = "https://example.org/edges/"
    (tmp_path / "_config.yml").write_text(yaml.safe_dump(config), encoding="utf-8")
    (tmp_path / "_toc.yml").write_text(
        "format: jb-book\nroot: book/index\nchapters:\n"
        + "".join(f"  - file: book/{name}\n" for name in ("picture", "hashed", "chapter"))
    )
    for words in (["init", "--quiet"], ["remote", "add", "origin", "git@github.com:somebody/fork.git"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    command = [
        Path(sys.executable).with_name("jupyter-book"),
        "build",
        tmp_path,
        "-W",
        "--keep-going",
    ]
    return tmp_path, subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)


def test_an_address_brings_a_sitemap_and_a_card(small_book):
    html = small_book[0] / "_build" / "html"
    assert "<loc>https://example.org/edges/book/index.html</loc>" in (html / "sitemap.xml").read_text()
    assert (html / "_static" / "card.png").read_bytes().startswith(b"\x89PNG")
    lost = (html / "404.html").read_text(encoding="utf-8")
    assert lost.index('<base href="https://example.org/edges/">') < lost.index("<link")
    assert "No such page" in lost


def test_the_pages_of_a_fork_lead_to_the_fork(small_book):
    page = (small_book[0] / "_build" / "html" / "book" / "chapter.html").read_text(encoding="utf-8")
    assert 'href="https://github.com/somebody/fork"' in page
    assert 'href="https://mybinder.org/v2/gh/somebody/fork/main?urlpath=lab/tree/book/chapter.ipynb"' in page
    assert configuration()["repository"]["url"] not in page


def test_faulty_pages_fail_the_build_by_name(small_book):
    built = small_book[1]
    said = built.stdout + built.stderr
    assert built.returncode != 0
    for complaint in (
        r"index\.md:3: WARNING.*nowhere\.md",
        r"book/lonely\.md is not in _toc\.yml",
        r"book/picture\.md: .*picture\.svg has no alternative text",
        r"book/picture\.md: .*picture\.svg has no caption",
        r"book/hashed\.md: .*picture\.svg has no alternative text",
        r"book/chapter\.ipynb is out of step with its page",
        r"book/chapter\.md: an open cell asserts: assert True",
    ):
        assert re.search(complaint, said), f"nothing like {complaint} in\n{said}"


def snippet(page, word):
    """The one block of plain Python on a page that has the word."""
    blocks = re.findall(r"^```python\n(.*?)^```$", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    (found,) = [block for block in blocks if word in block]
    return found


def test_the_snippet_for_pyg_runs():
    torch.manual_seed(0)
    given = {
        "torch": torch,
        "torch_geometric": torch_geometric,
        "edgewise": edgewise,
        "AttentionGraph": edgewise.AttentionGraph,
    }
    given["edge_index"] = torch.randint(0, 100, (2, 300)).unique(dim=1)
    exec(snippet(BOOK / "using.md", "from_pyg"), given)
    expected = given["conv"](given["x"], given["edge_index"])
    torch.testing.assert_close(given["y"], expected)


def test_the_snippet_for_transformers_runs(tmp_path):
    torch.manual_seed(0)
    sizes = {"vocab_size": 20, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1}
    config = transformers.LlamaConfig(**sizes, num_attention_heads=2, num_key_value_heads=1)
    transformers.LlamaForCausalLM(config).save_pretrained(tmp_path)
    given = {"torch": torch, "folder": tmp_path}
    exec(snippet(BOOK / "using.md", "from_transformers"), given)
    for text, new in zip(([1, 15, 7], [1, 9]), given["texts"], strict=True):
        theirs = given["theirs"].generate(
            torch.tensor([text]), max_new_tokens=20, do_sample=False, eos_token_id=2, pad_token_id=2
        )
        assert theirs[0, len(text) :].tolist()[: len(new)] == new
