"""The thirty mistakes that the lab's checks know by name.

Each is what is said of it and the edits, pairs of old and new text, that make it in one of
:mod:`~attention_on_edges.lab.solutions`. A reader whose class computes what the edited solution computes has
made that mistake.
"""

import functools
import inspect
import re

from torch import nn
from torch.nn import functional as F

from attention_on_edges.lab import solutions

Slip = tuple[str, *tuple[tuple[str, str], ...]]
"""Message and edits."""

CUT = "x.unflatten(-1, (self.h, self.d_k)).transpose(1, 2)"
JOIN = "context.transpose(1, 2).flatten(-2)"
SOFTMAX = "scores.softmax(-1)"
CROSS = "(x, memory, memory)"

ATTENTION: list[Slip] = [
    ("The scores are not divided by √d_k.", (" / math.sqrt(self.d_k)", "")),
    (
        "The softmax runs over the queries: take the last axis of scores [batch, h, n, m], over the keys.",
        (SOFTMAX, "scores.softmax(-2)"),
    ),
    (
        "The softmax runs over the heads (so does `F.softmax` without `dim`): take the last axis, the keys.",
        (SOFTMAX, "scores.softmax(1)"),
    ),
    (
        "The heads are transposed with the tokens: `view(batch, h, n, d_k)` deals whole tokens out to the "
        "heads. Cut the last axis, `view(batch, n, h, d_k)`, then exchange axes 1 and 2.",
        (CUT, "x.reshape(len(x), self.h, -1, self.d_k)"),
    ),
    (
        "The heads' answers are joined without exchanging heads and tokens back. From [batch, h, n, d_k] go "
        "to [batch, n, h, d_k] first, and then to [batch, n, dim_model].",
        (JOIN, "context.reshape(query.shape)"),
    ),
    ("The joined heads are not mixed by `w_o`.", ("self.w_o(", "(")),
    (
        "Keys and values are made from `query`, as in self-attention. They come from `key` and `value`.",
        ("self.w_k(key), self.w_v(value)", "self.w_k(query), self.w_v(query)"),
    ),
]

FEED_FORWARD: list[Slip] = [
    ("There is no ReLU between the two maps, so that they are only one.", (".relu()", "")),
    ("The activation is a GELU. The equation has a ReLU.", ("self.inner(x).relu()", "F.gelu(self.inner(x))")),
]

MASK: list[Slip] = [
    (
        "`maskout` has no effect: all senders are attended to. (`masked_fill` returns a new tensor.)",
        ("scores = scores.masked_fill", "scores.masked_fill"),
    ),
    (
        "The mask is inverted: it hides what it should show and shows what it should hide.",
        ("triu(1)", "tril(0)"),
    ),
    (
        "The diagonal is hidden too, but a token must attend to itself: hide from one place on, `triu(1)`.",
        ("triu(1)", "triu(0)"),
    ),
    (
        "The mask comes after the softmax, so what is left does not sum to one. Mask the scores, with -inf.",
        ("scores = scores.masked_fill(later, -torch.inf)", "pass"),
        (SOFTMAX, f"({SOFTMAX}.tril() if maskout else {SOFTMAX})"),
    ),
    (
        "The hidden scores are set to 0, and exp(0) = 1: they get weight. Set them to -inf.",
        ("-torch.inf", "0.0"),
    ),
]


def _stack(*sublayers: str) -> list[Slip]:
    """The mistakes around any sub-layer, in a stack that calls these."""
    step = "self.norm{i}(x + self.dropout({f}))"

    def every(old: str, new: str) -> list[tuple[str, str]]:
        """The same edit for each sub-layer ``{f}`` with its number ``{i}``; ``{g}`` is it on a normed x."""
        names = [
            {"i": i, "f": f, "g": re.sub(r"\bx\b", f"self.norm{i}(x)", f)} for i, f in enumerate(sublayers, 1)
        ]
        return [(old.format(**name), new.format(**name)) for name in names]

    return [
        (
            "The residual connections are missing: add each sub-layer's input to its output.",
            *every("norm{i}(x + ", "norm{i}("),
        ),
        (
            "The second residual connection adds the stack's input, not the output of the first sub-layer.",
            ("x = self.norm1", "start = x\n        x = self.norm1"),
            ("self.norm2(x +", "self.norm2(start +"),
        ),
        ("The norms are missing.", *every("self.norm{i}(", "(")),
        (
            "The norm is before the sub-layers (pre-norm). Here it comes after the addition: norm(x + f(x)).",
            *every(step, "x + self.dropout({g})"),
        ),
        (
            "The norm is taken before the addition: x + norm(f(x)). Take it after: norm(x + f(x)).",
            *every(step, "x + self.norm{i}(self.dropout({f}))"),
        ),
        (
            "`self.dropout` is never called: apply it to what each sub-layer returns.",
            *every("self.dropout({f})", "{f}"),
        ),
    ]


DECODER: list[Slip] = [
    *_stack(
        "self.self_attention(x, x, x, maskout=True)", f"self.cross_attention{CROSS}", "self.feed_forward(x)"
    ),
    (
        "`maskout` is not switched on in the self-attention: each token attends to later ones.",
        (", maskout=True", ""),
    ),
    (
        "`maskout` is on in the cross-attention. The source is known as a whole.",
        (CROSS, "(x, memory, memory, maskout=True)"),
    ),
    (
        "The cross-attention uses `self_attention`, not `cross_attention`. (So does DGL's tutorial.)",
        ("self.cross_attention(", "self.self_attention("),
    ),
    (
        "The roles are exchanged: queries come from the target, keys and values from the memory.",
        (CROSS, "(memory, x, x)"),
    ),
]

MODEL: list[Slip] = [
    ("The position encodings are missing: neither side knows the order of its words.", (" + positions", "")),
    ("The embeddings are not multiplied by √dim_model.", (" * math.sqrt(self.dim_model)", "")),
    (
        "The decoder attends to the embedded source. The encoder's output is never used.",
        ("memory = stack(memory)", "stack(memory)"),
    ),
    (
        "The decoder reads the word that it should predict: put SOS in front, and leave the last word out.",
        ("torch.cat([start, target[:, :-1]], dim=1)", "target"),
    ),
    ("The output is the logits. Return log-probabilities: `log_softmax(-1)`.", (".log_softmax(-1)", "")),
    (
        "Decoding stops as soon as one sentence has ended. The others go on.",
        ("not ended.all()", "not ended.any()"),
    ),
]

SLIPS = {
    1: ATTENTION,
    2: FEED_FORWARD,
    3: _stack("self.attention(x, x, x)", "self.feed_forward(x)"),
    4: MASK,
    5: DECODER,
    6: MODEL,
}
"""The mistakes that each task's check can recognise."""


@functools.cache
def faulty(solution: type[nn.Module], *edits: tuple[str, str]) -> type[nn.Module] | None:
    """Return the model solution with its text edited, or None if an edit does not fit exactly once."""
    source = inspect.getsource(solution)
    for old, new in edits:
        if source.count(old) != 1:
            return None
        source = source.replace(old, new)
    namespace = vars(solutions) | {"F": F}
    exec(source, namespace)
    return namespace[solution.__name__]
