"""Layers and models inside of what other libraries do to them."""

import copy
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from accelerate.hooks import ModelHook, add_hook_to_module
from peft import LoraConfig, inject_adapter_in_model
from peft.tuners.tuners_utils import BaseTunerLayer
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel
from torch.utils.checkpoint import checkpoint

from attention_on_edges.attention import MultiHeadAttention
from attention_on_edges.layers import Generator
from attention_on_edges.models.causal_lm import CausalLM, CausalLMConfig
from attention_on_edges.pool import GraphPool
from attention_on_edges.training import LabelSmoothing, states_loss
from book_support import VOCAB, random_pairs, small_model
from edgewise import GraphAttention, GraphTransformerLayer
from edgewise.graphs import bipartite, window

GRAPH, X = window(12, 2, 2), torch.randn(12, 8)
ATTR = torch.randn(GRAPH.num_edges, 3)
CROSS, CONTEXT = bipartite([5, 2], [8, 4]), torch.randn(7, 8)
BATCH = GraphPool()(*random_pairs([(5, 7), (1, 3), (2, 9)]))
TEXTS = [[1, 2, 3], [4, 5]]


def translation(model, batch=BATCH):
    hidden = model.hidden(batch)
    loss, right = states_loss(model.generator, LabelSmoothing(VOCAB, 2, 0.1), hidden, batch.tgt_y)
    return torch.cat([hidden.flatten(), loss[None], torch.tensor([right])])


CASES = {
    "layer": (lambda: GraphAttention(8, 2, edge_dim=3, skip=True), lambda m: m(GRAPH, X, edge_attr=ATTR)),
    "layer across": (lambda: GraphAttention(8, 2), lambda m: m(CROSS, X, CONTEXT)),
    "graph Transformer": (
        lambda: GraphTransformerLayer(8, 2, 16, edge_dim=3),
        lambda m: m(GRAPH, X, edge_attr=ATTR),
    ),
    "dense": (lambda: MultiHeadAttention(2, 8), lambda m: m(X[None], CONTEXT[None])[0]),
    "Transformer": (lambda: small_model().eval(), translation),
    "language model": (
        lambda: CausalLM(CausalLMConfig(num_layers=1, dim_model=8, num_heads=2, dim_ff=16, vocab_size=9)),
        lambda m: m(*m.pack(TEXTS)),
    ),
}
every = pytest.mark.parametrize(("make", "call"), CASES.values(), ids=CASES)


def linears(module):
    """But for maps of edges, which are multiplied by, not called."""
    found = {name: part for name, part in module.named_modules() if isinstance(part, nn.Linear)}
    return {name: part for name, part in found.items() if not name.endswith("edge")}


class TwiceAfter(ModelHook):
    def post_forward(self, module, output):
        return 2 * output


class Twice(nn.Linear):
    def forward(self, x):
        return 2 * super().forward(x)


CHANGES = {
    "a subclass": lambda linear: setattr(linear, "__class__", Twice),
    "accelerate": lambda linear: add_hook_to_module(linear, TwiceAfter()),
    "hooked": lambda linear: linear.register_forward_hook(lambda m, x, y: 2 * y),
}


@every
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_changed_linear_map_is_called(make, call, change):
    """Doubled from outside, it does what doubled weights do."""
    changed = make()
    expected = copy.deepcopy(changed)
    with torch.no_grad():
        for linear in linears(expected).values():
            for x in linear.parameters():
                x.mul_(2)
    for linear in linears(changed).values():
        change(linear)
    torch.testing.assert_close(call(changed), call(expected), atol=1e-5, rtol=1e-4)


class Capped(Generator):
    def logits(self, x):
        return torch.tanh(self.proj(x))


@pytest.mark.parametrize("change", ["a subclass", "patched", "hooked", "its criterion"])
def test_the_loss_is_of_what_a_changed_generator_predicts(change):
    generator, hidden, target = Generator(8, 9), torch.randn(5, 8), torch.tensor([1, 2, 3, 4, 2])
    if change == "a subclass":
        generator.__class__ = Capped
    elif change == "patched":
        generator.logits = lambda x: torch.tanh(generator.proj(x))
    elif change == "hooked":
        generator.register_forward_hook(lambda m, x, y: y.mul(2).log_softmax(-1))
    criterion = LabelSmoothing(9, 2, 0.1)
    if change == "its criterion":
        criterion.register_forward_hook(lambda m, x, y: 2 * y)
    loss, _ = states_loss(generator, criterion, hidden, target)
    torch.testing.assert_close(loss, criterion(generator(hidden), target))


@every
def test_adapters_do_what_they_do_once_merged(make, call):
    module = make()
    before = call(module)
    maps = [name for name, part in module.named_modules() if isinstance(part, nn.Linear)]
    config = LoraConfig(target_modules=maps, init_lora_weights=False, r=2)
    adapted = inject_adapter_in_model(config, module)
    apart = call(adapted)
    assert (apart - before).abs().max() > 0.1
    for part in adapted.modules():
        if isinstance(part, BaseTunerLayer):
            part.merge()
    torch.testing.assert_close(call(adapted), apart, atol=1e-4, rtol=1e-4)


@every
def test_a_bias_can_be_taken_away(make, call):
    for name in linears(make()):
        without = make()
        zero, linear = copy.deepcopy(without), without.get_submodule(name)
        if linear.bias is not None:
            nn.init.zeros_(zero.get_submodule(name).bias)
            linear.bias = None
        torch.testing.assert_close(call(without), call(zero))


def shard(module):
    return fully_shard(module, mesh=init_device_mesh("cpu", (1,)))


def averaged(module):
    average = AveragedModel(module, use_buffers=True)
    average.update_parameters(module)
    average.update_parameters(module)
    return average.module


WRAPPERS = {
    "DDP": lambda module: DistributedDataParallel(module, find_unused_parameters=True),
    "FSDP": shard,
    "averaged": averaged,
}


class Called(nn.Module):
    """A model of somebody's, in which a layer of ours is a part."""

    def __init__(self, part, call):
        super().__init__()
        self.part, self.call = part, call

    def forward(self):
        return self.call(self.part)


@every
@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)
def test_wrapped_it_computes_the_same(make, call, wrap, process_group):
    module = Called(make(), call)
    expected = module()
    gradients = torch.autograd.grad(expected.sum(), [*module.parameters()], allow_unused=True)
    wrapped = wrap(module)
    found = wrapped()
    torch.testing.assert_close(found, expected)
    found.sum().backward()
    for x, gradient in zip(wrapped.parameters(), gradients, strict=True):
        if gradient is not None:
            own = x.grad.full_tensor() if hasattr(x.grad, "full_tensor") else x.grad
            torch.testing.assert_close(own, gradient, atol=1e-5, rtol=1e-4)


@every
def test_checkpoints_inference_mode_and_threads(make, call):
    module = make()
    with torch.inference_mode():
        first = call(module)
    expected = call(module)
    torch.testing.assert_close(first, expected)
    wrt = [x for x in module.parameters()]
    gradients = torch.autograd.grad(expected.sum(), wrt, allow_unused=True)
    again = checkpoint(call, module, use_reentrant=False)
    torch.testing.assert_close(torch.autograd.grad(again.sum(), wrt, allow_unused=True), gradients)
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(call, [module] * 8):
            torch.testing.assert_close(found, expected)
