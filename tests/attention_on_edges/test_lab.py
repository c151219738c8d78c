"""The lab: right solutions pass, each wrong one is told what is wrong with it, and nothing ever raises."""

import html.parser
import inspect
import linecache
import math
import re
import textwrap

import pytest
import torch
from hypothesis import given as over
from hypothesis import settings
from hypothesis import strategies as st
from IPython.core.interactiveshell import InteractiveShell
from torch import nn
from torch.nn import functional as F

from attention_on_edges import lab
from attention_on_edges.lab import compare, given, reference, reference_model
from support import assert_equal_as_stated

TASKS = {
    1: given.MultiHeadAttention,
    2: given.FeedForward,
    3: given.EncoderStack,
    4: given.MultiHeadAttention,
    5: given.DecoderStack,
    6: given.Transformer,
}
HEADS = 3


def check(task, subject, **options):
    return getattr(lab, f"task{task}")(subject, **options)


def said(report):
    """What a report says of the steps that failed."""
    return " / ".join(
        f"{f.step}: {f.message}" for f in report.findings if f.status in ("wrong", "unfinished")
    )


def with_forward(base, forward):
    return type(base.__name__, (base,), {"forward": forward})


def reader(base, *edits, method="forward"):
    """The model solution with some of its text replaced, as a class that a reader has typed in."""
    source = textwrap.dedent(inspect.getsource(getattr(base, method)))
    for old, new in edits:
        assert source.count(old) == 1, old
        source = source.replace(old, new)
    linecache.cache["<reader>"] = (len(source), None, source.splitlines(keepends=True), "<reader>")
    namespace = vars(given) | {"F": F}
    exec(compile(source, "<reader>", "exec"), namespace)
    return type(base.__name__, (base,), {method: namespace[method]})


# Right solutions


@pytest.mark.parametrize("task", TASKS)
@settings(max_examples=5)
@over(seed=st.integers(0, 10_000))
def test_model_solutions_pass(task, seed):
    report = check(task, TASKS[task], seed=seed)
    assert report, report
    assert {finding.status for finding in report.findings} == {"ok"}


CUT = "x.unflatten(-1, (self.h, self.d_k)).transpose(1, 2)"
JOIN = "context.transpose(1, 2).flatten(-2)"

OTHER_WAYS = {
    "PyTorch's own attention": (
        1,
        [
            ("scores = q @ k.transpose(-2, -1) / math.sqrt(self.d_k)", "scores = 0"),
            ("if maskout:", "if False:"),
            ("scores.softmax(-1) @ v", "F.scaled_dot_product_attention(q, k, v)"),
        ],
    ),
    "einsum": (
        1,
        [
            ("q @ k.transpose(-2, -1)", "torch.einsum('bhnd,bhmd->bhnm', q, k)"),
            ("scores.softmax(-1) @ v", "torch.einsum('bhnm,bhmd->bhnd', scores.softmax(-1), v)"),
        ],
    ),
    "scaled query": (1, [(" / math.sqrt(self.d_k)", ""), ("q @ k", "(q / self.d_k**0.5) @ k")]),
    "a large number": (4, [("-torch.inf", "-1e9")]),
    "an added mask": (4, [("scores.masked_fill(later", "scores + (0 * scores).masked_fill(later")]),
    "heads in the batch": (
        1,
        [
            (CUT, "torch.cat(x.split(self.d_k, dim=2))[:, None]"),
            (JOIN, "torch.cat(context[:, 0].chunk(self.h), dim=2)"),
        ],
    ),
    "no early stop": (
        6,
        [(" and not ended.all()", ""), ("best = best.masked_fill(ended, self.EOS)", "pass")],
    ),
    "weights made anew": (
        4,
        [
            ("scores.masked_fill(later, -torch.inf)", "scores"),
            (
                "context = scores.softmax(-1)",
                "w = scores.softmax(-1)\n    w = w.tril() if maskout else w\n"
                "    context = w / w.sum(-1, keepdim=True)",
            ),
        ],
    ),
}


@pytest.mark.parametrize("name", sorted(OTHER_WAYS.keys() - {"weights made anew"}))
def test_other_right_ways_pass(name):
    task, edits = OTHER_WAYS[name]
    assert check(task, reader(TASKS[task], *edits)), name


def test_weights_masked_and_made_anew_are_right_until_scores_are_large():
    task, edits = OTHER_WAYS["weights made anew"]
    report = check(task, reader(TASKS[task], *edits))
    assert [f.step for f in report.findings if f.status == "ok"][:4] == [
        "without maskout",
        "it runs",
        "values",
        "no leak",
    ]
    assert said(report).startswith("large scores: Where scores are large, the output is not finite")


# The references, held against PyTorch


def copy_attention(ours, theirs):
    fields = [ours.w_q, ours.w_k, ours.w_v]
    theirs.in_proj_weight.data = torch.cat([f.weight for f in fields]).detach()
    theirs.in_proj_bias.data = torch.cat([f.bias for f in fields]).detach()
    theirs.out_proj.load_state_dict(ours.w_o.state_dict())
    return theirs


def copy_stack(ours, theirs):
    if hasattr(ours, "attention"):
        copy_attention(ours.attention, theirs.self_attn)
    else:
        copy_attention(ours.self_attention, theirs.self_attn)
        copy_attention(ours.cross_attention, theirs.multihead_attn)
        theirs.norm3.load_state_dict(ours.norm3.state_dict())
    theirs.linear1.load_state_dict(ours.feed_forward.inner.state_dict())
    theirs.linear2.load_state_dict(ours.feed_forward.outer.state_dict())
    theirs.norm1.load_state_dict(ours.norm1.state_dict())
    theirs.norm2.load_state_dict(ours.norm2.state_dict())
    return theirs


def shaken(base, *sizes):
    return lab.runner.build(base, *sizes, seed=5).double()


def parameters(module):
    return dict(module.named_parameters())


def assert_same(inputs, *results):
    """Equal values, and equal gradients of the inputs."""
    upstream = torch.randn_like(results[0])
    gradients = [torch.autograd.grad(result, inputs, upstream) for result in results]
    for result, gradient in zip(results[:-1], gradients[:-1], strict=True):
        assert_equal_as_stated(result, results[-1])
        for ours, theirs in zip(gradient, gradients[-1], strict=True):
            assert_equal_as_stated(ours, theirs)


def states(*lengths, d=12):
    return [torch.randn(2, n, d, dtype=torch.float64, requires_grad=True) for n in lengths]


@pytest.mark.parametrize("maskout", [False, True])
def test_attention_equals_pytorch(maskout):
    ours = shaken(given.MultiHeadAttention, HEADS, 12)
    theirs = copy_attention(ours, nn.MultiheadAttention(12, HEADS, batch_first=True).double())
    inputs = states(5, 5, 5)
    hidden = torch.ones(5, 5, dtype=torch.bool).triu(1) if maskout else None
    assert_same(
        inputs,
        reference.attention(parameters(ours), HEADS, *inputs, maskout),
        ours(*inputs, maskout=maskout),
        theirs(*inputs, attn_mask=hidden)[0],
    )


def test_stacks_equal_pytorch():
    ours = shaken(given.EncoderStack, HEADS, 12, 8)
    theirs = copy_stack(ours, nn.TransformerEncoderLayer(12, HEADS, 8, 0.0, batch_first=True).double())
    inputs = states(7)
    computed = reference_model.encoder_stack(parameters(ours), HEADS, *inputs)
    assert_same(inputs, computed, ours(*inputs), theirs(*inputs))
    ours = shaken(given.DecoderStack, HEADS, 12, 8)
    theirs = copy_stack(ours, nn.TransformerDecoderLayer(12, HEADS, 8, 0.0, batch_first=True).double())
    inputs = states(5, 7)
    later = torch.ones(5, 5, dtype=torch.bool).triu(1)
    computed = reference_model.decoder_stack(parameters(ours), HEADS, *inputs)
    assert_same(inputs, computed, ours(*inputs), theirs(*inputs, tgt_mask=later))


def test_model_equals_pytorch():
    ours = shaken(given.Transformer, 11, 9, 2, 12, 8, HEADS)
    source, target = torch.randint(2, 11, (2, 7)), torch.randint(2, 9, (2, 5))
    computed = reference_model.forced(parameters(ours), HEADS, source, target, 0)
    read = torch.cat([torch.zeros(2, 1, dtype=torch.int64), target[:, :-1]], 1)
    memory, x = (
        table(ids) * 12**0.5 + given.position_table(ids.shape[1], 12)
        for table, ids in ((ours.src_embed, source), (ours.tgt_embed, read))
    )
    for stack in ours.encoder:
        memory = copy_stack(stack, nn.TransformerEncoderLayer(12, HEADS, 8, 0.0, batch_first=True).double())(
            memory
        )
    later = torch.ones(5, 5, dtype=torch.bool).triu(1)
    for stack in ours.decoder:
        theirs = copy_stack(stack, nn.TransformerDecoderLayer(12, HEADS, 8, 0.0, batch_first=True).double())
        x = theirs(x, memory, tgt_mask=later)
    wanted = F.log_softmax(ours.output(x), -1)
    assert_equal_as_stated(ours(source, target), wanted)
    assert_equal_as_stated(computed, wanted)


@over(st.integers(0, 60), st.integers(1, 9))
def test_positions_equal_the_package(length, d):
    torch.testing.assert_close(
        reference_model.positions(length, d).float().view(length, d), given.position_table(length, d)
    )


def test_greedy_decoding_is_what_teacher_forcing_calls_most_probable():
    ours = lab.runner.build(given.Transformer, 11, 9, 2, 12, 8, HEADS, seed=8)
    source = torch.randint(2, 11, (8, 7))
    with torch.no_grad():
        ids = ours(source, max_len=6)
        again = ours(source, ids).argmax(-1)
        computed = reference_model.greedy(parameters(ours), HEADS, source, 0, 1, 6)
    rows = reference_model.rows(ids, 1)
    assert [row[: len(mine)] for row, mine in zip(again.tolist(), rows, strict=True)] == rows == computed
    assert len({len(row) for row in rows}) > 1


# Wrong solutions


def slipping(task, name):
    """A class that makes a slip by way of the reference."""
    faults = frozenset({name})

    def attention(self, query, key, value, maskout=False):
        return reference.attention(parameters(self), self.h, query, key, value, maskout, faults)

    def feed_forward(self, x):
        return reference.feed_forward(parameters(self), x, faults)

    def encoder_stack(self, x):
        return reference_model.encoder_stack(parameters(self), HEADS, x, self.dropout, faults)

    def decoder_stack(self, x, memory):
        return reference_model.decoder_stack(parameters(self), HEADS, x, memory, self.dropout, faults)

    def transformer(self, source, target=None, max_len=20):
        if target is not None:
            mine = faults & lab.model.FORCED_SLIPS.keys()
            return reference_model.forced(parameters(self), HEADS, source, target, 0, self.dropout, mine)
        mine = faults & lab.model.GREEDY_SLIPS.keys()
        rows = reference_model.greedy(parameters(self), HEADS, source, 0, 1, max_len, mine)
        return nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], True, 1)

    forwards = dict(
        zip(
            TASKS,
            (attention, feed_forward, encoder_stack, attention, decoder_stack, transformer),
            strict=True,
        )
    )
    return with_forward(TASKS[task], forwards[task])


@pytest.mark.parametrize(("task", "name"), [(t, name) for t, slips in lab.SLIPS.items() for name in slips])
def test_each_slip_is_told_by_its_message_and_by_no_other(task, name):
    report = check(task, slipping(task, name))
    messages = [f.message for f in report.findings if f.status in ("wrong", "unfinished")]
    assert messages == [lab.SLIPS[task][name]]


FIRST = "self.norm1(x + self.dropout(self.attention(x, x, x)))"
SECOND = "self.norm2(x + self.dropout(self.feed_forward(x)))"
ATTEND = "scores.softmax(-1) @ v"

WRONG = [
    (1, [(" / math.sqrt(self.d_k)", "")], "not divided by √d_k"),
    (1, [("math.sqrt(self.d_k)", "math.sqrt(self.h * self.d_k)")], "divided by √dim_model"),
    (1, [("scores.softmax(-1)", "scores.softmax(-2)")], "softmax runs over the queries"),
    (1, [("scores.softmax(-1)", "F.softmax(scores, dim=1)")], "softmax runs over the heads"),
    (1, [(CUT, "x.view(len(x), self.h, -1, self.d_k)")], "heads are transposed with the tokens"),
    (
        1,
        [(CUT, "x.view(len(x), self.h, -1, self.d_k)"), (JOIN, "context.reshape(query.shape)")],
        "heads are transposed with the tokens.*And: .*joined without",
    ),
    (
        1,
        [
            (CUT, "x.unflatten(-1, (self.d_k, self.h)).permute(0, 3, 1, 2)"),
            (JOIN, "context.movedim(1, 3).flatten(-2)"),
        ],
        "dealt out to the heads in turn",
    ),
    (1, [(JOIN, "context.reshape(query.shape)")], "joined without exchanging"),
    (1, [("self.w_o(context.transpose(1, 2).flatten(-2))", "context.transpose(1, 2).flatten(-2)")], "`w_o`"),
    (
        1,
        [(".transpose(1, 2) for x", " for x"), ("context.transpose(1, 2)", "context")],
        "heads of each token",
    ),
    (
        1,
        [(" / math.sqrt(self.d_k)", ""), ("scores.softmax(-1)", "scores.softmax(-2)")],
        "not divided by √d_k. And: The softmax runs over the queries",
    ),
    (
        1,
        [
            (
                "scores.softmax(-1) @ v",
                "torch.stack([s.softmax(-1) @ x for s, x in zip(scores.unbind(1), v.unbind(1))], 1)",
            )
        ],
        "heads in parallel: .*one after the other",
    ),
    (1, [(ATTEND, "torch.stack([a.softmax(-1) @ b for a, b in zip(scores, v)])")], "number of sentences"),
    (1, [("flatten(-2))", "flatten(-2)).squeeze()")], "lengths of one: .*squeeze"),
    (
        1,
        [("return self.w_o(context", "return self.w_o(context.detach()")],
        "gradients: No gradient reaches input 1",
    ),
    (
        2,
        [("self.inner(x).relu()", "(self.inner(x) + self.inner(x).detach()).relu() / 2")],
        "gradients: The output is right, but the gradient of the input is not",
    ),
    (1, [("self.w_k(key), self.w_v(value)", "self.w_k(query), self.w_v(query)")], "as in self-attention"),
    (1, [("k.transpose(-2, -1)", "k.reshape(*k.shape[:2], k.shape[3], k.shape[2])")], "keys are reshaped"),
    (2, [("return self.outer", "self.outer = nn.Linear(8, 12)\n    return self.outer")], "made in `forward`"),
    (2, [(".relu()", "")], "no ReLU"),
    (2, [("self.outer(self.inner(x).relu())", "self.outer(self.inner(x)).relu()")], "after the second"),
    (
        2,
        [("self.outer(self.inner(x).relu())", "x + self.outer(self.inner(x).relu())")],
        "belongs to the stack",
    ),
    (2, [("relu()", "sigmoid()")], "activation is a sigmoid"),
    (2, [("return self", "with torch.no_grad():\n        return self")], "No gradient flows back at all"),
    (3, [("self.norm1(x + self", "self.norm1(self")], "first residual"),
    (
        3,
        [("x + self.dropout(self.feed_forward(x))", "self.dropout(self.feed_forward(x))")],
        "second residual",
    ),
    (3, [("self.attention(x, x, x)", "self.attention(x, x, x, maskout=True)")], "In the encoder"),
    (3, [("self.norm2", "self.norm1")], "`norm1` is used for every"),
    (
        3,
        [
            (FIRST, "x + self.norm1(self.attention(x, x, x))"),
            (
                SECOND,
                "x + self.norm2(self.dropout(self.feed_forward(x)))",
            ),
        ],
        "before the addition",
    ),
    (
        3,
        [
            (FIRST, "x + self.attention(*[self.norm1(x)] * 3)"),
            (SECOND, "x + self.feed_forward(self.norm2(x))"),
        ],
        "pre-norm",
    ),
    (
        3,
        [("self.dropout(self.attention", "(self.attention"), ("self.dropout(self.feed", "(self.feed")],
        "never called",
    ),
    (3, [("self.dropout(self.feed_forward(x))", "self.feed_forward(x)")], "no dropout .* second sub-layer"),
    (3, [("self.dropout(self.feed_forward(x))", "F.dropout(self.feed_forward(x))")], "it runs: Two runs .*F"),
    (
        3,
        [
            (
                "self.dropout(self.attention(x, x, x))",
                "F.dropout(self.attention(x, x, x), self.dropout.p, False)",
            ),
            ("self.dropout(self.feed", "(self.feed"),
        ],
        "dropout: `self.dropout` is never called",
    ),
    (4, [("triu(1)", "tril(-1)")], "wrong way round"),
    (4, [("triu(1)", "triu(0)")], "diagonal is hidden"),
    (4, [("triu(1)", "triu(0)"), ("-torch.inf", "-1e9")], "diagonal is hidden"),
    (4, [("triu(1)", "triu(2)")], "one place too late"),
    (4, [("-torch.inf", "0.0")], "set to 0"),
    (4, [("triu(1)", "tril(0)")], "inverted"),
    (
        4,
        [
            ("scores = scores.masked_fill(later, -torch.inf)", "pass"),
            ("scores.softmax(-1)", "scores.softmax(-1).tril()"),
        ],
        "without maskout: .*Without `maskout`",
    ),
    (
        4,
        [
            ("scores = scores.masked_fill(later, -torch.inf)", "pass"),
            ("scores.softmax(-1)", "(scores.softmax(-1).tril() if maskout else scores.softmax(-1))"),
        ],
        "after the softmax",
    ),
    (4, [("if maskout:", "if True:")], "although `maskout` is false"),
    (4, [("-torch.inf", "-50.0")], "large scores: .*not small enough"),
    (4, [("-torch.inf", "-2.0")], "values: The numbers are wrong"),
    (4, [("if maskout:", "if False:")], "has no effect yet"),
    (4, [("scores = scores.masked_fill", "scores.masked_fill")], "`masked_fill` returns a new tensor"),
    (4, [("scores.masked_fill(later", "scores + later * (-torch.inf) # (")], r"are nan.* 0 \* inf"),
    (5, [(", maskout=True", "")], "not switched on"),
    (5, [("memory, memory", "memory, memory, maskout=True")], "on in the cross-attention"),
    (5, [("(x, memory, memory)", "(memory, x, x)")], "roles are exchanged"),
    (5, [("(x, memory, memory)", "(x, x, memory)")], "keys of the cross-attention"),
    (5, [("self.cross_attention", "self.self_attention")], "weights of its own"),
    (
        5,
        [(", maskout=True", ""), ("memory, memory", "memory, memory, maskout=True")],
        "not switched on .* And: `maskout` is on in the cross-attention",
    ),
    (
        5,
        [("x = self.norm2(x + self.dropout(self.cross_attention(x, memory, memory)))", "pass")],
        "is missing",
    ),
    (6, [("[start, target[:, :-1]], dim=1)", "[target], dim=1)")], "not shifted"),
    (6, [("memory = stack(memory)", "stack(memory)")], "embedded source"),
    (6, [("[:, -1:].argmax", "[:, :1].argmax")], "first position"),
    (6, [("not ended.all()", "not ended.any()")], "as soon as one sentence"),
    (6, [("not ended.all()", "not ended[0, 0]")], "as soon as one sentence"),
    (6, [("ids[:, 1:]", "ids")], "begins with SOS"),
    (6, [("self.decode(ids, memory)", "self.decode(ids[:, -1:], memory)")], "latest symbol only"),
    (6, [("if target is not None", "if self.training")], "With a target it returns ids"),
]


@pytest.mark.parametrize(("task", "edits", "message"), WRONG)
def test_typical_wrong_solutions_are_told_what_is_wrong(task, edits, message):
    report = check(task, reader(TASKS[task], *edits))
    assert re.search(message, said(report)), report


def test_a_loop_over_heads_is_told_beside_another_fault():
    loop = (ATTEND, "torch.stack([s.softmax(-1) @ x for s, x in zip(scores.unbind(1), v.unbind(1))], 1)")
    report = check(1, reader(given.MultiHeadAttention, (" / math.sqrt(self.d_k)", ""), loop))
    assert [f.step for f in report.findings if f.status == "wrong"] == ["heads in parallel", "values"]
    report = check(4, reader(given.MultiHeadAttention, ("triu(1)", "triu(2)"), loop))
    assert [f.step for f in report.findings if f.status == "wrong"] == ["values", "heads in parallel"]


def test_each_task_tells_three_wrong_solutions_apart_and_more():
    for task in TASKS:
        told = {message for number, _, message in WRONG if number == task}
        assert len(told) >= 3


WRONG_EMBED = [
    (" + positions", "", "position encodings are missing"),
    (" * math.sqrt(self.dim_model)", "", "not multiplied by √dim_model"),
    ("self.dropout(table", "(table", "`self.dropout` is never called"),
    ("self.dropout(table", "F.dropout(table", "it runs: Two runs on the same input differ"),
    (
        "table(ids) * math.sqrt(self.dim_model) + positions",
        "(table(ids) + positions) * math.sqrt(self.dim_model)",
        "positions are multiplied",
    ),
]


@pytest.mark.parametrize(("old", "new", "message"), WRONG_EMBED)
def test_wrong_embeddings_are_told_what_is_wrong(old, new, message):
    assert re.search(message, said(check(6, reader(given.Transformer, (old, new), method="embed"))))


WRONG_DECODE = [
    (".log_softmax(-1)", "", "is the logits"),
    ("log_softmax(-1)", "softmax(-1)", "is probabilities"),
    ("log_softmax(-1)", "log_softmax(1)", "runs over the positions"),
]


@pytest.mark.parametrize(("old", "new", "message"), WRONG_DECODE)
def test_wrong_outputs_are_told_what_is_wrong(old, new, message):
    assert re.search(message, said(check(6, reader(given.Transformer, (old, new), method="decode"))))


def test_dropout_that_is_active_in_test_is_noticed():
    class Restless(given.Transformer):
        def forward(self, source, target=None, max_len=20):
            if target is None:
                self.train()
            return super().forward(source, target, max_len)

    assert "test: one answer: Two decodings" in said(check(6, Restless))


def test_a_model_that_predicts_word_by_word_in_training_is_noticed():
    class Slow(given.Transformer):
        def forward(self, source, target=None, max_len=20):
            if target is None:
                return super().forward(source, target, max_len)
            rows = [
                given.Transformer.forward(self, source, target[:, : t + 1]) for t in range(target.shape[1])
            ]
            return torch.stack([row[:, -1] for row in rows], 1)

    assert "training: in one pass: " in said(check(6, Slow))


def test_a_loop_over_tokens_is_noticed():
    class Slow(given.FeedForward):
        def forward(self, x):
            return torch.stack([super(Slow, self).forward(row) for row in x.unbind(1)], 1)

    assert "is there a loop" in said(check(2, Slow))


def test_faults_of_a_part_are_looked_for_in_their_own_task():
    wrong = reader(given.MultiHeadAttention, (" / math.sqrt(self.d_k)", ""))
    unmasked = reader(given.MultiHeadAttention, ("if maskout:", "if False:"))
    blank = reader(
        given.MultiHeadAttention, ("q, k, v = self", "raise NotImplementedError\n    q, k, v = self")
    )
    for attention, message, status in (
        (wrong, r"`(self_)?attention` by itself gives wrong numbers: see task 1", "wrong"),
        (blank, r"`(self_)?attention` is yet to be written: see task 1", "unfinished"),
    ):
        for task in (3, 5):
            report = check(task, own_parts(TASKS[task], attention))
            assert re.search(message, said(report))
            assert report.status == status
    assert "see task 4" in said(check(5, own_parts(given.DecoderStack, unmasked)))
    assert check(3, own_parts(given.EncoderStack, unmasked))
    assert "`encoder.0` by itself gives wrong numbers: see task 3" in said(
        check(6, of_stacks(given.FeedForward))
    )


def own_parts(base, attention):
    class Own(base):
        def __init__(self, h, dim_model, dim_ff, dropout=0.0):
            super().__init__(h, dim_model, dim_ff, dropout)
            for name in ("attention", "self_attention", "cross_attention"):
                if hasattr(self, name):
                    setattr(self, name, attention(h, dim_model))

    return Own


def of_stacks(_):
    class Own(given.Transformer):
        def __init__(self, *sizes):
            super().__init__(*sizes)
            for stack in self.encoder:
                stack.feed_forward.forward = lambda x: 2 * x

    return Own


# Broken code


class Loop(given.FeedForward):
    def forward(self, x):
        while True:
            x = x + 1


class Leaves(given.FeedForward):
    def forward(self, x):
        raise SystemExit("enough")


class UnprintableError(Exception):
    def __str__(self):
        raise RuntimeError("no text")


class Raises(given.FeedForward):
    def forward(self, x):
        raise UnprintableError


class NoArguments(given.FeedForward):
    def forward(self):
        return 0


class InPlace(given.FeedForward):
    def forward(self, x):
        x += 1
        return self.outer(self.inner(x).relu())


class Infinite(given.FeedForward):
    def forward(self, x):
        return self.outer(self.inner(x).relu()) / 0


class Renamed(nn.Module):
    def __init__(self, dim_model, dim_ff):
        super().__init__()
        self.first = nn.Linear(dim_model, dim_ff)


class Unbiased(nn.Module):
    def __init__(self, dim_model, dim_ff):
        super().__init__()
        self.inner = nn.Linear(dim_model, dim_ff, bias=False)


class Constructed(nn.Module):
    def __init__(self, dim_model, dim_ff):
        super().__init__()
        self.inner = nn.Linear(dim_model)


def returning(value):
    return with_forward(given.FeedForward, lambda self, x: value)


BROKEN = [
    (Loop, "tensor operations: does a loop never end"),
    (Leaves, "SystemExit: enough"),
    (Raises, "Unprintable"),
    (NoArguments, r"takes 1 positional argument"),
    (InPlace, "changes a tensor that it was given"),
    (Infinite, "numbers are (-inf|inf)"),
    (Renamed, "layer `inner` should have a weight .* there is none. Keep `__init__` as given"),
    (Unbiased, "layer `inner` should have a bias, but there is none. Keep `__init__` as given"),
    (Constructed, "TypeError"),
    (returning(None), "returns None.*`return` missing"),
    (returning(...), "yet to be written"),
    (returning(1.0), "returns a float"),
    (returning((1, 2)), "returns a tuple"),
    (returning(torch.zeros(3)), r"returns a tensor \[3\], but a tensor \[2, 5, 12\]"),
    (returning(torch.zeros(2, 5, 12, dtype=torch.int64)), "floating-point numbers are asked for"),
    (returning(torch.full((2, 5, 12), math.nan)), "120 of its 120 numbers are nan"),
    (returning(torch.empty(2, 5, 12, device="meta")), ""),
    (returning(torch.zeros(2, 5, 12, dtype=torch.complex64)), "floating-point"),
    (returning(torch.zeros(2, 5, 12).to_sparse()), ""),
    (given.FeedForward(12, 8), "Pass the class itself.* this is FeedForward"),
    (None, "Pass the class itself.* this is NoneType"),
    (int, "Pass the class itself.* this is int"),
    (lambda: None, "Pass the class itself"),
    (given.MultiHeadAttention, ""),
    (nn.Module, ""),
]


@pytest.mark.parametrize(("subject", "message"), BROKEN)
def test_broken_code_is_reported_never_raised(subject, message):
    report = check(2, subject)
    assert not report
    assert re.search(message, said(report)), report
    assert "Traceback" not in repr(report)
    repr(report), report._repr_html_()


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("subject", [None, 3, Leaves, nn.Linear, given.FeedForward, given.Transformer])
def test_the_wrong_class_is_reported_never_raised(task, subject):
    report = check(task, subject)
    assert bool(report) == (subject is TASKS[task])


def test_a_parameter_that_forward_adds_is_not_looked_at():
    class Added(given.FeedForward):
        def forward(self, x):
            self.extra = nn.Parameter(torch.zeros(3))
            return super().forward(x)

    assert check(2, Added)


def test_a_keyboard_interrupt_gets_through():
    def interrupted(self, x):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        check(2, with_forward(given.FeedForward, interrupted))


CELL = """\
class FeedForward(nn.Module):
    def __init__(self, dim_model, dim_ff):
        super().__init__()
        self.inner = nn.Linear(dim_model, dim_ff)
        self.outer = nn.Linear(dim_ff, dim_model)

    def forward(self, x):
        y = self.inner(x)
        return self.helper(y)

    def helper(self, y):
        return self.outer(LINE)

report = lab.task2(FeedForward)
"""


@pytest.mark.parametrize(
    ("line", "place"),
    [
        ("y @ y", "line 12, in helper: return self.outer(y @ y)"),
        ("y.reluu()", "line 12, in helper: return self.outer(y.reluu())"),
        ("1 / 0", "line 12, in helper: return self.outer(1 / 0)"),
    ],
)
def test_the_readers_line_is_told_as_it_stands_in_the_cell(line, place):
    shell = InteractiveShell()
    shell.run_cell("from torch import nn\nfrom attention_on_edges import lab")
    shell.run_cell(CELL.replace("LINE", line), silent=True).raise_error()
    first = shell.user_ns["report"].findings[0]
    assert (first.status, first.line) == ("wrong", place)


def test_a_fault_before_the_first_line_names_the_definition():
    shell = InteractiveShell()
    shell.run_cell("from torch import nn\nfrom attention_on_edges import lab")
    shell.run_cell(CELL.replace("forward(self, x)", "forward(self, x, y)"), silent=True).raise_error()
    finding = shell.user_ns["report"].findings[0]
    assert "missing 1 required positional argument" in finding.message
    assert finding.line == "line 7, in forward: def forward(self, x, y):"


def test_a_check_leaves_no_trace():
    torch.manual_seed(7)
    wanted = torch.rand(3)
    torch.manual_seed(7)
    with torch.no_grad():
        assert check(3, given.EncoderStack)
        assert not torch.is_grad_enabled()
    assert torch.equal(torch.rand(3), wanted)


# Reports


def test_a_report_is_true_only_when_all_is_well():
    ok, wrong, open_ = (lab.Finding("a", status) for status in ("ok", "wrong", "unfinished"))
    for findings, status in (((ok,), "passed"), ((ok, open_), "unfinished"), ((open_, wrong), "wrong")):
        report = lab.Report("Task", findings)
        assert report.status == status
        assert bool(report) == (status == "passed")


def test_reports_tell_in_words_what_they_tell_by_signs():
    report = check(1, reader(given.MultiHeadAttention, (" / math.sqrt(self.d_k)", "")))
    text = repr(report)
    assert text.splitlines()[0] == "Task 1, MultiHeadAttention: not right yet"
    assert "✗ values: wrong. The scores are not divided by √d_k." in text
    page = report._repr_html_()
    assert 'role="group" aria-label="Task 1, MultiHeadAttention: not right yet"' in page
    assert '<span aria-hidden="true">✗</span> <strong>values</strong>: wrong. The scores' in page


def test_nothing_of_the_readers_becomes_markup():
    finding = lab.Finding("<b>", "wrong", "<script>alert(1)</script> `<u>`", 'x = "<i>" & y')
    page = lab.Report('<"title">', (finding,))._repr_html_()

    class Tags(html.parser.HTMLParser):
        seen = ()

        def handle_starttag(self, tag, attrs):
            self.seen += (tag,)

    tags = Tags()
    tags.feed(page)
    assert set(tags.seen) == {"style", "div", "p", "strong", "ul", "li", "span", "pre", "code"}


def test_equal_means_what_the_book_says():
    reference_value = torch.tensor([100.0, 0.0], dtype=torch.float64)
    assert compare.near(torch.tensor([100.0009, 0.0]), reference_value)
    assert not compare.near(torch.tensor([100.0011, 0.0]), reference_value)
    assert not compare.near(torch.tensor([100.0]), reference_value)
    assert not compare.near(torch.tensor([100.0, math.nan]), reference_value)
