"""A decoder-only model: equal to Hugging Face's Llama, on any graph, cached or not."""

import copy
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from transformers import LlamaConfig, LlamaForCausalLM

from attention_on_edges.decoding import continue_texts
from attention_on_edges.models.causal_lm import CausalLM, CausalLMConfig, KeyValueCache
from edgewise.graphs import causal, prefix_lm, sinks
from support import refusals

SIZES = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
LLAMA = {"vocab_size": 40, "num_key_value_heads": 2, **SIZES}
PARTS = {
    "attention_norm": ["input_layernorm"],
    "qkv": ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"],
    "attention_out": ["self_attn.o_proj"],
    "feed_forward_norm": ["post_attention_layernorm"],
    "inner": ["mlp.gate_proj", "mlp.up_proj"],
    "outer": ["mlp.down_proj"],
}
"""Of a layer: our tensors, and those that each is made of, one below the other."""
THEIRS = {
    "Llama": lambda: LlamaForCausalLM(LlamaConfig(**LLAMA, head_dim=6)),
    "Llama, tied": lambda: LlamaForCausalLM(LlamaConfig(**LLAMA, tie_word_embeddings=True, rope_theta=500.0)),
}
TEXTS = [torch.randint(1, 40, (n,), generator=torch.Generator().manual_seed(n)).tolist() for n in (13, 7, 1)]
SMALL = CausalLMConfig(30, 2, 16, 24, 4, 2)


@pytest.fixture(params=THEIRS)
def theirs(request):
    model = THEIRS[request.param]().eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.2)
    return model


@pytest.fixture
def model():
    return CausalLM(SMALL).eval()


def as_ours(theirs):
    """Tensors of a Llama by its names, stacked and named as ours."""
    found = {"embed": ["model.embed_tokens"], "norm": ["model.norm"], "out": ["lm_head"]}
    for i in range(2):
        for ours, parts in PARTS.items():
            found[f"layers.{i}.{ours}"] = [f"model.layers.{i}.{part}" for part in parts]
    return {
        f"{ours}.weight": torch.cat([theirs[f"{x}.weight"] for x in parts]) for ours, parts in found.items()
    }


def converted(theirs):
    c = theirs.config
    sizes = (c.vocab_size, 2, c.hidden_size, c.intermediate_size, 4, c.num_key_value_heads, c.head_dim)
    settings = {"rope_base": c.rope_parameters["rope_theta"], "tied": c.tie_word_embeddings}
    ours = CausalLM(CausalLMConfig(*sizes, **settings, eps=c.rms_norm_eps)).eval()
    ours.load_state_dict(as_ours(theirs.state_dict()))
    return ours


def test_logits_and_gradients_are_those_of_transformers(theirs):
    ours, ids = converted(theirs), pad_sequence([*map(torch.tensor, TEXTS)], batch_first=True)
    logits = ours(*ours.pack(TEXTS))
    expected = theirs(input_ids=ids, attention_mask=ids > 0).logits[ids > 0]
    torch.testing.assert_close(logits, expected, atol=1e-5, rtol=0)
    upstream = torch.randn(logits.shape, generator=torch.Generator().manual_seed(1))
    (logits * upstream).sum().backward()
    (expected * upstream).sum().backward()
    expected = as_ours({name: x.grad for name, x in theirs.named_parameters(remove_duplicate=False)})
    for name, parameter in ours.named_parameters():
        torch.testing.assert_close(parameter.grad, expected[name], atol=1e-4, rtol=1e-4, msg=name)


def test_cached_decoding_is_that_of_transformers(theirs):
    found = continue_texts(converted(theirs), TEXTS, 8)
    for text, new in zip(TEXTS, found, strict=True):
        ids = torch.tensor([text])
        options = {"max_new_tokens": 8, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
        whole = theirs.generate(ids, attention_mask=torch.ones_like(ids), **options)
        assert whole[0, len(text) :].tolist() == new


def test_a_cache_gives_what_is_computed_anew(model):
    cache, read = KeyValueCache(model, 3, 16), [[], [], []]
    for new in ([[1, 2, 3], [4], []], [[5], [6, 7], [8]], [[], [9], []], [[1] * 6, [], [2] * 9]):
        logits = model(*cache.extend(new), cache)
        read = [before + added for before, added in zip(read, new, strict=True)]
        whole = model(*model.pack(read)).split([len(text) for text in read])
        expected = torch.cat([x[len(x) - len(added) :] for x, added in zip(whole, new, strict=True)])
        torch.testing.assert_close(logits, expected, atol=1e-5, rtol=0)


def test_a_text_ends_where_its_end_is_written(model):
    whole = continue_texts(model, TEXTS[1:], 6)
    ends = whole[0][2]
    cut = [text[: text.index(ends)] if ends in text else text for text in whole]
    assert len(cut[0]) <= 2
    assert continue_texts(model, TEXTS[1:], 6, eos_id=ends) == cut
    assert continue_texts(model, TEXTS[1:], 6, eos_id=[ends, ends]) == cut
    assert continue_texts(model, [], 3) == []
    assert continue_texts(model, TEXTS[1:], 0) == [[], []]


def test_states_and_logits_under_autocast(model):
    """Rotary positions and the cache keep the precision of the values that they go with."""
    expected = model(*model.pack(TEXTS[1:2]))
    with torch.autocast("cpu", torch.bfloat16):
        logits = model(*model.pack(TEXTS[1:2]))
        written = continue_texts(model, TEXTS[1:2], 3)
    assert logits.dtype == torch.bfloat16
    torch.testing.assert_close(logits.float(), expected, atol=0.02, rtol=0.05)
    assert len(written[0]) == 3


def test_a_cache_counts_what_one_model_has_read(model):
    """Refused ids and a pass that fails leave no hole; what was extended twice was extended once."""
    cache, other = KeyValueCache(model, 1, 4), copy.deepcopy(model)
    first = cache.extend([[7, 8]])
    for wrong in ([[30]], [[1.5]], [[1, 2, 3, 4, 5]]):
        with pytest.raises((TypeError, ValueError)):
            cache.extend(wrong)
    with pytest.raises(ValueError, match="of another model"):
        other(*first, cache)
    second = cache.extend([[1, 2, 3]])
    with pytest.raises(ValueError, match="of another graph than its last"):
        model(*first, cache)
    assert cache.lengths.tolist() == [0]
    torch.testing.assert_close(model(*second, cache), model(*model.pack([[1, 2, 3]])))
    assert cache.lengths.tolist() == [3]


lengths = st.lists(st.integers(0, 6), min_size=1, max_size=3)


@given(st.data(), lengths, st.integers(1, 8))
def test_variants_are_their_masks(data, sizes, width):
    prefixes = [data.draw(st.integers(0, n)) for n in sizes]
    text = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    place, prefix = torch.cat([torch.arange(n) for n in sizes]), torch.tensor(prefixes)[text]
    before, first = place[:, None] - place, place < prefix
    for graph, mask in (
        (prefix_lm(sizes, prefixes), (before >= 0) | first),
        (prefix_lm(sizes, prefixes, width), ((before >= 0) & (before <= width)) | first),
        (sinks(sizes, width, prefixes), (before >= 0) & ((before < width) | first)),
    ):
        assert torch.equal(graph.to_mask(), mask & (text[:, None] == text))


def with_nan(module):
    if isinstance(module, nn.RMSNorm):
        module.weight.data.fill_(torch.nan)


test_bad_input = refusals(
    (lambda m: prefix_lm([3], [4]), "each text needs a prefix within it"),
    (lambda m: sinks([3], 0, 1), "width must be at least 1, got 0"),
    (lambda m: replace(SMALL, num_kv_heads=3), r"num_heads \(4\) must be divisible by"),
    (lambda m: replace(SMALL, num_heads=3), r"dim_model \(16\) must be divisible by"),
    (lambda m: replace(SMALL, dim_head=3), "even width of heads, got 3"),
    (lambda m: replace(SMALL, eps=-1.0), r"eps must be above 0, got -1\.0"),
    (lambda m: m(*m.pack([[30]])), r"ids must lie in 0\.\.29, got 30"),
    (lambda m: m(torch.tensor([1]), causal([2]), torch.tensor([0])), r"must be \[2\]"),
    (lambda m: continue_texts(m, [[]], 2), "each text must have at least one token"),
    (lambda m: continue_texts(m, [[1]], 2, eos_id=[1, 10**6]), "eos_id must lie in 0"),
    (lambda m: continue_texts(m.apply(with_nan), [[1]], 3), "are not numbers"),
    (lambda m: KeyValueCache(m, 2, 2).extend([[1]]), r"room for \[2, 2\] tokens, got \[1\]"),
    model=lambda: CausalLM(SMALL).eval(),
)
