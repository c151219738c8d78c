import numpy as np
import pytest
import torch

from edgewise.validation import check_count, check_counts


@pytest.mark.parametrize("value", [3, np.int64(3), torch.tensor(3)])
def test_whole_numbers_of_any_kind_are_counts(value):
    assert type(check_count("n", value, 3)) is int
    assert check_counts("n", [value, 4]) == [3, 4]
    assert check_counts("n", torch.tensor([3, 4])) == [3, 4]
    assert check_counts("n", value) == [3]
