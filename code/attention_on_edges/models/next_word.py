"""Chapter 15: how a language model continues a text, as lines between its tokens are cut."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from edgewise import attend_along, causal
from edgewise.validation import InputError

START = "<|endoftext|>"
"""Leads every text, and is never cut off: heads park their weight on a text's first token."""

MOST = 500
"""Tokens of a text."""

ROWS = 32
"""Copies of a text that are run at a time."""


class NextWord:
    """A text, on its causal graph, and the word that comes next.

    A *line* is a pair of a sender and a later receiver, in all layers and heads. An *edge* is one of one
    layer and one head. Whoever cuts lines or edges gives the weight of the receiver to its other edges.

    Parameters
    ----------
    tokenizer, model
        As :func:`language_model` returns them.
    text : str
        At most ``MOST`` tokens.

    Attributes
    ----------
    ids : Tensor
        int64 [n], the start token first.
    pieces : list of str
        What each of them says, the start token nothing.
    graph : AttentionGraph
        Causal, over the n tokens.

    Raises
    ------
    InputError
        If the text is empty or too long.
    """

    def __init__(self, tokenizer: Any, model: Any, text: str):
        ids = tokenizer(text.strip()).input_ids
        if not 0 < len(ids) <= MOST:
            raise InputError(f"the text must have 1 to {MOST} tokens, got {len(ids)}")
        self.tokenizer, self.model = tokenizer, model
        self.ids = torch.tensor([tokenizer.convert_tokens_to_ids(START), *ids])
        self.pieces = ["", *(tokenizer.decode([i]) for i in ids)]
        self.graph = causal([len(self.ids)])

    def places(self, word: str) -> list[list[int]]:
        """Return the places of a word's tokens, each time that it occurs.

        Raises
        ------
        InputError
            If it does not.
        """
        stops = torch.tensor([len(piece) for piece in self.pieces]).cumsum(0).tolist()
        text, found, at = "".join(self.pieces), [], -1
        while (at := text.find(word, at + 1)) >= 0:
            end = at + len(word)
            whole = not text[at - 1 : at].isalnum() or at == 0, not text[end : end + 1].isalnum()
            if all(whole):
                starts = zip([0, *stops], stops, strict=False)
                found.append([i for i, (a, b) in enumerate(starts) if a < end and b > at and i])
        if not word or not found:
            raise InputError(f"{word!r} is not a word of the text")
        return found

    @cached_property
    def numbers(self) -> Tensor:
        """Number of each line in ``graph``, int64 [n, n], by receiver and sender; -1 where there is none."""
        n = len(self.ids)
        number = torch.full((n, n), -1)
        number[self.graph.dst, self.graph.src] = torch.arange(self.graph.num_edges)
        return number

    def without(self, lines: Sequence[tuple[int, int]]) -> Tensor:
        """Return which lines are cut, bool [E], if these are: pairs of sender and receiver."""
        cut = torch.zeros(self.graph.num_edges, dtype=torch.bool)
        if lines:
            senders, receivers = zip(*lines, strict=True)
            cut[self.numbers[list(receivers), list(senders)]] = True
        return cut

    def silenced(self, places: Sequence[int]) -> list[tuple[int, int]]:
        """Return all lines from these places to later ones outside of them."""
        return [(s, r) for s in places for r in range(s + 1, len(self.ids)) if r not in places]

    @torch.no_grad()
    def log_probs(self, cuts: Tensor) -> Tensor:
        """Return the log-probabilities of the next token, [B, vocabulary], for each of B cut graphs.

        Parameters
        ----------
        cuts : Tensor
            bool [B, E] of lines, or [B, layers, E, h] of edges: True where cut.
        """
        return torch.cat([self._part(part) for part in cuts.split(ROWS)])

    def _part(self, cuts: Tensor) -> Tensor:
        count, n, heads = len(cuts), len(self.ids), self.model.config.num_attention_heads
        edges = cuts[:, None, :, None] if cuts.dim() == 2 else cuts
        edges = edges.expand(-1, -1, -1, heads).transpose(0, 1).flatten(1, 2)  # [layers or 1, B * E, h]
        bias = torch.zeros(edges.shape).masked_fill(edges, -torch.inf)
        last = torch.arange(1, count + 1) * n - 1
        with attend_along(self.model, causal([n] * count), lambda layer: bias[min(layer, len(bias) - 1)]):
            logits = self.model(
                self.ids.repeat(count)[None],
                position_ids=torch.arange(n).repeat(count)[None],
                use_cache=False,
                logits_to_keep=last,
            ).logits[0]
        return logits.log_softmax(-1)

    def likeliest(self, log_probs: Tensor, count: int = 5) -> list[tuple[str, float]]:
        """Return the most probable next tokens, and their probabilities, of one row."""
        found = log_probs.exp().topk(count)
        return [(self.tokenizer.decode([int(i)]), float(p)) for p, i in zip(*found, strict=True)]
