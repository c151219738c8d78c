"""A fork's address is found, and its pages and committed files lead to it."""

import shutil
import subprocess
import sys

import pytest
import yaml

from places import BOOK, ROOT

sys.path.insert(0, str(BOOK / "_ext"))

import publish
import repository

COMMITTED = ("README.md", "CITATION.cff", "pyproject.toml", "_config.yml")
COMMITTED += ("book/01-attention.md", "book/01-attention.ipynb")


@pytest.mark.parametrize(
    ("remote", "address"),
    [
        ("https://github.com/somebody/a-book", "https://github.com/somebody/a-book"),
        ("https://github.com/somebody/a.book.git", "https://github.com/somebody/a.book"),
        ("https://name:secret@github.com/somebody/a-book/", "https://github.com/somebody/a-book"),
        ("git@github.com:somebody/a-book.git", "https://github.com/somebody/a-book"),
        ("ssh://git@github.com/somebody/a-book", "https://github.com/somebody/a-book"),
        ("ssh://git@ssh.github.com:443/somebody/a-book.git", "https://github.com/somebody/a-book"),
        ("https://gitlab.com/somebody/a-book", None),
        ("https://example.org/github.com/somebody/a-book", None),
        ("https://github.com/somebody", None),
        ("/srv/git/a-book.git", None),
        ("", None),
    ],
)
def test_a_remote_has_an_address_if_it_is_on_github(remote, address):
    assert repository.on_github(remote) == address


def git(folder, *words):
    subprocess.run(["git", "-C", folder, *words], check=True)


@pytest.fixture
def clone(tmp_path):
    """A clone of somebody's fork, with one chapter."""
    shutil.copytree(BOOK / "_ext", tmp_path / "book" / "_ext", ignore=shutil.ignore_patterns("__pycache__"))
    for name in COMMITTED:
        shutil.copy(ROOT / name, tmp_path / name)
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "remote", "add", "origin", "git@github.com:Somebody/other.book.git")
    return tmp_path


def test_the_address_is_the_remotes_or_the_configured_one(clone, monkeypatch):
    monkeypatch.setattr(repository, "ROOT", clone)
    assert repository.address() == "https://github.com/Somebody/other.book"
    monkeypatch.setattr(repository, "ROOT", clone / "book")  # a copy without a history, in some other clone
    assert repository.address() == repository.configured()
    monkeypatch.setattr(repository, "ROOT", clone)
    monkeypatch.setenv("PATH", str(clone))
    assert repository.address() == repository.configured()
    monkeypatch.undo()
    git(clone, "remote", "set-url", "origin", "https://example.org/other-book.git")
    monkeypatch.setattr(repository, "ROOT", clone)
    assert repository.address() == repository.configured()


def run(clone):
    command = [sys.executable, clone / "book" / "_ext" / "publish.py"]
    return subprocess.run(command, capture_output=True, text=True)


def texts(clone):
    return {name: (clone / name).read_text(encoding="utf-8") for name in COMMITTED}


def test_all_committed_files_name_the_fork_after_one_command(clone):
    old = repository.configured().removeprefix("https://github.com/")
    before = {name: text.count(old) for name, text in texts(clone).items()}
    assert all(before.values())
    said = run(clone)
    assert said.returncode == 0, said.stderr
    after = texts(clone)
    assert before == {name: text.count("/Somebody/other.book") for name, text in after.items()}
    assert not any(old in text for text in after.values())
    assert "git clone https://github.com/Somebody/other.book\ncd other.book\n" in after["README.md"]
    config = yaml.safe_load(after["_config.yml"])
    assert config["html"]["baseurl"] == "https://somebody.github.io/other.book/"
    assert config["html"]["baseurl"] in said.stdout
    assert said.stdout.splitlines()[: len(after)] == [f"wrote {name}" for name in after]


def test_a_second_run_changes_nothing_and_leaves_the_sites_own_address(clone):
    run(clone)
    config = clone / "_config.yml"
    config.write_text(config.read_text().replace("https://somebody.github.io/other.book/", "https://a.book/"))
    before = texts(clone)
    said = run(clone)
    assert "wrote" not in said.stdout
    assert "Settings > Pages" in said.stdout
    assert texts(clone) == before


def test_without_a_remote_it_says_what_to_do(clone):
    git(clone, "remote", "remove", "origin")
    before = texts(clone)
    said = run(clone)
    assert said.returncode == 1
    assert said.stderr.strip() == publish.NO_REMOTE
    assert texts(clone) == before


@pytest.mark.parametrize("name", ["Somebody.github.io", "somebody.github.io"])
def test_the_repository_of_an_owners_own_site_is_its_root(name):
    assert publish.site_of(f"https://github.com/Somebody/{name}") == "https://somebody.github.io/"


def test_other_repositories_keep_their_names():
    old, new = "https://github.com/a/book", "https://github.com/b/leaf"
    text = "github.com/a/book.git github.com/a/book-two github.com/ca/book example.org/a/book a/book"
    assert publish.renamed(text, old, new) == text.replace("github.com/a/book.git", "github.com/b/leaf.git")
