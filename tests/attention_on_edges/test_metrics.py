import math

import pytest

from attention_on_edges.corpora.preparation import moses, plain
from attention_on_edges.corpora.tokenization import BPE
from attention_on_edges.runs import metrics, scores
from attention_on_edges.runs.metrics import alignment_error_rate, bleu, exact_match, token_accuracy
from attention_on_edges.studies.bleu import paired_tests
from attention_on_edges.tasks import TranslationDataset


def test_a_sequence_counts_only_if_it_is_right_to_the_end():
    references = [[1, 2], [3], [4, 5]]
    assert exact_match([(1, 2), (3,), (4, 6)], references) == pytest.approx(2 / 3)
    assert exact_match([[1, 2, 2], [], [4]], references) == 0


def test_what_is_missing_or_added_is_wrong():
    assert token_accuracy([[1, 2, 3]], [[1, 5, 3]]) == pytest.approx(2 / 3)
    assert token_accuracy([[1, 2]], [[1, 2, 3, 4]]) == 0.5
    assert token_accuracy([[1, 2, 3, 4]], [[1, 2]]) == 0.5
    assert token_accuracy([[2, 1]], [[1, 2]]) == 0
    assert token_accuracy([[1], []], [[1], [2, 3]]) == pytest.approx(1 / 3)


TEXT = "A dog runs."
ONE_FOR_A_LIST = {
    "bleu": lambda: bleu(TEXT, TEXT),
    "chrf": lambda: metrics.chrf([TEXT], TEXT.encode()),
    "exact match": lambda: exact_match(TEXT, TEXT),
    "numbers": lambda: token_accuracy([1, 2], [1, 2]),
    "none in it": lambda: bleu([TEXT, None], [TEXT, TEXT]),
    "a set": lambda: bleu({TEXT}, [TEXT]),
    "pieces": lambda: BPE.train([TEXT], 256).numbers(TEXT),
    "moses": lambda: moses(TEXT, "en"),
    "plain": lambda: plain(TEXT, "en"),
    "decoding": lambda: scores.decode(None, TranslationDataset({}, ["a", "b"]), ["a", "b"]),
}


@pytest.mark.parametrize("call", ONE_FOR_A_LIST.values(), ids=ONE_FOR_A_LIST)
def test_one_text_or_sequence_is_not_a_list_of_them(call):
    with pytest.raises(TypeError, match=r"must be a list of (texts|sequences)"):
        call()


def test_of_nothing_there_is_no_share():
    for call in (lambda: token_accuracy([[]], [[]]), lambda: alignment_error_rate([set()], [set()], [set()])):
        with pytest.raises(ValueError, match=r"there are no (tokens|links) to score"):
            call()


@pytest.mark.parametrize("score", [exact_match, lambda *given: paired_tests(given[0], [], given[1])])
@pytest.mark.parametrize(("predictions", "references"), [([], []), (["1"], ["1", "2"])])
def test_bad_input(score, predictions, references):
    with pytest.raises(ValueError, match="must pair up, one pair at least; got"):
        score(predictions, references)


def test_bleu_is_the_geometric_mean_of_precisions():
    found = metrics.tokenized_bleu(["the cat sat on the red mat today"], ["the cat sat on the mat today"])
    assert found.value == pytest.approx(100 * math.prod([7 / 8, 5 / 7, 3 / 6, 2 / 5]) ** 0.25)


class TestAlignment:
    sure, possible = [{(0, 0), (1, 2)}], [{(1, 1)}]

    def test_closed_form(self):
        assert alignment_error_rate(self.sure, self.sure, self.possible) == 0
        assert alignment_error_rate([{(0, 0), (1, 1)}], self.sure, self.possible) == pytest.approx(1 - 3 / 4)
        assert alignment_error_rate([{(5, 5)}], self.sure, self.possible) == 1
        assert alignment_error_rate([set()], self.sure, self.possible) == 1

    def test_possible_links_do_no_harm_and_bring_no_recall(self):
        both = [self.sure[0] | self.possible[0]]
        assert alignment_error_rate(both, self.sure, self.possible) == 0
        assert alignment_error_rate(self.possible, self.sure, self.possible) == pytest.approx(1 - 1 / 3)
