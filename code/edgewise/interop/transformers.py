"""Chapter 13: weights of GPT-2, Llama and Mistral from Hugging Face's transformers."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from edgewise.models.causal_lm import CausalLM, CausalLMConfig
from edgewise.validation import InputError, UnknownNameError, kind_of

BUFFERS = (".attn.bias", ".attn.masked_bias", "rotary_emb.inv_freq")
"""Ends of the names of tensors that are no weights: masks and frequencies that some versions keep."""

Parts = Iterator[tuple[str, tuple[str, ...]]]
"""Names of our tensors, each with the names of those that it is made of, one below the other."""


def from_transformers(model: Any) -> CausalLM:
    """Return a model with the weights of ``GPT2LMHeadModel``, ``LlamaForCausalLM`` or ``MistralForCausalLM``.

    Its logits are equal to those of the model in evaluation mode; dropout does not come over. Mode, dtype and
    device are the model's.

    Parameters
    ----------
    model : transformers.PreTrainedModel
        Read from a folder or made anew. Its weights are copied.

    Returns
    -------
    CausalLM
        Of the same sizes; grouped heads, windows, rotary or learned positions come over.

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
    kinds = {"gpt2": (_gpt2, _gpt2_parts), "llama": (_llama, _llama_parts), "mistral": (_llama, _llama_parts)}
    if theirs.model_type not in kinds:
        raise UnknownNameError(f"architecture must be one of {', '.join(kinds)}; got {theirs.model_type!r}")
    config_of, parts_of = kinds[theirs.model_type]
    _require(theirs, is_causal=True)
    with torch.device("meta"):
        ours = CausalLM(config_of(theirs))
    tensors, transposed = model.state_dict(), theirs.model_type == "gpt2"
    state: dict[str, Tensor] = {}
    used: set[str] = set()
    for name, parts in parts_of(theirs):
        if missing := [part for part in parts if part not in tensors]:
            raise InputError(
                f"the model has no tensor {missing[0]!r}; it must be one that AutoModelForCausalLM gives"
            )
        state[name] = torch.cat([_turned(part, tensors[part], transposed) for part in parts])
        used.update(parts)
    if unknown := [name for name in tensors if name not in used and not name.endswith(BUFFERS)]:
        raise InputError(f"the model has a tensor that has no place in a conversion: {unknown[0]!r}")
    if ours.config.tied and not torch.equal(state["out.weight"], state["embed.weight"]):
        raise InputError("tie_word_embeddings is True, but the output layer has weights of its own")
    ours.load_state_dict(state, assign=True)
    if ours.config.tied:
        ours.out.weight = ours.embed.weight
    return ours.train(model.training)


def _turned(name: str, tensor: Tensor, transposed: bool) -> Tensor:
    """GPT-2's linear maps are stored transposed."""
    return tensor.T if transposed and ".c_" in name and tensor.dim() == 2 else tensor


def _require(config: Any, **settings: Any) -> None:
    for name, value in settings.items():
        if (found := getattr(config, name, value)) != value:
            raise InputError(f"{name} must be {value!r} for a conversion, got {found!r}")


def _gpt2(config: Any) -> CausalLMConfig:
    _require(config, activation_function="gelu_new", scale_attn_weights=True, add_cross_attention=False)
    _require(config, scale_attn_by_inverse_layer_idx=False)
    width = config.n_embd
    return CausalLMConfig(
        config.vocab_size,
        config.n_layer,
        width,
        config.n_inner or 4 * width,
        config.n_head,
        norm="layer",
        activation="gelu",
        max_positions=config.n_positions,
        bias=True,
        tied=config.tie_word_embeddings,
        eps=config.layer_norm_epsilon,
    )


def _llama(config: Any) -> CausalLMConfig:
    _require(config, hidden_act="silu")
    if config.model_type == "llama":  # Mistral has no such settings
        _require(config, attention_bias=False, mlp_bias=False)
    rope = getattr(config, "rope_parameters", None)
    if rope is None:
        raise InputError(
            "the model's config has no rope_parameters: a conversion needs transformers 5 or newer"
        )
    if rope["rope_type"] != "default":
        raise InputError(f"rope_type must be 'default' for a conversion, got {rope['rope_type']!r}")
    return CausalLMConfig(
        config.vocab_size,
        config.num_hidden_layers,
        config.hidden_size,
        config.intermediate_size,
        config.num_attention_heads,
        config.num_key_value_heads,
        config.head_dim,
        rope_base=rope["rope_theta"],
        window=config.sliding_window if config.model_type == "mistral" else None,
        tied=config.tie_word_embeddings,
        eps=config.rms_norm_eps,
    )


def _gpt2_parts(config: Any) -> Parts:
    yield "embed.weight", ("transformer.wte.weight",)
    yield "places.weight", ("transformer.wpe.weight",)
    names = {"attention_norm": "ln_1", "qkv": "attn.c_attn", "attention_out": "attn.c_proj"}
    names |= {"feed_forward_norm": "ln_2", "inner": "mlp.c_fc", "outer": "mlp.c_proj"}
    for layer in range(config.n_layer):
        for ours, theirs in names.items():
            for kind in ("weight", "bias"):
                yield f"layers.{layer}.{ours}.{kind}", (f"transformer.h.{layer}.{theirs}.{kind}",)
    yield "norm.weight", ("transformer.ln_f.weight",)
    yield "norm.bias", ("transformer.ln_f.bias",)
    yield "out.weight", ("lm_head.weight",)


def _llama_parts(config: Any) -> Parts:
    yield "embed.weight", ("model.embed_tokens.weight",)
    names = {
        "attention_norm": ("input_layernorm",),
        "qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
        "attention_out": ("self_attn.o_proj",),
        "feed_forward_norm": ("post_attention_layernorm",),
        "inner": ("mlp.gate_proj", "mlp.up_proj"),
        "outer": ("mlp.down_proj",),
    }
    for layer in range(config.num_hidden_layers):
        for ours, theirs in names.items():
            parts = tuple(f"model.layers.{layer}.{part}.weight" for part in theirs)
            yield f"layers.{layer}.{ours}.weight", parts
    yield "norm.weight", ("model.norm.weight",)
    yield "out.weight", ("lm_head.weight",)
