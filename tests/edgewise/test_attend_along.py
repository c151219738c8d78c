"""Models of Hugging Face's transformers on graphs, through their attention interface."""

import asyncio
import contextlib
import copy
import gc
import os
import subprocess
import sys
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import transformers as hf
from torch.nn.parallel import DistributedDataParallel

from edgewise import AttentionGraph, attend_along, causal, check_along, complete, window
from edgewise.interop import transformers_models
from edgewise.validation import InputError
from support import assert_equal_as_stated, refusals

SIZES = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
GROUPED = SIZES | {"vocab_size": 40, "num_key_value_heads": 2, "head_dim": 8, "pad_token_id": 0}
SLIDING = {"sliding_window": 5, "layer_types": ["sliding_attention", "full_attention"]}
LINEAR = ["linear_attention", "full_attention"]
SMALL_TEXT = {"vocab_size": 40, "bos_token_id": 0, "eos_token_id": 0}
CONFIGS = {
    "Llama": lambda: hf.LlamaConfig(**GROUPED),
    "Qwen2": lambda: hf.Qwen2Config(**GROUPED, use_sliding_window=True, max_window_layers=0, **SLIDING),
    "Mistral": lambda: hf.MistralConfig(**GROUPED, sliding_window=5),
    "Gemma 3": lambda: hf.Gemma3TextConfig(**GROUPED, query_pre_attn_scalar=3, **SLIDING),
    "GPT-2": lambda: hf.GPT2Config(n_embd=32, n_layer=2, n_head=4, **SMALL_TEXT),
}
EXPERTS = GROUPED | {"num_local_experts": 2}
REFUSED = {
    "softcap": lambda: hf.Gemma2Config(**GROUPED),
    "attends in chunks": lambda: hf.Llama4TextConfig(**EXPERTS, attention_chunk_size=20),
    "bloom does not ask": lambda: hf.BloomConfig(vocab_size=40, hidden_size=32, n_layer=2, n_head=4),
    r"layers \[0\] of minimax did not ask": lambda: hf.MiniMaxConfig(**EXPERTS, layer_types=LINEAR),
    "llama scales all tokens": lambda: hf.LlamaConfig(**GROUPED, token_dropout=True),
    "llama picks by an indexer of its own": lambda: hf.LlamaConfig(**GROUPED, index_topk=4),
    "mobilebert mixes tokens past its attention": lambda: hf.MobileBertConfig(vocab_size=40),
    "jamba has layers with a convolution": lambda: hf.JambaConfig(**GROUPED, num_experts=1),
    "t5 attends from one text to another": lambda: hf.T5Config(vocab_size=40, d_model=32, num_layers=2),
}
LENGTHS = [13, 7, 1]
PLACES = torch.cat([torch.arange(n) for n in LENGTHS])[None]
IDS = torch.randint(1, 40, (1, sum(LENGTHS)), generator=torch.Generator().manual_seed(0))
GRAPH = causal(LENGTHS)


def made(config, auto=hf.AutoModelForCausalLM):
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
    alone = torch.cat([model(text, use_cache=False).logits for text in IDS.split(LENGTHS, 1)], 1)
    before = model.config._attn_implementation
    with attend_along(model, GRAPH):
        found = packed(model)
    assert_equal_as_stated(found, alone, model.parameters())
    assert model.config._attn_implementation == before
    torch.testing.assert_close(model(IDS[:, :13], use_cache=False).logits, alone[:, :13])


def test_a_batch_shares_graphs_and_biases_by_layer(model):
    """An edge that one layer has not is one whose score is minus infinity there, in all heads."""
    rows = {"input_ids": torch.cat([IDS, IDS.flip(1)]), "position_ids": PLACES.expand(2, -1)}
    kept = (GRAPH.src != 9) | (GRAPH.dst != 11)
    cut = AttentionGraph.from_edge_index(GRAPH.edge_index[:, kept], GRAPH.num_src)
    bias = torch.zeros(GRAPH.num_edges, 4).masked_fill(~kept[:, None], -torch.inf)
    with attend_along(model, GRAPH):
        whole, second = packed(model, **rows), packed(model, input_ids=IDS.flip(1))
    torch.testing.assert_close(whole[1:], second, atol=1e-5, rtol=1e-5)
    with attend_along(model, lambda layer, n, m: cut if layer else GRAPH):
        found = packed(model, **rows)
    assert ((found - whole).abs().amax(2) > 1e-4).nonzero().tolist() == [[0, 11], [1, 11]]
    if getattr(model.config, "sliding_window", None) is None:
        with attend_along(model, GRAPH, lambda layer: bias * layer if layer else torch.zeros_like(bias)):
            torch.testing.assert_close(packed(model, **rows), found, atol=1e-5, rtol=1e-5)
        with attend_along(model, GRAPH, torch.randn(bias.shape)):
            both, second = packed(model, **rows), packed(model, input_ids=IDS.flip(1))
        torch.testing.assert_close(both[1:], second, atol=1e-5, rtol=1e-5)
    else:
        with pytest.raises(InputError, match="window of 5 leaves out"), attend_along(model, GRAPH, bias):
            packed(model)
        with attend_along(model, window(LENGTHS, 2, 0)):  # narrower than the model's
            found = packed(model)
        with attend_along(model, AttentionGraph.from_edge_index(window(LENGTHS, 2, 0).edge_index, 21)):
            torch.testing.assert_close(packed(model), found)


def test_weights_are_those_of_the_model_by_row(model):
    model.set_attn_implementation("eager")
    rows = torch.cat([IDS[:, :9], IDS[:, 2:11]])
    theirs = model(rows, use_cache=False, output_attentions=True).attentions
    graph = causal([9])
    with attend_along(model, graph, need_weights=True) as weights:
        model(rows, use_cache=False)
    assert [*weights] == [*range(len(theirs))]
    for layer, expected in enumerate(theirs):
        on_edges = expected[:, :, graph.dst, graph.src].mT  # zero where its window leaves one out
        torch.testing.assert_close(weights[layer], on_edges, atol=1e-5, rtol=1e-5)


def test_layers_without_a_number_are_counted_after_those_that_have_one():
    model = made(hf.LlamaConfig(**GROUPED | {"num_hidden_layers": 3}))
    for layer in model.model.layers[:2]:
        layer.self_attn.layer_idx = None
    with attend_along(model, GRAPH, need_weights=True) as weights:
        packed(model)
    assert [*weights] == [3, 4, 2]


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


@pytest.mark.parametrize("options", [{}, {"num_beams": 3}, {"use_cache": False}], ids=str)
def test_prompts_that_are_padded_on_the_left_go_on_as_the_model_does(options, model):
    """With caches that grow, that slide, and without; on intervals and on lists of edges."""
    ids, padding = IDS[:, :9].repeat(3, 1), torch.tensor([[4], [0], [2]])
    given = {"attention_mask": (torch.arange(9) >= padding).long(), "max_new_tokens": 8, **options}
    expected = model.generate(ids, do_sample=False, pad_token_id=0, eos_token_id=None, **given)

    def lists(layer, n, m):
        return AttentionGraph.from_mask(causal_step(layer, n, m).to_mask(), self_attention=n == m)

    def causal_step(layer, n, m):
        return AttentionGraph.from_cu_seqlens([0, n], None if n == m else [0, m], causal=True)

    for graph in (causal_step, lists):
        with attend_along(model, graph):
            found = model.generate(ids, do_sample=False, pad_token_id=0, eos_token_id=None, **given)
        assert torch.equal(found, expected)
    for options in ({"need_weights": True}, {"edge_bias": torch.zeros(45, 4).double()}):
        with (
            pytest.raises(InputError, match=r"without padding|window of 5"),
            attend_along(model, causal(9), **options),
        ):
            model(ids, attention_mask=given["attention_mask"], use_cache=False)


def test_a_mask_of_other_layers_does_not_hide_padding(doubled):
    """Decoders of pairs ask for a mask of the source, too, which they have not here."""
    sizes = {"d_model": 32, "decoder_layers": 2, "decoder_attention_heads": 4, "decoder_ffn_dim": 48}
    model = made(hf.BartConfig(vocab_size=40, is_decoder=True, is_encoder_decoder=False, **sizes))
    ids, mask = IDS[:, :9].repeat(2, 1), torch.arange(9) >= torch.tensor([[3], [0]])
    with attend_along(model, causal(9)):
        found = model(ids, attention_mask=mask.long(), use_cache=False).logits
    expected = model(ids, attention_mask=mask.long(), use_cache=False).logits
    torch.testing.assert_close(found[mask], expected[mask])


def test_learned_sinks_are_the_models_own():
    model = made(hf.GptOssConfig(**EXPERTS, num_experts_per_tok=1, sliding_window=5))
    model.set_attn_implementation("eager")
    ids, mask = IDS[:, :9].repeat(2, 1), torch.arange(9) >= torch.tensor([[3], [0]])
    given = {"position_ids": (mask.cumsum(1) - 1).clamp(min=0), "use_cache": False}
    for attention_mask in (None, mask.long()):
        with attend_along(model, causal(9)):
            found = model(ids, attention_mask=attention_mask, **given).logits
        expected = model(ids, attention_mask=attention_mask, **given).logits
        torch.testing.assert_close(found[mask], expected[mask])
    with pytest.raises(InputError, match="learned sinks"), attend_along(model, causal(9), need_weights=True):
        model(ids, **given)


def test_a_models_window_leaves_two_edges_of_one_pair_two(doubled):
    narrow = made(hf.MistralConfig(**GROUPED, sliding_window=5))
    wide = made(hf.MistralConfig(**GROUPED, sliding_window=None))
    wide.load_state_dict(narrow.state_dict())
    src, dst = (torch.cat([ends, ends[:9]]) for ends in window(21, 3, 0).edge_index)
    with attend_along(wide, AttentionGraph(src, dst, 21)):
        expected = packed(wide)
    far = (torch.cat([ends, ends.new_tensor([end])]) for ends, end in ((src, 0), (dst, 20)))
    with attend_along(narrow, AttentionGraph(*far, 21)):
        torch.testing.assert_close(packed(narrow), expected)


@pytest.mark.parametrize("reentrant", [False, True])
def test_recomputed_activations_are_those_of_the_with_or_refused(reentrant, doubled):
    model, upstream = made(CONFIGS["Llama"]()), torch.randn(1, sum(LENGTHS), 40)
    with attend_along(model, GRAPH):
        expected = torch.autograd.grad((packed(model) * upstream).sum(), model.parameters())
    again = copy.deepcopy(model).train()
    again.gradient_checkpointing_enable({"use_reentrant": reentrant})
    again.enable_input_require_grads()
    with attend_along(again, GRAPH):
        (packed(again) * upstream).sum().backward()
        lost = [packed(again).sum() for _ in range(2)]
    torch.testing.assert_close([p.grad for p in again.parameters()], list(expected))
    again.eval()(IDS)
    again.train()
    with pytest.raises(InputError, match="LlamaAttention recomputes its activations"):
        lost[0].backward()
    with attend_along(again, GRAPH), pytest.raises(InputError, match="inside of the `with"):
        lost[1].backward()
    again.zero_grad()
    (again(IDS, use_cache=False).logits * upstream).sum().backward()
    plain = torch.autograd.grad((model(IDS, use_cache=False).logits * upstream).sum(), model.parameters())
    torch.testing.assert_close([p.grad for p in again.parameters()], list(plain))


def test_dropout_of_weights():
    dropping = made(hf.LlamaConfig(**GROUPED, attention_dropout=0.5)).train()
    with attend_along(dropping, GRAPH):
        assert not torch.equal(packed(dropping), packed(dropping))


PICTURES = SIZES | {"image_size": 12, "patch_size": 4}
ENCODERS = {
    "BERT": hf.BertConfig(vocab_size=40, **SIZES),
    "DistilBERT": hf.DistilBertConfig(vocab_size=40, dim=32, hidden_dim=48, n_layers=2, n_heads=4),
    "ViT": hf.ViTConfig(**PICTURES),
    "DINOv2": hf.Dinov2Config(**PICTURES),
    "CLIP": hf.CLIPVisionConfig(**PICTURES),
    "SigLIP": hf.SiglipVisionConfig(**PICTURES),
}


@pytest.mark.parametrize("name", ENCODERS)
def test_an_encoder_attends_along_any_graph(name, doubled):
    """Its layers are counted from 0, though they may not know their number."""
    model = made(ENCODERS[name], hf.AutoModel)
    given = IDS[:, :10] if "BERT" in name else torch.randn(2, 3, 12, 12)
    alone = model(given).last_hidden_state
    n = alone.shape[1]
    with attend_along(model, complete(n)):
        torch.testing.assert_close(model(given).last_hidden_state, alone)
    mask = torch.ones(n, n, dtype=torch.bool)
    mask[2, n - 1] = False
    cut, changed = AttentionGraph.from_mask(mask, self_attention=True), []
    for layer in range(2):
        with attend_along(model, lambda i, n, m, layer=layer: cut if i == layer else complete(n)):
            found = [model(given).last_hidden_state for _ in range(2)]
        torch.testing.assert_close(*found)
        changed.append(((found[0] - alone).abs().amax((0, 2)) > 1e-9).tolist())
    assert changed == [[True] * n, [i == 2 for i in range(n)]]


SHARED = {"num_experts": 2, "num_experts_per_tok": 1, "shared_expert_intermediate_size": 8}
ODD = {
    "layers are one": hf.AlbertConfig(vocab_size=40, **SIZES),
    "layers have no number": hf.EsmConfig(vocab_size=40, pad_token_id=0, **SIZES),
    "windows are in masks": hf.Qwen2MoeConfig(**GROUPED, use_sliding_window=True, **SHARED, **SLIDING),
    "an encoder comes first": hf.BartConfig(vocab_size=40, d_model=32, encoder_layers=2, encoder_ffn_dim=48),
    "a window is in masks": hf.PhimoeConfig(**EXPERTS, sliding_window=5),
}


@pytest.mark.parametrize("name", ODD)
def test_on_its_own_graph_a_model_is_itself(name):
    model = made(ODD[name], hf.AutoModel)
    model = model.get_encoder() if model.config.is_encoder_decoder else model
    own = model(IDS).last_hidden_state
    with attend_along(model, causal(21) if "mask" in name else complete(21)):
        torch.testing.assert_close(model(IDS).last_hidden_state, own, atol=1e-4, rtol=1e-4)


def test_who_hears_past_the_graph_is_found(monkeypatch):
    model, state = made(CONFIGS["Llama"]()).train(), torch.get_rng_state()
    check_along(model)
    assert model.training
    assert torch.equal(torch.get_rng_state(), state)
    monkeypatch.setattr(transformers_models, "LEAKING", {})
    narrow = {"embedding_size": 16, "intra_bottleneck_size": 16, "true_hidden_size": 16}
    leaking = hf.MobileBertConfig(vocab_size=40, num_hidden_layers=1, **narrow)
    with pytest.raises(InputError, match=r"tokens \[2, 3, 4\] are influenced by token 3"):
        check_along(made(leaking, hf.AutoModel))


COMPILED_BEFORE = """
from test_attend_along import CONFIGS, WINDOWS, attend_along, made, passed, torch
model = made(CONFIGS["Llama"]())
compiled = torch.compile(model, backend="eager")
passed(compiled)
with attend_along(model, WINDOWS[0]):
    torch.testing.assert_close(passed(compiled), passed(model))
"""


def test_programs_that_were_compiled_before_the_first_with_attend_along_it():
    """In a process of its own, where nothing has asked yet."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([os.path.dirname(__file__), *sys.path])}
    subprocess.run([sys.executable, "-c", COMPILED_BEFORE], env=environment, check=True)


def passed(model):
    return model(IDS[:, :13], use_cache=False).logits


WINDOWS = window([13], 1, 0), window([13], 3, 0)


@pytest.fixture(scope="module")
def called():
    """A model, and its outputs on each of two graphs and on none."""
    model, outputs = made(CONFIGS["Llama"]()), []
    for graph in WINDOWS:
        with attend_along(model, graph):
            outputs.append(passed(model))
    return model, [*outputs, passed(model)]


class TestTheGraphIsTheCalls:
    """Of a thread, a task, a model and a time."""

    def test_threads(self, called):
        model, expected = called
        met = threading.Barrier(3)

        def run(i):
            with attend_along(model, WINDOWS[i]) if i < 2 else contextlib.nullcontext():
                met.wait()
                found = [passed(model) for _ in range(10)]
                met.wait()
            return [torch.equal(x, expected[i]) for x in found]

        with ThreadPoolExecutor(3) as pool:
            assert [*pool.map(run, range(3))] == [[True] * 10] * 3

    def test_tasks(self, called):
        model, expected = called

        async def run(i):
            with attend_along(model, WINDOWS[i]):
                await asyncio.sleep(0.01)
                found = passed(model)
                late.append(asyncio.create_task(after(i)))
                await asyncio.sleep(0.01)
            return torch.equal(found, expected[i])

        async def after(i):
            await asyncio.sleep(0.05)
            transformers_models._last.clear()  # or other calls would tell
            return await asyncio.to_thread(passed, model) if i else passed(model)

        async def all_of_them():
            assert await asyncio.gather(run(0), run(1)) == [True, True]
            for error in await asyncio.gather(*late, return_exceptions=True):
                assert "is called after the end of its `with" in str(error)

        late = []
        asyncio.run(all_of_them())

    @pytest.mark.parametrize("in_a_task", [False, True])
    def test_a_generator_that_is_closed_in_another_thread(self, called, in_a_task):
        model, expected = called

        def stream():
            with attend_along(model, WINDOWS[0]):
                while True:
                    yield passed(model)

        def hang_up():
            first = next(generator := stream())
            with ThreadPoolExecutor(1) as pool:
                pool.submit(generator.close).result()
            return torch.equal(first, expected[0]), torch.equal(passed(model), expected[2])

        async def task():
            return hang_up()

        assert (asyncio.run(task()) if in_a_task else hang_up()) == (True, True)

    @pytest.mark.parametrize("need_weights", [False, True])
    def test_a_model_that_is_forgotten_leaves_nothing(self, need_weights):
        def forgotten():
            model = made(CONFIGS["Llama"]())
            with attend_along(model, causal(13), need_weights=need_weights):
                passed(model).sum().backward()
            return weakref.ref(model)

        kept = forgotten()
        gc.collect()
        assert kept() is None

    def test_blocks_in_each_other_and_closed_in_any_order(self, called):
        model, expected = called
        for order in ((1, 0), (0, 1)):
            blocks = [attend_along(model, graph) for graph in WINDOWS]
            for block in blocks:
                block.__enter__()
            assert torch.equal(passed(model), expected[1])
            blocks[order[0]].__exit__(None, None, None)
            assert torch.equal(passed(model), expected[order[1]])
            blocks[order[1]].__exit__(None, None, None)
            assert torch.equal(passed(model), expected[2])

    def test_copies_and_what_is_in_a_wrapper(self, called, process_group):
        model, expected = called
        wrapped = DistributedDataParallel(copy.deepcopy(model))
        with attend_along(wrapped, WINDOWS[0]):
            assert torch.equal(passed(wrapped), expected[0])
            again = copy.deepcopy(wrapped.module)
            assert torch.equal(passed(again), expected[2])
            replica = model.model.layers[0].self_attn._replicate_for_data_parallel()
            with pytest.raises(InputError, match="use DistributedDataParallel"):
                replica(torch.zeros(1, 3, 32), (torch.zeros(1, 3, 8),) * 2, None)
            with pytest.raises(InputError, match="has the very config of this one"):
                passed(type(model)(wrapped.module.config))
        assert torch.equal(passed(again), expected[2])
        with pytest.raises(InputError, match="holds several models of transformers"):
            attend_along(torch.nn.ModuleList([model, again]), GRAPH).__enter__()

    def test_without_a_pass_nothing_is_missed_and_programs_stay_whole(self, called):
        model, expected = called
        with attend_along(model, GRAPH):
            pass
        compiled = torch.compile(model, backend="eager")
        with attend_along(model, WINDOWS[0]):
            torch.testing.assert_close(passed(compiled), expected[0])
        torch._dynamo.reset()
        torch.testing.assert_close(passed(torch.compile(model, backend="eager", fullgraph=True)), expected[2])


@pytest.mark.parametrize("reason", REFUSED)
def test_what_would_be_lost_is_refused_by_name(reason):
    auto = hf.AutoModel if reason.startswith(("t5", "mobile")) else hf.AutoModelForCausalLM
    model = made(REFUSED[reason](), auto)
    with pytest.raises(InputError, match=reason), attend_along(model, causal(21)):
        model(IDS, use_cache=False)
    assert model.config._attn_implementation != "edgewise"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (lambda m: {"attention_mask": (PLACES < 5).long()}, "must pad rows on the left alone"),
        (lambda m: {"attention_mask": torch.zeros_like(IDS)}, "a row that is padding alone"),
        (lambda m: {"output_attentions": True}, "need_weights=True"),
        (lambda m: {"attention_mask": torch.zeros(1, 1, 21, 21)}, "LlamaAttention has attention_mask"),
        (lambda m: {"cu_seq_lens_q": torch.tensor([0, 21])}, "LlamaAttention has cu_seq_lens_q"),
        (lambda m: {"use_cache": True, "past_key_values": hf.StaticCache(m.config, 40)}, "holds 40 keys"),
    ],
)
def test_a_call_that_says_otherwise_is_refused(given, message):
    model = made(hf.LlamaConfig(**GROUPED))
    with attend_along(model, GRAPH):
        packed(model)
        with pytest.raises(InputError, match=message):
            packed(model, **given(model))
        torch.testing.assert_close(packed(model, attention_mask=torch.ones(1, 21)), packed(model))


@pytest.mark.parametrize("name", ["Llama", "GPT-2"])
def test_under_autocast_as_the_model_itself(name):
    model = made(CONFIGS[name]())
    with torch.autocast("cpu", torch.bfloat16):
        expected = passed(model)
        with attend_along(model, causal([13])):
            found = passed(model)
    assert found.dtype == expected.dtype
    torch.testing.assert_close(found, expected, atol=0.1, rtol=0.1)


def along(model, graph, bias=None):
    with attend_along(model, graph, bias):
        packed(model)


test_bad_input = refusals(
    (lambda m: along(torch.nn.Linear(2, 2), GRAPH), TypeError, "must be or wrap a model .*, got Linear"),
    (lambda m: along(m, causal(20)), InputError, "20 senders, the row 21"),
    (lambda m: along(m, [GRAPH] * 2), TypeError, "graph must be .* or a function, got list"),
    (lambda m: along(m, GRAPH, torch.zeros(GRAPH.num_edges, 2)), InputError, r"bias must be .*, 4\]"),
    model=lambda: made(CONFIGS["Llama"]()),
)
