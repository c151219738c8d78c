from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from attention_on_edges.models.recording import current_recording, recorded
from attention_on_edges.pool import GraphPool
from attention_on_edges.tutorial import make_model
from book_support import VOCAB, random_pairs, small_model

pool = GraphPool()


def test_the_tutorials_model_keeps_the_attention_that_its_script_asks_for():
    model = make_model(VOCAB, VOCAB, N=2, dim_model=8, dim_ff=16, h=2)
    batch = pool(*random_pairs([(2, 3), (4, 2), (3, 3), (5, 4), (2, 2)]))
    model.att_weight_map = None
    model.train()(batch)
    assert model.att_weight_map is None
    model.eval()(pool(*random_pairs([(2, 2)] * 3)))
    assert model.att_weight_map is None, "there is no sentence 3"
    model(batch)
    kept = model.att_weight_map
    assert all(map(torch.equal, kept, model.attention_of(batch, 3)))
    model(batch)
    assert model.att_weight_map is kept


def test_the_maps_of_each_sentence_are_the_attention_that_made_the_output():
    """They rebuild what was propagated in the last layer."""
    model, batch = small_model(N=1), pool(*random_pairs([(4, 3), (2, 5)]))
    propagated, propagate = {}, model.propagate_attention

    def record(graph, q, k, v):
        propagated[graph] = v, propagate(graph, q, k, v)
        return propagated[graph][1]

    model.propagate_attention = record
    model(batch)
    for i in range(2):
        src, tgt = batch.sentence(i)
        sides = (batch.enc, src, src), (batch.cross, src, tgt), (batch.dec, tgt, tgt)
        for weights, (graph, senders, receivers) in zip(model.attention_of(batch, i), sides, strict=True):
            v, wv = propagated[graph]
            torch.testing.assert_close(torch.einsum("hji,ihd->jhd", weights, v[senders]), wv[receivers])


def test_attention_of_any_layer():
    model, batch = small_model(N=2), pool(*random_pairs([(2, 3), (4, 2)]))
    first, last, default = (model.attention_of(batch, 1, *which)[0] for which in ([0], [1], []))
    assert torch.equal(last, default)
    assert not torch.equal(first, last)
    with pytest.raises(IndexError, match=r"sentence must lie in 0\.\.1, got 2"):
        model.attention_of(batch, 2)
    with pytest.raises(IndexError, match=r"layer must lie in -2\.\.1, got 2"):
        model.attention_of(batch, 0, layer=2)


def test_rounds_are_recorded_of_one_thread_and_within_each_other():
    model, batch = small_model(N=1), pool(*random_pairs([(2, 3)]))
    with recorded() as outer:
        model.hidden(batch)
        with recorded() as inner:
            model.hidden(batch)
        model.hidden(batch)
        with ThreadPoolExecutor(1) as threads:
            threads.submit(model.hidden, batch).result()
    assert [len(each.rounds) for each in (outer, inner)] == [6, 3]
    assert [each.whole for each in inner.rounds] == [batch.enc, batch.dec, batch.cross]
    assert current_recording() is None


def test_rounds_on_a_part_of_the_receivers_are_rounds_of_the_whole():
    model, batch = small_model(N=1), pool(*random_pairs([(4, 3)]))
    q, k = torch.randn(4, 2, 4), torch.randn(4, 2, 4)
    rows = torch.tensor([2, 0])
    with recorded() as recording:
        part = batch.enc.select_receivers(rows)
        recording.replace(batch.enc, part, rows)
        model.propagate_attention(part, q[rows], k, k)
    [(whole, ran_on, noted, _)] = recording.rounds
    assert whole is batch.enc
    assert ran_on.to_mask().sum(1).tolist() == [4, 0, 4, 0]
    assert torch.equal(noted[rows], q[rows])
