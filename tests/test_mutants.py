import ast

import pytest
from mutants import MUTANTS, ROOT, mutant_source


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.name)
def test_every_fault_still_applies(mutant):
    """Whether the tests catch it is what ``make mutants`` finds out; here it must fit the code as it is."""
    broken = mutant_source(mutant)
    if mutant.file.endswith(".py"):
        ast.parse(broken)
    assert mutant.new != mutant.old
    assert all((ROOT / "tests" / name).is_file() for name in mutant.tests.split())


def test_names_are_unique():
    assert len({m.name for m in MUTANTS}) == len(MUTANTS) >= 15
