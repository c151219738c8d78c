import ast

import pytest

from mutants import MUTANTS, ROOT, Mutant, mutant_source


def applies(mutant):
    """Whether a fault fits the code as it is; ``make mutants`` finds out whether the tests catch it."""
    broken = mutant_source(mutant)
    if mutant.file.endswith(".py"):
        ast.parse(broken)
    return mutant.new != mutant.old and all(
        (ROOT / "tests" / name).is_file() for name in mutant.tests.split()
    )


def test_every_fault_still_applies():
    assert [mutant.name for mutant in MUTANTS if not applies(mutant)] == []
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 60


def test_a_fault_that_fits_no_line_is_refused():
    with pytest.raises(ValueError, match="'nowhere to be found' must occur once"):
        applies(
            Mutant("none", "edgewise/attention.py", "nowhere to be found", "", "edgewise/test_attention.py")
        )
