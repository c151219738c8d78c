"""Training of decoder-only models, beside that of Hugging Face's ``transformers``."""

import copy
import importlib
import math
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from attention_on_edges.bench.harness import Case, Run, in_turns
from attention_on_edges.models.from_transformers import from_transformers
from edgewise.graphs import causal
from edgewise.interop import attend_along

VOCAB = 4000

LLAMA = {"hidden_size": 256, "intermediate_size": 688, "num_hidden_layers": 4}
"""The model whose training is timed."""

Texts = list[list[int]]


def _their(name: str) -> Any:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "IProgress not found")  # a progress bar that nobody asked for
        return getattr(importlib.import_module("transformers"), name)


def llama(**sizes: Any) -> nn.Module:
    """Their model with 8 heads, 2 of keys and values, and random weights."""
    heads = {"vocab_size": VOCAB, "num_key_value_heads": 2, "num_attention_heads": 8}
    return _their("LlamaForCausalLM")(_their("LlamaConfig")(**heads, **sizes, use_cache=False))


def _texts_of(count: int, mean: float, longest: int) -> Texts:
    """Draw ids of texts whose lengths are log-normal, as those of sentences are."""
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randn(count, generator=generator) * 0.4 + math.log(mean) - 0.08
    lengths = drawn.exp().round().clamp(3, longest).long().tolist()
    return [torch.randint(1, VOCAB, (n,), generator=generator).tolist() for n in lengths]


TRAINED: dict[str, Texts] = {
    "128 texts of about 14 tokens": _texts_of(128, 14, 45),
    "16 texts of about 200 tokens": _texts_of(16, 200, 640),
}


def _padded(texts: Texts) -> tuple[Tensor, Tensor]:
    """Pad texts on their right: ids [B, longest], and where they are real."""
    lengths = torch.tensor([len(text) for text in texts])
    ids = nn.utils.rnn.pad_sequence([torch.tensor(text) for text in texts], batch_first=True)
    return ids, torch.arange(ids.shape[1]) < lengths[:, None]


def causal_plan(small: bool = False) -> dict[str, Run]:
    """How fast a model trains."""
    sizes, texts = (
        (dict.fromkeys(LLAMA, 16), {"three texts": _texts_of(3, 4, 9)}) if small else (LLAMA, TRAINED)
    )
    return {name: in_turns(lambda _, name=name: causal_case(name, texts[name], sizes)) for name in texts}


def causal_case(workload: str, texts: Texts, sizes: dict[str, int] = LLAMA) -> Case:
    """Updates of a Llama with 8 heads and 2 of keys and values, in float32, from lists of ids to new weights.

    ``packed`` is the model that ``from_transformers`` makes; the others are ``LlamaForCausalLM`` itself on
    padded ids: with its own loss; with the output layer and the loss on real tokens only; and this in four
    groups of similar length, whose gradients add up to one update. Or on packed ids: told apart by their
    positions, under a mask of all pairs; and by ``attend_along``.
    """
    torch.manual_seed(0)
    theirs, tokens = llama(**sizes), sum(len(text) - 1 for text in texts)
    models: dict[str, nn.Module] = {"packed": from_transformers(theirs)}
    models |= {name: copy.deepcopy(theirs) for name in LOSSES if name != "packed"}
    updates = {name: _update(model, LOSSES[name], texts) for name, model in models.items()}
    return Case(workload, updates, first="packed", facts=lambda _: {"tokens": tokens})


def _next_tokens(texts: Texts) -> Tensor:
    """What follows each token but a text's last: ids [t]."""
    return torch.tensor([i for text in texts for i in text[1:]])


def _packed_loss(model: Any, texts: Texts) -> Tensor:
    """Mean loss of each next token, packed."""
    return cross_entropy(model(*model.pack([text[:-1] for text in texts])), _next_tokens(texts))


def _padded_loss(model: Any, texts: Texts) -> Tensor:
    """The loss that ``transformers`` computes from padded ids."""
    ids, mask = _padded(texts)
    return model(input_ids=ids, attention_mask=mask.long(), labels=ids.masked_fill(~mask, -100)).loss


def _real_loss(model: Any, texts: Texts) -> Tensor:
    """The same loss, its logits computed for real tokens alone."""
    ids, mask = _padded(texts)
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


def _update(model: nn.Module, loss: Callable[[Any, Texts], Tensor], texts: Texts) -> Callable[[], None]:
    opt = torch.optim.Adam(model.train().parameters(), 1e-4)

    def update() -> None:
        opt.zero_grad()
        loss(model, texts).backward()
        opt.step()

    return update
