"""Compiles what the engine for GPUs launches there, for GPUs that are not here: launches do nothing."""

from unittest.mock import MagicMock

import torch
from torch import bfloat16, float16, float32, float64
from triton import JITFunction
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

from edgewise.graphs import random_links, window
from edgewise.propagation import propagate_attention
from edgewise.propagation.triton import triton_engine, triton_kernels

CASES = [  # graph; dtype; heads; those of keys; biases: dtype, where they begin; attributes; dropout
    *((random_links(n, 2), float32, 16, 16, None, 0, 3, 0.0) for n in (200, 400)),
    (random_links(200, 2), float64, 1, 1, float64, 0, 2, 0.1),
    *((random_links(20, 2), bfloat16, 4, 2, float32, start, 0, 0.1) for start in (0, 1)),
    *((window(n, 2, 2), float16, 3, 1, bias, 0, 0, 0.0) for n, bias in ((1, float16), (20, float32))),
]
kernels = {name for name, x in vars(triton_kernels).items() if isinstance(x, JITFunction) and name[0] != "_"}
triton_engine.has_triton = lambda device: True
for arch in (80, 90):
    driver.set_active(gpu := MagicMock())
    gpu.get_current_device.return_value = arch
    gpu.get_current_target.return_value = GPUTarget("cuda", arch, 32)
    gpu.utils.load_binary.return_value = None, None, 0, 0, 1024
    gpu.utils.get_device_properties.return_value = {"max_shared_mem": 163 * 1024}
    triton_engine._compiled = found = MagicMock(get=lambda key: None)
    for graph, dtype, heads, fewer, biased, start, c, dropout in CASES:
        n, e = graph.num_dst, graph.num_edges
        shapes = (n, heads, 64), (n, fewer, 64), (n, fewer, 64), (e, c), (c, heads, 64)
        q, k, v, attr, proj = (torch.zeros(shape, dtype=dtype, requires_grad=True) for shape in shapes)
        bias = torch.zeros(e * heads + start, dtype=biased)[start:].view(e, heads) if biased else None
        given = {"edge_bias": bias, "edge_attr": attr, "edge_proj": proj, "dropout": dropout}
        propagate_attention(graph, q, k, v, engine="triton", **given).sum().backward()
    launches = {call.args for call in found.__setitem__.call_args_list}
    assert {key[0] for key, _ in launches} == kernels
    assert len(launches) == len({key for key, _ in launches}), "the engine finds another kernel than Triton"
