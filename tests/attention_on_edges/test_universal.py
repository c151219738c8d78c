import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import nll_loss

from attention_on_edges.decoding import continuation_of
from attention_on_edges.models.universal import make_universal_model
from attention_on_edges.pool import GraphPool
from attention_on_edges.training import LabelSmoothing, Trainer, TrainingConfig, evaluate, take_step
from book_support import VOCAB, dropped_and_doubled, random_pairs, sorting_data
from support import assert_equal_as_stated

NONE = torch.zeros((), dtype=torch.float64)


def universal(seed=0, **options):
    """A small model in double precision and evaluation mode; norms and biases differ from their start."""
    torch.manual_seed(seed)
    size = {"max_steps": 4, "dim_model": 8, "dim_ff": 6, "h": 2, "dropout": 0.0, "ponder_weight": 0.3}
    model = make_universal_model(VOCAB, VOCAB, **size | options).eval().double()
    for name, parameter in model.named_parameters():
        if parameter.dim() == 1 and not name.startswith("halt_"):
            torch.nn.init.normal_(parameter, mean=parameter.mean().item(), std=0.2)
    return model


def batch_of(lengths, seed=0):
    return GraphPool()(*random_pairs(lengths, seed))


def shuffled_loss(hidden):
    """A loss with a gradient of its own for each number."""
    generator = torch.Generator().manual_seed(0)
    return (hidden * torch.randn(hidden.shape, generator=generator).to(hidden.dtype)).sum()


class Scalar:
    """The model token by token: loops, no graph and no batch; weights of states and steps by side."""

    def __init__(self, model):
        self.model, self.weights, self.steps = model, {"enc": [], "dec": []}, {"enc": [], "dec": []}

    def attend(self, attention, q, fields):
        k, v = (torch.stack([each[name] for each in fields]) for name in "kv")  # [m, h, d_k]
        weights = ((q * k).sum(-1) / math.sqrt(attention.d_k)).softmax(0)
        return attention.get_o((weights[..., None] * v).sum(0))

    def step(self, side, layer, fields, i, x, source):
        first, last = layer.sublayer[0], layer.sublayer[-1]
        seen = fields[: i + 1] if side == "dec" else fields
        y = first.after(x, self.attend(layer.self_attn, fields[i]["q"], seen))
        if side == "dec":
            middle, attention = layer.sublayer[1], layer.src_attn
            q = attention.get(middle.before(y), "q")["q"]
            y = middle.after(y, self.attend(attention, q, [attention.get(s, "kv") for s in source]))
        return last.after(y, layer.feed_forward(last.before(y)))

    def run(self, side, ids, source=None):
        """Final states of one sentence."""
        model = self.model
        stack = model.encoder if side == "enc" else model.decoder
        halt = model.halt_enc if side == "enc" else model.halt_dec
        embed = model.src_embed if side == "enc" else model.tgt_embed
        threshold = 1 - model.eps
        layer, x = stack.layers[0], list(embed(ids))
        chances, states, halted = ([[] for _ in ids], [[] for _ in ids], [False] * len(ids))
        for n in range(model.max_steps):
            place = model.pos_enc(torch.arange(len(ids))) + model.time_enc(torch.tensor([n]))
            read = [x[i] if halted[i] else x[i] + place[i] for i in range(len(ids))]
            fields = [layer.self_attn.get(layer.sublayer[0].before(each)) for each in read]
            for i in range(len(ids)):
                if halted[i]:
                    continue
                x[i] = self.step(side, layer, fields, i, read[i], source)
                p = halt(x[i][None])[0] if halt else NONE
                chances[i].append(p)
                states[i].append(x[i])
            halted = [sum(p.item() for p in own) >= threshold for own in chances]
        table = torch.zeros(len(ids), model.max_steps).double()
        for i, own in enumerate(chances):
            if model.halting == "fixed":
                own = [NONE] * len(own)
            row = torch.stack([*own[:-1], 1 - sum(own[:-1], NONE)])
            table = table.index_put((torch.tensor(i), torch.arange(len(own))), row)
            x[i] = stack.norm((row[:, None] * torch.stack(states[i])).sum(0))
        self.weights[side].append(table)
        self.steps[side] += map(len, chances)
        return x

    def __call__(self, batch):
        """Target states of all sentences."""
        states = []
        for src, tgt in map(batch.sentence, range(batch.n_sentences)):
            states += self.run("dec", batch.tgt[0][tgt], self.run("enc", batch.src[0][src]))
        self.weights = {side: torch.cat(parts) for side, parts in self.weights.items()}
        return torch.stack(states)

    def extra_loss(self):
        """Steps plus remainder per token."""
        if self.model.halting == "fixed":
            return None
        weights = torch.cat([*self.weights.values()])
        steps = torch.tensor(self.steps["enc"] + self.steps["dec"])
        return self.model.ponder_weight * (steps + weights.gather(1, steps[:, None] - 1).squeeze(1)).mean()


def assert_equals_scalar(model, batch):
    """Compare states, steps, weights, losses and all gradients; return the pass's output."""
    output, reference = model.run(batch), Scalar(model)
    expected = reference(batch)
    assert_equal_as_stated(output.hidden, expected)
    for side, pondered in output.pondered.items():
        assert pondered.steps.tolist() == reference.steps[side]
        assert_equal_as_stated(pondered.weights, reference.weights[side])
    ours, theirs = shuffled_loss(output.hidden), shuffled_loss(expected)
    extra, wanted = model.extra_loss(output), reference.extra_loss()
    assert (extra is None) == (wanted is None)
    if extra is not None:
        assert_equal_as_stated(extra, wanted)
        ours, theirs = ours + extra, theirs + wanted
    parameters = [p for name, p in model.named_parameters() if not name.startswith("generator")]
    both = (torch.autograd.grad(loss, parameters, materialize_grads=True) for loss in (ours, theirs))
    for gradient, other in zip(*both, strict=True):
        assert_equal_as_stated(gradient, other)
    return output


@pytest.mark.parametrize("halting", ["act", "fixed"])
@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4)), min_size=1, max_size=2),
    st.integers(0, 1000),
    st.sampled_from([-2.0, -0.5, 0.5]),
    st.sampled_from([0.01, 0.4]),
    st.booleans(),
)
@settings(max_examples=12)
def test_it_equals_loops_over_single_tokens(halting, sizes, seed, bias, eps, norm_first):
    model = universal(seed, bias=bias, eps=eps, norm_first=norm_first, halting=halting)
    assert_equals_scalar(model.train(), batch_of(sizes, seed))


def test_work_follows_the_active_tokens():
    model, seen = universal(4, bias=-1.0), {"ff": [], "halt": []}
    for name, module in (("ff", model.encoder.layers[0].feed_forward), ("halt", model.halt_enc)):
        module.register_forward_hook(lambda _, inputs, out, name=name: seen[name].append(len(inputs[0])))
    steps = model.run(batch_of([(4, 4), (3, 3)])).pondered["enc"].steps
    active = [int((steps > n).sum()) for n in range(int(steps.max()))]
    assert seen == {"ff": active, "halt": active}
    assert len(set(active)) > 1


def test_the_weight_of_the_ponder_loss_warms_up():
    model = universal(0, ponder_warmup=10)
    output = model.run(batch_of([(3, 4)]))
    full = model.extra_loss(output).item()
    assert model.extra_loss(output, 0) is None
    assert [model.extra_loss(output, n).item() / full for n in (4, 10, 99)] == pytest.approx([0.4, 1, 1])


def test_steps_are_counted_over_passes():
    model, batches = universal(4, bias=-1.0), [batch_of([(3, 4)]), batch_of([(2, 2), (1, 5)])]
    stand_in = replace(batches[0], stand_in=True)
    figures, histograms = evaluate(model, [*batches, stand_in], LabelSmoothing(VOCAB, 2))
    sides = [model.run(batch).pondered for batch in batches]
    for side in ("enc", "dec"):
        steps = torch.cat([pondered[side].steps for pondered in sides]).tolist()
        assert histograms[side] == [steps.count(n) for n in range(1, 5)]
        assert figures[f"steps_{side}"] == pytest.approx(sum(steps) / len(steps))
        cost = torch.cat([pondered[side].cost for pondered in sides])
        assert figures[f"ponder_{side}"] == pytest.approx(cost.mean().item())


@pytest.mark.parametrize("seed", [4, 0])  # by seed 0 nobody halts at the third step
def test_attention_can_be_drawn_step_by_step(seed):
    """A map's rows sum to one for the tokens that are active at a step, and are zero for the others."""
    model, batch = universal(seed, bias=-1.0), batch_of([(4, 4), (3, 3)])
    pondered = model.run(batch).pondered
    for sentence in range(2):
        src, tgt = batch.sentence(sentence)
        sides = ("enc", src), ("dec", tgt), ("dec", tgt)
        steps = [pondered[side].steps[rows] for side, rows in sides]
        for n in range(min(int(found.steps.max()) for found in pondered.values())):
            for found, own in zip(model.attention_of(batch, sentence, n), steps, strict=True):
                rows = found.sum(-1)
                torch.testing.assert_close(rows, (own > n).to(rows.dtype).expand_as(rows))
    assert model.attention_of(batch, 0, 0)[2][0].triu(1).abs().max() == 0


class TestDecoding:
    @given(
        st.lists(st.tuples(st.integers(1, 5), st.integers(1, 12)), min_size=1, max_size=3),
        st.integers(0, 100),
        st.sampled_from([-1.0, 0.5]),
        st.sampled_from(["act", "fixed"]),
    )
    @torch.no_grad()
    def test_states_that_grow_equal_states_computed_at_once(self, sizes, seed, bias, halting):
        model = universal(seed, bias=bias, halting=halting)
        longest = max(m for _, m in sizes)
        sources, targets = random_pairs([(n, longest) for n, _ in sizes], seed)
        expected = model.hidden(GraphPool()(sources, targets)).view(len(sizes), longest, -1)
        continuation = continuation_of(model, sources)
        for position in range(longest):
            ids = torch.tensor([target[position] for target in targets])
            assert_equal_as_stated(continuation.step(ids), expected[:, position])

    def test_targets_can_be_dropped_reordered_and_doubled(self):
        assert_equal_as_stated(*dropped_and_doubled(universal(4, bias=-1.0), continuation_of))


@pytest.mark.parametrize("weight", [0.0, 50.0])
def test_a_trainer_learns_from_the_loss_and_the_ponder_loss(weight, tmp_path):
    """Its gradient is that of the loss per token plus the weighted cost."""
    data = sorting_data()

    def fresh():
        torch.manual_seed(0)
        size = {"dropout": 0.0, "bias": 0.0, "ponder_weight": weight}
        return make_universal_model(data.vocab_size, data.vocab_size, 3, 16, 16, 2, **size).train()

    model, other = fresh(), fresh()
    run = Trainer(model, data, TrainingConfig(epochs=1, batch_size=30, smoothing=0.0), tmp_path, {})
    batch = next(data(GraphPool(), "valid", 30))
    reported, tokens = run._learn(batch)
    take_step(run.opt, tokens)
    output = other.run(batch)
    loss = nll_loss(other.generator(output.hidden), batch.tgt_y)
    assert reported == pytest.approx(loss.item(), rel=1e-5)
    extra = other.extra_loss(output)
    (loss if extra is None else loss + extra).backward()
    for mine, its in zip(model.parameters(), other.parameters(), strict=True):
        if its.grad is not None:
            torch.testing.assert_close(mine.grad, its.grad, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"eps": 1.0}, ValueError, r"eps must lie in \(0, 1\), got 1.0"),
        ({"eps": "a"}, TypeError, "eps must be a number"),
        ({"max_steps": 0}, ValueError, "max_steps must be at least 1, got 0"),
        ({"ponder_weight": math.inf}, ValueError, "ponder_weight must be a finite number"),
        ({"halting": "never"}, ValueError, "halting must be one of 'act', 'fixed'"),
    ],
)
def test_bad_input(options, error, message):
    with pytest.raises(error, match=message):
        universal(**options)
