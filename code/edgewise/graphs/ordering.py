"""Orders of tokens, so that those that attend to each other are near (chapter 14), and of edges."""

import numpy as np
import torch
from torch import Tensor

from edgewise.validation import MissingPackageError


def cuthill_mckee(src: Tensor, dst: Tensor, num_tokens: int) -> Tensor:
    """The reverse Cuthill-McKee order of edges' tokens, their directions aside: int64 [num_tokens].

    Raises
    ------
    MissingPackageError
        If SciPy is not installed.
    """
    try:
        from scipy.sparse import coo_array
        from scipy.sparse.csgraph import reverse_cuthill_mckee
    except ImportError as error:
        raise MissingPackageError("SciPy finds the order: pip install scipy, or give one") from error

    if num_tokens == 0:
        return src.new_empty(0)
    rows, columns = torch.cat([src, dst]).cpu().numpy(), torch.cat([dst, src]).cpu().numpy()
    matrix = coo_array((np.ones(len(rows), np.int8), (rows, columns)), (num_tokens, num_tokens)).tocsr()
    found = reverse_cuthill_mckee(matrix, symmetric_mode=True)
    return torch.from_numpy(found.astype(np.int64)).to(src.device)


def stable_order(numbers: Tensor, below: int) -> Tensor:
    """Where the smallest number is, the next one, and so on, equal ones in order; all are below a bound.

    Of a few small numbers on a CPU NumPy's radix sort takes a tenth of PyTorch's time.
    """
    if numbers.device.type != "cpu" or len(numbers) > 2**14 or below > 2**16:
        return numbers.argsort(stable=True)
    return torch.from_numpy(numbers.numpy().astype(np.uint16).argsort(kind="stable"))


def rows_and_positions(length: Tensor) -> tuple[Tensor, Tensor]:
    """Each row's number as often as the row is long, and beside it 0, 1, 2, .. along the row."""
    row = torch.arange(len(length), device=length.device).repeat_interleave(length)
    return row, torch.arange(len(row), device=length.device) - (length.cumsum(0) - length)[row]


def distinct_pairs(src: Tensor, dst: Tensor, num_dst: int) -> tuple[Tensor, Tensor]:
    """Each pair of sender and receiver once, ordered by sender, those of one sender by receiver."""
    pairs, width = (src * num_dst + dst).unique(), max(num_dst, 1)
    return pairs // width, pairs % width
