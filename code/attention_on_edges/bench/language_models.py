"""Decoder-only models and Hugging Face's ``transformers``: the same results, and speed of training."""

import copy
import importlib
import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from attention_on_edges.bench.baselines import PaddedAttention
from attention_on_edges.bench.harness import Case, Row, Run, in_turns
from edgewise.graphs import causal
from edgewise.interop import attend_along, from_transformers

VOCAB = 4000

LLAMA = {"hidden_size": 256, "intermediate_size": 688, "num_hidden_layers": 4}
"""The model whose training is timed."""

Texts = list[list[int]]


def _their(name: str) -> Any:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "IProgress not found")  # a progress bar that nobody asked for
        return getattr(importlib.import_module("transformers"), name)


HEADS = {"vocab_size": VOCAB, "num_key_value_heads": 2, "num_attention_heads": 8}


def _llama(**sizes: Any) -> nn.Module:
    return _their("LlamaForCausalLM")(_their("LlamaConfig")(**HEADS, **sizes, use_cache=False))


def _mistral(**sizes: Any) -> nn.Module:
    return _their("MistralForCausalLM")(_their("MistralConfig")(**HEADS, **sizes, sliding_window=16))


def _gpt2(hidden_size: int, intermediate_size: int, num_hidden_layers: int) -> nn.Module:
    sizes = {"n_embd": hidden_size, "n_inner": intermediate_size, "n_layer": num_hidden_layers}
    sizes |= {"vocab_size": VOCAB, "n_head": 8, "bos_token_id": 0, "eos_token_id": 0}
    return _their("GPT2LMHeadModel")(_their("GPT2Config")(**sizes))


ARCHITECTURES: dict[str, Callable[..., nn.Module]] = {"GPT-2": _gpt2, "Llama": _llama, "Mistral": _mistral}
"""Their models, small and with random weights; Mistral's window is 16 tokens."""


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


def compare_with_transformers() -> list[Row]:
    """Largest differences of logits and gradients on eight texts: packed along a graph, and padded.

    Of three models of ``transformers`` whose attention runs along our graph, and of our own class with the
    weights of their Llama.
    """
    rows, texts = [], _texts_of(8, 35, 60)
    lengths = [len(text) for text in texts]
    ids, mask = _padded(texts)
    packed = {"input_ids": ids[mask][None], "position_ids": mask.nonzero()[None, :, 1]}
    for name, build in ARCHITECTURES.items():
        torch.manual_seed(0)
        theirs = build(hidden_size=64, intermediate_size=128, num_hidden_layers=2).eval()
        with torch.no_grad():
            for parameter in theirs.parameters():
                parameter.add_(0.1 * torch.randn_like(parameter))
        expected = theirs(input_ids=ids, attention_mask=mask.long()).logits[mask]
        upstream = torch.randn_like(expected) / len(expected)
        wanted = torch.autograd.grad(expected, list(theirs.parameters()), upstream)
        with attend_along(theirs, causal(lengths)):
            logits = theirs(**packed, use_cache=False).logits[0]
        found = torch.autograd.grad(logits, list(theirs.parameters()), upstream)
        rows.append(_differences(f"{name} on a graph", logits - expected, found, wanted))
        if name == "Llama":
            ours, gradients = from_transformers(theirs), copy.deepcopy(theirs)
            with torch.no_grad():  # a model whose weights are gradients is converted in the same way
                for parameter, gradient in zip(gradients.parameters(), wanted, strict=True):
                    parameter.copy_(gradient)
            logits = ours(*ours.pack(texts))
            found = torch.autograd.grad(logits, list(ours.parameters()), upstream)
            turned = list(from_transformers(gradients).parameters())
            rows.append(_differences("Llama, converted", logits - expected, found, turned))
    return rows


def _differences(name: str, logits: Tensor, found: Sequence[Tensor], wanted: Sequence[Tensor]) -> Row:
    worst = max(float((x - y).detach().abs().max()) for x, y in zip(found, wanted, strict=True))
    figures = {"parameters": sum(x.numel() for x in wanted), "logits": float(logits.detach().abs().max())}
    return {"workload": "equality", "contestant": name, **figures, "gradients": worst}


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
    positions, under a mask of all pairs; and with attention that pads by hand around itself.
    """
    torch.manual_seed(0)
    theirs, tokens = _llama(**sizes), sum(len(text) - 1 for text in texts)
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


def _grouped_loss(model: Any, texts: Texts, groups: int = 4) -> Tensor:
    """The same loss, from groups of texts of similar length, each padded by itself."""
    ordered, count = sorted(texts, key=len), -(-len(texts) // groups)
    parts = [ordered[first : first + count] for first in range(0, len(texts), count)]
    tokens = [sum(len(text) - 1 for text in part) for part in parts]
    losses = [_real_loss(model, part) * n for part, n in zip(parts, tokens, strict=True)]
    return torch.stack(losses).sum() / sum(tokens)


def _in_a_row_loss(model: Any, texts: Texts, **attention: Any) -> Tensor:
    """The same loss, all texts in one row; ``transformers`` sees by the positions where each begins."""
    ids = torch.tensor([i for text in texts for i in text[:-1]])
    positions = torch.cat([torch.arange(len(text) - 1) for text in texts])
    row = {"input_ids": ids[None], "position_ids": positions[None]}
    states = model.model(**row, **attention).last_hidden_state[0]
    return cross_entropy(model.lm_head(states), _next_tokens(texts))


def _by_hand_loss(model: Any, texts: Texts) -> Tensor:
    """The same loss, all texts in one row, padded around attention alone."""
    _their("AttentionInterface").register("by hand", _attend_by_hand)
    model.set_attn_implementation("by hand")
    padded = PaddedAttention([len(text) - 1 for text in texts], causal=True)
    return _in_a_row_loss(model, texts, padded=padded)


def _attend_by_hand(
    module: nn.Module, q: Tensor, k: Tensor, v: Tensor, mask: None, *, padded: PaddedAttention, **_: Any
) -> tuple[Tensor, None]:
    """Attention as ``transformers`` calls it: queries [1, h, n, d] to outputs [1, n, h, d]."""
    group = q.shape[1] // k.shape[1]
    heads = (q, k.repeat_interleave(group, 1), v.repeat_interleave(group, 1))
    return padded(*(x[0].transpose(0, 1) for x in heads))[None], None


LOSSES: dict[str, Callable[[Any, Texts], Tensor]] = {
    "packed": _packed_loss,
    "LlamaForCausalLM": _padded_loss,
    "the same, loss on real tokens": _real_loss,
    "the same, in four groups by length": _grouped_loss,
    "the same, packed by position_ids": _in_a_row_loss,
    "the same, packed by hand": _by_hand_loss,
}
"""The contestants: the first is ours, the others are of the library's own model."""


def _update(model: nn.Module, loss: Callable[[Any, Texts], Tensor], texts: Texts) -> Callable[[], None]:
    opt = torch.optim.Adam(model.train().parameters(), 1e-4)

    def update() -> None:
        opt.zero_grad()
        loss(model, texts).backward()
        opt.step()

    return update
