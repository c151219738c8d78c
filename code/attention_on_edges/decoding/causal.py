"""Chapter 13: a language model goes on with texts."""

from collections.abc import Sequence

import torch

from attention_on_edges.decoding.beam import check_numbers
from attention_on_edges.models.causal_lm import CausalLM, KeyValueCache
from edgewise.validation import check_count, check_ends


@torch.no_grad()
def continue_texts(
    model: CausalLM, texts: Sequence[Sequence[int]], max_new: int, eos_id: int | Sequence[int] | None = None
) -> list[list[int]]:
    """Go on with each text, taking the most probable token each time.

    Parameters
    ----------
    model : CausalLM
        A model that reads from left to right.
    texts : sequence of sequences of int
        Ids, at least one each.
    max_new : int
        Most new tokens of each.
    eos_id : int or sequence of int, optional
        Ends a text, any of several; it is not returned.

    Returns
    -------
    list of list of int
        The new tokens of each text.

    Raises
    ------
    TypeError, ValueError
        If a text is empty, or an id or the limit is not what it should be.
    """
    if not all(len(text) for text in texts):
        raise ValueError("each text must have at least one token")
    ends = frozenset[int]() if eos_id is None else check_ends(eos_id, model.config.vocab_size)
    written: list[list[int]] = [[] for _ in texts]
    if not check_count("max_new", max_new) or not texts:
        return written
    cache = KeyValueCache(model, len(texts), max(len(text) for text in texts) + max_new - 1)
    new, going = [list(text) for text in texts], list(range(len(texts)))
    for _ in range(max_new):
        states = model.hidden(*cache.extend(new), cache)
        last = torch.tensor([len(new[i]) for i in going], device=states.device).cumsum(0) - 1
        chosen = check_numbers(model.out(states[last])).argmax(-1).tolist()
        new = [[] for _ in texts]
        for i, token in zip(going, chosen, strict=True):
            if token not in ends:
                written[i].append(token)
                new[i] = [token]
        going = [i for i in going if new[i]]
        if not going:
            break
    return written
