"""Greedy decoding."""

from collections.abc import Sequence

import torch

from attention_on_edges.decoding.continuation import continuation_of
from attention_on_edges.decoding.hypothesis import Hypothesis, check_numbers, limits_of
from attention_on_edges.layers import check_symbols, evaluating
from attention_on_edges.models.transformer import Transformer


@torch.no_grad()
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
    ends = check_symbols(model.generator, sos_id, eos_id)
    limits = limits_of(sources, max_len)
    with evaluating(model):
        continuation = continuation_of(model, sources)
        device = next(model.parameters()).device
        ids = torch.full((len(sources),), sos_id, device=device)
        alive = list(range(len(sources)))
        decoded: list[list[int]] = [[] for _ in sources]
        taken: list[list[int]] = [[] for _ in sources]
        scores, finished = [0.0] * len(sources), [False] * len(sources)
        while alive:
            log_probs = check_numbers(model.generator(continuation.step(ids)))
            best, ids = log_probs.max(1)
            going, steps = [], continuation.steps
            for row, (sentence, token, score) in enumerate(
                zip(alive, ids.tolist(), best.tolist(), strict=True)
            ):
                finished[sentence] = token in ends
                if not finished[sentence] and len(decoded[sentence]) == limits[sentence]:
                    continue
                scores[sentence] += score
                if steps is not None:
                    taken[sentence].append(steps[row])
                if not finished[sentence]:
                    decoded[sentence].append(token)
                    going.append(row)
            if len(going) < len(alive):
                alive = [alive[row] for row in going]
                rows = torch.tensor(going, dtype=torch.int64, device=device)
                ids = ids[rows]
                continuation.keep(rows)
    found = zip(decoded, finished, scores, taken, strict=True)
    return [Hypothesis(tuple(d), f, s, s, tuple(t) if t else None) for d, f, s, t in found]
