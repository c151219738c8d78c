import pytest
import torch
from edgewise.graphs import causal, complete
from edgewise.longrange import (
    TASKS,
    AdaptiveSpan,
    LongData,
    LongRecipe,
    accuracy,
    make_reader,
    train_reader,
)
from edgewise.longrange.texts import FIRST, GAP, HUB, NUM_HUBS, NUM_QUESTIONS, PERIOD, SPAN
from edgewise.sparse import bigbird, binary_partition, compressive, heard_within, window
from hypothesis import given
from hypothesis import strategies as st
from support import check_propagation

GRAPHS = {
    "complete": complete,
    "causal": causal,
    "window": lambda n: window(n, 3, 3),
    "bigbird": lambda n: bigbird(n, 3, 8, 2),
    "binary partition": lambda n: binary_partition(n, 2),
    "compressive": lambda n: compressive(n, 4, 4, 3, 2),
}
lengths = st.integers(24, 90)


def draw(task, length, count=5, seed=0):
    return TASKS[task].draw(length, count, torch.Generator().manual_seed(seed))


class TestTexts:
    @given(lengths, st.integers(0, 9))
    def test_marks_of_copy_ask_for_the_letters_in_their_order(self, length, seed):
        ids, positions, answers = draw("copy", length, seed=seed)
        first = slice(NUM_HUBS, NUM_HUBS + NUM_QUESTIONS)
        assert torch.equal(ids[:, first], answers)
        assert torch.equal(positions[:, first], positions[:, -NUM_QUESTIONS:])
        assert bool((ids[:, -NUM_QUESTIONS:] == FIRST + 16).all())
        assert bool((ids[:, NUM_HUBS + NUM_QUESTIONS : -NUM_QUESTIONS] == GAP).all())
        assert bool(((answers >= FIRST) & (answers < FIRST + 16)).all())

    @given(lengths, st.integers(0, 9))
    def test_questions_of_recall_have_one_answer_in_the_text(self, length, seed):
        ids, _, answers = draw("recall", length, seed=seed)
        for text, wanted in zip(ids.tolist(), answers.tolist(), strict=True):
            body = text[NUM_HUBS:-NUM_QUESTIONS]
            pairs = dict(divmod(i - FIRST, 16) for i in body if i != GAP)
            assert len(pairs) == sum(i != GAP for i in body) == NUM_QUESTIONS
            keys = [i - FIRST - 256 for i in text[-NUM_QUESTIONS:]]
            assert sorted(keys) == sorted(pairs)
            assert [FIRST + 256 + 16 + pairs[key] for key in keys] == wanted
            assert max(wanted) < TASKS["recall"].vocab_size

    @pytest.mark.parametrize("task", TASKS)
    def test_longer_texts_show_no_new_symbol_or_position(self, task):
        ids, positions, answers = draw(task, 700, count=20)
        assert ids.shape == positions.shape == (20, 700)
        assert int(positions.max()) == PERIOD - 1
        assert int(ids.max()) < TASKS[task].vocab_size
        assert bool((ids[:, :NUM_HUBS] == HUB).all())
        assert answers.unique().numel() == TASKS[task].num_answers

    def test_places_and_order_of_recall_are_drawn_alike(self):
        """Nothing but the text tells the answer: any place may hold a pair, and no order is kept."""
        ids, _, _ = draw("recall", 32, count=2000)
        held = (ids[:, NUM_HUBS:-NUM_QUESTIONS] != GAP).float().mean(0)
        torch.testing.assert_close(held, torch.full_like(held, 0.5), atol=0.06, rtol=0)
        pairs = [(row[NUM_HUBS:-NUM_QUESTIONS] - FIRST) for row in ids]
        in_text = torch.stack([p[p >= 0] // 16 for p in pairs])
        asked = ids[:, -NUM_QUESTIONS:] - FIRST - 256
        same = (in_text[:, :, None] == asked[:, None]).float().mean(0)
        torch.testing.assert_close(same, torch.full_like(same, 1 / 8), atol=0.04, rtol=0)


class TestData:
    @pytest.mark.parametrize("name", GRAPHS)
    @pytest.mark.parametrize("task", TASKS)
    def test_a_batch_packs_texts_and_additional_tokens(self, name, task):
        batch = LongData(task, GRAPHS[name], seed=3).batch(40, 3)
        ids, positions, answers = draw(task, 40, 3, seed=3)
        every = GRAPHS[name](40).num_src
        assert batch.enc.num_src == len(batch.src[0]) == len(batch.src[1]) == 3 * every
        for packed, texts, extra in ((batch.src[0], ids, SPAN), (batch.src[1], positions, None)):
            assert torch.equal(packed.view(3, every)[:, :40], texts)
            if extra is not None:
                assert bool((packed.view(3, every)[:, 40:] == extra).all())
        assert torch.equal(batch.src[0][batch.asked].view(3, -1), ids[:, -NUM_QUESTIONS:])
        assert torch.equal(batch.tgt_y.view(3, -1), answers)
        assert batch.n_tokens == 3 * NUM_QUESTIONS

    def test_graphs_are_made_once(self):
        asked = []

        def graph_of(n):
            asked.append(n)
            return complete(n)

        data = LongData("copy", graph_of)
        batches = list(data.batches((30, 40), 120, 5))
        assert asked == [30, 40]
        assert [len(b.src[0]) for b in batches] == [120, 120, 120, 120, 120]
        assert batches[0].enc is batches[2].enc
        assert not torch.equal(batches[0].src[0], batches[2].src[0])

    def test_bad_input(self):
        with pytest.raises(ValueError, match="task must be one of 'copy', 'recall'; got 'sort'"):
            LongData("sort", complete)
        with pytest.raises(ValueError, match="length must be at least 24, got 23"):
            LongData("copy", complete).batch(23, 1)
        with pytest.raises(ValueError, match=r"graph_of\(30\) must have that many tokens, got 29"):
            LongData("copy", lambda n: complete(n - 1)).batch(30, 1)


class TestReader:
    @pytest.mark.parametrize("name", GRAPHS)
    @torch.no_grad()
    def test_texts_of_a_batch_do_not_meet(self, name):
        model = make_reader(TASKS["recall"].vocab_size, dim_model=16, dim_ff=16).eval()
        data = LongData("recall", GRAPHS[name])
        both = data.batch(30, 2)
        together, every = model(both), both.enc.num_src // 2
        for text in range(2):
            part = slice(text * every, (text + 1) * every)
            alone = type(both)(
                data.graph(30),
                tuple(x[part] for x in both.src),
                both.asked[:NUM_QUESTIONS],
                both.tgt_y[:NUM_QUESTIONS],
            )
            mine = together[text * NUM_QUESTIONS : (text + 1) * NUM_QUESTIONS]
            torch.testing.assert_close(model(alone), mine, atol=1e-5, rtol=1e-5)

    @pytest.mark.parametrize("name", GRAPHS)
    def test_an_answer_can_depend_on_what_it_has_heard_of_and_on_nothing_else(self, name):
        """With two layers, gradients reach an answer from just those tokens that the graph lets through."""
        data, graph = LongData("copy", GRAPHS[name]), GRAPHS[name](32)
        model = make_reader(TASKS["copy"].vocab_size, N=2, dim_model=16, dim_ff=16)
        batch, embedded = data.batch(32, 1), []
        model.src_embed.register_forward_hook(lambda module, inputs, output: embedded.append(output))
        result = model(batch)
        for question in (0, NUM_QUESTIONS - 1):
            slope = torch.autograd.grad(result[question] @ torch.randn(21), embedded, retain_graph=True)[0]
            expected = heard_within(graph, 2)[2, batch.asked[question]]
            assert torch.equal(slope.norm(dim=1) > 0, expected)

    @pytest.mark.parametrize("name", GRAPHS)
    def test_its_graphs_run_alike_on_every_engine(self, name):
        check_propagation(LongData("copy", GRAPHS[name]).graph(40, 2), "tiles", 2, 4)


class TestTrial:
    tiny = LongRecipe(steps=150, lengths=(26, 32), batch_tokens=256, dim_model=32, dim_ff=32, factor=1.0)

    def test_a_reader_on_the_complete_graph_learns_to_copy(self):
        model, losses = train_reader("copy", complete, self.tiny)
        assert len(losses) == 150
        assert not model.training
        assert losses[-1] < 0.7 * losses[0]
        assert accuracy(model, "copy", complete, 48, texts=8) > 3 / 16

    def test_training_repeats(self):
        recipe = LongRecipe(steps=3, lengths=(26,), batch_tokens=64, dim_model=16, dim_ff=16)
        (first, losses), (again, others) = (train_reader("recall", complete, recipe) for _ in range(2))
        assert losses == others
        for mine, other in zip(first.parameters(), again.parameters(), strict=True):
            assert torch.equal(mine, other)

    def test_accuracy_counts_right_answers(self):
        class Oracle(torch.nn.Module):
            """Knows the answers to all questions but the first of each text."""

            def forward(self, batch):
                guess = batch.tgt_y.clone()
                guess[::NUM_QUESTIONS] = 0
                return torch.nn.functional.one_hot(guess, 300).float()

        assert accuracy(Oracle(), "recall", complete, 30, texts=4) == 7 / 8

    def test_bad_input(self):
        with pytest.raises(ValueError, match="steps must be at least 1, got 0"):
            LongRecipe(steps=0)
        with pytest.raises(ValueError, match="lengths must name at least one"):
            LongRecipe(lengths=())
        with pytest.raises(ValueError, match="task must be one of"):
            train_reader("sort", complete)


class TestAdaptiveSpan:
    @staticmethod
    def dense(q, k, v, spans, ramp):
        """The paper's equation over all earlier tokens, written out with matrices."""
        q, k, v = (x.transpose(0, 1) for x in (q, k, v))  # [h, N, d]
        place = torch.arange(q.shape[1])
        distance = place[:, None] - place
        mask = ((ramp + spans[:, None, None] - distance) / ramp).clamp(0, 1) * (distance >= 0)
        weights = mask * (q @ k.transpose(1, 2) / q.shape[-1] ** 0.5).exp()
        return (weights / weights.sum(-1, keepdim=True) @ v).transpose(0, 1)

    @given(st.integers(1, 25), st.integers(1, 3), st.integers(1, 9), st.integers(1, 5), st.integers(0, 9))
    def test_equals_the_papers_equation(self, n, heads, longest, ramp, seed):
        torch.manual_seed(seed)
        layer = AdaptiveSpan(heads, longest, ramp).double()
        torch.nn.init.uniform_(layer.share, 0.05, 0.95)
        fields = [torch.randn(n, heads, 3, dtype=torch.float64, requires_grad=True) for _ in "qkv"]
        found = layer(layer.graph(n), *fields)
        expected = self.dense(*fields, longest * layer.share, ramp)
        torch.testing.assert_close(found, expected)
        learned, upstream = [*fields, layer.share], torch.randn_like(found)
        for gradients in zip(
            *(torch.autograd.grad(y, learned, upstream, allow_unused=True) for y in (found, expected)),
            strict=True,
        ):
            torch.testing.assert_close(*gradients)

    def test_edges_that_no_head_hears_are_not_there(self):
        layer = AdaptiveSpan(2, longest=20, ramp=4)
        with torch.no_grad():
            layer.share.copy_(torch.tensor([0.0, 0.35]))
        assert torch.equal(layer.graph([40, 7]).to_mask(), window([40, 7], 10, 0).to_mask())
        fields = [torch.randn(30, 2, 5) for _ in "qkv"]
        pruned, whole = (layer(graph, *fields) for graph in (layer.graph(30), causal(30)))
        torch.testing.assert_close(pruned, whole)
        assert layer.penalty() == 3.5

    def test_a_span_grows_towards_what_is_far_and_shrinks_without(self):
        """What pays lies seven tokens back: with the loss alone the span grows; the penalty takes it back."""
        for weight, grows in ((0.0, True), (10.0, False)):
            layer = AdaptiveSpan(1, longest=16, ramp=8, start=0.2)
            v = torch.randn(60, 1, 4)
            q = torch.zeros_like(v)
            answer = layer(layer.graph(60), q, q, v)
            loss = (answer[7:] - v[:-7]).square().mean() + weight * layer.penalty()
            (slope,) = torch.autograd.grad(loss, layer.share)
            assert (slope.item() < 0) == grows

    def test_bad_input(self):
        with pytest.raises(ValueError, match=r"longest \(tokens .*\) must be at least 1, got 0"):
            AdaptiveSpan(2, 0)
        with pytest.raises(ValueError, match=r"start \(spans at first.*\) must lie in \[0, 1\], got 1.5"):
            AdaptiveSpan(2, 4, start=1.5)
