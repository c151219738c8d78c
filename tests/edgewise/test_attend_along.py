"""Models of Hugging Face's transformers on graphs, through their attention interface."""

import copy

import pytest
import torch
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    BertConfig,
    BloomConfig,
    FalconConfig,
    Gemma2Config,
    Gemma3TextConfig,
    GPT2Config,
    GptOssConfig,
    JambaConfig,
    LlamaConfig,
    MambaConfig,
    MistralConfig,
    Qwen2Config,
    StaticCache,
    T5Config,
)

from edgewise import AttentionGraph, attend_along, causal, complete
from edgewise.validation import InputError

SIZES = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
GROUPED = SIZES | {"vocab_size": 40, "num_key_value_heads": 2, "head_dim": 8, "pad_token_id": 0}
SLIDING = {"sliding_window": 5, "layer_types": ["sliding_attention", "full_attention"]}
CONFIGS = {
    "Llama": lambda: LlamaConfig(**GROUPED),
    "Qwen2": lambda: Qwen2Config(**GROUPED, use_sliding_window=True, max_window_layers=0, **SLIDING),
    "Mistral": lambda: MistralConfig(**GROUPED, sliding_window=5),
    "Gemma 3": lambda: Gemma3TextConfig(**GROUPED, query_pre_attn_scalar=3, **SLIDING),
    "GPT-2": lambda: GPT2Config(
        vocab_size=40, n_embd=32, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=0
    ),
}
OTHERS = {"vocab_size": 40, "hidden_size": 32, "num_hidden_layers": 2}
REFUSED = {
    "softcap": lambda: Gemma2Config(**GROUPED),
    "s_aux": lambda: GptOssConfig(**GROUPED, num_local_experts=2, num_experts_per_tok=1),
    "bloom does not ask": lambda: BloomConfig(**OTHERS, n_head=4),
    "falcon does not ask": lambda: FalconConfig(**OTHERS, num_attention_heads=4),
    r"layers \[0, 1\] of mamba did not ask": lambda: MambaConfig(**OTHERS),
    r"layers \[0\] of jamba did not ask": lambda: JambaConfig(
        **GROUPED, num_experts=1, attn_layer_period=2, attn_layer_offset=1
    ),
    "t5 attends from one text to another": lambda: T5Config(vocab_size=40, d_model=32, d_ff=48, num_layers=2),
}
LENGTHS = [13, 7, 1]
PLACES = torch.cat([torch.arange(n) for n in LENGTHS])[None]
IDS = torch.randint(1, 40, (1, sum(LENGTHS)), generator=torch.Generator().manual_seed(0))
GRAPH = causal(LENGTHS)


def made(config, auto=AutoModelForCausalLM):
    torch.manual_seed(0)
    model = auto.from_config(config).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    return model


@pytest.fixture(params=CONFIGS)
def model(request, doubled):
    return made(CONFIGS[request.param]())


def packed(model, **changes):
    return model(**{"input_ids": IDS, "position_ids": PLACES, "use_cache": False} | changes).logits


def test_packed_texts_are_those_one_by_one_in_logits_and_gradients(model):
    """Beyond the window, with weights that are not flat; the model is as it was after it."""
    upstream = torch.randn(1, sum(LENGTHS), 40)
    alone = torch.cat([model(text, use_cache=False).logits for text in IDS.split(LENGTHS, 1)], 1)
    expected = torch.autograd.grad((alone * upstream).sum(), model.parameters())
    before = model.config._attn_implementation
    with attend_along(model, GRAPH):
        found = packed(model)
    torch.testing.assert_close(found, alone, atol=1e-5, rtol=1e-5)
    gradients = torch.autograd.grad((found * upstream).sum(), model.parameters())
    torch.testing.assert_close(gradients, expected, atol=1e-4, rtol=1e-4)
    assert model.config._attn_implementation == before
    torch.testing.assert_close(model(IDS[:, :13], use_cache=False).logits, alone[:, :13])


def test_a_batch_shares_the_graph(model):
    rows = torch.cat([IDS, IDS.flip(1)])
    with attend_along(model, GRAPH):
        found = packed(model, input_ids=rows, position_ids=PLACES.expand(2, -1))
        torch.testing.assert_close(found[1:], packed(model, input_ids=rows[1:]), atol=1e-5, rtol=1e-5)
    if getattr(model.config, "sliding_window", None) is None:
        with attend_along(model, GRAPH, torch.randn(GRAPH.num_edges, 4)):
            found = packed(model, input_ids=rows, position_ids=PLACES.expand(2, -1))
            torch.testing.assert_close(found[1:], packed(model, input_ids=rows[1:]), atol=1e-5, rtol=1e-5)


def test_graphs_and_biases_by_layer(model):
    """An edge that one layer has not is one whose score is minus infinity there, in all heads."""
    kept = (GRAPH.src != 9) | (GRAPH.dst != 11)
    cut = AttentionGraph.from_edge_index(GRAPH.edge_index[:, kept], GRAPH.num_src)
    bias = torch.zeros(GRAPH.num_edges, 4).masked_fill(~kept[:, None], -torch.inf)
    with attend_along(model, GRAPH):
        whole = packed(model)
    with attend_along(model, lambda layer, n, m: cut if layer else GRAPH):
        found = packed(model)
    changed = (found - whole).abs().amax((0, 2)) > 1e-4
    assert changed.nonzero().flatten().tolist() == [11]
    if getattr(model.config, "sliding_window", None) is None:
        with attend_along(model, GRAPH, lambda layer: bias * layer if layer else torch.zeros_like(bias)):
            torch.testing.assert_close(packed(model), found, atol=1e-5, rtol=1e-5)
    else:
        with pytest.raises(InputError, match="window of 5 leaves out"), attend_along(model, GRAPH, bias):
            packed(model)


def test_a_step_with_a_cache_attends_to_what_the_function_says(model):
    """Without a choice of its own it is what the model does."""
    expected = model.generate(IDS[:, :9], max_new_tokens=6, do_sample=False)

    def all_before(layer, receivers, senders):
        return AttentionGraph.from_cu_seqlens([0, receivers], [0, senders], causal=True)

    with attend_along(model, all_before):
        assert model.generate(IDS[:, :9], max_new_tokens=6, do_sample=False).equal(expected)
        steps = model(IDS[:, :9], use_cache=True)
        more = model(IDS[:, 9:12], past_key_values=steps.past_key_values).logits
    torch.testing.assert_close(more, model(IDS[:, :12], use_cache=False).logits[:, 9:], atol=1e-5, rtol=1e-5)


def test_training_with_recomputed_activations_and_dropout_of_weights():
    model = made(LlamaConfig(**GROUPED))
    again = copy.deepcopy(model).train()
    again.gradient_checkpointing_enable()
    for one in (model, again):
        with attend_along(one, GRAPH):
            packed(one).square().sum().backward()
    for ours, theirs in zip(again.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad)
    dropping = made(LlamaConfig(**GROUPED, attention_dropout=0.5)).train()
    with attend_along(dropping, GRAPH):
        assert not torch.equal(packed(dropping), packed(dropping))


def test_an_encoder_attends_along_any_graph():
    model = made(BertConfig(vocab_size=40, **SIZES), AutoModel)
    with attend_along(model, complete(LENGTHS)):
        found = model(IDS, position_ids=PLACES).last_hidden_state
    alone = [model(text).last_hidden_state for text in IDS.split(LENGTHS, 1)]
    torch.testing.assert_close(found, torch.cat(alone, 1), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("reason", REFUSED)
def test_what_would_be_lost_is_refused_by_name(reason):
    auto = AutoModel if reason.startswith("t5") else AutoModelForCausalLM
    model = made(REFUSED[reason](), auto)
    with pytest.raises(InputError, match=reason), attend_along(model, causal(21)):
        model(IDS, use_cache=False)
    assert model.config._attn_implementation != "edgewise"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"attention_mask": (IDS > 9).long()}, "attention_mask marks padding"),
        ({"attention_mask": torch.zeros(1, 1, 21, 21)}, "LlamaAttention has attention_mask"),
        ({"cu_seq_lens_q": torch.tensor([0, 21])}, "LlamaAttention has cu_seq_lens_q"),
        ({"use_cache": True, "past_key_values": "static"}, "holds 40 keys for 21 tokens"),
    ],
)
def test_a_call_that_says_otherwise_is_refused(given, message):
    model = made(LlamaConfig(**GROUPED))
    if "past_key_values" in given:
        given = given | {"past_key_values": StaticCache(model.config, max_cache_len=40)}
    with attend_along(model, GRAPH):
        packed(model)
        with pytest.raises(InputError, match=message):
            packed(model, **given)
        torch.testing.assert_close(packed(model, attention_mask=torch.ones(1, 21)), packed(model))


@pytest.mark.parametrize("name", ["Llama", "GPT-2"])
def test_under_autocast_as_the_model_itself(name):
    model = made(CONFIGS[name]())
    with torch.autocast("cpu", torch.bfloat16):
        expected = model(IDS[:, :13], use_cache=False).logits
        with attend_along(model, causal([13])):
            found = model(IDS[:, :13], use_cache=False).logits
    assert found.dtype == expected.dtype
    torch.testing.assert_close(found, expected, atol=0.1, rtol=0.1)


def test_within_another_with_the_inner_graph_is_the_models_and_then_the_outer_one_again():
    model = made(CONFIGS["Llama"]())
    with attend_along(model, GRAPH):
        expected = packed(model)
        with attend_along(model, complete([13, 8])):
            assert (packed(model) - expected).abs().max() > 1e-3
        torch.testing.assert_close(packed(model), expected)


def test_outside_of_the_with_it_says_so():
    model, other = made(LlamaConfig(**GROUPED)), made(LlamaConfig(**GROUPED))
    with attend_along(model, GRAPH):
        packed(model)
        other.set_attn_implementation("edgewise")
        with pytest.raises(InputError, match="inside of `with attend_along"):
            packed(other)
    with pytest.raises(TypeError, match="must be a model of transformers, got Linear"):
        attend_along(torch.nn.Linear(2, 2), GRAPH).__enter__()
    with pytest.raises(ValueError, match=r"q must be .* got \[21, 4, 8\]"), attend_along(model, causal(20)):
        packed(model)
    half = torch.zeros(GRAPH.num_edges, 2)
    with (
        pytest.raises(InputError, match=r"edge_bias must be \[E, h\] = .*, 4\]"),
        attend_along(model, GRAPH, half),
    ):
        packed(model)
