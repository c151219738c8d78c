import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attention_on_edges.corpora.tokenization import BPE
from attention_on_edges.models.convolution import ConvolutionAttention
from attention_on_edges.pool import GraphPool
from attention_on_edges.studies.alignment import diagonal_links, links_of, pool_words, split_words
from attention_on_edges.studies.heads import Head, attention_at, heads_of, importance, without_heads
from attention_on_edges.studies.syntax import attached, chain, gold_tree, spanning_tree, uuas
from attention_on_edges.training import LabelSmoothing
from book_support import VOCAB, random_pairs, small_model
from support import trees

LENGTHS = [(3, 4), (5, 2), (1, 6)]


def batch_of(lengths=LENGTHS):
    return GraphPool()(*random_pairs(lengths))


def model_and_batch():
    return small_model().eval(), batch_of()


class TestHeads:
    @pytest.mark.parametrize("graph", ["enc", "dec", "cross"])
    def test_leaving_a_head_out_is_zeroing_its_columns(self, graph):
        model, batch = model_and_batch()
        with without_heads(model, [Head(graph, 1, 0)]):
            found = model(batch)
        twin = small_model().eval()
        twin.load_state_dict(model.state_dict())
        attention = attention_at(twin, graph, 1)
        with torch.no_grad():
            attention.out_proj.weight[:, : attention.d_k] = 0
        torch.testing.assert_close(found, twin(batch))
        assert (found - model(batch)).abs().max() > 1e-3

    def test_nothing_is_left_behind(self):
        model, batch = model_and_batch()
        before = model(batch)
        with pytest.raises(RuntimeError, match="on purpose"), without_heads(model, heads_of(model)):
            raise RuntimeError("on purpose")
        assert torch.equal(model(batch), before)


class TestImportance:
    criterion = LabelSmoothing(VOCAB, 2)

    def test_it_is_the_derivative_by_a_gate(self):
        model, _ = model_and_batch()
        model.double()
        pairs = random_pairs(LENGTHS)
        found = importance(model, [batch_of()], self.criterion)
        for head in (Head("enc", 0, 1), Head("dec", 1, 0), Head("cross", 1, 1)):
            derivatives = []
            for source, target in zip(*pairs, strict=True):
                one = GraphPool()([source], [target])
                losses = []
                for gate in (1 + 1e-5, 1 - 1e-5):
                    attention = attention_at(model, head.graph, head.layer)
                    columns = slice(head.number * attention.d_k, (head.number + 1) * attention.d_k)
                    kept = attention.out_proj.weight.detach().clone()
                    with torch.no_grad():
                        attention.out_proj.weight[:, columns] *= gate
                        losses.append(float(self.criterion(model(one), one.tgt_y)))
                        attention.out_proj.weight.copy_(kept)
                derivatives.append(abs(losses[0] - losses[1]) / 2e-5)
            assert found[head] == pytest.approx(np.mean(derivatives), rel=1e-4)


class TestAlignment:
    splitter = BPE.train(["a committee rejected the proposal", "le comité a rejeté la proposition"], 270)

    @given(
        st.lists(st.text(st.characters(exclude_categories=["Z", "C"]), min_size=1, max_size=6), min_size=1)
    )
    def test_words_split_alone_as_in_their_sentence(self, words):
        pieces, spans = split_words(self.splitter, words)
        assert pieces == self.splitter.split(" ".join(words))
        own = [self.splitter.join(pieces[span.start : span.stop]) for span in spans]
        assert own == [word.rstrip(".,") or word for word in words]
        within = {i for span in spans for i in span}
        assert set("".join(pieces[i] for i in range(len(pieces)) if i not in within)) <= {".", ","}

    def test_pooling_by_hand(self):
        weights = np.array([[0.1, 0.2, 0.7], [0.5, 0.3, 0.2], [0.0, 1.0, 0.0]])
        found = pool_words(weights, [range(2), range(2, 3)], [range(1), range(1, 3)])
        np.testing.assert_allclose(found, [[0.3, 0.7], [0.0, 1.0]])

    def test_links(self):
        assert links_of([[0.1, 0.9], [0.6, 0.4], [0.2, 0.8]]) == {(1, 0), (0, 1), (1, 2)}
        assert diagonal_links(4, 4) == {(i, i) for i in range(4)}
        assert diagonal_links(5, 3) == {(0, 0), (2, 1), (4, 2)}
        assert diagonal_links(4, 3) == {(0, 0), (2, 1), (3, 2)}
        assert diagonal_links(3, 1) == {(0, 0)}
        assert diagonal_links(1, 3) == {(0, 0), (0, 1), (0, 2)}


class TestSyntax:
    @given(trees(9))
    def test_gold_trees_find_themselves(self, heads):
        tree = gold_tree(heads)
        assert len(tree) == len(heads) - 1
        weights = np.array([[float(j == head) for j in range(len(heads))] for head in heads])
        weights.flags.writeable = False
        assert spanning_tree(weights) == tree
        assert attached(weights, heads).all()
        assert not tree or uuas([spanning_tree(weights)], [tree]) == 1

    def test_scores_by_hand(self):
        heads = [1, -1, 1, 4, 2]  # a chain 0-1-2-4-3
        gold = gold_tree(heads)
        assert uuas([chain(5)], [gold]) == 3 / 4
        assert uuas([chain(5), set()], [gold, gold_tree([1, -1])]) == 3 / 5
        weights = np.full((5, 5), 0.1)
        weights[0, 1] = weights[2, 3] = 0.5
        np.fill_diagonal(weights, 0.9)  # attention to itself does not count
        assert attached(weights, heads).tolist() == [True, False, False, False]


class TestConvolution:
    @pytest.mark.parametrize("width", [1, 3, 7])
    @pytest.mark.parametrize("bias", [True, False])
    def test_it_equals_the_convolution(self, width, bias):
        torch.manual_seed(width)
        conv = torch.nn.Conv1d(5, 6, width, padding=width // 2, bias=bias)
        twin = ConvolutionAttention(conv)
        for n in (1, 2, 40, 300):
            x, y = (torch.randn(n, 5).requires_grad_() for _ in range(2))
            y = x.detach().clone().requires_grad_()
            ours, theirs = twin(x), conv(y.T[None])[0].T
            assert (ours - theirs).abs().max() <= 1e-6 * max(1, theirs.abs().max())
            weight = torch.randn_like(ours)
            (ours * weight).sum().backward()
            (theirs * weight).sum().backward()
            assert (x.grad - y.grad).abs().max() <= 1e-6 * max(1, y.grad.abs().max())
