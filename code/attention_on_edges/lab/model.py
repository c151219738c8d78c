"""Task 6: the whole model, in training and in test."""

from typing import Any

import torch
from torch import Tensor, nn

from attention_on_edges.lab import reference_model
from attention_on_edges.lab.attention import BATCH, D, H, M, N
from attention_on_edges.lab.compare import diagnose, exact, is_tensor, judge, near, same_gradients, steady
from attention_on_edges.lab.reference import NONE, part, same
from attention_on_edges.lab.report import Report
from attention_on_edges.lab.runner import Exam, Wrong, build, call, need, work
from attention_on_edges.lab.stacks import FF, Tilt, check_part

SOURCES, TARGETS, LAYERS, LONGEST = 11, 9, 2, 8
"""Sizes in the checks: ``SOURCES`` and ``TARGETS`` are words in the vocabularies, ``LAYERS`` those of a side,
``LONGEST`` is the most words of a translation."""

SOS, EOS = 0, 1

INPUT_SLIPS = {
    "no positions": "The position encodings are missing: neither side knows the order of its words.",
    "no src positions": "The position encoding of the source is missing.",
    "no tgt positions": "The position encoding of the target is missing.",
    "positions from 1": "The positions begin at 1. The first word is at position 0.",
    "embedding not scaled": "The embeddings are not multiplied by √dim_model.",
    "positions scaled too": "The positions are multiplied by √dim_model too. Scale the embeddings alone.",
    "encoder not used": "The decoder attends to the embedded source. The encoder's output is never used.",
    "one encoder stack": "The source passes through the first encoder stack only.",
    "stack by stack": "Decoder stack i attends to encoder stack i. All attend to the last encoder stack.",
    "one decoder stack": "The target passes through the first decoder stack only.",
}

FORCED_SLIPS = INPUT_SLIPS | {
    "not shifted": "The decoder's input is not shifted: it reads the very word that it should predict. Put "
    "SOS in front and leave the last word out.",
    "shifted to the left": "The decoder's input is shifted to the left: it reads the words that it has yet "
    "to predict. Put SOS in front and leave the last word out.",
    "shifted in a circle": "The last target word is where SOS should be.",
    "no softmax": "The output is the logits. Return log-probabilities: `log_softmax(-1)`.",
    "no logarithm": "The output is probabilities. Return their logarithms: `log_softmax(-1)`.",
    "softmax over positions": "The softmax runs over the positions. The probabilities of all words at one "
    "position sum to one: take the last axis.",
}

GREEDY_SLIPS = INPUT_SLIPS | {
    "only the last symbol is read": "The decoder reads the latest symbol only. It needs all symbols so far.",
    "first prediction taken": "The prediction at the first position is taken. The next symbol is predicted "
    "at the last one.",
    "start symbol kept": "The translation begins with SOS. Leave it out.",
    "stops at the first end": "Decoding stops as soon as one sentence has ended. The others go on.",
}


class _Task6(Exam):
    title = "Task 6, Transformer"
    steps = (
        "parts",
        "it runs",
        "training: values",
        "training: masking",
        "training: in one pass",
        "dropout",
        "test: one answer",
        "test: decoding",
        "gradients",
    )

    def fresh(self, dropout: float = 0.0, seed: int = 0) -> nn.Module:
        sizes = (SOURCES, TARGETS, LAYERS, D, FF, H, dropout)
        module = build(self.subject, *sizes, seed=self.seed + 1000 * seed)
        shapes = {"src_embed": (SOURCES, D), "tgt_embed": (TARGETS, D), "output": (TARGETS, D)}
        layers = {}
        for i in range(LAYERS):
            layers |= {f"encoder__{i}__norm{j}": (D,) for j in (1, 2)}
            layers |= {f"decoder__{i}__norm{j}": (D,) for j in (1, 2, 3)}
        need(module, **shapes, **layers)
        return module

    def source(self, batch: int = BATCH) -> Tensor:
        return torch.randint(2, SOURCES, (batch, M))

    def target(self, n: int = N) -> Tensor:
        return torch.randint(2, TARGETS, (BATCH, n))

    def forced(self, module: nn.Module, source: Tensor, target: Tensor) -> Tensor:
        output = call(module, source, target)
        if isinstance(output, Tensor) and output.dtype == torch.int64:
            raise Wrong(
                "With a target it returns ids. Log-probabilities are asked for whenever there is a target, "
                "in evaluation mode too: a validation loss needs them."
            )
        return is_tensor(output, (*target.shape, TARGETS), "[batch, n, tgt_vocab]")

    def holds(
        self, module: nn.Module, source: Tensor, target: Tensor, slips: dict[str, str], drop: Any
    ) -> None:
        def answer(p: Any, faults: Any) -> Tensor:
            return reference_model.forced(p, H, source, target, SOS, drop, faults)

        judge(self.forced(module, source, target), module, answer, slips)

    def parts(self) -> str:
        module, states = self.fresh(), torch.randn(BATCH, N, D)
        p, exactly = exact(module), states.double()
        for i in range(LAYERS):
            wanted = reference_model.encoder_stack(part(p, f"encoder.{i}"), H, exactly)
            check_part(module, f"encoder.{i}", [states], wanted, 3)
            wanted = reference_model.decoder_stack(part(p, f"decoder.{i}"), H, exactly, exactly)
            check_part(module, f"decoder.{i}", [states, states], wanted, 5)
        return "the stacks are in order"

    def it_runs(self) -> str:
        source, target = self.source(), self.target()
        module = self.fresh()
        output = self.forced(module, source, target)
        steady(output, self.forced(module, source, target))
        return f"source {list(source.shape)} and target {list(target.shape)} give {list(output.shape)}"

    def training_values(self) -> str:
        for n in (N, 1):
            self.holds(self.fresh(), self.source(), self.target(n), FORCED_SLIPS, same)
        return "equal to the reference"

    def training_masking(self) -> str:
        module, source, target = self.fresh(), self.source(), self.target()
        first = self.forced(module, source, target)
        for t in range(N):
            other = torch.where(torch.arange(N) >= t, self.target(), target)
            if not near(self.forced(module, source, other)[:, : t + 1], first[:, : t + 1].detach().double()):
                raise Wrong(f"Prediction {t} changes when target word {t}, or a later one, changes.")
        return "no prediction depends on its own word or on a later one"

    def training_in_one_pass(self) -> str:
        few, many = (work(self.fresh(), self.source(), self.target(n)) for n in (N, 2 * N))
        if many > few:
            raise Wrong(
                f"{N} target words take {few} operations, {2 * N} take {many}: the words are predicted one "
                "after the other. The target is known, so that one pass predicts all of them."
            )
        return f"{few} products, sums and softmaxes, however long the target"

    def dropout(self) -> str:
        module, source, target = self.fresh(0.5), self.source(), self.target()
        if not torch.equal(self.forced(module, source, target), self.forced(module, source, target)):
            raise Wrong("Two runs in evaluation mode differ: dropout is active where it should not be.")
        module = self.fresh()
        module.dropout = Tilt()
        slips = {"no dropout": "`self.dropout` is never called: apply it to embedding plus position."}
        self.holds(module, source, target, slips, Tilt())
        return "on embedding plus position, in training only"

    def decoded(self, module: nn.Module, source: Tensor) -> list[list[int]]:
        output = call(module, source, max_len=LONGEST)
        meaning = f"a tensor of ids [{len(source)}, at most {LONGEST}] is asked for"
        if not isinstance(output, Tensor):
            raise Wrong(f"Without a target it returns a {type(output).__name__}, but {meaning}.")
        if output.dtype != torch.int64 or output.dim() != 2 or len(output) != len(source):
            raise Wrong(f"Without a target it returns {output.dtype} {list(output.shape)}, but {meaning}.")
        return reference_model.rows(output, EOS)

    def test_one_answer(self) -> str:
        module, source = self.fresh(0.5), self.source(8)
        if self.decoded(module, source) != self.decoded(module, source):
            raise Wrong(
                "Two decodings of the same sentences in evaluation mode differ: dropout is active, or words "
                "are drawn at random."
            )
        return "the same sentences are decoded alike twice"

    def test_decoding(self) -> str:
        source = self.source(8)
        module, wanted = self.telling(source)
        order = sorted(range(len(wanted)), key=lambda i: len(wanted[i]))
        source, wanted = source[order], [wanted[i] for i in order]  # the first to end comes first
        rows = self.decoded(module, source)
        if rows == wanted:
            return f"{len(rows)} sentences, ended after {len(wanted[0])} symbols, {len(wanted[1])}, ..."
        p = exact(module)

        def answer(faults: Any) -> list[list[int]]:
            return reference_model.greedy(p, H, source, SOS, EOS, LONGEST, faults)

        if found := diagnose(rows, answer, GREEDY_SLIPS):
            raise Wrong(" And: ".join(GREEDY_SLIPS[name] for name in found))
        number = next(i for i, (row, right) in enumerate(zip(rows, wanted, strict=True)) if row != right)
        raise Wrong(f"Sentence {number} is decoded to {rows[number]}; greedily it is {wanted[number]}.")

    def telling(self, source: Tensor) -> tuple[nn.Module, list[list[int]]]:
        """Find parameters under which sentences end at different places, so that mistakes show."""
        for seed in range(100):
            module = self.fresh(seed=seed)
            p, some = exact(module), torch.randint(2, TARGETS, (len(source), LONGEST))
            with torch.no_grad():
                usual = reference_model.forced(p, H, source, some, SOS).mean((0, 1))
                module.output.bias -= usual.to(module.output.bias)  # or one word wins everywhere
                wanted = reference_model.greedy(exact(module), H, source, SOS, EOS, LONGEST)
            lengths = {len(row) for row in wanted}
            if len(lengths) > 2 and LONGEST in lengths and len({tuple(row) for row in wanted}) > 4:
                break
        return module, wanted

    def gradients(self) -> str:
        def answer(p: Any, inputs: list[Tensor]) -> Tensor:
            return reference_model.forced(p, H, *inputs, SOS, same, NONE)

        return same_gradients(self.fresh(), [self.source(), self.target()], answer)


def task6(transformer_class: Any, seed: int = 0) -> Report:
    """Check a reader's ``Transformer``, with a target and without one.

    Parameters
    ----------
    transformer_class : type
        Constructed with ``(src_vocab, tgt_vocab, N, dim_model, dim_ff, h, dropout)``.
    seed : int
        For parameters and inputs.

    Returns
    -------
    Report
        What was found; nothing is raised.
    """
    return _Task6(transformer_class, seed).report()
