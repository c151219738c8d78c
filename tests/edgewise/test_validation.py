import numpy as np
import pytest
import torch

from edgewise.validation import check_choice, check_count, check_counts, check_ids, check_probability


@pytest.mark.parametrize("value", [3, np.int64(3), torch.tensor(3)])
def test_whole_numbers_of_any_kind_are_counts(value):
    assert type(check_count("n", value, 3)) is int
    assert check_counts("n", [value, 4]) == [3, 4]
    assert check_counts("n", torch.tensor([3, 4])) == [3, 4]
    assert check_counts("n", value) == [3]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: check_count("n", True), TypeError, "n must be an integer, got True"),
        (lambda: check_count("n", 3.0), TypeError, "n must be an integer, got 3.0"),
        (lambda: check_count("n", 2, 3), ValueError, "n must be at least 3, got 2"),
        (lambda: check_counts("n", [1, -2]), ValueError, r"n\[1\] must be at least 0, got -2"),
        (lambda: check_probability("p", "0"), TypeError, "p must be a number, got '0'"),
        (lambda: check_probability("p", 1.0), ValueError, r"p must lie in \[0, 1\), got 1.0"),
        (lambda: check_choice("c", "x", ["a", "b"]), ValueError, "c must be one of 'a', 'b'; got 'x'"),
        (lambda: check_ids("i", [1], 2), TypeError, "i must be a tensor of int64, got list"),
        (lambda: check_ids("i", torch.tensor([0, 2]), 2), ValueError, r"i must lie in 0\.\.1, got 2"),
    ],
)
def test_messages_say_what_was_given_and_what_is_allowed(call, error, message):
    with pytest.raises(error, match=message):
        call()
