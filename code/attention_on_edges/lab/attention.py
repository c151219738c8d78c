"""Tasks 1 and 4: multi-head attention, without and with its mask."""

from typing import Any

import torch
from torch import Tensor, nn

from attention_on_edges.lab import reference
from attention_on_edges.lab.compare import exact, is_tensor, judge, near, same_gradients, steady
from attention_on_edges.lab.reference import NONE, Faults, Params
from attention_on_edges.lab.report import Report
from attention_on_edges.lab.runner import Exam, Unfinished, Wrong, build, call, need, work

BATCH, N, M, H, D = 2, 5, 7, 3, 12
"""Sizes in the checks, all different, so that no axis passes for another: ``BATCH`` sentences, ``N``
receivers, ``M`` senders, ``H`` heads, width ``D``."""

SLIPS = {
    "no scale": "The scores are not divided by √d_k.",
    "scaled by d_k": "The scores are divided by d_k itself, not by its square root.",
    "scaled by dim_model": "The scores are divided by √dim_model. A head's queries and keys are d_k wide, so "
    "the root is √d_k.",
    "scaled by the heads": "The scores are divided by the root of the number of heads, not of their width.",
    "scaled the wrong way": "The scores are multiplied by √d_k, where they should be divided.",
    "softmax over queries": "The softmax runs over the queries. The weights of one query over all "
    "keys must sum to one: take the last axis of scores [batch, h, n, m].",
    "softmax over heads": "The softmax runs over the heads (so does `F.softmax` without `dim`). The weights "
    "of one query over all keys must sum to one: take the last axis.",
    "softmax over the batch": "The softmax runs over the sentences of the batch. Take the last axis.",
    "no softmax": "There is no softmax: the scores themselves weigh the values.",
    "heads not transposed": "The heads are transposed with the tokens: `view(batch, h, n, d_k)` deals whole "
    "tokens out to the heads. Cut the last axis, `view(batch, n, h, d_k)`, then exchange axes 1 and 2.",
    "heads interleaved": "The features are dealt out to the heads in turn. Head r owns the features from "
    "r * d_k on: `view(batch, n, h, d_k)`, not `view(batch, n, d_k, h)`.",
    "joined without transposing": "The heads' answers are joined without exchanging heads and tokens back. "
    "From [batch, h, n, d_k] go to [batch, n, h, d_k] first, and then to [batch, n, dim_model].",
    "attention among heads": "The heads of each token attend to one another: scores are [batch, n, h, h]. "
    "Exchange heads and tokens before the product, so that scores are [batch, h, n, m].",
    "never cut": "There is one head of width dim_model: queries, keys and values are never cut into heads.",
    "no output projection": "The joined heads are not mixed by `w_o`.",
    "not projected": "Queries, keys and values are not projected by `w_q`, `w_k` and `w_v`.",
    "one projection for all": "Queries, keys and values all come from `w_q`.",
    "queries and keys exchanged": "The queries are made from `key` and the keys from `query`.",
    "values from keys": "The values are made from `key`. They come from `value`.",
    "all from the query": "Keys and values are made from `query`, as in self-attention. They come from `key` "
    "and `value`.",
    "projections exchanged": "The keys are projected by `w_v` and the values by `w_k`.",
    "keys reshaped": "The keys are reshaped to [batch, h, d_k, m], which mixes up tokens and features. "
    "Transpose them: `k.transpose(-2, -1)`.",
}
"""The message for each mistake."""

MASK_SLIPS = {
    "maskout ignored": "`maskout` has no effect yet: every receiver attends to all senders. (`masked_fill` "
    "returns a new tensor.)",
    "mask the wrong way round": "The mask is the wrong way round: it hides the past and shows the future. "
    "Receiver j (row j) may attend to senders 0 to j.",
    "mask inverted": "The mask is inverted: it hides what it should show and shows what it should hide.",
    "diagonal hidden": "The diagonal is hidden too: a token must attend to itself; the first has no other. "
    "The hidden part begins one place to the right: `triu(1)`.",
    "mask one place late": "The mask begins one place too late: each token attends to the one after it.",
    "mask after the softmax": "The mask comes after the softmax: the later words took their share of the "
    "weight, so what is left does not sum to one. Mask the scores instead, with -inf.",
    "masked with zero": "The hidden scores are set to 0, and exp(0) = 1: they get weight. Set them to -inf.",
}

DIAGONAL_SLIP = {
    "finite fill": "A fully masked row attends to all senders, since its scores are all equal.",
}


class _Attention(Exam):
    maskout = False
    slips = SLIPS

    def fresh(self, h: int = H) -> nn.Module:
        module = build(self.subject, h, D, seed=self.seed)
        need(module, w_q=(D, D), w_k=(D, D), w_v=(D, D), w_o=(D, D))
        return module

    def options(self, maskout: bool) -> dict[str, bool]:
        """Task 1's ``forward`` need not have the option yet."""
        return {"maskout": True} if maskout else {}

    def inputs(self, n: int = N, m: int = N, batch: int = BATCH) -> list[Tensor]:
        return [torch.randn(batch, length, D) for length in (n, m, m)]

    def output(self, module: nn.Module, inputs: list[Tensor], maskout: bool) -> Tensor:
        output = call(module, *inputs, **self.options(maskout))
        return is_tensor(output, tuple(inputs[0].shape), "[batch, n, dim_model]")

    def compute(self, inputs: list[Tensor], maskout: bool) -> Any:
        doubles = [x.double() for x in inputs]

        def answer(p: Params, faults: Faults) -> Tensor:
            return reference.attention(p, H, *doubles, maskout, faults)

        return answer

    def holds(self, inputs: list[Tensor], maskout: bool, slips: dict[str, str]) -> None:
        module = self.fresh()
        judge(self.output(module, inputs, maskout), module, self.compute(inputs, maskout), slips)

    def it_runs(self) -> str:
        module, inputs = self.fresh(), self.inputs()
        output = self.output(module, inputs, self.maskout)
        steady(output, self.output(module, inputs, self.maskout))
        return f"{list(inputs[0].shape)} becomes {list(output.shape)}"

    def heads_in_parallel(self) -> str:
        counts = {h: work(self.fresh(h), *self.inputs(), **self.options(self.maskout)) for h in (2, 6)}
        if counts[6] > counts[2]:
            raise Wrong(
                f"Two heads take {counts[2]} products, sums and softmaxes, six heads take {counts[6]}: the "
                "heads run one after the other. Give them an axis of their own and let one product serve all."
            )
        single = work(self.fresh(), *self.inputs(), **self.options(self.maskout))
        for what, more in (("tokens", self.inputs(9, 9)), ("sentences", self.inputs(batch=4))):
            if work(self.fresh(), *more, **self.options(self.maskout)) > single:
                raise Wrong(f"The number of operations grows with the number of {what}: is there a loop?")
        return f"{counts[6]} products, sums and softmaxes, for two heads as for six"

    def gradients(self) -> str:
        def answer(p: Params, inputs: list[Tensor]) -> Tensor:
            return reference.attention(p, H, *inputs, self.maskout)

        return same_gradients(self.fresh(), self.inputs(), answer, **self.options(self.maskout))


class _Task1(_Attention):
    title = "Task 1, MultiHeadAttention"
    steps = ("it runs", "heads in parallel", "values", "other lengths", "lengths of one", "gradients")
    independent = ("heads in parallel",)

    def values(self) -> str:
        self.holds(self.inputs(), False, SLIPS)
        return "equal to the reference"

    def other_lengths(self) -> str:
        self.holds(self.inputs(N, M), False, SLIPS)
        return f"{N} receivers attend to {M} senders"

    def lengths_of_one(self) -> str:
        for sizes in ((1, 1, BATCH), (N, M, 1), (1, M, 1)):
            try:
                self.holds(self.inputs(*sizes), False, SLIPS)
            except Wrong as wrong:
                n, m, batch = sizes
                shape = "returns a tensor" in str(wrong)
                hint = " `squeeze()` removes every axis of length 1." if shape else ""
                raise Wrong(f"With batch {batch}, n {n} and m {m}: {wrong}{hint}") from None
        return "a batch of one, one receiver, one sender"


class _Task4(_Attention):
    title = "Task 4, MultiHeadAttention with maskout"
    maskout = True
    steps = (
        "without maskout",
        "it runs",
        "values",
        "no leak",
        "large scores",
        "gradients",
        "heads in parallel",
    )
    independent = ("heads in parallel",)

    def without_maskout(self) -> str:
        module, inputs = self.fresh(), self.inputs()
        output = self.output(module, inputs, False)
        p = exact(module)
        if near(output, self.compute(inputs, True)(p, NONE)):
            raise Wrong("The mask is there although `maskout` is false.")
        if not near(output, self.compute(inputs, False)(p, NONE)):
            raise Wrong("Without `maskout` the output is wrong: see what the check of task 1 says.")
        return "unchanged"

    def it_runs(self) -> str:
        module, inputs = self.fresh(), self.inputs()
        output = self.output(module, inputs, True)
        steady(output, self.output(module, inputs, True))
        if near(output, self.compute(inputs, False)(exact(module), NONE)):
            raise Unfinished(MASK_SLIPS["maskout ignored"])
        return f"{list(inputs[0].shape)} becomes {list(output.shape)}"

    def values(self) -> str:
        self.holds(self.inputs(), True, MASK_SLIPS | DIAGONAL_SLIP)
        return "equal to the reference"

    def no_leak(self) -> str:
        self.leak_free(1.0, "Output {j} changes when a later token changes.")
        return "a later token never changes an earlier output"

    def large_scores(self) -> str:
        self.leak_free(
            30.0,
            "Where scores are large, output {j} changes when a later token changes: the value for "
            "hidden scores is not small enough. Use -torch.inf.",
        )
        return "no leak even where scores are in the hundreds"

    def leak_free(self, size: float, message: str) -> None:
        module = self.fresh()
        before = [size * x for x in self.inputs()]
        first = self.output(module, before, True)
        if not first.isfinite().all():
            raise Wrong(
                "Where scores are large, the output is not finite. Weights that are masked after the softmax "
                "and then made to sum to one again can be 0 / 0. Mask the scores, with -torch.inf."
            )
        for j in range(N - 1):
            later = torch.arange(N)[:, None] > j
            after = [torch.where(later, size * torch.randn_like(x), x) for x in before]
            second = self.output(module, after, True)
            if not near(second[:, : j + 1], first[:, : j + 1].detach().double()):
                raise Wrong(message.format(j=j))


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


def task4(attention_class: Any, seed: int = 0) -> Report:
    """Check a reader's ``MultiHeadAttention`` with ``maskout=True``; see :func:`task1`."""
    return _Task4(attention_class, seed).report()
