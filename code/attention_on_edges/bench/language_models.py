"""Training of decoder-only models, beside that of Hugging Face's ``transformers``."""

import copy
import importlib
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from attention_on_edges.bench.baselines import pad
from attention_on_edges.bench.harness import Case, Run, in_turns
from attention_on_edges.bench.training import sentence_lengths
from attention_on_edges.models.from_transformers import from_transformers
from edgewise.graphs import causal
from edgewise.interop import attend_along

VOCAB = 4000

LLAMA = {"hidden_size": 256, "intermediate_size": 688, "num_hidden_layers": 4}
"""The model whose training is timed."""

Texts = list[list[int]]


def llama(**sizes: Any) -> nn.Module:
    """Their model with 8 heads, 2 of keys and values, and random weights."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "IProgress not found")  # a progress bar that nobody asked for
        theirs = importlib.import_module("transformers")
    heads = {"vocab_size": VOCAB, "num_key_value_heads": 2, "num_attention_heads": 8}
    return theirs.LlamaForCausalLM(theirs.LlamaConfig(**heads, **sizes, use_cache=False))


def texts_of(count: int, mean: float, longest: int) -> Texts:
    """Draw ids of texts."""
    generator = torch.Generator().manual_seed(0)
    lengths = sentence_lengths(count, mean, longest, generator).tolist()
    return [torch.randint(1, VOCAB, (n,), generator=generator).tolist() for n in lengths]


def causal_plan(small: bool = False) -> dict[str, Run]:
    """How fast a model trains."""
    sizes = dict.fromkeys(LLAMA, 16) if small else LLAMA
    drawn = {"128 texts of about 14 tokens": (128, 14, 45), "16 texts of about 200 tokens": (16, 200, 640)}
    drawn = {"three texts": (3, 4, 9)} if small else drawn
    return {
        name: in_turns(lambda _, name=name: causal_case(name, texts_of(*drawn[name]), sizes))
        for name in drawn
    }


def causal_case(workload: str, texts: Texts, sizes: dict[str, int] = LLAMA) -> Case:
    """Updates of a Llama with 8 heads and 2 of keys and values, in float32, from lists of ids to new weights.

    ``packed`` is the model that ``from_transformers`` makes; the others are ``LlamaForCausalLM`` itself on
    padded ids: with its own loss; with the output layer and the loss on real tokens only; and this in four
    groups of similar length, whose gradients add up to one update. Or on packed ids: told apart by their
    positions, under a mask of all pairs; and by ``attend_along``.
    """
    torch.manual_seed(0)
    theirs, tokens = llama(**sizes), sum(len(text) - 1 for text in texts)
    models = {name: copy.deepcopy(theirs) for name in LOSSES} | {"packed": from_transformers(theirs)}
    updates = {name: _update(model, LOSSES[name], texts) for name, model in models.items()}
    return Case(workload, updates, first="packed", facts=lambda _: {"tokens": tokens})


def _update(model: nn.Module, loss: Callable[[Any, Texts], Tensor], texts: Texts) -> Callable[[], None]:
    opt = torch.optim.Adam(model.train().parameters(), 1e-4)

    def update() -> None:
        opt.zero_grad()
        loss(model, texts).backward()
        opt.step()

    return update


def _next_tokens(texts: Texts) -> Tensor:
    """What follows each token but a text's last: ids [t]."""
    return torch.tensor([i for text in texts for i in text[1:]])


def _packed_loss(model: Any, texts: Texts) -> Tensor:
    """Mean loss of each next token, packed."""
    logits = model(*model.pack([text[:-1] for text in texts]))
    return cross_entropy(logits, _next_tokens(texts))


def _padded_loss(model: Any, texts: Texts) -> Tensor:
    """The loss that ``transformers`` computes from padded ids."""
    ids, padding = pad([torch.tensor(text) for text in texts])
    labels = ids.masked_fill(padding, -100)
    return model(input_ids=ids, attention_mask=(~padding).long(), labels=labels).loss


def _real_loss(model: Any, texts: Texts) -> Tensor:
    """The same loss, its logits computed for real tokens alone."""
    ids, padding = pad([torch.tensor(text) for text in texts])
    mask = ~padding
    states = model.model(input_ids=ids[:, :-1], attention_mask=mask[:, :-1].long()).last_hidden_state
    return cross_entropy(model.lm_head(states[mask[:, 1:]]), ids[:, 1:][mask[:, 1:]])


def _grouped_loss(model: Any, texts: Texts) -> Tensor:
    """The same loss, from four groups of texts of similar length, each padded by itself."""
    ordered, count = sorted(texts, key=len), -(-len(texts) // 4)
    parts = [ordered[first : first + count] for first in range(0, len(texts), count)]
    tokens = [sum(len(text) - 1 for text in part) for part in parts]
    losses = [_real_loss(model, part) * n for part, n in zip(parts, tokens, strict=True)]
    return torch.stack(losses).sum() / sum(tokens)


def _in_a_row_loss(model: Any, texts: Texts) -> Tensor:
    """The same loss, all texts in one row; ``transformers`` sees by the positions where each begins."""
    ids = torch.tensor([i for text in texts for i in text[:-1]])
    positions = torch.cat([torch.arange(len(text) - 1) for text in texts])
    states = model.model(input_ids=ids[None], position_ids=positions[None]).last_hidden_state[0]
    return cross_entropy(model.lm_head(states), _next_tokens(texts))


def _along_loss(model: Any, texts: Texts) -> Tensor:
    """The same loss, all texts in one row, each a piece of a graph."""
    with attend_along(model, causal([len(text) - 1 for text in texts])):
        return _in_a_row_loss(model, texts)


LOSSES: dict[str, Callable[[Any, Texts], Tensor]] = {
    "packed": _packed_loss,
    "LlamaForCausalLM": _padded_loss,
    "the same, loss on real tokens": _real_loss,
    "the same, in four groups by length": _grouped_loss,
    "the same, packed by position_ids": _in_a_row_loss,
    "the same, along a graph": _along_loss,
}
"""The contestants: the first is of our model, the others of theirs."""
