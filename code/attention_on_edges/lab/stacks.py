"""Tasks 2, 3 and 5: the feed-forward network, the encoder's stack and the decoder's."""

from typing import Any

import torch
from torch import Tensor, nn

from attention_on_edges.lab import reference, reference_model
from attention_on_edges.lab.attention import BATCH, D, H, M, N
from attention_on_edges.lab.compare import exact, is_tensor, judge, near, same_gradients, steady
from attention_on_edges.lab.reference import NONE, Faults, Params, part
from attention_on_edges.lab.report import Report
from attention_on_edges.lab.runner import Exam, Unfinished, Wrong, build, call, need, work

FF = 8
"""Inner width of the feed-forward network."""

FEED_FORWARD_SLIPS = {
    "no relu": "There is no ReLU between the two maps, so that they are only one.",
    "relu first": "There is also a ReLU before the first map. It belongs between the two only.",
    "relu last": "There is a ReLU after the second map. It belongs between the two only.",
    "gelu": "The activation is a GELU. The equation has a ReLU.",
    "sigmoid": "The activation is a sigmoid. The equation has a ReLU.",
    "tanh": "The activation is a hyperbolic tangent. The equation has a ReLU.",
    "leaky relu": "The activation is a leaky ReLU. The equation has a plain one.",
    "softmax inside": "There is a softmax between the two maps, where a ReLU should be.",
    "no biases": "The biases b_1 and b_2 are left out.",
    "input added": "The input is added to the output. The residual connection belongs to the stack.",
}

STACK_SLIPS = {
    "no residuals": "The residual connections are missing: add each sub-layer's input to its output.",
    "no residual 1": "The first residual connection is missing: x + attention(x).",
    "pre-norm": "The norm is before the sub-layers (pre-norm, as in chapter 2). Here it comes after the "
    "addition: norm(x + f(x)).",
    "norm before the addition": "The norm is taken before the addition: x + norm(f(x)). Take it after: "
    "norm(x + f(x)).",
    "no norms": "The norms are missing.",
    "no norm 1": "`norm1`, after the first sub-layer, is missing.",
    "no norm 2": "`norm2`, after the second sub-layer, is missing.",
    "one norm for all": "`norm1` is used for every sub-layer. Each has a norm of its own.",
    "norm not learned": "The norms' own scale and shift are not used: call `self.norm1(...)`, not "
    "`F.layer_norm`.",
}

ENCODER_SLIPS = STACK_SLIPS | {
    "no residual 2": "The second residual connection is missing: x + feed_forward(x).",
    "second residual from the input": "The second residual connection adds the stack's input. It should "
    "add the output of the first sub-layer.",
    "maskout in the encoder": "`maskout` is on. In the encoder every token attends to every other.",
    "feed-forward first": "The feed-forward network comes before the attention.",
    "no attention": "The attention is missing.",
    "no feed-forward": "The feed-forward network is missing.",
}

DECODER_SLIPS = STACK_SLIPS | {
    "no residual 2": "The second residual connection, around the cross-attention, is missing.",
    "no residual 3": "The third residual connection, around the feed-forward network, is missing.",
    "no norm 3": "`norm3`, after the third sub-layer, is missing.",
    "no maskout": "`maskout` is not switched on in the self-attention: each token attends to later ones.",
    "maskout in both": "`maskout` is on in the cross-attention. The source is known as a whole.",
    "one attention for both": "The cross-attention uses `self_attention`; `cross_attention` has weights of "
    "its own. (DGL's tutorial makes this mistake.)",
    "attentions exchanged": "`self_attention` and `cross_attention` are exchanged.",
    "second residual from the input": "The second residual connection adds the stack's input. It should "
    "add the output of the first sub-layer.",
    "roles exchanged": "The roles are exchanged: queries come from the memory, keys and values from the "
    "target. The target asks, the memory answers.",
    "keys from the target": "The keys of the cross-attention come from the target. Keys and values both come "
    "from the memory.",
    "values from the target": "The values of the cross-attention come from the target. Keys and values both "
    "come from the memory.",
    "all from the memory": "The queries of the cross-attention come from the memory, not from the target.",
    "all from the target": "The second attention never reads the memory: keys and values come from the "
    "target.",
    "queries from the stack's input": "The cross-attention's queries come from the stack's input, not from "
    "the output of the self-attention.",
    "cross-attention first": "The cross-attention comes before the self-attention.",
    "no self-attention": "The self-attention is missing.",
    "no cross-attention": "The cross-attention is missing: the stack never attends to the encoder.",
    "no feed-forward": "The feed-forward network is missing.",
}

DROPOUT_SLIPS = {
    "no dropout": "`self.dropout` is never called: apply it to what each sub-layer returns.",
    "no dropout 1": "There is no dropout on what the first sub-layer returns.",
    "no dropout 2": "There is no dropout on what the second sub-layer returns.",
    "dropout on the sum": "Dropout is applied to the sum. Apply it to the sub-layer's output, before the "
    "input is added: the path through the additions stays whole.",
    "dropout after the norm": "Dropout is applied after the norm. Apply it to the sub-layer's output, before "
    "the input is added.",
}

DECODER_DROPOUT_SLIPS = DROPOUT_SLIPS | {
    "no dropout 3": "There is no dropout on what the third sub-layer returns.",
}


class Tilt(nn.Dropout):
    """Replaces dropout: each feature is scaled by its own factor, which shows where it was applied."""

    def forward(self, x: Tensor) -> Tensor:
        """Scale the features by factors from 1 to 3."""
        return x * torch.linspace(1, 3, x.shape[-1], dtype=x.dtype)


class _Task2(Exam):
    title = "Task 2, FeedForward"
    steps = ("it runs", "values", "tokens in parallel", "gradients")

    def fresh(self) -> nn.Module:
        module = build(self.subject, D, FF, seed=self.seed)
        need(module, inner=(FF, D), outer=(D, FF))
        return module

    def output(self, x: Tensor) -> Tensor:
        return is_tensor(call(self.fresh(), x), tuple(x.shape), "[batch, n, dim_model]")

    def it_runs(self) -> str:
        x = torch.randn(BATCH, N, D)
        output = self.output(x)
        steady(output, self.output(x))
        return f"{list(x.shape)} becomes {list(output.shape)}"

    def values(self) -> str:
        for batch, n in ((BATCH, N), (1, 1)):
            x = torch.randn(batch, n, D)
            judge(
                self.output(x),
                self.fresh(),
                lambda p, faults, x=x: reference.feed_forward(p, x.double(), faults),
                FEED_FORWARD_SLIPS,
            )
        return "equal to the reference"

    def tokens_in_parallel(self) -> str:
        few, many = (work(self.fresh(), torch.randn(BATCH, n, D)) for n in (N, 2 * N))
        if many > few:
            raise Wrong(f"{N} tokens take {few} operations, {2 * N} take {many}: is there a loop?")
        return f"{few} operations, however many tokens"

    def gradients(self) -> str:
        inputs = [torch.randn(BATCH, N, D)]
        return same_gradients(self.fresh(), inputs, lambda p, xs: reference.feed_forward(p, *xs))


class _Stack(Exam):
    """A subclass has ``inputs(n, m)`` and ``compute(parameters, inputs, drop, faults)``."""

    norms = 2
    attentions: tuple[str, ...] = ()
    slips: dict[str, str]
    dropout_slips = DROPOUT_SLIPS

    def fresh(self, dropout: float = 0.0) -> nn.Module:
        module = build(self.subject, H, D, FF, dropout, seed=self.seed)
        shapes = {f"norm{i + 1}": (D,) for i in range(self.norms)}
        shapes |= {f"{name}__w_{field}": (D, D) for name in self.attentions for field in "qkvo"}
        need(module, **shapes, feed_forward__inner=(FF, D), feed_forward__outer=(D, FF))
        return module

    def output(self, module: nn.Module, inputs: list[Tensor]) -> Tensor:
        return is_tensor(call(module, *inputs), tuple(inputs[0].shape), "[batch, length, dim_model]")

    def judge(self, module: nn.Module, inputs: list[Tensor], slips: dict[str, str], drop: Any) -> None:
        output = self.output(module, inputs)
        doubles = [x.double() for x in inputs]
        judge(output, module, lambda p, faults: self.compute(p, doubles, drop, faults), slips)

    def parts(self) -> str:
        check_parts(self.fresh(), self.attentions)
        return "attention and feed-forward network are in order"

    def it_runs(self) -> str:
        module, inputs = self.fresh(), self.inputs()
        output = self.output(module, inputs)
        steady(output, self.output(module, inputs))
        return f"{list(inputs[0].shape)} becomes {list(output.shape)}"

    def values(self) -> str:
        module = self.fresh()
        self.judge(module, self.inputs(), self.slips, reference.same)
        return "equal to the reference"

    def other_lengths(self) -> str:
        for n, m in ((N, M), (M, N), (1, 1)):
            self.judge(self.fresh(), self.inputs(n, m), self.slips, reference.same)
        return "any"

    def dropout(self) -> str:
        module, inputs = self.fresh(0.5), self.inputs()
        if not torch.equal(call(module, *inputs), call(module, *inputs)):
            raise Wrong(
                "Two runs in evaluation mode differ: dropout is active. Call `self.dropout`, which knows the "
                "mode."
            )
        module.dropout = Tilt()
        self.judge(module, inputs, self.dropout_slips, Tilt())
        return "on what each sub-layer returns, in training only"

    def gradients(self) -> str:
        return same_gradients(
            self.fresh(), self.inputs(), lambda p, xs: self.compute(p, xs, reference.same, NONE)
        )


class _Task3(_Stack):
    title = "Task 3, EncoderStack"
    steps = ("parts", "it runs", "values", "other lengths", "dropout", "gradients")
    attentions = ("attention",)
    slips = ENCODER_SLIPS

    def inputs(self, n: int = N, m: int = N) -> list[Tensor]:
        return [torch.randn(BATCH, m, D)]

    def compute(self, p: Params, inputs: list[Tensor], drop: Any, faults: Faults) -> Tensor:
        return reference_model.encoder_stack(p, H, *inputs, drop, faults)


class _Task5(_Stack):
    title = "Task 5, DecoderStack"
    steps = ("parts", "it runs", "values", "other lengths", "masking", "dropout", "gradients")
    norms = 3
    attentions = ("self_attention", "cross_attention")
    slips = DECODER_SLIPS
    dropout_slips = DECODER_DROPOUT_SLIPS

    def inputs(self, n: int = N, m: int = N) -> list[Tensor]:
        return [torch.randn(BATCH, n, D), torch.randn(BATCH, m, D)]

    def compute(self, p: Params, inputs: list[Tensor], drop: Any, faults: Faults) -> Tensor:
        return reference_model.decoder_stack(p, H, *inputs, drop, faults)

    def masking(self) -> str:
        module, (x, memory) = self.fresh(), self.inputs()
        first = call(module, x, memory)
        for j in range(N - 1):
            other = torch.where(torch.arange(N)[:, None] > j, torch.randn_like(x), x)
            if not near(call(module, other, memory)[:, : j + 1], first[:, : j + 1].detach().double()):
                raise Wrong(f"Output {j} changes when a later target token changes.")
        return "later target tokens change nothing before them"


def check_parts(module: nn.Module, attentions: tuple[str, ...]) -> None:
    """Check the parts of a stack first, so that a mistake is reported where it is.

    Raises
    ------
    Unfinished, Wrong
        If a part is not written yet, or wrong.
    """
    x, p = torch.randn(BATCH, N, D), exact(module)
    y = x.double()
    check_part(module, "feed_forward", [x], reference.feed_forward(part(p, "feed_forward"), y), 2)
    for name in attentions:
        wanted = reference.attention(part(p, name), H, y, y, y)
        check_part(module, name, [x, x, x], wanted, 1)
    if "self_attention" in attentions:
        wanted = reference.attention(part(p, "self_attention"), H, y, y, y, maskout=True)
        check_part(module, "self_attention", [x, x, x], wanted, 4, maskout=True)


def check_part(
    module: nn.Module, name: str, inputs: list[Tensor], wanted: Tensor, task: int, **options: Any
) -> None:
    """Compare the output of one part with the reference.

    Raises
    ------
    Unfinished, Wrong
        If it is not written yet, or wrong; with the task that it belongs to.
    """
    piece = module.get_submodule(name)
    way_out = f"`given.{type(piece).__name__}` can replace it."
    try:
        output = is_tensor(call(piece, *inputs, **options), tuple(wanted.shape), "states")
    except (NotImplementedError, Unfinished):
        raise Unfinished(f"`{name}` is yet to be written: see task {task}. Until then, {way_out}") from None
    except Wrong as wrong:
        raise Wrong(
            f"`{name}` by itself goes wrong: {wrong} See task {task}; until then, {way_out}"
        ) from None
    if not near(output, wanted):
        raise Wrong(f"`{name}` by itself gives wrong numbers: see task {task}. Until then, {way_out}")


def task2(feed_forward_class: Any, seed: int = 0) -> Report:
    """Check a reader's ``FeedForward``: constructed with ``(dim_model, dim_ff)``, called with states.

    Parameters
    ----------
    feed_forward_class : type
        The reader's class.
    seed : int
        For parameters and inputs.

    Returns
    -------
    Report
        What was found; nothing is raised.
    """
    return _Task2(feed_forward_class, seed).report()


def task3(encoder_stack_class: Any, seed: int = 0) -> Report:
    """Check a reader's ``EncoderStack``: constructed with ``(h, dim_model, dim_ff, dropout)``."""
    return _Task3(encoder_stack_class, seed).report()


def task5(decoder_stack_class: Any, seed: int = 0) -> Report:
    """Check a reader's ``DecoderStack``: constructed as ``EncoderStack``, called with states and memory."""
    return _Task5(decoder_stack_class, seed).report()
