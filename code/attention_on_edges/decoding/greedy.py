"""Greedy decoding: a beam of one."""

from collections.abc import Sequence

from attention_on_edges.decoding.beam import Hypothesis, beam_search
from attention_on_edges.models.transformer import Transformer


def greedy(
    model: Transformer,
    sources: Sequence[Sequence[int]],
    sos_id: int,
    eos_id: int | Sequence[int],
    max_len: int | None = None,
) -> list[Hypothesis]:
    """Decode sources together, taking the most probable token at each step.

    Parameters
    ----------
    model : Transformer
        Runs without dropout in either mode.
    sources : sequence of sequences of int
        Ids, at least one each.
    sos_id : int
        Start symbol of the target's vocabulary.
    eos_id : int or sequence of int
        End symbol; any of several ends a target.
    max_len : int, optional
        Most tokens of a target without the end symbol; by default ten more than twice the source's.

    Returns
    -------
    list of Hypothesis
        One for each source, in their order.

    Raises
    ------
    TypeError, ValueError
        If a source is empty or an id or a limit is not what it should be.
    """
    return [best for [best] in beam_search(model, sources, sos_id, eos_id, 1, 0.0, max_len)]
