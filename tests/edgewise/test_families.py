"""Families of transformers: refused, or themselves on their own graph, where nobody attends past it."""

import pytest
import torch
import transformers as hf

from edgewise import AttentionGraph, attend_along, causal, check_along, complete
from edgewise.validation import InputError

SIZES = """0 pad_token_id eos_token_id num_kv_shared_layers
1 n_group topk_group
2 num_hidden_layers n_layer n_layers num_layers decoder_layers num_experts_per_tok n_routed_experts
4 num_attention_heads num_key_value_heads n_head n_heads num_heads num_experts num_local_experts
8 head_dim v_head_dim qk_nope_head_dim qk_rope_head_dim kv_lora_rank q_lora_rank mamba_n_heads
32 hidden_size n_embd d_model dim embed_dim embedding_size word_embed_proj_dim intermediate_size
64 vocab_size vocab_size_per_layer_input max_position_embeddings image_size ffn_dim hidden_dim"""
SIZES = {name: int(line.split()[0]) for line in SIZES.splitlines() for name in line.split()[1:]}
KINDS = [("CausalLM", "CAUSAL_LM", 130, 95), ("MaskedLM", "MASKED_LM", 35, 15)]
KINDS += [("ImageClassification", "IMAGE_CLASSIFICATION", 20, 5)]
pytestmark = pytest.mark.nightly


def small(config, **given):
    given |= {name: size for name, size in SIZES.items() if isinstance(getattr(config, name, ""), int | None)}
    return config(**given, **{name: small(part) for name, part in config.sub_configs.items()})


def goes_on(model, **options):
    """Two prompts, one padded on the left, as the model continues them."""
    ids = torch.arange(5, 19).view(2, 7)
    mask = (torch.arange(7) >= torch.tensor([[3], [0]])).long()
    return model.generate(
        ids * mask, attention_mask=mask, max_new_tokens=5, do_sample=False, pad_token_id=0, eos_token_id=None,
        **options,
    )  # fmt: skip


def step(layer, n, m):
    return AttentionGraph.from_cu_seqlens([0, n], None if n == m else [0, m], causal=True)


@pytest.mark.filterwarnings("ignore")
@torch.no_grad()
def test_padded_prompts_go_on_in_every_family_that_is_taken():
    equal = 0
    for family in hf.models.auto.modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        try:  # in float64, in which eager attention of padding is NaN
            config = small(hf.CONFIG_MAPPING[family], is_decoder=True)
            model = hf.AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").double().eval()
            [torch.nn.init.normal_(parameter, std=0.2) for parameter in model.parameters()]
            expected = [goes_on(model), goes_on(model, num_beams=3)]
        except Exception:
            continue
        try:
            with attend_along(model, step):
                found = [goes_on(model), goes_on(model, num_beams=3)]
        except InputError:
            continue
        equal += 1
        assert all(map(torch.equal, found, expected)), family
    assert equal >= 60


@pytest.mark.filterwarnings("ignore")
@torch.no_grad()
@pytest.mark.parametrize(("kind", "name", "built", "equal"), KINDS)
def test_a_family_is_refused_or_itself_on_its_own_graph(kind, name, built, equal):
    graph, maker = causal if kind == "CausalLM" else complete, getattr(hf, f"AutoModelFor{kind}")
    given = torch.arange(5, 16)[None] if "LM" in kind else torch.randn(1, 3, 64, 64)
    for family in getattr(hf.models.auto.modeling_auto, f"MODEL_FOR_{name}_MAPPING_NAMES"):
        try:  # what sizes alone do not build is left out
            config = small(hf.CONFIG_MAPPING[family], is_decoder=graph is causal)
            with torch.device("meta"):
                assert sum(p.numel() for p in maker.from_config(config).parameters()) < 5e7
            model = maker.from_config(config, attn_implementation="eager").eval()
            [torch.nn.init.normal_(parameter, std=0.2) for parameter in model.parameters()]
            own = model(given).logits
        except Exception:
            continue
        built -= 1
        try:
            with attend_along(model, lambda layer, n, m: graph(n)):
                found = model(given).logits
        except InputError:
            continue
        equal -= 1
        torch.testing.assert_close(found, own, atol=1e-4 * max(1, own.abs().max()), rtol=0, msg=family)
        if "LM" in kind:
            check_along(model)
    assert max(built, equal) <= 0, (built, equal)
