"""The six tasks: what each class is called with, and in which steps it is checked."""

from typing import Any

import torch
from torch import Tensor, nn

from attention_on_edges.lab import given
from attention_on_edges.lab.exam import BATCH, FF, D, Exam, H, M, N, Wrong, near, work
from attention_on_edges.lab.report import Report
from attention_on_edges.lab.slips import GREEDY

SOURCES, TARGETS, LAYERS, LONGEST = 11, 9, 2, 8
"""Sizes of task 6: words in the vocabularies, stacks of a side, most words of a translation."""


class _Task1(Exam):
    number, solution, sizes, senders = 1, given.MultiHeadAttention, (H, D), 2
    steps: tuple[str, ...] = ("values", "other lengths", "heads in parallel", "gradients")

    def heads_in_parallel(self) -> str:
        counts = {h: work(self.fresh(h, D), self.inputs(), self.options) for h in (2, 6)}
        if counts[6] > counts[2]:
            raise Wrong(
                f"Two heads take {counts[2]} products, sums and softmaxes, six heads take {counts[6]}: the "
                "heads run one after the other. Give them an axis of their own and let one product serve all."
            )
        return self.in_parallel()


class _Task2(Exam):
    number, solution, sizes = 2, given.FeedForward, (D, FF)
    steps = ("values", "other lengths", "in parallel", "gradients")


class _Task3(Exam):
    number, solution, sizes = 3, given.EncoderStack, (H, D, FF, 0.5)
    steps = ("submodules", "values", "other lengths", "dropout", "gradients")
    parts = (("attention", 1, 3, {}), ("feed_forward", 2, 1, {}))


class _Task4(_Task1):
    number = 4
    options = {"maskout": True}  # noqa: RUF012
    steps = ("without maskout", "values", "large scores", "heads in parallel", "gradients")

    def without_maskout(self) -> str:
        self.holds(self.fresh(), self.inputs(), maskout=False)
        return "unchanged"

    def large_scores(self) -> str:
        module, before = self.fresh(), [30 * x for x in self.inputs()]
        first = self.output(module, before)
        if not first.isfinite().all():
            raise Wrong(
                "Where scores are large, the output is not finite. Weights that are masked after the softmax "
                "and then made to sum to one again can be 0 / 0. Mask the scores, with -torch.inf."
            )
        for j in range(N - 1):
            later = torch.arange(N)[:, None] > j
            after = [torch.where(later, 30 * torch.randn_like(x), x) for x in before]
            if not near(self.output(module, after)[:, : j + 1], first[:, : j + 1]):
                raise Wrong(
                    f"Where scores are large, output {j} changes when a later token changes: the value for "
                    "hidden scores is not small enough. Use -torch.inf."
                )
        return "no leak even where scores are in the hundreds"


class _Task5(Exam):
    number, solution, sizes, senders = 5, given.DecoderStack, (H, D, FF, 0.5), 1
    steps = _Task3.steps
    parts = (
        ("feed_forward", 2, 1, {}),
        ("self_attention", 1, 3, {}),
        ("cross_attention", 1, 3, {}),
        ("self_attention", 4, 3, {"maskout": True}),
    )


class _Task6(Exam):
    number, solution = 6, given.Transformer
    sizes = (SOURCES, TARGETS, LAYERS, D, FF, H, 0.5)
    steps = ("submodules", "values", "other lengths", "in parallel", "dropout", "decoding", "gradients")
    parts = tuple(
        (*part, {}) for i in range(LAYERS) for part in ((f"encoder.{i}", 3, 1), (f"decoder.{i}", 5, 2))
    )

    def inputs(self, n: int = N, m: int = M, batch: int = BATCH) -> list[Tensor]:
        """Random ids of source and target."""
        return [torch.randint(2, SOURCES, (batch, m)), torch.randint(2, TARGETS, (batch, n))]

    def output(self, module: nn.Module, inputs: list[Tensor], **options: Any) -> Tensor:
        """As in every task; of a translation only what comes up to the end symbol counts."""
        output = super().output(module, inputs, **options)
        if "max_len" not in options or output.dtype != torch.int64:
            return output
        eos = given.Transformer.EOS
        ids = nn.functional.pad(output, (0, LONGEST + 1 - output.shape[1]), value=eos)
        return ids.masked_fill((ids == eos).cumsum(1) > 0, eos)

    def decoding(self) -> str:
        source, _ = self.inputs(batch=8)
        for seed in range(100):  # until sentences end at different places, so that mistakes show
            module = self.fresh(seed=seed)
            some = torch.randint(2, TARGETS, (len(source), LONGEST))
            with torch.no_grad():
                usual = self.twin(module, self.solution)(source, some).mean((0, 1))
                module.get_parameter("output.bias").sub_(usual)  # or one word wins everywhere
                ids = self.output(self.twin(module, self.solution), [source], max_len=LONGEST)
            ends = (ids == given.Transformer.EOS).int().argmax(1)
            if len(ends.unique()) > 2 and LONGEST in ends and len(ids.unique(dim=0)) > 4:
                break
        self.slips = GREEDY.values()
        self.holds(module, [source[ends.argsort()]], max_len=LONGEST)  # the first to end comes first
        return f"{len(source)} sentences, which end at different places"


def task1(attention_class: Any, seed: int = 0) -> Report:
    """Check a reader's ``MultiHeadAttention``, still without its mask.

    Parameters
    ----------
    attention_class : type
        Constructed with ``(h, dim_model)``; called with query, key and value.
    seed : int
        For parameters and inputs.

    Returns
    -------
    Report
        What was found; nothing is raised.
    """
    return _Task1(attention_class, seed).report()


def task2(feed_forward_class: Any, seed: int = 0) -> Report:
    """Check a reader's ``FeedForward``: constructed with ``(dim_model, dim_ff)``, called with states."""
    return _Task2(feed_forward_class, seed).report()


def task3(encoder_stack_class: Any, seed: int = 0) -> Report:
    """Check a reader's ``EncoderStack``: constructed with ``(h, dim_model, dim_ff, dropout)``."""
    return _Task3(encoder_stack_class, seed).report()


def task4(attention_class: Any, seed: int = 0) -> Report:
    """Check a reader's ``MultiHeadAttention`` with ``maskout=True``; see :func:`task1`."""
    return _Task4(attention_class, seed).report()


def task5(decoder_stack_class: Any, seed: int = 0) -> Report:
    """Check a reader's ``DecoderStack``: constructed as ``EncoderStack``, called with states and memory."""
    return _Task5(decoder_stack_class, seed).report()


def task6(transformer_class: Any, seed: int = 0) -> Report:
    """Check a reader's ``Transformer``, with a target and without one.

    It is constructed with ``(src_vocab, tgt_vocab, N, dim_model, dim_ff, h, dropout)``.
    """
    return _Task6(transformer_class, seed).report()
