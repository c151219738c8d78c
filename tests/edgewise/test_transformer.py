import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from edgewise.graphs import AttentionGraph, GraphPool, window
from edgewise.message_passing import ENGINES
from edgewise.models.transformer import make_model
from support import (
    VOCAB,
    assert_equal_as_stated,
    copy_layer_to_torch,
    dense_attention,
    random_pairs,
    small_model,
)

lengths = st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6)), min_size=1, max_size=4)
pool = GraphPool()


def dense_logits(model, batch):
    """The whole model again, with masks in place of graphs and every formula written out, in float64."""
    x, y = (
        embed.lut.weight[ids] * embed.lut.embedding_dim**0.5 + model.pos_enc(positions)
        for embed, (ids, positions) in ((model.src_embed, batch.src), (model.tgt_embed, batch.tgt))
    )

    def attend(attention, query_side, key_side, mask):
        fields = attention.get(query_side, "q") | attention.get(key_side, "kv")
        return attention.get_o(dense_attention(mask, *(fields[f] for f in "qkv")))

    def feed(layer, x):
        x = layer.sublayer[-1].norm(x)
        return layer.feed_forward.outer(layer.feed_forward.inner(x).relu())

    for layer in model.encoder.layers:
        normed = layer.sublayer[0].norm(x)
        x = x + attend(layer.self_attn, normed, normed, batch.enc.to_mask())
        x = x + feed(layer, x)
    memory = model.encoder.norm(x)
    for layer in model.decoder.layers:
        normed = layer.sublayer[0].norm(y)
        y = y + attend(layer.self_attn, normed, normed, batch.dec.to_mask())
        y = y + attend(layer.src_attn, layer.sublayer[1].norm(y), memory, batch.cross.to_mask())
        y = y + feed(layer, y)
    return model.generator.logits(model.decoder.norm(y))


def logits(model, batch):
    return model.generator.logits(model.hidden(batch))


def check(model, batch):
    """Logits and gradients of all parameters against the dense model."""
    twin = small_model().double()
    twin.load_state_dict(model.state_dict())
    twin.pos_enc.table = twin.pos_enc.table.double()
    actual, expected = logits(model, batch), dense_logits(twin, batch)
    assert_equal_as_stated(actual, expected)
    upstream = torch.randn(actual.shape, generator=torch.Generator().manual_seed(2))
    for m, g in ((model, (actual * upstream).sum()), (twin, (expected * upstream.double()).sum())):
        m.zero_grad()
        g.backward()
    for mine, reference in zip(model.parameters(), twin.parameters(), strict=True):
        assert_equal_as_stated(mine.grad, reference.grad)


@pytest.mark.parametrize("engine", ENGINES)
@settings(max_examples=8)
@given(lengths)
def test_equals_a_dense_model_with_masks(engine, lengths):
    check(small_model(engine), pool(*random_pairs(lengths)))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("which", ["enc", "cross", "dec"])
@pytest.mark.parametrize("gone", [2, 7])
def test_deleting_an_edge_is_masking_a_pair_in_the_whole_model(engine, which, gone):
    batch = pool(*random_pairs([(3, 4), (2, 2)]))
    graph = getattr(batch, which)
    keep = torch.arange(graph.num_edges) != gone
    smaller = AttentionGraph(
        graph.src[keep], graph.dst[keep], graph.num_src, None if graph.self_attention else graph.num_dst
    )
    changed = dataclasses.replace(batch, **{which: smaller})
    torch.manual_seed(0)
    model = small_model(engine)
    check(model, changed)
    torch.manual_seed(0)
    before = logits(small_model(engine), batch)
    assert not torch.allclose(before, logits(model, changed), atol=1e-6)


@given(lengths)
@settings(max_examples=25)
def test_a_ragged_batch_equals_its_sentences_one_by_one(lengths):
    model = small_model()
    sources, targets = random_pairs(lengths)
    together = logits(model, pool(sources, targets))
    alone = [logits(model, pool([s], [t])) for s, t in zip(sources, targets, strict=True)]
    torch.testing.assert_close(together, torch.cat(alone), atol=1e-5, rtol=1e-5)


@given(st.integers(1, 7), st.integers(1, 7), st.integers(0, 5))
@settings(max_examples=25)
def test_a_target_token_changes_no_output_before_it(n, m, seed):
    """By gradients: output t depends on the states of target tokens up to t, and on t itself."""
    model = small_model()
    batch = pool(*random_pairs([(n, m)], seed))
    embedded = []
    model.tgt_embed.register_forward_hook(lambda module, given, x: embedded.append(x.requires_grad_()))
    output = logits(model, batch)
    for t in range(m):
        (gradient,) = torch.autograd.grad(output[t].square().sum(), embedded[-1], retain_graph=True)
        reach = gradient.abs().sum(1) > 0
        assert reach.tolist() == [s <= t for s in range(m)]


@pytest.mark.parametrize("norm_first", [True, False])
def test_an_encoder_layer_equals_torchs(norm_first):
    model = small_model(N=1, norm_first=norm_first).double()
    ours = model.encoder.layers[0]
    theirs = torch.nn.TransformerEncoderLayer(
        8, 2, 12, dropout=0.0, batch_first=True, norm_first=norm_first, dtype=torch.float64
    )
    copy_layer_to_torch(ours, theirs)
    batch = pool(*random_pairs([(5, 1)]))
    model.encoder.norm = torch.nn.Identity()
    x = torch.randn(5, 8, dtype=torch.float64, requires_grad=True)
    post, pre = model.encoder.post_func(0), model.encoder.pre_func(0)
    mine = model.update_graph(batch.enc, {"enc": x}, [(pre, "enc")], [(post, "enc")])["enc"]
    expected = theirs(x[None])[0]
    torch.testing.assert_close(mine, expected)
    upstream = torch.randn_like(mine)
    torch.testing.assert_close(*(torch.autograd.grad(out, x, upstream)[0] for out in (mine, expected)))


def test_cross_attention_has_weights_of_its_own():
    model = small_model(N=1)
    logits(model, pool(*random_pairs([(3, 3)]))).sum().backward()
    assert float(model.decoder.layers[0].src_attn.in_proj.weight.grad.abs().sum()) > 0


@pytest.mark.parametrize("engine", ENGINES)
def test_the_model_runs_on_its_engine(engine, monkeypatch):
    calls, real = [], ENGINES[engine]
    monkeypatch.setitem(ENGINES, engine, lambda *given: calls.append(engine) or real(*given))
    logits(small_model(engine), pool(*random_pairs([(2, 2)])))
    assert len(calls) == 2 + 2 * 2, "one round per encoder layer, two a decoder layer"


def test_dropout_acts_where_the_paper_has_it(monkeypatch):
    """On both embeddings, on what attention and feed-forward add: once per sub-layer."""
    model = make_model(VOCAB, VOCAB, N=2, dim_model=8, dim_ff=12, h=2, dropout=0.5)
    acted = []
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Dropout) and module.p:
            module.register_forward_hook(lambda *_, name=name: acted.append(name))
    model(pool(*random_pairs([(2, 2)])))
    expected = ["pos_enc.dropout"] * 2
    for side, sublayers in (("encoder", 2), ("decoder", 3)):
        for i in range(2):
            expected += [f"{side}.layers.{i}.sublayer.{k}.dropout" for k in range(sublayers)]
    assert sorted(acted) == sorted(expected)


def test_update_graph_runs_on_any_graph():
    model, batch = small_model(), pool(*random_pairs([(6, 2)]))
    narrow = dataclasses.replace(batch, enc=window(6, 1, 1))
    check(model, narrow)


def test_weights_can_be_shared_as_the_tutorial_does():
    model = small_model()
    table = model.tgt_embed.lut.weight
    model.src_embed.lut.weight = model.generator.proj.weight = table
    model(pool(*random_pairs([(3, 3)]))).sum().backward()
    assert model.src_embed.lut.weight.grad is model.generator.proj.weight.grad


def test_layers_start_out_different():
    first, second = make_model(5, 5, N=2, dim_model=8, dim_ff=8, h=2).encoder.layers
    assert not torch.equal(first.self_attn.in_proj.weight, second.self_attn.in_proj.weight)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"dim_model": 100, "h": 8}, ValueError, r"dim_model \(100\) must be divisible by h \(8\)"),
        ({"N": 0}, ValueError, "N must be at least 1, got 0"),
        ({"dropout": 1.5}, ValueError, r"dropout must lie in \[0, 1\), got 1.5"),
        ({"engine": "fast"}, ValueError, "engine must be one of 'auto', .*; got 'fast'"),
        ({"src_vocab": "ten"}, TypeError, "src_vocab must be an integer, got 'ten'"),
    ],
)
def test_bad_configuration(change, error, message):
    good = {"src_vocab": 5, "tgt_vocab": 5, "N": 1, "dim_model": 8, "dim_ff": 8, "h": 2}
    with pytest.raises(error, match=message):
        make_model(**good | change)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: m.encoder.pre_func(2), r"i must lie in 0\.\.1, got 2"),
        (lambda m: m.encoder.post_func(-1), "i must be at least 0, got -1"),
        (lambda m: m.decoder.pre_func(0, "q", 2), r"l must be 0 .* or 1 .*, got 2"),
        (lambda m: m.decoder.post_func(0, -1), r"l must be 0 .* or 1 .*, got -1"),
    ],
)
def test_a_layer_that_is_not_there(call, message):
    with pytest.raises(ValueError, match=message):
        call(small_model())


def test_an_id_outside_the_vocabulary():
    with pytest.raises(ValueError, match=rf"token id must lie in 0\.\.{VOCAB - 1}, got {VOCAB}"):
        small_model()(pool([[VOCAB]], [[0, 1]]))


def test_a_shared_matrix_is_one_parameter_under_three_names():
    model = make_model(VOCAB, VOCAB, N=1, dim_model=8, dim_ff=8, h=2, shared=True)
    names = {name for name, p in model.named_parameters(remove_duplicate=False) if p.shape == (VOCAB, 8)}
    assert names == {"src_embed.lut.weight", "tgt_embed.lut.weight", "generator.proj.weight"}
    assert sum(p.shape == (VOCAB, 8) for p in model.parameters()) == 1
    with pytest.raises(ValueError, match=f"one vocabulary, got src_vocab {VOCAB} and tgt_vocab 5"):
        make_model(VOCAB, 5, N=1, dim_model=8, dim_ff=8, h=2, shared=True)
