"""The mistakes that the lab's checks know by name.

Each is what is said of it and the edits, pairs of old and new text, that make it in the model solution of
:mod:`~attention_on_edges.lab.given`. A reader whose class computes what the edited solution computes has made
that mistake.
"""

import functools
import inspect
import re
from typing import Any

from torch import nn
from torch.nn import functional as F

from attention_on_edges.lab import given

Slips = dict[str, tuple[Any, ...]]
"""Name to message and edits."""

CUT = "x.unflatten(-1, (self.h, self.d_k)).transpose(1, 2)"
JOIN = "context.transpose(1, 2).flatten(-2)"
ROOT = "math.sqrt(self.d_k)"
SOFTMAX = "scores.softmax(-1)"

ATTENTION: Slips = {
    "no scale": ("The scores are not divided by √d_k.", (f" / {ROOT}", "")),
    "scaled by d_k": (
        "The scores are divided by d_k itself, not by its square root.",
        (ROOT, "self.d_k"),
    ),
    "scaled by dim_model": (
        "The scores are divided by √dim_model. A head's queries and keys are d_k wide, so the root is √d_k.",
        (ROOT, "math.sqrt(self.h * self.d_k)"),
    ),
    "scaled the wrong way": (
        "The scores are multiplied by √d_k, where they should be divided.",
        (f"/ {ROOT}", f"* {ROOT}"),
    ),
    "softmax over queries": (
        "The softmax runs over the queries. The weights of one query over all keys must sum to one: take the "
        "last axis of scores [batch, h, n, m].",
        (SOFTMAX, "scores.softmax(-2)"),
    ),
    "softmax over heads": (
        "The softmax runs over the heads (so does `F.softmax` without `dim`). The weights of one query over "
        "all keys must sum to one: take the last axis.",
        (SOFTMAX, "scores.softmax(1)"),
    ),
    "no softmax": ("There is no softmax: the scores themselves weigh the values.", (SOFTMAX, "scores")),
    "heads not transposed": (
        "The heads are transposed with the tokens: `view(batch, h, n, d_k)` deals whole tokens out to the "
        "heads. Cut the last axis, `view(batch, n, h, d_k)`, then exchange axes 1 and 2.",
        (CUT, "x.reshape(len(x), self.h, -1, self.d_k)"),
    ),
    "heads interleaved": (
        "The features are dealt out to the heads in turn: your heads are interleaved. Head r owns the "
        "features from r * d_k on: `view(batch, n, h, d_k)`, not `view(batch, n, d_k, h)`.",
        (CUT, "x.unflatten(-1, (self.d_k, self.h)).permute(0, 3, 1, 2)"),
        (JOIN, "context.permute(0, 2, 3, 1).flatten(-2)"),
    ),
    "joined without transposing": (
        "The heads' answers are joined without exchanging heads and tokens back. From [batch, h, n, d_k] go "
        "to [batch, n, h, d_k] first, and then to [batch, n, dim_model].",
        (JOIN, "context.reshape(query.shape)"),
    ),
    "attention among heads": (
        "The heads of each token attend to one another: scores are [batch, n, h, h]. Exchange heads and "
        "tokens before the product, so that scores are [batch, h, n, m].",
        (CUT, CUT.removesuffix(".transpose(1, 2)")),
        (JOIN, "context.flatten(-2)"),
    ),
    "never cut": (
        "There is one head of width dim_model: queries, keys and values are never cut into heads.",
        (CUT, "x[:, None]"),
    ),
    "squeezed": ("`squeeze()` removes every axis of length 1.", (JOIN, f"{JOIN}.squeeze()")),
    "no output projection": ("The joined heads are not mixed by `w_o`.", ("self.w_o(", "(")),
    "not projected": (
        "Queries, keys and values are not projected by `w_q`, `w_k` and `w_v`.",
        ("self.w_q(query), self.w_k(key), self.w_v(value)", "query, key, value"),
    ),
    "one projection for all": (
        "Queries, keys and values all come from `w_q`.",
        ("self.w_k(key), self.w_v(value)", "self.w_q(key), self.w_q(value)"),
    ),
    "queries and keys exchanged": (
        "The queries are made from `key` and the keys from `query`.",
        ("self.w_q(query), self.w_k(key)", "self.w_q(key), self.w_k(query)"),
    ),
    "values from keys": (
        "The values are made from `key`. They come from `value`.",
        ("self.w_v(value)", "self.w_v(key)"),
    ),
    "all from the query": (
        "Keys and values are made from `query`, as in self-attention. They come from `key` and `value`.",
        ("self.w_k(key), self.w_v(value)", "self.w_k(query), self.w_v(query)"),
    ),
    "projections exchanged": (
        "The keys are projected by `w_v` and the values by `w_k`.",
        ("self.w_k(key), self.w_v(value)", "self.w_v(key), self.w_k(value)"),
    ),
    "keys reshaped": (
        "The keys are reshaped to [batch, h, d_k, m], which mixes up tokens and features. Transpose them: "
        "`k.transpose(-2, -1)`.",
        ("k.transpose(-2, -1)", "k.reshape(k.mT.shape)"),
    ),
}

FEED_FORWARD: Slips = {
    "no relu": ("There is no ReLU between the two maps, so that they are only one.", (".relu()", "")),
    "relu last": (
        "The ReLU comes after the second map. It belongs between the two.",
        (".relu())", ").relu()"),
    ),
    "gelu": (
        "The activation is a GELU. The equation has a ReLU.",
        ("self.inner(x).relu()", "F.gelu(self.inner(x))"),
    ),
    "sigmoid": ("The activation is a sigmoid. The equation has a ReLU.", ("relu()", "sigmoid()")),
    "tanh": ("The activation is a hyperbolic tangent. The equation has a ReLU.", ("relu()", "tanh()")),
    "input added": (
        "The input is added to the output. The residual connection belongs to the stack.",
        ("return ", "return x + "),
    ),
}

MASK: Slips = {
    "maskout ignored": (
        "`maskout` has no effect yet: every receiver attends to all senders. (`masked_fill` returns a new "
        "tensor.)",
        ("scores = scores.masked_fill", "scores.masked_fill"),
    ),
    "always masked": ("The mask is there although `maskout` is false.", ("if maskout:", "if True:")),
    "mask the wrong way round": (
        "The mask is the wrong way round: it hides the past and shows the future. Receiver j (row j) may "
        "attend to senders 0 to j.",
        ("triu(1)", "tril(-1)"),
    ),
    "mask inverted": (
        "The mask is inverted: it hides what it should show and shows what it should hide.",
        ("triu(1)", "tril(0)"),
    ),
    "diagonal hidden": (
        "The diagonal is hidden too: a token must attend to itself; the first has no other. The hidden part "
        "begins one place to the right: `triu(1)`.",
        ("triu(1)", "triu(0)"),
    ),
    "mask one place late": (
        "The mask begins one place too late: each token attends to the one after it.",
        ("triu(1)", "triu(2)"),
    ),
    "mask after the softmax": (
        "The mask comes after the softmax: the later words took their share of the weight, so what is left "
        "does not sum to one. Mask the scores instead, with -inf.",
        ("scores = scores.masked_fill(later, -torch.inf)", "pass"),
        (SOFTMAX, f"({SOFTMAX}.tril() if maskout else {SOFTMAX})"),
    ),
    "masked with zero": (
        "The hidden scores are set to 0, and exp(0) = 1: they get weight. Set them to -inf.",
        ("-torch.inf", "0.0"),
    ),
}


def _stack(*sublayers: str) -> Slips:
    """The mistakes around any sub-layer, in a stack that calls these."""
    numbered = list(enumerate(sublayers, start=1))

    def every(old: str, new: str) -> tuple[tuple[str, str], ...]:
        """The same edit for each sub-layer ``{f}`` with its number ``{i}``; ``{g}`` is it on a normed x."""
        names = [{"i": i, "f": f, "g": re.sub(r"\bx\b", f"self.norm{i}(x)", f)} for i, f in numbered]
        return tuple((old.format(**name), new.format(**name)) for name in names)

    step = "self.norm{i}(x + self.dropout({f}))"
    residuals = every("norm{i}(x + ", "norm{i}(")
    norms = every("self.norm{i}(", "(")
    dropouts = every("self.dropout({f})", "{f}")
    slips: Slips = {
        "no residuals": (
            "The residual connections are missing: add each sub-layer's input to its output.",
            *residuals,
        ),
        "no norms": ("The norms are missing.", *norms),
        "no dropout": (
            "`self.dropout` is never called: apply it to what each sub-layer returns.",
            *dropouts,
        ),
        "pre-norm": (
            "The norm is before the sub-layers (pre-norm, as in chapter 2). Here it comes after the "
            "addition: norm(x + f(x)).",
            *every(step, "x + self.dropout({g})"),
        ),
        "norm before the addition": (
            "The norm is taken before the addition: x + norm(f(x)). Take it after: norm(x + f(x)).",
            *every(step, "x + self.norm{i}(self.dropout({f}))"),
        ),
        "one norm for all": (
            "`norm1` is used for every sub-layer. Each has a norm of its own.",
            *every("self.norm{i}(", "self.norm1(")[1:],
        ),
        "norm not learned": (
            "The norms' own scale and shift are not used: call `self.norm1(...)`, not `F.layer_norm`.",
            *every("self.norm{i}(", "nn.LayerNorm(x.shape[-1]).to(x)("),
        ),
        "dropout on the sum": (
            "Dropout is applied to the sum. Apply it to the sub-layer's output, before the input is added: "
            "the path through the additions stays whole.",
            *every("x + self.dropout({f})", "self.dropout(x + {f})"),
        ),
        "dropout after the norm": (
            "Dropout is applied after the norm. Apply it to the sub-layer's output, before the input is "
            "added.",
            *every(step, "self.dropout(self.norm{i}(x + {f}))"),
        ),
        "second residual from the input": (
            "The second residual connection adds the stack's input. It should add the output of the first "
            "sub-layer.",
            ("x = self.norm1", "start = x\n        x = self.norm1"),
            ("self.norm2(x +", "self.norm2(start +"),
        ),
        "no feed-forward": ("The feed-forward network is missing.", (step.format(**_last(numbered)), "x")),
    }
    ordinals = ("first", "second", "third")
    for (i, _), which, *edits in zip(numbered, ordinals, residuals, norms, dropouts, strict=False):
        slips[f"no residual {i}"] = (f"The {which} residual connection is missing: x + f(x).", edits[0])
        slips[f"no norm {i}"] = (f"`norm{i}`, after the {which} sub-layer, is missing.", edits[1])
        slips[f"no dropout {i}"] = (
            f"There is no dropout on what the {which} sub-layer returns.",
            edits[2],
        )
    return slips


def _last(numbered: list[tuple[int, str]]) -> dict[str, Any]:
    return dict(zip("if", numbered[-1], strict=True))


ENCODER = _stack("self.attention(x, x, x)", "self.feed_forward(x)") | {
    "maskout in the encoder": (
        "`maskout` is on. In the encoder every token attends to every other.",
        ("(x, x, x)", "(x, x, x, maskout=True)"),
    ),
    "no attention": (
        "The attention is missing.",
        ("x = self.norm1(x + self.dropout(self.attention(x, x, x)))", "pass"),
    ),
}

CROSS = "self.cross_attention(x, memory, memory)"

DECODER = _stack("self.self_attention(x, x, x, maskout=True)", CROSS, "self.feed_forward(x)") | {
    "no maskout": (
        "`maskout` is not switched on in the self-attention: each token attends to later ones.",
        (", maskout=True", ""),
    ),
    "maskout in both": (
        "`maskout` is on in the cross-attention. The source is known as a whole.",
        ("memory, memory)", "memory, memory, maskout=True)"),
    ),
    "one attention for both": (
        "The cross-attention uses `self_attention`; `cross_attention` has weights of its own. (DGL's "
        "tutorial makes this mistake.)",
        ("self.cross_attention(", "self.self_attention("),
    ),
    "attentions exchanged": (
        "`self_attention` and `cross_attention` are exchanged.",
        ("self.self_attention(x, x", "self.cross_attention(x, x"),
        ("self.cross_attention(x, memory", "self.self_attention(x, memory"),
    ),
    "roles exchanged": (
        "The roles are exchanged: queries come from the memory, keys and values from the target. The target "
        "asks, the memory answers.",
        ("(x, memory, memory)", "(memory, x, x)"),
    ),
    "keys from the target": (
        "The keys of the cross-attention come from the target. Keys and values both come from the memory.",
        ("(x, memory, memory)", "(x, x, memory)"),
    ),
    "values from the target": (
        "The values of the cross-attention come from the target. Keys and values both come from the memory.",
        ("(x, memory, memory)", "(x, memory, x)"),
    ),
    "all from the memory": (
        "The queries of the cross-attention come from the memory, not from the target.",
        ("(x, memory, memory)", "(memory, memory, memory)"),
    ),
    "all from the target": (
        "The second attention never reads the memory: keys and values come from the target.",
        ("(x, memory, memory)", "(x, x, x)"),
    ),
    "no self-attention": (
        "The self-attention is missing.",
        ("x = self.norm1(x + self.dropout(self.self_attention(x, x, x, maskout=True)))", "pass"),
    ),
    "no cross-attention": (
        "The cross-attention is missing: the stack never attends to the encoder.",
        (f"x = self.norm2(x + self.dropout({CROSS}))", "pass"),
    ),
}

FORCED: Slips = {
    "no positions": (
        "The position encodings are missing: neither side knows the order of its words.",
        (" + positions", ""),
    ),
    "no src positions": (
        "The position encoding of the source is missing.",
        (" + positions", " + positions * (table is self.tgt_embed)"),
    ),
    "no tgt positions": (
        "The position encoding of the target is missing.",
        (" + positions", " + positions * (table is self.src_embed)"),
    ),
    "positions from 1": (
        "The positions begin at 1. The first word is at position 0.",
        ("(ids.shape[1], self.dim_model)", "(ids.shape[1] + 1, self.dim_model)[1:]"),
    ),
    "embedding not scaled": (
        "The embeddings are not multiplied by √dim_model.",
        (" * math.sqrt(self.dim_model)", ""),
    ),
    "positions scaled too": (
        "The positions are multiplied by √dim_model too. Scale the embeddings alone.",
        (
            "table(ids) * math.sqrt(self.dim_model) + positions",
            "(table(ids) + positions) * math.sqrt(self.dim_model)",
        ),
    ),
    "no dropout": (
        "`self.dropout` is never called: apply it to embedding plus position.",
        ("self.dropout(table", "(table"),
    ),
    "encoder not used": (
        "The decoder attends to the embedded source. The encoder's output is never used.",
        ("memory = stack(memory)", "stack(memory)"),
    ),
    "one encoder stack": (
        "The source passes through the first encoder stack only.",
        ("in self.encoder:", "in self.encoder[:1]:"),
    ),
    "stack by stack": (
        "Decoder stack i attends to encoder stack i. All attend to the last encoder stack.",
        ("for stack in self.encoder:", "memory = [memory]\n        for stack in self.encoder:"),
        ("memory = stack(memory)", "memory.append(stack(memory[-1]))"),
        ("for stack in self.decoder:", "for stack, output in zip(self.decoder, memory[1:]):"),
        ("stack(x, memory)", "stack(x, output)"),
    ),
    "one decoder stack": (
        "The target passes through the first decoder stack only.",
        ("in self.decoder:", "in self.decoder[:1]:"),
    ),
    "ids in training": (
        "With a target it returns ids. Log-probabilities are asked for whenever there is a target, in "
        "evaluation mode too: a validation loss needs them.",
        ("if target is not None", "if self.training"),
    ),
    "not shifted": (
        "The decoder's input is not shifted: it reads the very word that it should predict. Put SOS in front "
        "and leave the last word out.",
        ("torch.cat([start, target[:, :-1]], dim=1)", "target"),
    ),
    "shifted to the left": (
        "The decoder's input is shifted to the left: it reads the words that it has yet to predict. Put SOS "
        "in front and leave the last word out.",
        ("[start, target[:, :-1]]", "[target[:, 1:], start]"),
    ),
    "shifted in a circle": (
        "The last target word is where SOS should be.",
        ("[start, target[:, :-1]]", "[target[:, -1:], target[:, :-1]]"),
    ),
    "no softmax": (
        "The output is the logits. Return log-probabilities: `log_softmax(-1)`.",
        (".log_softmax(-1)", ""),
    ),
    "no logarithm": (
        "The output is probabilities. Return their logarithms: `log_softmax(-1)`.",
        ("log_softmax(-1)", "softmax(-1)"),
    ),
    "softmax over positions": (
        "The softmax runs over the positions. The probabilities of all words at one position sum to one: "
        "take the last axis.",
        ("log_softmax(-1)", "log_softmax(1)"),
    ),
}

GREEDY: Slips = {
    "only the last symbol is read": (
        "The decoder reads the latest symbol only. It needs all symbols so far.",
        ("self.decode(ids, memory)", "self.decode(ids[:, -1:], memory)"),
    ),
    "first prediction taken": (
        "The prediction at the first position is taken. The next symbol is predicted at the last one.",
        ("[:, -1:].argmax", "[:, :1].argmax"),
    ),
    "start symbol kept": ("The translation begins with SOS. Leave it out.", ("ids[:, 1:]", "ids")),
    "stops at the first end": (
        "Decoding stops as soon as one sentence has ended. The others go on.",
        ("not ended.all()", "not ended.any()"),
    ),
}

SLIPS = {1: ATTENTION, 2: FEED_FORWARD, 3: ENCODER, 4: MASK, 5: DECODER, 6: FORCED | GREEDY}
"""The mistakes that each task's check can recognise, by name."""


@functools.cache
def faulty(solution: type[nn.Module], *edits: tuple[str, str]) -> type[nn.Module] | None:
    """Return the model solution with its text edited, or None if an edit does not fit exactly once."""
    source = inspect.getsource(solution)
    for old, new in edits:
        if source.count(old) != 1:
            return None
        source = source.replace(old, new)
    namespace = vars(given) | {"F": F}
    exec(source, namespace)
    return namespace[solution.__name__]
