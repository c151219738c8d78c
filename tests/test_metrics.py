import pytest
from edgewise.metrics import exact_match, token_accuracy


def test_a_sequence_counts_only_if_it_is_right_to_the_end():
    references = [[1, 2], [3], [4, 5]]
    assert exact_match([(1, 2), (3,), (4, 6)], references) == pytest.approx(2 / 3)
    assert exact_match([[1, 2, 2], [], [4]], references) == 0


def test_what_is_missing_or_added_is_wrong():
    assert token_accuracy([[1, 2, 3]], [[1, 5, 3]]) == pytest.approx(2 / 3)
    assert token_accuracy([[1, 2]], [[1, 2, 3, 4]]) == 0.5
    assert token_accuracy([[1, 2, 3, 4]], [[1, 2]]) == 0.5
    assert token_accuracy([[2, 1]], [[1, 2]]) == 0
    assert token_accuracy([[1], []], [[1], [2, 3]]) == pytest.approx(1 / 3)


@pytest.mark.parametrize("score", [exact_match, token_accuracy])
@pytest.mark.parametrize(("predictions", "references"), [([], []), ([[1]], [[1], [2]])])
def test_bad_input(score, predictions, references):
    with pytest.raises(ValueError, match="must pair up, one pair at least; got"):
        score(predictions, references)


def test_no_token_is_no_accuracy():
    with pytest.raises(ValueError, match="at least one token, got none"):
        token_accuracy([[]], [[]])
