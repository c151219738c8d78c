import itertools

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from attention_on_edges.decoding import Continuation, beam_search, greedy
from attention_on_edges.decoding.beam import loops
from attention_on_edges.models import dense
from attention_on_edges.models.transformer import make_model
from attention_on_edges.pool import GraphPool
from book_support import VOCAB, dropped_and_doubled, random_pairs, small_model
from support import assert_equal_as_stated

SOS, EOS = 0, 1

lengths = st.lists(st.tuples(st.integers(1, 6), st.integers(1, 20)), min_size=1, max_size=4)


@given(lengths, st.booleans())
@torch.no_grad()
def test_states_that_grow_equal_states_computed_at_once(sizes, norm_first):
    torch.manual_seed(len(sizes))
    model = small_model(norm_first=norm_first)
    longest = max(m for _, m in sizes)
    sources, targets = random_pairs([(n, longest) for n, _ in sizes])
    expected = model.double().hidden(GraphPool()(sources, targets)).view(len(sizes), longest, -1)
    continuation = Continuation(model.float(), sources)
    for position in range(longest):
        ids = torch.tensor([target[position] for target in targets])
        assert_equal_as_stated(continuation.step(ids), expected[:, position])


def test_targets_can_be_dropped_reordered_and_doubled():
    torch.testing.assert_close(*dropped_and_doubled(small_model(), Continuation))


@given(st.integers(0, 50), st.sampled_from([[EOS], [EOS, 3]]), st.booleans())
@settings(max_examples=16)
def test_a_batch_decodes_as_its_sentences_do_one_by_one_in_matrices(seed, ends, tied):
    """Of two tokens that are equally probable, too, both take the first."""
    torch.manual_seed(seed)
    model = small_model()
    model.generator.proj.bias.data[EOS] += 1.5
    if tied:
        for x in model.generator.proj.parameters():
            x.data[3] = x.data[2]
    sources, _ = random_pairs([(4, 1), (1, 1), (7, 1), (2, 1)], seed)
    for source, hypothesis in zip(sources, greedy(model, sources, SOS, ends), strict=True):
        limit = 2 * len(source) + 10
        [ids] = dense.greedy(model, torch.tensor([source]), SOS, ends, limit)
        assert (hypothesis.ids, hypothesis.finished) == (tuple(ids), len(ids) < limit)


def test_the_model_comes_back_in_the_mode_it_was_in_and_decodes_without_dropout():
    model = make_model(VOCAB, VOCAB, 2, 8, 12, 2, dropout=0.5)
    found = greedy(model, [[3, 4, 5]], SOS, EOS)
    assert model.training
    assert greedy(model.eval(), [[3, 4, 5]], SOS, EOS) == found
    assert not model.training


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sources": [[]]}, r"src_buf\[0\] must hold at least one id"),
        ({"sources": [[VOCAB]]}, "token id must lie in"),
        ({"sos_id": VOCAB}, f"sos_id must lie in 0..{VOCAB - 1}, got {VOCAB}"),
        ({"eos_id": [EOS, VOCAB]}, f"eos_id must lie in 0..{VOCAB - 1}, got {VOCAB}"),
        ({"eos_id": [EOS, -1]}, r"eos_id\[1\] must be at least 0, got -1"),
        ({"max_len": 0}, "max_len must be at least 1, got 0"),
        ({"beam": 0}, "beam must be at least 1, got 0"),
        ({"max_repeats": 0}, "max_repeats must be at least 1, got 0"),
        ({"length_penalty": float("inf")}, "length_penalty must be a finite number"),
        ({"length_offset": -1}, "length_offset must be a number, zero or more; got -1"),
    ],
)
def test_bad_input(change, message):
    good = {"sources": [[3]], "sos_id": SOS, "eos_id": EOS}
    with pytest.raises(ValueError, match=message):
        beam_search(small_model(), **good | change)


def longest_run(ids):
    """The most times that a run of one or several ids stands in a row."""
    runs = [(ids[i:j], i) for j in range(len(ids) + 1) for i in range(j)]
    most = [max(n for n in range(1, len(ids) + 1) if run * n == ids[i : i + n * len(run)]) for run, i in runs]
    return max(most, default=0)


@given(st.lists(st.integers(0, 2), max_size=14), st.integers(1, 4))
def test_a_token_is_a_loop_exactly_if_it_makes_a_run_too_long(ids, most):
    while longest_run(ids) > most:
        ids = ids[:-1]
    assert loops(ids, most) == {token for token in range(3) if longest_run([*ids, token]) > most}


class TestBeamSearch:
    VOCABULARY = 4
    LIMIT = 3

    def model(self, seed):
        torch.manual_seed(seed)
        model = make_model(VOCAB, self.VOCABULARY, N=1, dim_model=8, dim_ff=8, h=2)
        torch.nn.init.normal_(model.generator.proj.weight)
        return model.eval()

    def exhaustive(self, model, source, penalty, max_repeats, offset, ends):
        """Of all targets up to the limit the best: its normalised score, log-probability and ids."""
        tokens = [t for t in range(self.VOCABULARY) if t not in ends]
        targets = [ids for n in range(self.LIMIT + 1) for ids in itertools.product(tokens, repeat=n)]
        targets = [ids for ids in targets if not max_repeats or longest_run(ids) <= max_repeats]
        targets = [ids for ids in targets for _ in ends]
        written = [[SOS, *ids, end] for ids, end in zip(targets, itertools.cycle(ends))]
        batch = GraphPool()([source] * len(targets), written)
        with torch.no_grad():
            log_probs = model(batch).gather(1, batch.tgt_y[:, None]).squeeze(1)
        sums = [part.sum().item() for part in log_probs.split(batch.tgt_lengths)]
        norms = [((offset + len(ids) + 1) / (offset + 1)) ** penalty for ids in targets]
        return max((s / norm, s, ids) for s, norm, ids in zip(sums, norms, targets, strict=True))

    @given(
        st.integers(0, 200),
        st.sampled_from([0.0, 0.6, 2.0]),
        st.sampled_from([None, 1, 2]),
        st.sampled_from([5, 0, 0.5]),
        st.sampled_from([[EOS], [EOS, 3]]),
    )
    @example(8, 2.0, None, 0.5, [EOS])  # a longer one is the best, though less probable at every step
    def test_it_equals_exhaustive_search_when_the_beam_covers_every_prefix(
        self, seed, penalty, max_repeats, offset, ends
    ):
        model = self.model(seed)
        source = torch.randint(0, VOCAB, (3,)).tolist()
        beam = self.VOCABULARY ** (self.LIMIT + 1)
        ranking = (penalty, self.LIMIT, max_repeats, offset)
        (found,) = beam_search(model, [source], SOS, ends, beam, *ranking)
        score, log_prob, ids = self.exhaustive(model, source, penalty, max_repeats, offset, ends)
        assert found.ids == ids
        assert found.finished
        assert found.log_prob == pytest.approx(log_prob, abs=1e-4)
        assert found.score == pytest.approx(score, abs=1e-4)

    def test_ends_however_many_and_probable_leave_room_for_what_goes_on(self):
        model, rows, ends = small_model(), [], list(range(1, 8))
        model.generator.proj.bias.data[[9, *ends]] = torch.tensor([20.0, *[10.0] * 7])
        model.generator.register_forward_hook(lambda module, given, output: rows.append(len(output)))
        beam_search(model, [[3, 4]], SOS, ends, 4, length_penalty=9.0, max_len=3)
        assert rows[:2] == [1, 4]

    def test_a_model_of_nan_writes_nothing(self):
        model = self.model(0)
        torch.nn.init.constant_(model.generator.proj.bias, torch.nan)
        with pytest.raises(ValueError, match="not numbers"):
            beam_search(model, [[3, 4]], SOS, EOS)

    @given(st.integers(0, 200), st.integers(1, 2), st.integers(1, 6))
    def test_no_target_holds_a_loop_though_few_without_are_left(self, seed, most, beam):
        model = self.model(seed)
        model.generator.proj.bias.data[[SOS, EOS]] = -40.0
        (found,) = beam_search(model, [[3, 4]], SOS, EOS, beam, max_len=9, max_repeats=most)
        assert longest_run(found.ids) <= most
        assert found.log_prob > -1000

    @given(st.integers(0, 200))
    @settings(max_examples=8)
    def test_batches_are_decoded_as_one_by_one(self, seed):
        model = self.model(seed)
        sources, _ = random_pairs([(4, 1), (1, 1), (7, 1)], seed)
        together = beam_search(model, sources, SOS, EOS, 3)
        for source, found in zip(sources, together, strict=True):
            (single,) = beam_search(model, [source], SOS, EOS, 3)
            assert single.ids == found.ids
            batch = GraphPool()([source], [[SOS, *found.ids, EOS]])
            with torch.no_grad():
                log_probs = model(batch).gather(1, batch.tgt_y[:, None]).squeeze(1)
            total = (log_probs if found.finished else log_probs[:-1]).sum()
            assert found.log_prob == pytest.approx(total.item(), abs=1e-4)
