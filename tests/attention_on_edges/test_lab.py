"""The lab: right solutions pass, each wrong one is told what is wrong with it, and nothing ever raises."""

import math
import re
from collections import defaultdict

import pytest
import torch
from IPython.core.interactiveshell import InteractiveShell
from torch import nn
from torch.nn import functional as F

from attention_on_edges import lab
from attention_on_edges.lab import grading as exam
from attention_on_edges.lab import solutions
from attention_on_edges.lab.checks import TASKS
from attention_on_edges.lab.slips import CUT, JOIN, SOFTMAX, faulty
from support import assert_equal_as_stated

HEADS = 3


def check(task, subject):
    return getattr(lab, f"task{task}")(subject)


def said(report):
    """What a report says of the steps that failed."""
    failed = [f for f in report.findings if f.status in ("wrong", "unfinished")]
    return " / ".join(f"{f.step}: {f.message}" for f in failed)


def edited(task, *edits):
    solution = faulty(TASKS[task].solution, *edits)
    assert solution, edits
    return solution


# Right solutions

RIGHT = {f"task {task}": (task,) for task in TASKS} | {
    "PyTorch's own attention": (
        1,
        ("scores = q @ k.transpose(-2, -1) / math.sqrt(self.d_k)", "scores = 0"),
        (f"{SOFTMAX} @ v", "F.scaled_dot_product_attention(q, k, v)"),
    ),
    "a large number": (4, ("-torch.inf", "-1e9")),
    "heads in the batch": (
        1,
        (CUT, "torch.cat(x.split(self.d_k, dim=2))[:, None]"),
        (JOIN, "torch.cat(context[:, 0].chunk(self.h), dim=2)"),
    ),
    "no early stop": (6, (" and not ended.all()", ""), ("best = best.masked_fill(ended, self.EOS)", "pass")),
}


@pytest.mark.parametrize("name", RIGHT)
def test_right_solutions_pass(name):
    task, *edits = RIGHT[name]
    report = check(task, edited(task, *edits))
    assert report, report
    assert {finding.status for finding in report.findings} == {"ok"}


# The model solutions, held against PyTorch

PYTORCH = (
    (r"(en|de)coder\.", r"\1coder.layers."),
    (r"cross_attention", "multihead_attn"),
    (r"(self_)?attention", "self_attn"),
    (r"w_[qkv]\.", "in_proj_"),
    (r"w_o", "out_proj"),
    (r"feed_forward\.inner", "linear1"),
    (r"feed_forward\.outer", "linear2"),
)
"""Names of parameters here and there; queries, keys and values are one matrix there, in this order."""


def pytorch_twin(ours):
    parameters = defaultdict(list)
    for name, x in ours.state_dict().items():
        for pattern, theirs in PYTORCH:
            name = re.sub(pattern, theirs, name)
        if ".layers." in name:
            parameters[name].append(x)
    twin = nn.Transformer(12, HEADS, 2, 2, 8, 0.0, batch_first=True).double()
    twin.encoder.norm = twin.decoder.norm = None
    twin.load_state_dict({name: torch.cat(parts) for name, parts in parameters.items()})
    return twin


def shaken(seed=5):
    """The model with the random parameters of the checks, in double precision."""
    return exam.Exam(6, TASKS, solutions.Transformer).fresh(seed=seed).double()


def test_model_equals_pytorch_in_value_and_gradient():
    ours, later = shaken(), torch.ones(5, 5, dtype=torch.bool).triu(1)
    source, target = torch.randint(2, 11, (2, 7)), torch.randint(2, 9, (2, 5))
    read = torch.cat([torch.zeros(2, 1, dtype=torch.int64), target[:, :-1]], 1)
    embedded = (
        table(ids) * 12**0.5 + solutions.position_table(ids.shape[1], 12)
        for table, ids in ((ours.src_embed, source), (ours.tgt_embed, read))
    )
    states = pytorch_twin(ours)(*embedded, tgt_mask=later)
    found, wanted = ours(source, target), F.log_softmax(ours.output(states), -1)
    assert_equal_as_stated(found, wanted)
    tables, upstream = (ours.src_embed.weight, ours.tgt_embed.weight), torch.randn_like(found)
    for both in zip(*(torch.autograd.grad(y, tables, upstream) for y in (found, wanted)), strict=True):
        assert_equal_as_stated(*both)


def test_greedy_decoding_is_what_teacher_forcing_calls_most_probable():
    ours, source = shaken(seed=8), torch.randint(2, 11, (8, 7))
    with torch.no_grad():
        ids = ours(source, max_len=6)
        again = ours(source, ids).argmax(-1)
    ended = (ids == solutions.Transformer.EOS).cumsum(1) - (ids == solutions.Transformer.EOS).int() > 0
    assert torch.equal(ids[~ended], again[~ended])
    assert (ids[ended] == solutions.Transformer.EOS).all()
    assert ended.any()
    assert not ended[:, -1].all()


# Wrong solutions


@pytest.mark.parametrize(("task", "slip"), [(t, slip) for t, slips in lab.SLIPS.items() for slip in slips])
def test_each_slip_is_told_by_its_own_sentence(task, slip):
    message, *edits = slip
    report = check(task, edited(task, *edits))
    assert [f.message for f in report.findings if f.status == "wrong"] == [message]


ATTEND = f"{SOFTMAX} @ v"
LOOP = "torch.stack([s.softmax(-1) @ x for s, x in zip(scores.unbind({0}), v.unbind({0}))], {0})"

WRONG = [
    (1, [(" / math.sqrt(self.d_k)", ""), (SOFTMAX, "scores.softmax(-2)")], "√d_k. And: The softmax runs"),
    (1, [(ATTEND, LOOP.format(1))], "in parallel: More heads take"),
    (1, [(ATTEND, LOOP.format(0))], "in parallel: More sentences take"),
    (1, [("self.w_o(context", "self.w_o(context.detach()")], "gradients: No gradient reaches input 1"),
    (
        2,
        [("self.inner(x).relu()", "(self.inner(x) + self.inner(x).detach()).relu() / 2")],
        "gradients: The output is right, but the gradient of input 1 is not",
    ),
    (2, [("self.inner(x).relu())", "self.inner(x).relu()).detach()")], "No gradient flows back"),
    (2, [("return ", "while True:\n            x = x + 1\n        return ")], "does a loop never end"),
    (2, [("return ", "x += 1\n        return ")], "changes a tensor that it was given"),
    (2, [("return ", "")], "returns a NoneType.*`return` missing"),
    (2, [("return ", "return x[0]  # ")], r"a tensor \[5, 12\], but a tensor \[2, 5, 12\] is asked for"),
    (2, [("def forward", "def forwards")], "values: `forward` is yet to be written"),
    (2, [("self.inner = ", "self.first = ")], "`inner.weight` should be .8, 12., but is missing"),
    (3, [("self.dropout(self.feed", "F.dropout(self.feed")], "values: Two runs .*F"),
    (4, [("-torch.inf", "-50.0")], "large scores: .*changes when a later token does"),
    (4, [("scores.masked_fill(later, -torch.inf)", "scores + later * -torch.inf")], r"are nan.* 0 \* inf"),
    (6, [("[:, -1:].argmax", "[:, -1:].argmin")], "decoding: The numbers are wrong"),
]


@pytest.mark.parametrize(("task", "edits", "message"), WRONG)
def test_wrong_solutions_are_told_what_is_wrong(task, edits, message):
    report = check(task, edited(task, *edits))
    assert re.search(message, said(report)), report


@pytest.mark.parametrize("subject", [None, solutions.FeedForward(12, 8)])
def test_what_is_no_class_is_reported_never_raised(subject):
    assert "Error" in said(check(2, subject))


def test_faults_of_a_part_are_looked_for_in_their_own_task():
    def own_parts(base, attention):
        class Own(base):
            def __init__(self, *sizes):
                super().__init__(*sizes)
                for name in ("attention", "self_attention", "cross_attention"):
                    if hasattr(self, name):
                        setattr(self, name, attention(*sizes[:2]))

        return Own

    wrong = edited(1, (" / math.sqrt(self.d_k)", ""))
    unmasked = edited(4, ("if maskout:", "if False:"))
    for task in (3, 5):
        report = check(task, own_parts(TASKS[task].solution, wrong))
        assert re.search("`(self_)?attention` by itself gives wrong numbers: see task 1", said(report))
    assert "see task 4" in said(check(5, own_parts(solutions.DecoderStack, unmasked)))
    assert check(3, own_parts(solutions.EncoderStack, unmasked))


CELL = """\
class FeedForward(nn.Module):
    def __init__(self, dim_model, dim_ff):
        super().__init__()
        self.inner = nn.Linear(dim_model, dim_ff)
        self.outer = nn.Linear(dim_ff, dim_model)

    def forward(self, x):
        return self.spread(x)

    def spread(self, x):
        return self.outer(x @ x)

report = lab.task2(FeedForward)
"""


def test_the_readers_line_is_told_as_it_stands_in_the_cell():
    shell = InteractiveShell()
    shell.run_cell("from torch import nn\nfrom attention_on_edges import lab")
    shell.run_cell(CELL, silent=True).raise_error()
    first = shell.user_ns["report"].findings[0]
    assert (first.status, first.line) == ("wrong", "line 11, in spread: return self.outer(x @ x)")


def test_a_check_leaves_no_trace():
    torch.manual_seed(7)
    wanted = torch.rand(3)
    torch.manual_seed(7)
    with torch.no_grad():
        assert check(3, solutions.EncoderStack)
        assert not torch.is_grad_enabled()
    assert torch.equal(torch.rand(3), wanted)


# Reports


def test_reports_tell_in_words_too_and_nothing_of_the_readers_becomes_markup():
    finding = lab.Finding("<b>", "wrong", "<script>alert(1)</script> `<u>`", 'x = "<i>" & y')
    report = lab.Report('<"title">', (finding,))
    page = report._repr_html_()
    assert not report
    assert repr(report).startswith('<"title">: not right yet\n  ✗ <b>: wrong. <script>')
    assert 'role="group" aria-label="' in page
    assert "✗ &lt;b&gt;: wrong." in page
    assert set(re.findall(r"<(\w+)", page)) == {"div", "strong", "code"}


def test_equal_means_what_the_book_says():
    wanted = torch.tensor([100.0, 0.0], dtype=torch.float64)
    assert exam.near(torch.tensor([100.0009, 0.0]), wanted)
    for other in ([100.0011, 0.0], [100.0], [100.0, math.nan]):
        assert not exam.near(torch.tensor(other), wanted)
