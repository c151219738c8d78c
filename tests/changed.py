"""Prints the test files of what has changed since the last commit, for ``make check``.

A module's tests are in its package's folder: in the file of its name; where there is none, in that of its
room and, unless they are many, in those that import what it defines.
"""

import ast
import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FEW = 3


@cache
def imported(test: Path) -> set[str]:
    """The names of all modules, or parts of their names, that a test file imports."""
    found = set()
    for node in ast.walk(ast.parse(test.read_bytes())):
        if isinstance(node, ast.Import):
            found.update(part for alias in node.names for part in alias.name.split("."))
        elif isinstance(node, ast.ImportFrom):
            found.update(node.module.split("."), (alias.name for alias in node.names))
    return found


def defined(path: Path) -> set[str]:
    """The functions, classes and constants that a module defines for others, and its own name."""
    found = {path.stem}
    for node in ast.parse((ROOT / path).read_bytes()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign):
            found.update(target.id for target in node.targets if isinstance(target, ast.Name))
    return {name for name in found if not name.startswith("_")}


def find_tests(path: Path, tests: list[Path]) -> list[Path]:
    """The test files of one file; ``path`` is relative to the root of the repository."""
    if path.parts[0] == "book" and path.suffix in (".md", ".ipynb"):
        return [test for test in tests if test.stem == "test_notebooks"]
    if path.suffix != ".py":
        return []
    if path.parts[0] == "tests":
        return [test for test in tests if test == ROOT / path or path.stem in imported(test)]
    _, folder, *below = path.with_suffix("").parts
    package = folder if path.parts[0] == "code" else "book"
    names = [part.strip("_") for part in reversed(below or [folder])]
    beside = [test for test in tests if test.parent.name == package or not below]
    named = [[test for test in beside if test.stem == f"test_{name}"] for name in names]
    users = [test for test in beside if defined(path) & imported(test)]
    room = next(filter(None, named), [])
    return named[0] or sorted({*room, *(users if len(users) <= FEW or not room else [])})


def main() -> None:
    """Print the test files, one a line."""
    built = ("test_book", "test_downloads")  # they read the built book
    tests = [test for test in (ROOT / "tests").rglob("test_*.py") if test.stem not in built]
    listed = ["git", "ls-files", "--modified", "--others", "--exclude-standard"]
    changed = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
    found = {test for path in changed if (ROOT / path).exists() for test in find_tests(Path(path), tests)}
    print(*sorted(test.relative_to(ROOT) for test in found), sep="\n")


if __name__ == "__main__":
    main()
