import copy
import math
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.optim.swa_utils import AveragedModel

from edgewise.decoding import Continuation, beam_search, continuation_of, greedy
from edgewise.graphs import GraphPool
from edgewise.models.halting import HaltingUnit, StepCount, ponder
from edgewise.models.transformer import make_model
from edgewise.models.universal import make_universal_model
from edgewise.training import (
    LabelSmoothing,
    NoamOpt,
    SimpleLossCompute,
    Trainer,
    TrainingConfig,
    batch_loss,
    run_epoch,
    take_step,
)
from support import VOCAB, SortingData, assert_equal_as_stated, dropped_and_doubled, random_pairs

D, HEADS, FF = 8, 2, 6


def universal(seed=0, **options):
    """A small model in double precision and evaluation mode; norms and biases differ from their start."""
    torch.manual_seed(seed)
    size = {"max_steps": 4, "dim_model": D, "dim_ff": FF, "h": HEADS, "dropout": 0.1, "ponder_weight": 0.3}
    model = make_universal_model(VOCAB, VOCAB, **size | options).eval().double()
    for name, parameter in model.named_parameters():
        if parameter.dim() == 1 and not name.startswith("halt_"):
            torch.nn.init.normal_(parameter, mean=parameter.mean().item(), std=0.2)
    return model


def batch_of(lengths, seed=0):
    return GraphPool()(*random_pairs(lengths, seed))


def shuffled_loss(hidden, seed=0):
    """A loss with a gradient of its own for each number."""
    generator = torch.Generator().manual_seed(seed)
    return (hidden * torch.randn(hidden.shape, generator=generator).to(hidden.dtype)).sum()


class Scalar:
    """The model token by token: vectors and loops, no graph, no batch, only the model's numbers."""

    def __init__(self, model, frozen):
        self.weights = dict(model.named_parameters())
        self.model, self.frozen, self.cost = model, frozen, []

    def linear(self, name, x, rows=slice(None)):
        return self.weights[f"{name}.weight"][rows] @ x + self.weights[f"{name}.bias"][rows]

    def norm(self, name, x):
        x = (x - x.mean()) / (x.var(unbiased=False) + 1e-5).sqrt()
        return x * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]

    def encoding(self, place):
        angles = [place / 10000 ** (2 * (i // 2) / D) for i in range(D)]
        return torch.tensor([math.cos(a) if i % 2 else math.sin(a) for i, a in enumerate(angles)]).double()

    def before(self, layer, number, x):
        return self.norm(f"{layer}.sublayer.{number}.norm", x) if self.norm_first(layer) else x

    def after(self, layer, number, x, y):
        return x + y if self.norm_first(layer) else self.norm(f"{layer}.sublayer.{number}.norm", x + y)

    def norm_first(self, layer):
        return self.model.encoder.layers[0].sublayer[0].norm_first

    def project(self, name, x, field):
        first = "qkv".index(field) * D
        return self.linear(f"{name}.in_proj", x, slice(first, first + D))

    def attend(self, name, q, keys, values):
        width, heads = D // HEADS, []
        for head in range(HEADS):
            part = slice(head * width, (head + 1) * width)
            scores = torch.stack([q[part] @ k[part] / math.sqrt(width) for k in keys])
            weights = scores.exp() / scores.exp().sum()
            heads.append(sum(w * v[part] for w, v in zip(weights, values, strict=True)))
        return self.linear(f"{name}.out_proj", torch.cat(heads))

    def feed_forward(self, layer, x):
        inner = self.linear(f"{layer}.feed_forward.inner", x).clamp(min=0)
        return self.linear(f"{layer}.feed_forward.outer", inner)

    def run(self, side, ids, source=None):
        """Final states of one sentence, steps of its tokens, and the weights of their states."""
        layer, count = f"{side}coder.layers.0", len(ids)
        embedding = "src_embed" if side == "en" else "tgt_embed"
        x = [self.weights[f"{embedding}.lut.weight"][i] * math.sqrt(D) for i in ids]
        keys, values = [None] * count, [None] * count
        history = [[] for _ in ids]  # (probability, state) after each step
        halted = [False] * count
        for n in range(self.model.max_steps):
            read = [x[i] + self.encoding(i) + self.encoding(n) for i in range(count)]
            for i in range(count):
                if halted[i] and self.frozen == "input":
                    continue
                normed = self.before(layer, 0, x[i] if halted[i] else read[i])
                keys[i], values[i] = (self.project(f"{layer}.self_attn", normed, f) for f in "kv")
            new = list(x)
            for i in range(count):
                if halted[i]:
                    continue
                q = self.project(f"{layer}.self_attn", self.before(layer, 0, read[i]), "q")
                last = i + 1 if side == "de" else count
                y = self.attend(f"{layer}.self_attn", q, keys[:last], values[:last])
                y = self.after(layer, 0, read[i], y)
                if side == "de":
                    name = f"{layer}.src_attn"
                    q = self.project(name, self.before(layer, 1, y), "q")
                    keys_values = ([self.project(name, s, f) for s in source] for f in "kv")
                    y = self.after(layer, 1, y, self.attend(name, q, *keys_values))
                ff = 2 if side == "de" else 1
                y = self.after(layer, ff, y, self.feed_forward(layer, self.before(layer, ff, y)))
                unit = f"halt_{side[0]}{'nc' if side == 'en' else 'ec'}"
                p = torch.zeros(()).double()
                if self.model.halt_enc is not None:
                    p = 1 / (1 + (-self.linear(f"{unit}.linear", self.norm(f"{unit}.norm", y))[0]).exp())
                history[i].append((p, y))
                halted[i] = sum(p.item() for p, _ in history[i]) >= 1 - self.model.eps
                new[i] = y
            x = new
        outputs, weights = [], []
        for tokens in history:
            w = [p for p, _ in tokens[:-1]]
            w.append(torch.ones(()).double() - sum(w))
            mean = sum(a * y for a, (_, y) in zip(w, tokens, strict=True))
            outputs.append(self.norm(f"{side}coder.norm", mean))
            weights.append(w)
            self.cost.append(len(w) + w[-1])
        return outputs, [len(w) for w in weights], weights

    def __call__(self, batch):
        """Target states of all sentences, and steps and weights by side."""
        states, found = [], {"enc": ([], []), "dec": ([], [])}
        for number in range(batch.n_sentences):
            src, tgt = batch.sentence(number)
            source, *rest = self.run("en", batch.src[0][src].tolist())
            target, *other = self.run("de", batch.tgt[0][tgt].tolist(), source)
            states += target
            for side, parts in (("enc", rest), ("dec", other)):
                for kept, part in zip(found[side], parts, strict=True):
                    kept += part
        return torch.stack(states), found


def gradients(model, loss):
    named = [(n, p) for n, p in model.named_parameters() if not n.startswith("generator")]
    found = torch.autograd.grad(loss, [p for _, p in named], allow_unused=True)
    return {n: torch.zeros_like(p) if g is None else g for (n, p), g in zip(named, found, strict=True)}


def assert_equals_scalar(model, batch):
    output = model.run(batch)
    hidden, extra = output.hidden, model.extra_loss(output)
    loss = shuffled_loss(hidden)
    reference = Scalar(model, model.frozen)
    expected, found = reference(batch)
    assert_equal_as_stated(hidden, expected)
    for side, (steps, weights) in found.items():
        pondered = output.pondered[side]
        assert pondered.steps.tolist() == steps
        table = torch.zeros(len(steps), model.max_steps).double()
        for token, own in enumerate(weights):
            table[token, : len(own)] = torch.stack(own).detach()
        assert_equal_as_stated(pondered.weights, table)
        assert_equal_as_stated(pondered.weights.sum(1), torch.ones(len(steps)).double())
    ours, theirs = loss, shuffled_loss(expected)
    if extra is not None:
        cost = model.ponder_weight * torch.stack(reference.cost).mean()
        assert_equal_as_stated(extra, cost)
        ours, theirs = ours + extra, theirs + cost
    wanted = gradients(model, theirs)
    for name, gradient in gradients(model, ours).items():
        assert_equal_as_stated(gradient, wanted[name])
    return found


lengths = st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4)), min_size=1, max_size=2)


@given(
    lengths,
    st.integers(0, 1000),
    st.sampled_from([-2.0, -0.5, 0.5]),
    st.sampled_from([0.01, 0.4]),
    st.sampled_from(["state", "input"]),
    st.booleans(),
)
@settings(max_examples=25)
def test_it_equals_loops_over_single_tokens(sizes, seed, bias, eps, frozen, norm_first):
    model = universal(seed, bias=bias, eps=eps, frozen=frozen, norm_first=norm_first)
    assert_equals_scalar(model, batch_of(sizes, seed))


@pytest.mark.parametrize(
    ("sizes", "options", "steps"),
    [
        ([(3, 2), (1, 4)], {"bias": 20.0}, {1}),  # all halt at once
        ([(3, 2), (1, 4)], {"bias": -20.0}, {4}),  # none before the maximum
        ([(1, 1)], {"bias": -1.0}, None),
        ([(1, 3), (4, 1), (2, 2)], {"bias": -1.0}, None),
        ([(2, 3)], {"max_steps": 1}, {1}),
        ([(2, 3)], {"halting": "fixed"}, {4}),
    ],
)
def test_patterns_of_halting(sizes, options, steps):
    found = assert_equals_scalar(universal(1, **options), batch_of(sizes, 1))
    assert steps is None or {n for side in found.values() for n in side[0]} == steps


def test_patterns_differ_where_they_should():
    """The random models above do halt here and there, and the keys and values of halted tokens matter."""
    model = universal(4, bias=-1.0)
    batch = batch_of([(4, 4), (3, 3)])
    output = model.run(batch)
    for pondered in output.pondered.values():
        assert len(set(pondered.steps.tolist())) > 1
    model.frozen = "input"
    assert (model.hidden(batch) - output.hidden).abs().max() > 1e-3


def unskipped(model, batch):
    """The same model, every token computed at every step and what is not wanted thrown away."""

    def side(name, halt, x, positions, step):
        active = torch.ones(len(x), dtype=torch.bool)
        total, mean, read = x.new_zeros(len(x)), torch.zeros_like(x), x
        for n in range(model.max_steps):
            moving = active[:, None]
            read = torch.where(moving, x + model.pos_enc(positions) + model.time_enc(torch.tensor([n])), x)
            new = step(read)
            p = halt(new)
            over = active & ((total + p >= 1 - model.eps) | torch.tensor(n == model.max_steps - 1))
            weight = torch.where(active, torch.where(over, 1 - total, p), 0)
            mean, total = mean + weight[:, None] * new, total + torch.where(active, p, 0)
            x = torch.where(moving, new, x)
            active = active & ~over
        return mean

    encoder, decoder = model.encoder, model.decoder

    def encode(x):
        pre, post = [(encoder.pre_func(0), "enc")], [(encoder.post_func(0, norm=False), "enc")]
        return model.update_graph(batch.enc, {"enc": x}, pre, post)["enc"]

    source = encoder.norm(side("enc", model.halt_enc, model.src_embed(batch.src[0]), batch.src[1], encode))

    def decode(x):
        state = {"enc": source, "dec": x}
        pre, post = [(decoder.pre_func(0), "dec")], [(decoder.post_func(0), "dec")]
        state = model.update_graph(batch.dec, state, pre, post)
        pre = [(decoder.pre_func(0, "q", 1), "dec"), (decoder.pre_func(0, "kv", 1), "enc")]
        return model.update_graph(batch.cross, state, pre, [(decoder.post_func(0, 1, False), "dec")])["dec"]

    return decoder.norm(side("dec", model.halt_dec, model.tgt_embed(batch.tgt[0]), batch.tgt[1], decode))


def test_leaving_halted_tokens_out_changes_values_and_gradients_by_rounding_only():
    torch.manual_seed(0)
    model = make_universal_model(VOCAB, VOCAB, dim_model=32, dim_ff=48, h=4, bias=-1.0).eval()
    batch = batch_of([(n, 21 - n) for n in range(1, 20)])
    with torch.no_grad():
        wanted_double = unskipped(model.double(), batch)
    model.float()
    output, wanted = model.run(batch), unskipped(model, batch)
    hidden = output.hidden
    assert len(set(output.pondered["enc"].steps.tolist())) > 2
    assert_equal_as_stated(hidden, wanted_double)
    torch.testing.assert_close(hidden, wanted, atol=1e-5, rtol=1e-5)
    model.double()  # in which rounding cannot hide a difference
    expected = gradients(model, shuffled_loss(unskipped(model, batch)))
    for name, gradient in gradients(model, shuffled_loss(model.hidden(batch))).items():
        torch.testing.assert_close(gradient, expected[name], atol=1e-10, rtol=1e-10)


def test_work_follows_the_active_tokens():
    """Queries, feed-forward and halting see active tokens only; keys and values once more for the halted."""
    model = universal(4, bias=-1.0)
    batch = batch_of([(4, 4), (3, 3)])
    seen = {"ff": [], "halt": []}
    for name, module in (("ff", model.encoder.layers[0].feed_forward), ("halt", model.halt_enc)):
        module.register_forward_hook(lambda _, inputs, out, name=name: seen[name].append(len(inputs[0])))
    steps = model.run(batch).pondered["enc"].steps
    active = [int((steps > n).sum()) for n in range(int(steps.max()))]
    assert seen == {"ff": active, "halt": active}
    assert len(set(active)) > 1


class TestFixedSteps:
    """Without halting, and with the encodings of later steps left out, it is a Transformer of tied layers."""

    def tied(self, model, steps):
        plain = make_model(VOCAB, VOCAB, steps, D, FF, HEADS).eval().double()
        for ours, theirs in ((model.encoder, plain.encoder), (model.decoder, plain.decoder)):
            for layer in theirs.layers:
                layer.load_state_dict(ours.layers[0].state_dict())
            theirs.norm.load_state_dict(ours.norm.state_dict())
        for part in ("src_embed", "tgt_embed", "generator"):
            getattr(plain, part).load_state_dict(getattr(model, part).state_dict())
        return plain

    @pytest.mark.parametrize("options", [{"halting": "fixed"}, {"bias": -40.0}])
    def test_values_and_gradients(self, options, monkeypatch):
        model = universal(5, max_steps=3, **options)
        plain = self.tied(model, 3)
        first = model.advance

        def only_at_first(positions):
            return lambda n, rows, x: first(positions)(n, rows, x) if n == 0 else x

        monkeypatch.setattr(model, "advance", only_at_first)
        model.time_enc.table.zero_()
        batch = batch_of([(3, 4), (2, 1)])
        hidden, expected = model.hidden(batch), plain.hidden(batch)
        assert_equal_as_stated(hidden, expected)
        assert_equal_as_stated(model(batch), plain(batch))
        ours, theirs = (gradients(m, shuffled_loss(h)) for m, h in ((model, hidden), (plain, expected)))
        for name, gradient in ours.items():
            if name.startswith("halt_"):
                continue
            parts = [theirs[name.replace("layers.0", f"layers.{i}")] for i in range(3)]
            assert_equal_as_stated(gradient, sum(parts) if "layers" in name else parts[0])

    def test_encodings_come_at_every_step(self):
        model, batch = universal(5, max_steps=3, halting="fixed"), batch_of([(3, 4)])
        plain = self.tied(model, 3)
        positions = batch.src[1]
        x = model.src_embed(batch.src[0])
        for n in range(3):
            x = x + model.pos_enc(positions) + model.time_enc(torch.full_like(positions, n))
            pre, post = [(plain.encoder.pre_func(n), "enc")], [(plain.encoder.post_func(n), "enc")]
            x = plain.update_graph(batch.enc, {"enc": x}, pre, post)["enc"]
        assert_equal_as_stated(model.encode(batch)["enc"], x)


class TestHalting:
    @pytest.mark.parametrize("bias", [-1e4, 1e4, float("-inf"), float("inf")])
    def test_saturated_probabilities_train_on(self, bias):
        torch.manual_seed(0)
        model = make_universal_model(VOCAB, VOCAB, 3, 16, 16, 2, bias=0.0)
        for unit in (model.halt_enc, model.halt_dec):
            unit.linear.bias.data.fill_(bias)
        adam = torch.optim.Adam(model.parameters(), lr=1e-3)
        batch = batch_of([(3, 4), (2, 1)])
        for _ in range(3):
            adam.zero_grad()
            output = model.run(batch)
            log_probs = model.generator(output.hidden)
            loss = -log_probs.gather(1, batch.tgt_y[:, None]).mean() + model.extra_loss(output)
            loss.backward()
            assert all(p.grad.isfinite().all() for p in model.parameters())
            adam.step()
        assert set(output.pondered["enc"].steps.tolist()) == {1 if bias > 0 else 3}
        assert model(batch).isfinite().all()

    def test_the_ponder_loss_by_hand(self):
        """Two tokens: one halts at its second step, the other at the last, both without reaching one."""

        class Still:
            def revise(self, n, rows, y):
                return y

            def leave(self, n, rows, x):
                pass

        p = torch.tensor([[0.5, 0.495, 0.9], [0.25, 0.25, 0.25]], dtype=torch.float64, requires_grad=True)
        x = torch.tensor([[1.0], [1.0]], dtype=torch.float64)
        calls = iter([(0, [0, 1]), (1, [0, 1]), (2, [1])])

        def halt(states):
            n, rows = next(calls)
            assert len(states) == len(rows)
            return p[rows, n]

        found = ponder(x, lambda n, rows, x: x * 2, Still(), halt, 3, 0.99)
        assert found.steps.tolist() == [2, 3]
        means = torch.tensor([[0.5 * 2 + 0.5 * 4], [0.25 * 2 + 0.25 * 4 + 0.5 * 8]])
        torch.testing.assert_close(found.output, means.double())
        torch.testing.assert_close(found.weights, torch.tensor([[0.5, 0.5, 0], [0.25, 0.25, 0.5]]).double())
        torch.testing.assert_close(found.cost, torch.tensor([2.5, 3.5]).double())
        assert (found.mean_steps, found.histogram) == (2.5, [0, 1, 1])
        found.cost.sum().backward()
        torch.testing.assert_close(p.grad, torch.tensor([[-1.0, 0, 0], [-1, -1, 0]]).double())

    def test_the_ponder_loss_asks_to_halt_earlier(self):
        model = universal(0, bias=-1.0)
        model.extra_loss(model.run(batch_of([(3, 4), (2, 1)]))).backward()
        for unit in (model.halt_enc, model.halt_dec):
            assert unit.linear.bias.grad < 0

    def test_its_weight_warms_up(self):
        model = universal(0, ponder_warmup=10)
        output = model.run(batch_of([(3, 4)]))
        assert model.extra_loss(output, 0) is None
        full = model.extra_loss(output).item()
        assert model.extra_loss(output, 4).item() == pytest.approx(0.4 * full)
        assert model.extra_loss(output, 10).item() == model.extra_loss(output, 99).item() == full
        cost = torch.cat([side.cost for side in output.pondered.values()]).mean()
        assert full == pytest.approx(0.3 * cost.item())
        still = universal(0, halting="fixed")
        assert still.extra_loss(still.run(batch_of([(3, 4)]))) is None

    def test_a_unit_begins_at_its_bias(self):
        unit = HaltingUnit(D, -1.0)
        unit.linear.weight.data.zero_()
        torch.testing.assert_close(unit(torch.randn(3, D)), torch.full((3,), 1 / (1 + math.e)))
        assert unit(torch.randn(3, D, dtype=torch.float32)).shape == (3,)
        torch.testing.assert_close(
            HaltingUnit(D)(torch.ones(1, D)).mean(), torch.tensor(1.0).sigmoid()
        )  # a state without any variance is normed to zero

    def test_steps_are_counted_over_passes(self):
        model, count = universal(4, bias=-1.0), StepCount()
        steps = {"enc": [], "dec": []}
        costs = {"enc": [], "dec": []}
        for sizes in ([(3, 4)], [(2, 2), (1, 5)]):
            pondered = model.run(batch_of(sizes)).pondered
            count.add(pondered)
            for side, found in pondered.items():
                steps[side] += found.steps.tolist()
                costs[side] += found.cost.tolist()
        for side in ("enc", "dec"):
            assert count.histograms[side] == [steps[side].count(n) for n in range(1, 5)]
            assert count.figures[f"steps_{side}"] == pytest.approx(sum(steps[side]) / len(steps[side]))
            assert count.figures[f"ponder_{side}"] == pytest.approx(sum(costs[side]) / len(costs[side]))
        assert StepCount().figures == {}


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


def test_dropout_is_drawn_at_every_step():
    model, batch = universal(0, halting="fixed", dropout=0.5), batch_of([(3, 4)])
    model.train()
    seen = []
    model.pos_enc.dropout.register_forward_hook(lambda *call: seen.append(call))
    torch.manual_seed(0)
    one = model.hidden(batch)
    assert len(seen) == 2 * 4
    assert not torch.equal(one, model.hidden(batch))


SOS, EOS = 0, 1


class TestDecoding:
    """Every target token takes as many steps as it would if all were computed at once."""

    @given(
        st.lists(st.tuples(st.integers(1, 5), st.integers(1, 12)), min_size=1, max_size=3),
        st.integers(0, 100),
        st.sampled_from([-1.0, 0.5]),
        st.sampled_from(["state", "input"]),
        st.sampled_from(["act", "pondernet", "fixed"]),
    )
    @settings(max_examples=25)
    @torch.no_grad()
    def test_states_that_grow_equal_states_computed_at_once(self, sizes, seed, bias, frozen, halting):
        model = universal(seed, bias=bias, frozen=frozen, halting=halting)
        longest = max(m for _, m in sizes)
        sources, targets = random_pairs([(n, longest) for n, _ in sizes], seed)
        output = model.run(GraphPool()(sources, targets))
        expected = output.hidden.view(len(sizes), longest, -1)
        steps = output.pondered["dec"].steps.view(len(sizes), longest)
        continuation = continuation_of(model, sources)
        for position in range(longest):
            ids = torch.tensor([target[position] for target in targets])
            assert_equal_as_stated(continuation.step(ids), expected[:, position])
            assert continuation.steps == steps[:, position].tolist()

    def test_targets_can_be_dropped_reordered_and_doubled(self):
        assert_equal_as_stated(*dropped_and_doubled(universal(4, bias=-1.0), continuation_of))

    def alone(self, model, source, limit):
        """Greedy decoding of one sentence, everything computed again for every token."""
        target, steps = [SOS], []
        while True:
            with torch.no_grad():
                output = model.run(GraphPool()([source], [[*target, EOS]]))
                token = int(model.generator(output.hidden[-1:]).argmax())
            steps.append(int(output.pondered["dec"].steps[-1]))
            if token == EOS:
                return tuple(target[1:]), True, tuple(steps)
            if len(target) > limit:
                return tuple(target[1:]), False, tuple(steps[:-1])
            target.append(token)

    @given(st.integers(0, 50))
    @settings(max_examples=6)
    def test_a_batch_decodes_as_its_sentences_do_one_by_one(self, seed):
        model = universal(seed, bias=-1.0)
        model.generator.proj.bias.data[EOS] += 1.5
        sources, _ = random_pairs([(4, 1), (1, 1), (7, 1), (2, 1)], seed)
        together = greedy(model, sources, SOS, EOS, max_len=8)
        beams = beam_search(model, sources, SOS, EOS, 3, max_len=8, n_best=3)
        ones = beam_search(model, sources, SOS, EOS, 1, max_len=8)
        for source, found, beam, (one,) in zip(sources, together, beams, ones, strict=True):
            assert (found.ids, found.finished, found.steps) == self.alone(model, source, 8)
            assert (one.ids, one.finished, one.steps) == (found.ids, found.finished, found.steps)
            (apart,) = beam_search(model, [source], SOS, EOS, 3, max_len=8, n_best=3)
            assert [(h.ids, h.steps) for h in apart] == [(h.ids, h.steps) for h in beam]
            for hypothesis in beam:
                self.check(model, source, hypothesis)

    @torch.no_grad()
    def check(self, model, source, hypothesis):
        batch = GraphPool()([source], [[SOS, *hypothesis.ids, EOS]])
        output = model.run(batch)
        log_probs = model.generator(output.hidden).gather(1, batch.tgt_y[:, None]).squeeze(1)
        last = None if hypothesis.finished else -1
        assert hypothesis.log_prob == pytest.approx(log_probs[:last].sum().item(), abs=1e-4)
        assert hypothesis.steps == tuple(output.pondered["dec"].steps[:last].tolist())

    def test_a_pass_that_does_not_count_is_known_by_its_sides(self):
        model = universal()
        counted = StepCount()
        counted.add(model.run(batch_of([(3, 4)])).pondered, counts=False)
        assert counted.histograms == {"enc": [0] * 4, "dec": [0] * 4}
        counted.over_all(lambda values: [value + 2 for value in values])  # another process's
        assert counted.figures == {"steps_enc": 2.5, "ponder_enc": 0.25, "steps_dec": 2.5, "ponder_dec": 0.25}

    def test_an_ordinary_model_counts_no_steps(self):
        model = make_model(VOCAB, VOCAB, 1, D, FF, HEADS)
        assert type(continuation_of(model, [[3]])) is Continuation
        assert greedy(model, [[3]], SOS, EOS)[0].steps is None
        assert beam_search(model, [[3]], SOS, EOS)[0][0].steps is None
        output = model.run(batch_of([(2, 2)]))
        assert output.pondered == {}
        assert model.extra_loss(output, 3) is None


class TestPonderNet:
    """Banino et al. 2021: a distribution over steps, the loss expected over it, a geometric prior."""

    def model(self, seed=4, **options):
        return universal(seed, bias=-1.0, halting="pondernet", prior=0.4, **options)

    def test_weights_are_the_chances_of_halting_at_each_step(self):
        model, batch = self.model(dropout=0.0), batch_of([(3, 4), (2, 1)])
        chances = []
        model.halt_dec.register_forward_hook(lambda _, inputs, p: chances.append(p))
        output = model.train().run(batch)
        states, weights = model.predictions(output)
        assert states.shape == (4, batch.n_tokens, D)
        going = torch.ones(batch.n_tokens).double()
        for n, p in enumerate(chances):
            assert_equal_as_stated(weights[n], going * (p if n < 3 else 1))
            going = going * (1 - p)
        found = output.pondered["dec"]
        mean = (found.states * weights[..., None]).sum(0)
        assert_equal_as_stated(found.output, mean)
        assert set(found.steps.tolist()) == {4}

    def test_the_divergence_is_that_from_a_geometric_distribution(self):
        model, batch = self.model(), batch_of([(3, 4), (2, 1)])
        output = model.train().run(batch)
        prior = torch.tensor([0.4, 0.6 * 0.4, 0.36 * 0.4, 0.216]).double()
        parts = []
        for found in output.pondered.values():
            expected = torch.distributions.kl_divergence(
                torch.distributions.Categorical(probs=found.weights),
                torch.distributions.Categorical(probs=prior),
            )
            assert_equal_as_stated(found.divergence(0.4), expected)
            parts.append(expected)
        assert_equal_as_stated(model.extra_loss(output), 0.3 * torch.cat(parts).mean())
        output = model.eval().run(batch)
        assert model.extra_loss(output) is None
        assert model.predictions(output) is None

    def test_in_evaluation_a_target_token_halts_at_the_median_and_keeps_its_state_there(self):
        model, batch = self.model(), batch_of([(3, 4), (2, 3)])
        seen = []
        model.halt_dec.register_forward_hook(lambda _, inputs, p: seen.append((inputs[0], p)))
        found = model.run(batch).pondered["dec"]
        assert len(set(found.steps.tolist())) > 1
        rows, chance = torch.arange(batch.n_tokens), torch.zeros(batch.n_tokens).double()
        for n, (x, p) in enumerate(seen):
            chance[rows] += (1 - chance[rows]) * p
            over = (chance[rows] >= 0.5) | torch.tensor(n == 3)
            assert found.steps[rows[over]].tolist() == [n + 1] * int(over.sum())
            assert_equal_as_stated(found.output[rows[over]], x[over])
            rows = rows[~over]
        assert len(rows) == 0

    @pytest.mark.parametrize("bias", [-1e4, 1e4])
    def test_saturated_chances_train_on(self, bias):
        model = self.model().train()
        for unit in (model.halt_enc, model.halt_dec):
            unit.linear.bias.data.fill_(bias)
        batch = batch_of([(3, 4)])
        output = model.run(batch)
        (shuffled_loss(output.hidden) + model.extra_loss(output)).backward()
        assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)

    def test_a_run_learns_from_the_expected_loss(self, tmp_path):
        data = SortingData()
        size = {"dropout": 0.0, "halting": "pondernet", "ponder_weight": 0.5}
        training = TrainingConfig(epochs=1, batch_size=30, smoothing=0.1)
        torch.manual_seed(0)
        model = make_universal_model(data.vocab_size, data.vocab_size, 3, 16, 16, 2, **size)
        run = Trainer(model, data, training, tmp_path, {})
        batch = next(data(GraphPool(), "valid", 30))
        model.train()
        reported, tokens = run._learn(batch)
        take_step(run.opt, tokens)
        taken = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
        torch.manual_seed(0)
        other = make_universal_model(data.vocab_size, data.vocab_size, 3, 16, 16, 2, **size)
        output = other.run(batch)
        states, weights = other.predictions(output)
        log_probs = other.generator(states)
        losses = [
            torch.stack(
                [
                    run.criterion(row[None], target[None])
                    for row, target in zip(step, batch.tgt_y, strict=True)
                ]
            )
            for step in log_probs
        ]
        loss = (torch.stack(losses) * weights).sum() / batch.n_tokens
        assert reported == pytest.approx(loss.item(), rel=1e-5)
        right = (log_probs.argmax(-1) == batch.tgt_y).to(weights.dtype) * weights
        assert run._totals[1] / tokens == pytest.approx(right.sum().item() / batch.n_tokens, rel=1e-5)
        (loss + other.extra_loss(output)).backward()
        for name, parameter in other.named_parameters():
            torch.testing.assert_close(taken[name], parameter.grad, atol=1e-5, rtol=1e-4)
        with pytest.raises(ValueError, match="R-Drop is not defined for"):
            batch_loss(model, batch, run.criterion, r_drop=1.0)


class TestNothingIsLeftOnTheModel:
    """A pass returns what it finds: models can be copied, averaged and shared."""

    @pytest.mark.parametrize("make", [make_model, make_universal_model])
    def test_copies_and_averages_work_after_a_training_step(self, make):
        model, batch = make(VOCAB, VOCAB, 2, D, FF, HEADS, 0.0).train(), batch_of([(3, 4), (2, 2)])
        before = set(vars(model))
        model(batch).sum().backward()
        assert set(vars(model)) == before
        twin, average = copy.deepcopy(model), AveragedModel(model)
        assert torch.equal(twin(batch), model(batch))
        assert torch.equal(average(batch), model(batch))

    def test_threads_that_share_a_model_mix_nothing_up(self):
        model = universal(4, bias=-1.0)
        batches = [batch_of([(n, 7 - n), (3, 2)], seed=n) for n in range(1, 6)]
        alone = [
            (model.run(batch).pondered["dec"].steps, model.attention_of(batch, 0, 0)) for batch in batches
        ]

        def often(index):
            batch, (steps, maps) = batches[index], alone[index]
            for _ in range(10):
                assert torch.equal(model.run(batch).pondered["dec"].steps, steps)
                for mine, expected in zip(model.attention_of(batch, 0, 0), maps, strict=True):
                    torch.testing.assert_close(mine, expected)

        with ThreadPoolExecutor(len(batches)) as pool:
            list(pool.map(often, range(len(batches))))


class TestTraining:
    def test_it_learns_with_the_tutorials_loop(self):
        torch.manual_seed(0)
        data = SortingData()
        model = make_universal_model(data.vocab_size, data.vocab_size, 3, 16, 16, 2, 0.0)
        criterion = LabelSmoothing(data.vocab_size, data.pad_id, 0.0)
        loss = SimpleLossCompute(criterion, NoamOpt(16, 1.0, 10, torch.optim.Adam(model.parameters())))
        losses = [run_epoch(data(GraphPool(), "train", 30), model, loss).loss for _ in range(6)]
        assert losses[-1] < 0.9 * losses[0]

    @pytest.mark.parametrize(("weight", "r_drop"), [(0.0, 0.0), (50.0, 0.0), (50.0, 1.0)])
    def test_the_ponder_loss_is_learned_from_and_not_reported(self, weight, r_drop, tmp_path):
        """Its gradient, as the trainer scales it, is that of the loss per token plus the weighted cost."""
        training = TrainingConfig(epochs=1, batch_size=30, r_drop=r_drop, smoothing=0.0)
        data = SortingData()
        size = {"dropout": 0.0, "bias": 0.0, "ponder_weight": weight}
        torch.manual_seed(0)
        model = make_universal_model(data.vocab_size, data.vocab_size, 3, 16, 16, 2, **size)
        run = Trainer(model, data, training, tmp_path, {})
        batch = next(data(GraphPool(), "valid", 30))
        model.train()
        reported, tokens = run._learn(batch)
        take_step(run.opt, tokens)
        taken = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
        torch.manual_seed(0)
        other = make_universal_model(data.vocab_size, data.vocab_size, 3, 16, 16, 2, **size)
        output = other.run(batch)
        log_probs = other.generator(output.hidden)
        loss = -log_probs.gather(1, batch.tgt_y[:, None]).mean()
        assert reported == pytest.approx(loss.item(), rel=1e-5)
        cost = torch.cat([side.cost for side in output.pondered.values()]).mean()
        (loss + weight * cost).backward()
        for name, parameter in other.named_parameters():
            torch.testing.assert_close(taken[name], parameter.grad, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"eps": 0.0}, r"eps must lie in \(0, 1\), got 0.0"),
        ({"eps": 1.0}, r"eps must lie in \(0, 1\), got 1.0"),
        ({"eps": float("nan")}, "eps must lie in"),
        ({"max_steps": 0}, "max_steps must be at least 1, got 0"),
        ({"ponder_weight": -0.1}, "ponder_weight must be a finite number, at least 0, got -0.1"),
        ({"ponder_weight": float("inf")}, "ponder_weight must be a finite number"),
        ({"ponder_warmup": -1}, "ponder_warmup must be at least 0, got -1"),
        ({"halting": "never"}, "halting must be one of 'act', 'pondernet', 'fixed'; got 'never'"),
        ({"prior": 0.0}, r"prior must lie in \(0, 1\), got 0.0"),
        ({"frozen": "never"}, "frozen must be one of 'state', 'input'; got 'never'"),
        ({"engine": "none"}, "engine must be one of"),
        ({"dropout": 1.0}, "dropout must lie in"),
        ({"dim_model": 9}, "must be divisible by"),
    ],
)
def test_bad_input(options, message):
    with pytest.raises(ValueError, match=message):
        universal(**options)


@pytest.mark.parametrize("options", [{"eps": "a"}, {"max_steps": 2.0}, {"bias": None}])
def test_bad_kinds_of_input(options):
    with pytest.raises(TypeError, match="must be a"):
        universal(**options)
