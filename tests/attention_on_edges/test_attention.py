import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attention_on_edges.attention import MultiHeadAttention, attend, dot_product_attention
from support import assert_equal_as_stated, refusals, uneven


def same_weights(h, dim_model):
    """Ours, and torch's with ours copied into it."""
    ours = uneven(MultiHeadAttention(h, dim_model))
    theirs = torch.nn.MultiheadAttention(dim_model, h, batch_first=True).double()
    theirs.load_state_dict({name.replace("in_proj.", "in_proj_"): x for name, x in ours.state_dict().items()})
    return ours, theirs


@pytest.mark.parametrize("h", [1, 2, 4])
@pytest.mark.parametrize("crossed", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_multi_head_equals_torch_in_value_and_gradient(h, crossed, masked):
    ours, theirs = same_weights(h, 8)
    x = torch.randn(2, 5, 8, dtype=torch.float64, requires_grad=True)
    memory = torch.randn(2, 7, 8, dtype=torch.float64, requires_grad=True) if crossed else x
    mask = torch.rand(2, h, 5, memory.shape[1]) < 0.7  # another for each sentence and head
    mask[..., 0] = True
    output, weights = ours(x, memory if crossed else None, mask if masked else None)
    given = {"attn_mask": ~mask.flatten(0, 1) if masked else None, "average_attn_weights": False}
    expected, expected_weights = theirs(x, memory, memory, **given)
    torch.testing.assert_close(weights, expected_weights)
    assert_equal_as_stated(output, expected, (x, memory)[: 1 + crossed])


def test_projections_start_at_glorots_scale_each():
    layer = MultiHeadAttention(1, 64)
    bound = (6 / 128) ** 0.5
    for block in (*layer.in_proj.weight.split(64), layer.out_proj.weight):
        assert 0.98 * bound < block.abs().max() <= bound


zeros, dense, LAYER = torch.zeros, dot_product_attention, MultiHeadAttention(2, 8)


test_bad_input = refusals(
    (lambda: MultiHeadAttention(3, 100), r"dim_model \(100\) must be divisible by h \(3\)"),
    (lambda: MultiHeadAttention(2.0, 8), TypeError, "h must be an integer, got 2.0"),
    (lambda: LAYER.get(zeros(3, 9)), r"x must be \[..., 8\], got \[3, 9\]"),
    (lambda: LAYER.get(zeros(3, 8), "vk"), "fields must be one of .*'vk'"),
    (lambda: LAYER.get_o(zeros(3, 4, 2)), r"x must be \[..., 2, 4\], got \[3, 4, 2\]"),
    (lambda: dense(zeros(2, 4), zeros(2, 3), zeros(2, 3)), "one width, got 4 and 3"),
    (lambda: dense(zeros(2, 3), zeros(4, 3), zeros(2, 3)), "one length, got 4 and 2"),
    (lambda: dense(*[zeros(2, 3)] * 3, zeros(2, 2)), TypeError, "mask must be bool .* torch.float32"),
    (lambda: dense(*[zeros(2, 3)] * 3, zeros(2, 3) > 0), r"fit the scores \[2, 2\]"),
)


@given(st.integers(1, 4), st.integers(1, 5), st.booleans(), st.integers(0, 99))
def test_a_row_at_minus_infinity_gets_zeros_and_finite_gradients(n, m, masked, seed):
    torch.manual_seed(seed)
    scores = torch.randn(n, m).masked_fill(torch.rand(n, m) < 0.3, -math.inf)
    scores[0] = -math.inf
    value = torch.randn(m, 2, requires_grad=True)
    mask = torch.rand(n, m) < 0.7 if masked else None
    output, weights = attend(scores.requires_grad_(), value, mask)
    there = (scores > -math.inf) & (True if mask is None else mask)
    torch.testing.assert_close(weights.sum(-1), there.any(-1).float())
    assert not bool(weights[~there].any() or output[0].any())
    assert all(bool(x.isfinite().all()) for x in torch.autograd.grad(output.sum(), [scores, value]))


def test_half_precision_does_not_overflow_in_products():
    q, k, v = (500 * torch.randn(5, 64).half(), 500 * torch.randn(6, 64).half(), torch.randn(6, 3).half())
    output, _ = dot_product_attention(q, k, v)
    expected, _ = dot_product_attention(q.double(), k.double(), v.double())
    assert output.dtype == torch.float16
    torch.testing.assert_close(output.double(), expected, atol=2e-3, rtol=2e-3)
