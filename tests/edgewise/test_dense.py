"""The dense Transformer against PyTorch's, against the graph model, and against itself, step by step."""

import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from edgewise.graphs import GraphPool
from edgewise.layers import layer_pair
from edgewise.models.dense import (
    causal_mask,
    copy_weights,
    decoder_layer,
    encoder_layer,
    greedy,
    make_dense_model,
    pad,
    padding_mask,
)
from edgewise.models.transformer import make_model
from support import VOCAB, assert_equal_as_stated, copy_to_torch, random_pairs

pool = GraphPool()
ragged = st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6)), min_size=1, max_size=4)
sizes = st.fixed_dictionaries(
    {"N": st.integers(1, 3), "h": st.integers(1, 3), "d_k": st.integers(1, 5), "dim_ff": st.integers(1, 9)}
)
REAL = {"N": 2, "dim_model": 8, "dim_ff": 12, "h": 2, "dropout": 0.0}


def shake(model):
    """Move every parameter from its start value, so that no norm or bias is trivial."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model


def dense_model(**changes):
    return shake(make_dense_model(VOCAB, VOCAB, **REAL | changes)).eval()


def rectangle(batch):
    """Source ids, target ids, source lengths, and which target places are real."""
    real = pad(torch.ones(batch.n_tokens, dtype=torch.bool), batch.tgt_lengths)
    return pad(batch.src[0], batch.src_lengths), pad(batch.tgt[0], batch.tgt_lengths), real


def torchs(model, norm_first):
    """``torch.nn.Transformer`` with the model's weights, in float64, and the pairs of parameters."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a fast path is off
        twin = torch.nn.Transformer(
            8, 2, 2, 2, 12, dropout=0.0, batch_first=True, norm_first=norm_first, dtype=torch.float64
        )
    return twin, copy_to_torch(model, twin)


@pytest.mark.parametrize("norm_first", [True, False])
def test_equals_torchs_transformer_in_value_and_gradient(norm_first):
    """With its final norms, which it has in both orders; padded, causal, every parameter and both inputs."""
    model = dense_model(norm_first=norm_first)
    twin, pairs = torchs(model, norm_first)
    src_lengths, tgt_lengths = [5, 2, 3], [2, 4, 1]
    x, y = torch.randn(3, 5, 8, requires_grad=True), torch.randn(3, 4, 8, requires_grad=True)
    x64, y64 = (z.detach().double().requires_grad_() for z in (x, y))
    src_mask, tgt_pad = padding_mask(src_lengths, 5), ~padding_mask(tgt_lengths, 4)[:, 0, 0]
    ours = model.decoder(y, model.encoder(x, src_mask), causal_mask(4), src_mask)
    no_src = ~src_mask[:, 0, 0]
    theirs = twin(
        x64, y64, tgt_mask=~causal_mask(4), src_key_padding_mask=no_src,
        tgt_key_padding_mask=tgt_pad, memory_key_padding_mask=no_src,
    )  # fmt: skip
    ours, theirs = ours[~tgt_pad], theirs[~tgt_pad]
    assert_equal_as_stated(ours, theirs)
    upstream = torch.randn_like(ours)
    (ours * upstream).sum().backward()
    (theirs * upstream.double()).sum().backward()
    for mine, its in [(x, x64), (y, y64), *pairs]:
        assert_equal_as_stated(mine.grad, its.grad)
    named = dict(model.named_parameters())
    counted = {id(mine) for mine, _ in pairs}
    assert {n for n, p in named.items() if id(p) not in counted} == {
        "src_embed.lut.weight", "tgt_embed.lut.weight", "generator.proj.weight", "generator.proj.bias"
    }  # fmt: skip


@settings(max_examples=30)
@given(ragged, st.booleans())
def test_the_graph_model_gives_the_same_logits_and_gradients_on_ragged_batches(lengths, norm_first):
    batch = pool(*random_pairs(lengths))
    dense = dense_model(norm_first=norm_first)
    graph = make_model(VOCAB, VOCAB, **REAL, norm_first=norm_first)
    copy_weights(dense, graph)
    dense.double()
    dense.pos_enc.table = graph.pos_enc.table.double()
    src, tgt, real = rectangle(batch)
    expected = dense.generator.logits(dense.hidden(src, tgt, batch.src_lengths))[real]
    assert_equal_as_stated(graph.generator.logits(graph.hidden(batch)), expected)
    graph.double()  # small norms make gradients in single precision a matter of luck
    actual = graph.generator.logits(graph.hidden(batch))
    upstream = torch.randn_like(actual)
    (actual * upstream).sum().backward()
    (expected * upstream).sum().backward()
    for (name, mine), (other_name, other) in zip(
        sorted(graph.named_parameters()), sorted(dense.named_parameters()), strict=True
    ):
        assert name == other_name
        torch.testing.assert_close(mine.grad, other.grad)


@settings(max_examples=25)
@given(sizes, st.booleans(), st.integers(1, 9), st.integers(1, 9))
def test_weights_convert_both_ways_at_any_size(size, norm_first, src_vocab, tgt_vocab):
    size = size | {"dim_model": size["h"] * size["d_k"], "norm_first": norm_first}
    del size["d_k"]
    dense = shake(make_dense_model(src_vocab, tgt_vocab, **size))
    graph = make_model(src_vocab, tgt_vocab, **size)
    copy_weights(dense, graph)
    back = make_dense_model(src_vocab, tgt_vocab, **size)
    copy_weights(graph, back)
    assert back.state_dict().keys() == graph.state_dict().keys() == dense.state_dict().keys()
    for name, value in dense.state_dict().items():
        assert torch.equal(graph.state_dict()[name], value)
        assert torch.equal(back.state_dict()[name], value)
    back.load_state_dict(make_model(src_vocab, tgt_vocab, **size).state_dict(), strict=True)


class TestCopyWeights:
    def test_what_weights_do_not_show_must_agree(self):
        for change, message in (
            ({"norm_first": False}, r"norm_first must be the same, got True in source, False in target"),
            ({"h": 4}, r"attn\.h must be the same, got 2 in source, 4 in target"),
        ):
            with pytest.raises(ValueError, match=message):
                copy_weights(dense_model(), make_model(VOCAB, VOCAB, **REAL | change))

    def test_a_shared_matrix_takes_one_value_only(self):
        shared, apart = dense_model(shared=True), dense_model()
        before = shared.src_embed.lut.weight.clone()
        with pytest.raises(ValueError, match=r"target shares .*lut\.weight.* differ in source"):
            copy_weights(apart, shared)
        assert torch.equal(shared.src_embed.lut.weight, before), "nothing was copied"
        copy_weights(shared, apart)
        copy_weights(apart, shared)
        assert torch.equal(apart.generator.proj.weight, before)

    def test_other_sizes_are_refused(self):
        with pytest.raises(RuntimeError, match="size mismatch"):
            copy_weights(dense_model(), dense_model(dim_ff=3))
        with pytest.raises(RuntimeError, match="Missing key"):
            copy_weights(dense_model(), dense_model(N=3))


def test_masks():
    assert causal_mask(3).tolist() == [[True, False, False], [True, True, False], [True, True, True]]
    mask = padding_mask([2, 0], 3)
    assert mask.shape == (2, 1, 1, 3)
    assert mask[:, 0, 0].tolist() == [[True, True, False], [False] * 3]
    assert torch.equal(padding_mask(torch.tensor([1]), 1), torch.ones(1, 1, 1, 1, dtype=torch.bool))


def test_pad_lays_out_rows():
    assert pad(torch.arange(4), [1, 3]).tolist() == [[0, 0, 0], [1, 2, 3]]
    assert pad(torch.arange(3), [1, 2], padding_value=9).tolist() == [[0, 9], [1, 2]]


def test_padding_changes_no_real_output():
    model = dense_model()
    batch = pool(*random_pairs([(2, 3), (5, 1)]))
    src, tgt, real = rectangle(batch)
    other_src = src.masked_fill(~padding_mask(batch.src_lengths, 5)[:, 0, 0], 7)
    other_tgt = tgt.masked_fill(~real, 4)
    first, second = model(src, tgt, batch.src_lengths), model(other_src, other_tgt, batch.src_lengths)
    assert torch.equal(first[real], second[real])
    assert not torch.allclose(model(src, tgt)[real], first[real]), "without lengths padding is attended to"


@given(st.integers(1, 6), st.integers(0, 5), st.booleans())
@settings(max_examples=20)
def test_a_target_token_changes_no_output_before_it(n, seed, norm_first):
    model = dense_model(norm_first=norm_first)
    (src,), (tgt,) = random_pairs([(3, n)], seed)
    embedded = []
    model.tgt_embed.register_forward_hook(lambda module, given, x: embedded.append(x))
    hidden = model.hidden(torch.tensor([src]), torch.tensor([tgt[:-1]]))[0]
    direction = torch.randn(8)
    for t in range(n):
        (gradient,) = torch.autograd.grad(hidden[t] @ direction, embedded[0], retain_graph=True)
        assert (gradient[0].abs().sum(1) > 0).tolist() == [s <= t for s in range(n)]


def test_one_layer_is_its_two_or_three_equations():
    encoder, decoder = (shake(layer).eval() for layer in layer_pair(8, 12, 2, norm_first=False))
    x, memory, mask = torch.randn(2, 3, 8), torch.randn(2, 4, 8), causal_mask(3)
    y = encoder.sublayer[0].norm(x + encoder.self_attn(x, mask=mask)[0])
    torch.testing.assert_close(
        encoder_layer(encoder, x, mask), encoder.sublayer[1].norm(y + encoder.feed_forward(y))
    )
    y = decoder.sublayer[0].norm(x + decoder.self_attn(x, mask=mask)[0])
    y = decoder.sublayer[1].norm(y + decoder.src_attn(y, memory)[0])
    torch.testing.assert_close(
        decoder_layer(decoder, x, memory, mask), decoder.sublayer[2].norm(y + decoder.feed_forward(y))
    )


class TestGreedy:
    def test_decodes_the_most_probable_token_each_time_and_reads_it(self):
        """Sentence by sentence from log-probabilities of whole prefixes, against all at once, padded."""
        model = dense_model()
        lengths = [4, 2, 6]
        sources, _ = random_pairs([(n, 1) for n in lengths], seed=3)
        src = pad(torch.cat([torch.tensor(source) for source in sources]), lengths)
        expected, ends = [], 5
        for source in sources:
            written = [1]
            while len(written) <= 9:
                best = int(model(torch.tensor([source]), torch.tensor([written]))[0, -1].argmax())
                written.append(best)
                if best == ends:
                    break
            expected.append([i for i in written[1:] if i != ends])
        assert greedy(model, src, 1, ends, 9, lengths) == expected
        assert {len(row) < 9 for row in expected} == {True, False}, "one row ends, one is cut off"

    def test_dropout_is_off_and_the_mode_stays(self):
        model = dense_model(dropout=0.5).train()
        src = torch.randint(VOCAB, (4, 5))
        assert greedy(model, src, 0, 1, 8) == greedy(model, src, 0, 1, 8)
        assert model.training
        greedy(model.eval(), src, 0, 1, 8)
        assert not model.training

    def test_stops_when_all_have_ended(self):
        model = dense_model()
        with torch.no_grad():
            model.generator.proj.weight.zero_()
            model.generator.proj.bias.copy_(torch.arange(VOCAB) == 1)
        calls = []
        model.decoder.register_forward_hook(lambda *_: calls.append(1))
        assert greedy(model, torch.zeros(2, 3, dtype=torch.int64), 0, 1, 50) == [[], []]
        assert len(calls) == 1


def test_shared_is_one_matrix_drawn_as_an_embedding():
    model = make_dense_model(50, 50, **REAL | {"dim_model": 32, "h": 4}, shared=True)
    table = model.src_embed.lut.weight
    assert table is model.tgt_embed.lut.weight is model.generator.proj.weight
    assert float(table.detach().std()) == pytest.approx(32**-0.5, rel=0.1)
    assert sum(p.numel() for p in model.parameters()) + 2 * table.numel() == sum(
        p.numel() for p in make_dense_model(50, 50, **REAL | {"dim_model": 32, "h": 4}).parameters()
    )


def test_the_papers_models_are_counted_without_memory():
    """Base and big with one shared matrix of 37,000 rows, against the sum of their parts by hand."""
    for d, ff, h in ((512, 2048, 8), (1024, 4096, 16)):
        with torch.device("meta"):
            model = make_dense_model(37_000, 37_000, 6, d, ff, h, shared=True)
        attention, feed_forward = 4 * (d * d + d), 2 * d * ff + ff + d
        layers = 6 * (3 * attention + 2 * feed_forward + 5 * 2 * d) + 2 * 2 * d
        assert sum(p.numel() for p in model.parameters()) == layers + 37_000 * d + 37_000


def test_dropout_acts_where_the_paper_has_it():
    model = make_dense_model(VOCAB, VOCAB, **REAL | {"dropout": 0.5})
    acted = []
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Dropout) and module.p:
            module.register_forward_hook(lambda *_, name=name: acted.append(name))
    model(torch.zeros(1, 2, dtype=torch.int64), torch.zeros(1, 2, dtype=torch.int64))
    expected = ["pos_enc.dropout"] * 2
    for side, sublayers in (("encoder", 2), ("decoder", 3)):
        expected += [f"{side}.layers.{i}.sublayer.{k}.dropout" for i in range(2) for k in range(sublayers)]
    assert sorted(acted) == sorted(expected)


def test_layers_start_out_different():
    first, second = make_dense_model(5, 5, **REAL).encoder.layers
    assert not torch.equal(first.self_attn.in_proj.weight, second.self_attn.in_proj.weight)
    assert not torch.equal(first.feed_forward.inner.weight, second.feed_forward.inner.weight)


IDS = torch.zeros(1, 2, dtype=torch.int64)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: padding_mask([2, 4], 3), ValueError, "lengths must be at most 3, got 4"),
        (lambda: padding_mask([-1], 3), ValueError, r"lengths\[0\] must be at least 0, got -1"),
        (lambda: padding_mask([1.5], 3), TypeError, r"lengths\[0\] must be an integer, got 1.5"),
        (lambda: causal_mask(-1), ValueError, "n must be at least 0, got -1"),
        (lambda: pad(torch.arange(3), [1, 1]), ValueError, "lengths must add up to 3, got 2"),
        (lambda: pad(torch.arange(0), []), ValueError, "lengths must hold at least one length, got none"),
        (lambda: make_dense_model(5, 6, shared=True), ValueError, "one vocabulary, got .* 5 and .* 6"),
        (lambda: make_dense_model(0, 6), ValueError, "src_vocab must be at least 1, got 0"),
        (lambda: make_dense_model(5, 6, N=0), ValueError, "N must be at least 1, got 0"),
        (lambda: make_dense_model(5, 6, h=7), ValueError, r"dim_model \(512\) must be divisible by h \(7\)"),
        (lambda: dense_model()(IDS + VOCAB, IDS), ValueError, rf"token id must lie in 0\.\.{VOCAB - 1}"),
        (lambda: dense_model()(IDS[0], IDS), ValueError, r"ids must be \[B, length\], got \[2\]"),
        (lambda: dense_model()(IDS, IDS.expand(3, 2)), ValueError, "as many rows, got 1 and 3"),
        (lambda: dense_model()(IDS, IDS, [2, 1]), ValueError, "one length per row: 1 rows, 2 lengths"),
        (lambda: dense_model(norm_first="no"), TypeError, "norm_first must be True or False, got 'no'"),
        (lambda: greedy(dense_model(), IDS, 0, -1, 3), ValueError, "eos_id must be at least 0, got -1"),
        (lambda: greedy(dense_model(), IDS, VOCAB, 1, 3), ValueError, f"sos_id must lie in 0..{VOCAB - 1}"),
        (lambda: greedy(dense_model(), IDS, 0, 1, 0), ValueError, "max_len must be at least 1, got 0"),
    ],
)  # fmt: skip
def test_bad_input(call, error, message):
    with pytest.raises(error, match=message):
        call()
