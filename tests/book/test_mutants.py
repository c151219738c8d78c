import ast

import pytest

from mutants import MUTANTS, ROOT, Mutant, mutant_source


def applies(mutant):
    """Whether a fault fits the code as it is; ``make mutants`` finds out whether the tests catch it."""
    broken = mutant_source(mutant)
    if mutant.file.endswith(".py"):
        ast.parse(broken)
    files = [name.partition("::") for name in mutant.tests.split()]
    return mutant.new != mutant.old and all(
        f"def {test}" in (ROOT / "tests" / file).read_text(encoding="utf-8") for file, _, test in files
    )


def test_every_fault_still_applies():
    assert [mutant.name for mutant in MUTANTS if not applies(mutant)] == []
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 60


def test_a_fault_that_fits_no_line_is_refused():
    with pytest.raises(ValueError, match="'nowhere to be found' must occur once"):
        applies(
            Mutant("none", "edgewise/attention.py", "nowhere to be found", "", "edgewise/test_attention.py")
        )
