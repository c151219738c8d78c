"""Chapter 13: a language model goes on with texts; its cache is a graph that grows."""

from collections.abc import Sequence

import torch
from torch import Tensor

from attention_on_edges.decoding.beam import check_numbers
from attention_on_edges.models.causal_lm import CausalLM, PackedTexts
from edgewise.graphs import AttentionGraph
from edgewise.validation import check_count, check_ends


class KeyValueCache:
    """Keys and values of several texts, with room for more.

    Reading a prompt and writing a token are the same: the graph is extended by new tokens, which attend to
    those before them in their text; they count once the model has read them to its last layer. Outside
    ``torch.no_grad`` it keeps the history of all that is written.

    Parameters
    ----------
    model : CausalLM
        Whose keys and values they are.
    texts, room : int
        How many texts, and the most tokens of each.
    """

    def __init__(self, model: CausalLM, texts: int, room: int):
        config, like = model.config, model.embed.weight
        self.room, self._model = check_count("room", room, 1), model
        self._graph: AttentionGraph | None = None
        shape = (2, check_count("texts", texts) * room, config.kv_heads, config.head_width)
        self._kept = [like.new_zeros(shape) for _ in range(config.num_layers)]
        self.lengths = torch.zeros(texts, dtype=torch.int64, device=like.device)

    def extend(self, new: Sequence[Sequence[int]]) -> PackedTexts:
        """Make place for new tokens of each text; return what the model takes to read them.

        Parameters
        ----------
        new : sequence of sequences of int
            Ids, a list for each text; it may be empty.

        Returns
        -------
        PackedTexts
            Ids and positions of all new tokens, and the graph from all places to them.

        Raises
        ------
        TypeError, ValueError
            If there is not one list for each text, or no room for one, or an id is not of the vocabulary;
            the cache stays as it was.
        """
        ids = self._model.ids_of(new)
        counts = torch.tensor([len(text) for text in new], dtype=torch.int64, device=ids.device)
        if counts.shape != self.lengths.shape or bool((self.lengths + counts > self.room).any()):
            raise ValueError(
                f"there is room for {(self.room - self.lengths).tolist()} tokens, got {counts.tolist()}"
            )
        before = (counts.cumsum(0) - counts).repeat_interleave(counts)
        number = torch.arange(len(before), device=before.device) - before
        positions = self.lengths.repeat_interleave(counts) + number
        first = torch.arange(len(counts), device=before.device).repeat_interleave(counts) * self.room
        self._places = first + positions
        self._graph = AttentionGraph.from_intervals(
            first, self._places + 1, len(counts) * self.room, self_attention=False
        )
        self._grown = self.lengths + counts
        return PackedTexts(ids, self._graph, positions)

    def check(self, model: CausalLM, graph: AttentionGraph) -> None:
        """Refuse a pass of another model, or on another graph than the last :meth:`extend` returned.

        Raises
        ------
        ValueError
            If it is one.
        """
        if model is not self._model or graph is not self._graph:
            whose = "model" if model is not self._model else "graph than its last extend() returned"
            raise ValueError(f"the keys and values are those of another {whose}")

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Write keys and values of the new tokens; return those of all places, [texts * room, h_kv, d_k]."""
        kept = self._kept[layer]
        kept[:, self._places] = torch.stack([k, v]).to(kept.dtype)
        if layer == len(self._kept) - 1:
            self.lengths = self._grown
        keys, values = kept.to(k.dtype)
        return keys, values


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
