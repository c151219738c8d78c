"""The pool that turns pairs of sentences into batches, against DGL."""

import dataclasses

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attention_on_edges.pool import GraphPool
from book_support import random_pairs
from edgewise.graphs import load_dgl, window
from support import edges, refusals


def test_the_tutorials_numbering():
    made = GraphPool()([list(range(3, 12))], [list(range(11))])
    numbered = {**made.nids, **made.eids}
    runs = {"enc": (0, 9), "dec": (9, 19), "ee": (0, 81), "ed": (81, 171), "dd": (171, 226)}
    assert {kind: found.tolist() for kind, found in numbered.items()} == {
        kind: list(range(*run)) for kind, run in runs.items()
    }
    assert (made.n_nodes, made.n_edges, made.n_tokens) == (19, 226, 10)


def test_ids_and_positions_are_packed_and_the_target_is_shifted():
    made = GraphPool()([[5, 6], [7]], [[0, 8, 9, 1], [0, 1]])
    assert [x.tolist() for x in made.src] == [[5, 6, 7], [0, 1, 0]]
    assert [x.tolist() for x in made.tgt] == [[0, 8, 9, 0], [0, 1, 2, 0]]
    assert made.tgt_y.tolist() == [8, 9, 1, 1]
    assert made.sentence(1) == (slice(2, 3), slice(3, 4))


@pytest.mark.dgl
@given(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 5)), min_size=1, max_size=4), st.booleans())
def test_g_is_dgls_batch_of_the_three_graphs_of_each_pair(lengths, changed):
    def pool(lengths):
        made = GraphPool()(*random_pairs(lengths))
        return dataclasses.replace(made, enc=window(made.src_lengths, 1, 0)) if changed else made

    made, expected = pool(lengths), load_dgl().batch([pool([pair]).g for pair in lengths])
    for mine, other in zip(made.g.edges(), expected.edges(), strict=True):
        assert torch.equal(mine, other)
    assert torch.equal(made.g.batch_num_nodes(), expected.batch_num_nodes())
    assert torch.equal(made.g.batch_num_edges(), expected.batch_num_edges())
    for kind, (of, to, graph) in {
        "ee": ("enc", "enc", made.enc),
        "ed": ("enc", "dec", made.cross),
        "dd": ("dec", "dec", made.dec),
    }.items():
        src, dst = made.g.find_edges(made.eids[kind])
        ours = {(made.nids[of][i].item(), made.nids[to][j].item()) for i, j in edges(graph)}
        assert set(zip(src.tolist(), dst.tolist(), strict=True)) == ours


def test_it_moves_as_a_whole():
    batch = GraphPool()(*random_pairs([(2, 3), (4, 2)]))
    moved = batch.to("meta")
    parts = (moved.enc, moved.dec, moved.cross, moved, *moved.src, *moved.tgt)
    assert {x.device.type for x in parts} == {"meta"}
    assert batch.to("cpu").enc is batch.enc
    assert (moved.n_tokens, moved.tgt_lengths) == (batch.n_tokens, batch.tgt_lengths)


test_bad_input = refusals(
    (lambda: GraphPool()([[]], [[0, 1]]), r"src_buf\[0\] must hold at least one id; got 0"),
    (lambda: GraphPool()([[3], [4]], [[0, 1], [0]]), r"tgt_buf\[1\] must hold at least two ids"),
    (lambda: GraphPool()([[3]], []), "must pair up, one pair at least; got 1 and 0"),
    (lambda: GraphPool()([[True]], [[0, 1]]), TypeError, r"src_buf\[0\] must be a list of integers"),
    (lambda: GraphPool()([[3.5]], [[0, 1]]), TypeError, r"src_buf\[0\] must be a list of integers"),
    (lambda: GraphPool()([3], [[0, 1]]), TypeError, r"src_buf\[0\] must be a list of integers"),
)
