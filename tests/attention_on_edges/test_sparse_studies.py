"""Readers and translators on sparse graphs."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import one_hot

from attention_on_edges.models.reader import Reader
from attention_on_edges.models.sparse_translator import on_source_graph, partitions
from attention_on_edges.models.transformer import make_model
from attention_on_edges.pool import GraphPool
from attention_on_edges.runs.fitting import FitConfig
from attention_on_edges.sparse_graphs import binary_partition, receptive_field
from attention_on_edges.studies import recall
from attention_on_edges.studies.recall import FIRST, GAP, NUM_HUBS, NUM_QUESTIONS, TASKS, Trial

GRAPHS = recall.LONG_GRAPHS | recall.HUB_GRAPHS
lengths = st.integers(24, 90)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


class TestTexts:
    @given(lengths, st.integers(0, 9))
    def test_marks_of_copy_ask_for_the_letters_in_their_order(self, length, seed):
        ids, positions, answers = TASKS["copy"].draw(length, 5, seeded(seed))
        first = slice(NUM_HUBS, NUM_HUBS + NUM_QUESTIONS)
        assert torch.equal(ids[:, first], answers)
        assert torch.equal(positions[:, first], positions[:, -NUM_QUESTIONS:])
        assert bool((ids[:, -NUM_QUESTIONS:] == FIRST + 16).all())
        assert bool((ids[:, NUM_HUBS + NUM_QUESTIONS : -NUM_QUESTIONS] == GAP).all())

    @given(lengths, st.integers(0, 9))
    def test_questions_of_recall_have_one_answer_in_the_text(self, length, seed):
        ids, _, answers = TASKS["recall"].draw(length, 5, seeded(seed))
        for text, wanted in zip(ids.tolist(), answers.tolist(), strict=True):
            body = text[NUM_HUBS:-NUM_QUESTIONS]
            pairs = dict(divmod(i - FIRST, 16) for i in body if i != GAP)
            assert len(pairs) == sum(i != GAP for i in body) == NUM_QUESTIONS
            keys = [i - FIRST - 256 for i in text[-NUM_QUESTIONS:]]
            assert sorted(keys) == sorted(pairs)
            assert [FIRST + 256 + 16 + pairs[key] for key in keys] == wanted

    @pytest.mark.parametrize("name", GRAPHS)
    @pytest.mark.parametrize("task", TASKS)
    def test_a_batch_packs_texts_and_additional_tokens(self, name, task):
        batch = Trial(task, name).draw(40, 3, seeded(3))
        ids, positions, answers = TASKS[task].draw(40, 3, seeded(3))
        every = GRAPHS[name](40).num_src
        packed = [x.view(3, every) for x in batch.src]
        assert batch.enc.num_src == 3 * every
        assert torch.equal(packed[0][:, :40], ids)
        assert torch.equal(packed[1][:, :40], positions)
        assert bool((packed[0][:, 40:] == recall.SPAN).all())
        assert torch.equal(batch.src[0][batch.question_positions].view(3, -1), ids[:, -NUM_QUESTIONS:])
        assert torch.equal(batch.tgt_y.view(3, -1), answers)


class TestReader:
    @pytest.mark.parametrize("name", GRAPHS)
    def test_an_answer_depends_on_its_receptive_field_and_on_nothing_else(self, name):
        """With two layers, gradients reach an answer from just those tokens that the graph lets through."""
        graph, embedded = GRAPHS[name](60), []
        model, batch = (Reader(21, 21, dim_model=16, dim_ff=16), Trial("copy", name).draw(60, 1, seeded()))
        model.src_embed.register_forward_hook(lambda module, inputs, output: embedded.append(output))
        result = model(batch)
        for question in (0, NUM_QUESTIONS - 1):
            grad = torch.autograd.grad(result[question] @ torch.randn(21), embedded, retain_graph=True)[0]
            expected = receptive_field(graph, 2)[2, batch.question_positions[question]]
            assert torch.equal(grad.norm(dim=1) > 0, expected)

    def test_it_learns_to_copy_and_is_tested_on_new_texts(self, monkeypatch):
        monkeypatch.setattr(recall, "LENGTHS", (26, 32))
        training, where = FitConfig(150, 256, 6e-3, warmup=30), ("copy", "complete")
        trial = Trial(*where, (26, 32))
        model, losses = trial.train(training)
        assert losses[-1] < 0.7 * losses[0]
        right = trial.accuracy(model, 48, 8)
        figures = {"loss": sum(losses[-100:]) / 100, "edges 48": 48, "right 48": right}
        assert recall.measure_reader(training, *where, (48,), 8) == figures
        assert right > 3 / 16
        for shift, expected in ((1, 0.2), (0, 1)):
            model.forward = lambda batch, n=shift: one_hot(batch.tgt_y, 21).roll(n, 0).float()
            assert (trial.accuracy(model, 48, 8) < expected) == bool(shift)

    def test_of_several_rates_the_one_that_validates_best_is_tested_with_all_seeds(self):
        training, size = FitConfig(150, 256, warmup=30), {"letters": 3, "width": 32, "layers": 1}
        trial = {"task": "copy", "graph": "complete", "lengths": (26, 32), **size}
        row = recall.measure_tuned(training, (1e-6, 6e-3), 2, (48,), 8, **trial)
        assert row["valid"][0] < row["valid"][1]
        assert row["rate"] == 6e-3
        one = Trial(**trial)
        for seed, (right, loss) in enumerate(zip(row["right 48"], row["loss"], strict=True)):
            model, losses = one.train(replace(training, rate=6e-3, seed=seed))
            assert right == one.accuracy(model, 48, 8)
            assert loss[-1] == pytest.approx(sum(losses[-15:]) / 15)
        assert sum(p.numel() for p in model.encoder.parameters()) < 32 * 32 * 9


class TestSparseTransformer:
    sizes = ([5, 1, 9], [4, 3, 6])

    def setup_method(self):
        torch.manual_seed(0)
        self.plain = make_model(20, 20, N=2, dim_model=16, dim_ff=16, h=2, dropout=0.0).eval()
        generator = seeded(1)
        self.sources, targets = (
            [torch.randint(3, 20, (n,), generator=generator).tolist() for n in side] for side in self.sizes
        )
        self.batch = GraphPool()(self.sources, [[1, *target, 2] for target in targets])

    @torch.no_grad()
    def test_on_the_complete_graph_or_a_window_as_wide_it_is_the_plain_model(self):
        expected = self.plain(self.batch)
        for graph, reach in (("complete", 0), ("window", 8)):
            found = on_source_graph(self.plain, graph, reach)(self.batch)
            torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)

    @torch.no_grad()
    def test_a_window_is_the_dense_model_under_its_mask(self):
        """Of its two layers of two tokens each, what is four places away moves a state, and no more."""
        model = on_source_graph(self.plain, "window", 2)
        changed = [self.sources[0], self.sources[1], [19, *self.sources[2][1:]]]
        states, other = (
            model.encode(GraphPool()(sources, [[1, 2]] * 3))["enc"] for sources in (self.sources, changed)
        )
        moved = (states - other).abs().sum(1) > 1e-6
        assert moved.tolist() == [False] * 6 + [True] * 5 + [False] * 4

    @given(st.lists(st.integers(1, 20), min_size=1, max_size=4), st.integers(1, 3))
    def test_partitions_hold_those_of_the_sentences(self, sizes, k):
        graph, first, spans = partitions(sizes, k), 0, sum(sizes)
        mask = graph.to_mask()
        for n in sizes:
            part = binary_partition(n, k)
            more = part.num_src - n
            places = torch.cat([torch.arange(first, first + n), torch.arange(spans, spans + more)])
            assert torch.equal(mask[places][:, places], part.to_mask())
            first, spans = first + n, spans + more
        assert spans == graph.num_src
        assert graph.num_edges == sum(binary_partition(n, k).num_edges for n in sizes)
