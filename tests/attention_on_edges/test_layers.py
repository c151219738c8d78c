import contextlib
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attention_on_edges import layers
from attention_on_edges.layers import Dropout, Embeddings, PositionalEncoding
from support import refusals


@given(st.integers(0, 300), st.integers(1, 12))
def test_positions_follow_the_paper(pos, dim_model):
    row = PositionalEncoding(dim_model)(torch.tensor([pos]))[0]
    for column, value in enumerate(row.tolist()):
        angle = pos / 10000 ** (2 * (column // 2) / dim_model)
        assert value == pytest.approx(math.sin(angle) if column % 2 == 0 else math.cos(angle), abs=1e-6)


def test_positions_have_no_buffer_and_can_be_used_after_inference():
    encoding = PositionalEncoding(4)
    with torch.inference_mode():
        encoding(torch.tensor([99_999]))
    assert not list(encoding.buffers())
    scale = torch.ones(4, requires_grad=True)
    (encoding(torch.tensor([99_999])) * scale).sum().backward()
    assert scale.grad is not None


def test_dropout_acts_on_what_the_sublayer_adds_only():
    connection = layers.SublayerConnection(1000, dropout=0.5)
    x = torch.randn(1, 1000)
    added = connection(x, torch.ones_like) - x
    assert set(added.round(decimals=3).unique().tolist()) == {0.0, 2.0}


def test_a_feed_forward_layer_of_width_zero_is_a_bias(recwarn):
    layer = layers.PositionwiseFeedForward(3, 0)
    layer.reset_parameters()
    torch.nn.init.normal_(layer.outer.bias)
    torch.testing.assert_close(layer(torch.randn(4, 3)), layer.outer.bias.expand(4, 3))
    assert not recwarn.list


def test_draw_weights_makes_copies_differ_and_leaves_norms():
    copies = layers.clones(layers.layer_pair(8, 12, 2)[0], 2)
    layers.draw_weights(copies)
    assert not torch.equal(copies[0].self_attn.in_proj.weight, copies[1].self_attn.in_proj.weight)
    assert not torch.equal(copies[0].feed_forward.outer.weight, copies[1].feed_forward.outer.weight)
    assert torch.equal(copies[0].sublayer[0].norm.weight, torch.ones(8))


test_bad_input = refusals(
    (lambda: Embeddings(5, 4)(torch.tensor([-1])), r"token id must lie in 0\.\.4, got -1"),
    (lambda: Embeddings(5, 4)(torch.tensor([1.0])), TypeError, "token id must be a tensor of int64"),
    (lambda: PositionalEncoding(4)(torch.tensor([-1])), "position must lie in .* got -1"),
    (lambda: PositionalEncoding(4, dropout=1.0), r"dropout must lie in \[0, 1\), got 1.0"),
    (lambda: layers.PositionwiseFeedForward(4, 2.5), TypeError, "dim_ff must be an integer, got 2.5"),
)


def test_positions_are_kept_where_they_are_few_and_of_a_device_that_has_numbers():
    before, late = layers._table.cache_info(), PositionalEncoding(2)(torch.tensor([2_000_000]))
    assert layers._table.cache_info() == before
    assert late[0].tolist() == pytest.approx([math.sin(2e6), math.cos(2e6)])
    with contextlib.suppress(NotImplementedError), torch.device("meta"):
        PositionalEncoding(6)(torch.arange(5, device="cpu"))
    assert PositionalEncoding(6)(torch.arange(5)).device.type == "cpu"


@pytest.mark.parametrize("shape", [(1001,), (3, 5, 7), (0, 4)])
@pytest.mark.parametrize(("dtype", "rtol"), [(torch.float32, 1e-6), (torch.float16, 0), (torch.bfloat16, 0)])
def test_dropout_scales_what_it_keeps_rounding_once_and_passes_its_gradient(shape, dtype, rtol):
    x = torch.rand(shape).add(1).to(dtype).requires_grad_()
    y = Dropout(0.25)(x)
    kept = (y > 0).double()
    torch.testing.assert_close(y, (kept * x.double() / 0.75).to(dtype), rtol=rtol, atol=0)
    (gradient,) = torch.autograd.grad(y.sum(), x)
    torch.testing.assert_close(gradient, (kept / 0.75).to(dtype))


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_dropout_drops_each_feature_with_its_probability_and_on_its_own(p):
    dropped = (Dropout(p)(torch.ones(400, 1000)) == 0).double()
    error = 5 * (p * (1 - p) / 400) ** 0.5
    assert float((dropped.mean(0) - p).abs().max()) < error
    assert float(dropped.mean()) == pytest.approx(p, abs=5 * (p * (1 - p) / dropped.numel()) ** 0.5)
    correlation = torch.corrcoef(dropped[:, :64].T).fill_diagonal_(0)
    assert float(correlation.abs().max()) < 5 / 400**0.5


def test_dropout_is_still_where_it_should_be():
    x = torch.ones(10)
    assert torch.equal(Dropout(0.5).eval()(x), x)
    assert torch.equal(Dropout(0.0)(x), x)
    assert torch.equal(Dropout(1.0)(x), torch.zeros(10))


def test_each_part_of_an_evaluated_model_gets_its_mode_back():
    model = torch.nn.Sequential(torch.nn.Dropout(), torch.nn.Dropout().eval())
    with layers.evaluating(model):
        assert [module.training for module in model.modules()] == [False] * 3
    assert [module.training for module in model.modules()] == [True, True, False]
