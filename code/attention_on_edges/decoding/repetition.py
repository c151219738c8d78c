"""A guard against loops, which models fall into on input unlike their training data."""

from collections.abc import Sequence


def loops(ids: Sequence[int], most: int) -> set[int]:
    """Return the tokens that would make something stand more than ``most`` times in a row.

    It may be a token or a run of several: after ``a b a b a`` and with ``most`` 2, ``b`` is one too many.

    Parameters
    ----------
    ids : sequence of int
        The tokens so far.
    most : int
        Most times, at least 1.
    """
    found = set()
    for length in range(1, (len(ids) + 1) // (most + 1) + 1):
        tail = ids[len(ids) + 1 - (most + 1) * length :]
        if tail[length:] == tail[:-length]:
            found.add(ids[-length])
    return found
