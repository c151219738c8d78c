"""At each step the likeliest token."""

from collections.abc import Sequence

import torch

from edgewise.decoding.continuation import Continuation
from edgewise.decoding.hypothesis import Hypothesis, limits_of
from edgewise.layers import check_symbols, evaluating
from edgewise.transformer import Transformer


@torch.no_grad()
def greedy(
    model: Transformer,
    sources: Sequence[Sequence[int]],
    sos_id: int,
    eos_id: int,
    max_len: int | None = None,
) -> list[Hypothesis]:
    """Decode sources together, at each step the likeliest token.

    Parameters
    ----------
    model : Transformer
        Runs without dropout, whatever mode it is in.
    sources : sequence of sequences of int
        Ids, at least one each.
    sos_id, eos_id : int
        Start and end symbol of the target's vocabulary.
    max_len : int, optional
        Most tokens of a target, end symbol not counted; twice the source's and ten more if not given.

    Returns
    -------
    list of Hypothesis
        One for each source, in their order.

    Raises
    ------
    TypeError, ValueError
        If a source is empty or an id or a limit is not what it should be.
    """
    check_symbols(model.generator, sos_id, eos_id)
    limits = limits_of(sources, max_len)
    with evaluating(model):
        continuation = Continuation(model, sources)
        device = next(model.parameters()).device
        ids = torch.full((len(sources),), sos_id, device=device)
        alive = list(range(len(sources)))
        decoded: list[list[int]] = [[] for _ in sources]
        scores, finished = [0.0] * len(sources), [False] * len(sources)
        while alive:
            log_probs = model.generator(continuation.step(ids))
            best, ids = log_probs.max(1)
            going = []
            for row, (sentence, token, score) in enumerate(
                zip(alive, ids.tolist(), best.tolist(), strict=True)
            ):
                if token == eos_id:
                    finished[sentence] = True
                    scores[sentence] += score
                elif len(decoded[sentence]) < limits[sentence]:
                    decoded[sentence].append(token)
                    scores[sentence] += score
                    going.append(row)
            if len(going) < len(alive):
                alive = [alive[row] for row in going]
                rows = torch.tensor(going, dtype=torch.int64, device=device)
                ids = ids[rows]
                continuation.keep(rows)
    return [Hypothesis(tuple(d), f, s, s) for d, f, s in zip(decoded, finished, scores, strict=True)]
