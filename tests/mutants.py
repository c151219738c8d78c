"""Break the package on purpose, a line at a time, and see the tests notice.

``make mutants`` applies each fault of ``mutants.toml`` to a scratch copy and runs the tests that should catch
it; it fails if any fault survives. ``python tests/mutants.py WORD`` runs those whose name holds the word.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Mutant:
    """One fault: ``old`` occurs once in ``file``, which lies below ``code/``, and is replaced by ``new``."""

    name: str
    file: str
    old: str
    new: str
    tests: str

    def path(self, root: Path) -> Path:
        """Where the file lies below ``root``."""
        return root / "code" / self.file


FAULTS = tomllib.loads((ROOT / "tests" / "mutants.toml").read_text("utf-8"))["mutant"]
MUTANTS = [Mutant(**fault) for fault in FAULTS]


@contextmanager
def scratch_copy() -> Iterator[Path]:
    """A copy of code, tests and book that may be broken."""
    with tempfile.TemporaryDirectory() as folder:
        for part in ("code", "tests", "book"):
            shutil.copytree(ROOT / part, Path(folder, part), ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("pyproject.toml", "_config.yml", "_toc.yml"):
            shutil.copy(ROOT / name, folder)
        yield Path(folder)


def run_tests(folder: Path, tests: str) -> subprocess.CompletedProcess:
    """Run test files of a copy against the copy's own package."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
    command += [f"tests/{name}" for name in tests.split()]
    environment = os.environ | {"PYTHONPATH": str(folder / "code"), "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


def survives(mutant: Mutant) -> bool:
    """Apply a fault to a scratch copy; True if its tests still pass."""
    with scratch_copy() as folder:
        mutant.path(folder).write_text(mutant_source(mutant), encoding="utf-8")
        result = run_tests(folder, mutant.tests)
    if result.returncode not in (0, 1):
        raise RuntimeError(f"{mutant.name}: the tests did not run:\n{result.stdout}{result.stderr}")
    return result.returncode == 0


def mutant_source(mutant: Mutant) -> str:
    """The file's text with the fault in it."""
    text = mutant.path(ROOT).read_text(encoding="utf-8")
    if text.count(mutant.old) != 1:
        raise ValueError(f"{mutant.name}: {mutant.old!r} must occur once in {mutant.file}")
    return text.replace(mutant.old, mutant.new)


def main() -> int:
    """Check the healthy copy, then every fault; return the number of survivors."""
    chosen = [m for m in MUTANTS if all(word in m.name for word in sys.argv[1:])]
    files = " ".join(sorted({name for m in chosen for name in m.tests.split()}))
    with scratch_copy() as folder:
        healthy = run_tests(folder, files)
    if healthy.returncode != 0:
        print(healthy.stdout)
        print("the tests fail without any fault")
        return 1
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        outcomes = list(pool.map(survives, chosen))
    for mutant, survived in zip(chosen, outcomes, strict=True):
        print(f"{'SURVIVED' if survived else 'caught  '}  {mutant.file}: {mutant.name}")
    print(f"{outcomes.count(False)} caught, {outcomes.count(True)} survived")
    return outcomes.count(True)


if __name__ == "__main__":
    sys.exit(main())
