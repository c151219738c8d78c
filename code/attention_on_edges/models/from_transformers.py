"""Chapter 13: weights of a Llama from Hugging Face's transformers."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from attention_on_edges.models.causal_lm import CausalLM, CausalLMConfig
from edgewise.validation import InputError, UnknownNameError, kind_of

BUFFER = "rotary_emb.inv_freq"
"""End of the name of a tensor that is no weight: frequencies, which some versions keep."""

REQUIRED = {"is_causal": True, "hidden_act": "silu", "attention_bias": False, "mlp_bias": False}
"""Settings that would change the result."""


def from_transformers(model: Any) -> CausalLM:
    """Return a model with the weights of ``LlamaForCausalLM``; other models take :func:`attend_along`.

    Its logits are equal to those of the model in evaluation mode; dropout does not come over. Mode, dtype and
    device are the model's.

    Parameters
    ----------
    model : transformers.LlamaForCausalLM
        Read from a folder or made anew. Its weights are copied.

    Returns
    -------
    CausalLM
        Of the same sizes.

    Raises
    ------
    UnknownNameError
        If it is of another architecture.
    InputError
        If it has a setting that would change the result and is not known here, or lacks a tensor.
    """
    theirs = getattr(model, "config", None)
    if theirs is None:
        raise TypeError(f"model must be a model of transformers, got {kind_of(model)}")
    if theirs.model_type != "llama":
        raise UnknownNameError(
            f"architecture must be 'llama', got {theirs.model_type!r}; attend_along takes other models"
        )
    with torch.device("meta"):
        ours = CausalLM(_config(theirs))
    tensors, state, used = model.state_dict(), dict[str, Tensor](), set[str]()
    frozen, learned = {name for name, x in model.named_parameters() if not x.requires_grad}, set[str]()
    for name, parts in _parts(theirs.num_hidden_layers):
        if missing := [part for part in parts if part not in tensors]:
            raise InputError(
                f"the model has no tensor {missing[0]!r}; it must be one that AutoModelForCausalLM gives"
            )
        state[name] = torch.cat([tensors[part] for part in parts])
        used.update(parts)
        learned |= set() if frozen.issuperset(parts) else {name}
    if unknown := [name for name in tensors if name not in used and not name.endswith(BUFFER)]:
        raise InputError(f"the model has a tensor that has no place in a conversion: {unknown[0]!r}")
    if ours.config.tied and not torch.equal(state["out.weight"], state["embed.weight"]):
        raise InputError("tie_word_embeddings is True, but the output layer has weights of its own")
    ours.load_state_dict(state, assign=True)
    for name, x in ours.named_parameters():
        x.requires_grad_(name in learned)
    if ours.config.tied:
        ours.out.weight = ours.embed.weight
    return ours.train(model.training)


def _config(theirs: Any) -> CausalLMConfig:
    for name, value in REQUIRED.items():
        if (found := getattr(theirs, name, value)) != value:
            raise InputError(f"{name} must be {value!r} for a conversion, got {found!r}")
    rope = getattr(theirs, "rope_parameters", None)
    if rope is None:
        raise InputError(
            "the model's config has no rope_parameters: a conversion needs transformers 5 or newer"
        )
    if rope["rope_type"] != "default":
        raise InputError(f"rope_type must be 'default' for a conversion, got {rope['rope_type']!r}")
    return CausalLMConfig(
        theirs.vocab_size,
        theirs.num_hidden_layers,
        theirs.hidden_size,
        theirs.intermediate_size,
        theirs.num_attention_heads,
        theirs.num_key_value_heads,
        theirs.head_dim,
        rope_base=rope["rope_theta"],
        tied=theirs.tie_word_embeddings,
        eps=theirs.rms_norm_eps,
    )


def _parts(num_layers: int) -> Iterator[tuple[str, list[str]]]:
    """Names of our tensors, each with the names of those that it is made of, one below the other."""
    yield "embed.weight", ["model.embed_tokens.weight"]
    names = {
        "attention_norm": ["input_layernorm"],
        "qkv": ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"],
        "attention_out": ["self_attn.o_proj"],
        "feed_forward_norm": ["post_attention_layernorm"],
        "inner": ["mlp.gate_proj", "mlp.up_proj"],
        "outer": ["mlp.down_proj"],
    }
    for layer in range(num_layers):
        for ours, theirs in names.items():
            parts = [f"model.layers.{layer}.{part}.weight" for part in theirs]
            yield f"layers.{layer}.{ours}.weight", parts
    yield "norm.weight", ["model.norm.weight"]
    yield "out.weight", ["lm_head.weight"]
