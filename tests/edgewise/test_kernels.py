"""FlexAttention's masks of graphs, and PyTorch's ``varlen_attn``; the compiler sees ours for Triton."""

import importlib
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from torch._subclasses import FakeTensorMode
from torch.nn.attention.flex_attention import create_block_mask, create_mask

from edgewise.graphs import AttentionGraph, bipartite, causal, complete, random_links, window
from edgewise.propagation import propagate_attention
from edgewise.propagation.fields import Fields
from support import any_graphs, check_propagation, random_fields, refusals

block_mask = importlib.import_module("edgewise.graphs.block_mask")
kernels = importlib.import_module("edgewise.propagation.varlen")
operation = importlib.import_module("edgewise.propagation.operation")
engine_choice = importlib.import_module("edgewise.propagation.engine_choice")


def assert_is_pytorchs(blocks, graph):
    """The same blocks as PyTorch finds in the dense mask, and the rule is that mask."""
    mask, sides = graph.to_mask(), (1, 1, graph.num_dst, graph.num_src)
    expected = create_block_mask(lambda b, h, i, j: mask[i, j], *sides, "cpu", blocks.BLOCK_SIZE)
    for name in ("kv_num_blocks", "kv_indices", "full_kv_num_blocks", "full_kv_indices", "seq_lengths"):
        torch.testing.assert_close(getattr(blocks, name), getattr(expected, name))
    assert torch.equal(create_mask(blocks.mask_mod, *sides, "cpu")[0, 0], mask)


@given(any_graphs.filter(lambda graph: graph.num_edges))
def test_a_block_mask_is_pytorchs(graph):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(block_mask, "BLOCK", 2)
        assert_is_pytorchs(graph.to_block_mask(), graph)


def test_blocks_of_a_long_text_are_found_without_its_pairs():
    graph = window(2000, 300, 20)
    blocks = graph.to_block_mask()
    assert "_edges_of_intervals" not in graph._known
    assert_is_pytorchs(blocks, graph)
    assert window(65_536, 300, 20).to_block_mask().kv_indices.numel() == 512**2


@pytest.mark.parametrize(
    "graph", [complete([3, 9]), causal([4, 1]), bipartite([2, 3], [4, 1]), window(9, 2, 0)], ids=str
)
def test_packed_sequences_reach_their_kernel_in_its_meaning(graph, monkeypatch):
    """Its arguments make the graph again."""

    def attend(q, k, v, cu_q, cu_k, max_q, max_k, window_size):
        again = AttentionGraph.from_cu_seqlens(cu_q, cu_k, window=window_size)
        assert (max_q, max_k) == (cu_q.diff().max(), cu_k.diff().max())
        return propagate_attention(again, q, k, v)

    kernel = SimpleNamespace(varlen_attn=attend)  # older PyTorch has none
    monkeypatch.setitem(sys.modules, "torch.nn.attention.varlen", kernel)
    monkeypatch.setattr(kernels, "refuse", lambda found: None)
    check_propagation(graph, "varlen", 2, 4)


@pytest.mark.parametrize(
    ("graph", "width", "dtype", "taken"),
    [
        (complete([3, 9]), 16, torch.bfloat16, True),
        (bipartite([3, 9], [4, 4]), 16, torch.float16, True),
        (bipartite([4, 4], [3, 9]), 16, torch.float16, True),
        (bipartite([4, 4], [3, 3]), 16, torch.float16, False),
        (window([9, 9], 2, 0), 16, torch.bfloat16, True),
        (causal([9, 9]), 16, torch.bfloat16, False),
        (complete([3, 9]).restrict(torch.arange(12) > 0), 16, torch.bfloat16, False),
        (complete([3, 9]), 16, torch.float32, False),
        (complete([3, 9]), 12, torch.bfloat16, False),
        (complete([3, 9]), 264, torch.bfloat16, False),
    ],
)
def test_auto_takes_the_kernel_for_packed_sequences_where_that_was_measured_to_pay(
    graph, width, dtype, taken, monkeypatch
):
    """On a GPU of its kind; queries are pretended to be on one."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    monkeypatch.setattr(engine_choice, "options", lambda: {"window_size", "scale"})
    with FakeTensorMode():
        q, v = (torch.empty(graph.num_dst, 2, d, device="cuda", dtype=dtype) for d in (width, width + 8))
    fields = Fields(q, q, q)
    assert engine_choice.suits_varlen(graph, fields) is taken
    on_a_cpu = torch.empty(q.shape, dtype=dtype)
    for other in ({"v": v}, {"bias": q}, {"factors": q}, {"attr": q}, {"q": on_a_cpu}):
        assert not engine_choice.suits_varlen(graph, fields._replace(**other))
    with monkeypatch.context() as patch:
        patch.setattr(torch.compiler, "is_compiling", lambda: True)
        assert not engine_choice.suits_varlen(graph, fields)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    assert not engine_choice.suits_varlen(graph, fields)


def test_auto_takes_what_goes_through_transforms_inside_of_them(monkeypatch):
    monkeypatch.setattr(engine_choice, "suits_varlen", lambda *given: True)
    graph = complete([3, 9])
    q, k, v = random_fields(graph, 2, 4)
    torch.func.grad(lambda x: propagate_attention(graph, x, k, v).sum())(q)  # varlen would refuse a CPU


def to_varlen(**options):
    return propagate_attention(complete(3), *[torch.zeros(3, 1, 2)] * 3, engine="varlen", **options)


test_what_a_kernel_cannot_take = refusals(
    (lambda: to_varlen(edge_bias=torch.zeros(9, 1)), "'varlen' takes no biases of edges: use 'tiles', 'csr'"),
    (lambda: to_varlen(), "'varlen' takes no torch.float32 on cpu: use 'tiles', 'csr' or 'auto'"),
)


def test_edges_too_scattered_for_blocks_are_refused(monkeypatch):
    monkeypatch.setattr(block_mask, "MOST", 8 * 128**2)
    assert window(300, 9, 9).to_block_mask() is not None
    assert random_links(200, 9).to_block_mask() is not None
    with pytest.raises(ValueError, match=r"lie scattered over 9 blocks of 128 x 128.* use engine='csr'"):
        random_links(300, 9).to_block_mask()
    with pytest.raises(ValueError, match="two edges of the same pair"):
        AttentionGraph(torch.tensor([0, 0]), torch.tensor([1, 1]), 2).to_block_mask()


@pytest.mark.triton
def test_kernels_compile_for_gpus_that_are_not_here(tmp_path):
    """The interpreter lets pass what the compiler does not; a process has one of them."""
    environment = os.environ | {"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path)}
    program = Path(__file__).parents[1] / "compiling.py"
    subprocess.run([sys.executable, program], env=environment, check=True)
