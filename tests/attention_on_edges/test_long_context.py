from dataclasses import replace
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attention_on_edges.analysis.long_context import (
    TASKS,
    WORD_GRAPHS,
    AdaptiveSpan,
    BucketReader,
    LongContextConfig,
    LongData,
    Tags,
    accuracy,
    make_bucket_reader,
    make_reader,
    on_source_graph,
    partitions,
    source_edges,
    tagged_right,
    train_reader,
    train_tagger,
)
from attention_on_edges.analysis.long_context.recall_tasks import (
    FIRST,
    GAP,
    HUB,
    NUM_HUBS,
    NUM_QUESTIONS,
    PERIOD,
    SPAN,
)
from attention_on_edges.analysis.long_context.tagging import shared_links
from attention_on_edges.data.corpora.annotated import Parse
from edgewise.decoding import greedy
from edgewise.graphs import (
    GraphPool,
    bigbird,
    binary_partition,
    causal,
    complete,
    compressive,
    dependency_tree,
    lsh_labels,
    receptive_field,
    window,
)
from edgewise.models.transformer import make_model
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
    def test_an_answer_depends_on_its_receptive_field_and_on_nothing_else(self, name):
        """With two layers, gradients reach an answer from just those tokens that the graph lets through."""
        data, graph = LongData("copy", GRAPHS[name]), GRAPHS[name](32)
        model = make_reader(TASKS["copy"].vocab_size, N=2, dim_model=16, dim_ff=16)
        batch, embedded = data.batch(32, 1), []
        model.src_embed.register_forward_hook(lambda module, inputs, output: embedded.append(output))
        result = model(batch)
        for question in (0, NUM_QUESTIONS - 1):
            grad = torch.autograd.grad(result[question] @ torch.randn(21), embedded, retain_graph=True)[0]
            expected = receptive_field(graph, 2)[2, batch.asked[question]]
            assert torch.equal(grad.norm(dim=1) > 0, expected)

    @pytest.mark.parametrize("name", GRAPHS)
    def test_its_graphs_run_alike_on_every_engine(self, name):
        check_propagation(LongData("copy", GRAPHS[name]).graph(40, 2), "tiles", 2, 4)


class TestBucketReader:
    @given(st.integers(24, 60), st.integers(1, 3), st.integers(5, 30), st.integers(0, 9))
    def test_tokens_attend_to_a_chunk_of_their_own_text(self, length, count, chunk, seed):
        torch.manual_seed(seed)
        model = make_bucket_reader(TASKS["recall"].vocab_size, chunk, dim_model=16, dim_ff=16).eval()
        for graph in model.graphs(LongData("recall", complete, seed).batch(length, count)):
            mask = graph.to_mask()
            assert torch.equal(mask, mask.T)
            assert torch.equal(mask, (mask.int() @ mask.int()) > 0)  # an equivalence relation
            text = torch.arange(count).repeat_interleave(length)
            assert not bool((mask & (text[:, None] != text)).any())
            whole, left = divmod(length, chunk)
            assert sorted(mask.sum(1).tolist()) == sorted(count * (left * [left] + whole * chunk * [chunk]))

    @torch.no_grad()
    def test_a_layer_is_the_readers_own_on_the_graph_of_its_states(self):
        torch.manual_seed(0)
        model = make_bucket_reader(TASKS["copy"].vocab_size, 12, dim_model=16, dim_ff=16).eval()
        batch = LongData("copy", complete).batch(48, 1)
        x = model.embed(model.src_embed, *batch.src)
        for i, layer in enumerate(model.encoder.layers):
            order = lsh_labels(x, 4, seed=i).argsort(stable=True)
            chunk = torch.empty_like(order)
            chunk[order] = torch.arange(48) // 12
            mask = chunk[:, None] == chunk
            normed = layer.sublayer[0].before(x)
            q, k, v = (layer.self_attn.get(normed, "qkv")[name].transpose(0, 1) for name in "qkv")
            scores = (q @ k.transpose(1, 2) / q.shape[-1] ** 0.5).masked_fill(~mask, -torch.inf)
            x = layer.sublayer[0].after(x, layer.self_attn.get_o((scores.softmax(-1) @ v).transpose(0, 1)))
            x = layer.sublayer[1](x, layer.feed_forward)
        torch.testing.assert_close(model.encoder.norm(x), model.encode(batch)["enc"], atol=1e-5, rtol=1e-5)

    def test_texts_of_a_batch_do_not_meet(self):
        model = make_bucket_reader(TASKS["recall"].vocab_size, 10, dim_model=16, dim_ff=16).eval()
        data = LongData("recall", complete)
        both = data.batch(30, 2)
        changed = both.src[0].clone()
        changed[30:] = changed[30:].flip(0)
        other = replace(both, src=(changed, both.src[1]))
        assert torch.equal(model(both)[:NUM_QUESTIONS], model(other)[:NUM_QUESTIONS])
        assert not torch.equal(model(both), model(other))

    def test_it_learns_to_copy(self):
        training = LongContextConfig(
            steps=200, lengths=(32,), batch_tokens=256, dim_model=32, dim_ff=32, factor=1.0
        )
        model, losses = train_reader("copy", complete, training, make=partial(make_bucket_reader, chunk=16))
        assert isinstance(model, BucketReader)
        assert losses[-1] < 0.7 * losses[0]

    def test_bad_input(self):
        tags = Tags([Parse(("a", "b"), (1, -1), ("x", "root"))])
        batch = tags.batch([Parse(("a",), (-1,), ("root",))], "complete")
        with pytest.raises(ValueError, match="batch must hold texts that all have equally many tokens"):
            make_bucket_reader(20, dim_model=16, dim_ff=16).graphs(batch)
        with pytest.raises(ValueError, match=r"chunk \(tokens of a chunk\) must be at least 1, got 0"):
            make_bucket_reader(20, 0)


class TestTrial:
    tiny = LongContextConfig(
        steps=150, lengths=(26, 32), batch_tokens=256, dim_model=32, dim_ff=32, factor=1.0
    )

    def test_a_reader_on_the_complete_graph_learns_to_copy(self):
        model, losses = train_reader("copy", complete, self.tiny)
        assert len(losses) == 150
        assert not model.training
        assert losses[-1] < 0.7 * losses[0]
        assert accuracy(model, "copy", complete, 48, texts=8) > 3 / 16

    def test_training_repeats(self):
        training = LongContextConfig(steps=3, lengths=(26,), batch_tokens=64, dim_model=16, dim_ff=16)
        (first, losses), (again, others) = (train_reader("recall", complete, training) for _ in range(2))
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
            LongContextConfig(steps=0)
        with pytest.raises(ValueError, match="lengths must name at least one"):
            LongContextConfig(lengths=())
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

    def test_edges_outside_every_heads_span_do_not_exist(self):
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
            (grad,) = torch.autograd.grad(loss, layer.share)
            assert (grad.item() < 0) == grows

    def test_bad_input(self):
        with pytest.raises(ValueError, match=r"longest \(tokens .*\) must be at least 1, got 0"):
            AdaptiveSpan(2, 0)
        with pytest.raises(ValueError, match=r"start \(spans at first.*\) must lie in \[0, 1\], got 1.5"):
            AdaptiveSpan(2, 4, start=1.5)


PARSES = [
    Parse(
        tuple(["the", "man", "sings", "the", "song"]),
        (1, 2, -1, 4, 2),
        ("det", "nsubj", "root", "det", "obj"),
    ),
    Parse(tuple(["the", "song", "sings"]), (1, 2, -1), ("det", "nsubj:pass", "root")),
    Parse(("sings",), (-1,), ("root",)),
]


class TestTags:
    def test_words_of_a_batch_are_packed_and_all_asked_about(self):
        tags = Tags(PARSES)
        assert tags.words == {"sings": 1, "song": 2, "the": 3}  # the others stood there once
        assert tags.relations == {"det": 1, "nsubj": 2, "obj": 3, "root": 4}
        batch = tags.batch(PARSES[:2], "tree")
        assert batch.src[0].tolist() == [3, 0, 1, 3, 2, 3, 2, 1]
        assert batch.src[1].tolist() == [0, 1, 2, 3, 4, 0, 1, 2]
        assert batch.asked.tolist() == list(range(8))
        assert batch.tgt_y.tolist() == [1, 2, 4, 1, 3, 1, 2, 4]
        mask = torch.zeros(8, 8, dtype=torch.bool)
        mask[:5, :5] = dependency_tree(PARSES[0].heads).to_mask()
        mask[5:, 5:] = dependency_tree(PARSES[1].heads).to_mask()
        assert torch.equal(batch.enc.to_mask(), mask)

    @pytest.mark.parametrize("name", WORD_GRAPHS)
    def test_sparse_graphs_have_as_many_edges(self, name):
        for n in (1, 2, 7, 30):
            heads = tuple(i - 1 for i in range(n))
            graph = WORD_GRAPHS[name](Parse(("word",) * n, heads, ("dep",) * n))
            assert graph.num_edges == {"complete": n * n, "itself": n}.get(name, 3 * n - 2)
            assert bool(receptive_field(graph, n)[n].all()) == (name != "itself" or n == 1)

    @given(st.integers(2, 40), st.integers(0, 100))
    def test_the_control_for_locality_has_the_distances_of_the_parse(self, n, seed):
        generator = torch.Generator().manual_seed(seed)
        heads = [-1] + [int(torch.randint(i, (1,), generator=generator)) for i in range(1, n)]
        parse = Parse(("word",) * n, tuple(heads), ("dep",) * n)
        tree, control = (WORD_GRAPHS[name](parse) for name in ("tree", "same distances"))
        distances = [(graph.src - graph.dst).sort().values for graph in (tree, control)]
        assert torch.equal(*distances)
        mask = control.to_mask()
        assert torch.equal(mask, mask.T)
        assert torch.equal(mask, WORD_GRAPHS["same distances"](parse).to_mask())

    def test_the_control_for_locality_avoids_the_parse_where_it_can(self):
        parse = Parse(("word",) * 12, (-1, 0, 1, 1, 0, 4, 4, 6, 6, 4, 9, 10), ("dep",) * 12)
        assert shared_links([parse], "tree") == shared_links([parse], "complete") == 1
        assert shared_links([parse], "itself") == 0
        assert shared_links([parse], "neighbours") == 6 / 11
        assert shared_links([parse], "same distances") <= 2 / 11
        nothing_else = Parse(("word",) * 3, (1, -1, 1), ("dep",) * 3)
        assert shared_links([nothing_else], "same distances") == 1

    def test_the_control_for_locality_refuses_what_is_no_tree(self):
        with pytest.raises(ValueError, match="tree"):
            WORD_GRAPHS["same distances"](Parse(("word",) * 2, (1, 0), ("dep",) * 2))

    def test_a_random_tree_is_not_the_gold_one_and_comes_again(self):
        parse = Parse(("word",) * 30, tuple(i - 1 for i in range(30)), ("dep",) * 30)
        drawn, again = (WORD_GRAPHS["random tree"](parse).to_mask() for _ in range(2))
        assert torch.equal(drawn, again)
        assert int((drawn & WORD_GRAPHS["tree"](parse).to_mask()).sum()) < 50

    def test_every_sentence_comes_once_before_any_comes_again(self):
        many = [Parse((str(i),) * 4, (1, 2, 3, -1), ("dep",) * 4) for i in range(12)]
        tags = Tags(many)
        training = LongContextConfig(steps=6, batch_tokens=16)
        seen = [batch.src[0].tolist() for batch in tags.batches(many, "complete", training)]
        assert [len(ids) for ids in seen] == [16] * 6
        for half in (seen[:3], seen[3:]):
            assert sorted(i for ids in half for i in ids) == sorted([*range(1, 13)] * 4)
        assert seen[:3] != seen[3:]

    def test_a_tagger_learns_along_the_tree_what_words_alone_do_not_say(self):
        """What relates "b" is decided by its head alone, which stands anywhere in the sentence."""
        generator = torch.Generator().manual_seed(0)

        def sentence():
            head, other = torch.randperm(8, generator=generator)[:2].tolist()
            mark = "xy"[int(torch.randint(2, (1,), generator=generator))]
            words = ["b"] * 8
            words[head], words[other] = mark, "yx"["xy".index(mark)]
            heads = [head] * 8
            heads[head] = -1
            return Parse(tuple(words), tuple(heads), ("root" if mark == "x" else "dep",) * 8)

        train, test = ([sentence() for _ in range(count)] for count in (200, 50))
        tags = Tags(train)
        training = LongContextConfig(
            steps=60, batch_tokens=256, dim_model=32, dim_ff=32, factor=1.0, warmup=20
        )
        right = {
            g: tagged_right(train_tagger(tags, train, g, training), tags, test, g)
            for g in ("tree", "complete")
        }
        assert right["tree"] > 0.95
        assert right["complete"] < 0.75

    def test_bad_input(self):
        with pytest.raises(ValueError, match="train must hold one sentence at least, got none"):
            Tags([])
        strange = Parse(("sings",), (-1,), ("dislocated",))
        with pytest.raises(ValueError, match="relations must be known from training, got dislocated"):
            Tags(PARSES).batch([strange], "tree")


class TestSparseTransformer:
    sizes = ([5, 1, 9], [4, 3, 6])

    def setup_method(self):
        torch.manual_seed(0)
        self.plain = make_model(20, 20, N=2, dim_model=16, dim_ff=16, h=2, dropout=0.0).eval()
        generator = torch.Generator().manual_seed(1)
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
        states = model.encode(self.batch)["enc"]
        changed = [self.sources[0], self.sources[1], [19, *self.sources[2][1:]]]
        other = model.encode(GraphPool()(changed, [[1, 2]] * 3))["enc"]
        moved = (states - other).abs().sum(1) > 1e-6
        assert moved.tolist() == [False] * 6 + [True] * 5 + [False] * 4

    @torch.no_grad()
    def test_partitions_are_each_sentence_s_own(self):
        model = on_source_graph(self.plain, "binary partition", 1)
        torch.nn.init.normal_(model.span)
        states = model.encode(self.batch)["enc"]
        for i, source in enumerate(self.sources):
            alone = model.encode(GraphPool()([source], [[1, 2]]))["enc"]
            assert len(alone) == len(source)
            torch.testing.assert_close(states[self.batch.sentence(i)[0]], alone, atol=1e-5, rtol=1e-5)

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

    def test_spans_are_attended_to_and_learned(self):
        model = on_source_graph(self.plain, "binary partition", 1)
        model.hidden(self.batch).sum().backward()
        assert float(model.span.grad.abs().sum()) > 0

    @pytest.mark.parametrize(("graph", "reach"), [("window", 1), ("binary partition", 2)])
    @torch.no_grad()
    def test_attention_and_decoding_run_on_it(self, graph, reach):
        model = on_source_graph(self.plain, graph, reach)
        weights, _, _ = model.attention_of(self.batch, 2)
        attends = weights[0] > 0
        kinds = {"window": window(9, 1, 1), "binary partition": binary_partition(9, 2)}
        assert torch.equal(attends, kinds[graph].to_mask()[:9, :9])
        whole = model(self.batch).argmax(1)
        first = [int(whole[self.batch.sentence(i)[1].start]) for i in range(3)]
        decoded = greedy(model, self.sources, 1, 2, 1)
        assert [found.ids[0] if found.ids else 2 for found in decoded] == first

    def test_edges_a_token(self):
        assert source_edges("complete", 0, [2, 4]) == 20 / 6
        assert source_edges("window", 1, [2, 4]) == 14 / 6

    def test_bad_input(self):
        with pytest.raises(ValueError, match="source_graph must be one of"):
            on_source_graph(self.plain, "ring", 1)
        with pytest.raises(ValueError, match=r"reach .* must be at least 1, got 0"):
            on_source_graph(self.plain, "binary partition", 0)
        with pytest.raises(ValueError, match=r"reach .* must be at least 0, got -1"):
            on_source_graph(self.plain, "window", -1)
