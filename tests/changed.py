"""Prints the test files of what has changed since the last commit, for ``make check``.

A module's tests are in the file of its name; where there is none, in those that import it.
"""

import ast
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def imported(test: Path) -> set[str]:
    """The names of all modules, or parts of their names, that a test file imports."""
    found = set()
    for node in ast.walk(ast.parse(test.read_bytes())):
        if isinstance(node, ast.Import):
            found.update(part for alias in node.names for part in alias.name.split("."))
        elif isinstance(node, ast.ImportFrom):
            found.update(node.module.split("."), (alias.name for alias in node.names))
    return found


def find_tests(path: Path, tests: list[Path]) -> list[Path]:
    """The test files of one file; ``path`` is relative to the root of the repository."""
    if path.parts[0] == "book" and path.suffix in (".md", ".ipynb"):
        return [test for test in tests if test.stem == "test_notebooks"]
    if path.suffix != ".py":
        return []
    if path.parts[0] == "tests":
        return [test for test in tests if test == ROOT / path or path.stem in imported(test)]
    name = path.relative_to("code/edgewise").parts[0] if path.parts[0] == "code" else path.name
    name = name.removesuffix(".py").strip("_")
    return [test for test in tests if test.stem == f"test_{name}"] or [
        test for test in tests if name in imported(test)
    ]


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
