import itertools
import json

import pytest
import torch

from attention_on_edges.pool import GraphPool
from attention_on_edges.tasks import EOS, LETTERS, SOS, get_dataset

pool = GraphPool()


@pytest.fixture(scope="module", params=["copy", "sort"])
def dataset(request):
    return request.param, get_dataset(request.param)


def test_splits_lengths_and_answers(dataset):
    name, data = dataset
    assert {mode: len(pairs) for mode, pairs in data.splits.items()} == {
        "train": 9000, "valid": 1000, "test": 1000,
    }  # fmt: skip
    lengths = torch.tensor([len(source) for source, _ in data.splits["train"]], dtype=torch.float64)
    assert lengths.min() >= 1
    assert abs(lengths.mean() - 15) < 0.15
    assert abs(lengths.std() - 3) < 0.15
    for source, target in itertools.chain(*data.splits.values()):
        assert target == (source if name == "copy" else sorted(source))
    counts = torch.bincount(torch.tensor([LETTERS.index(x) for s, _ in data.splits["train"] for x in s]))
    assert len(counts) == 26
    assert counts.max() / counts.min() < 1.1


def test_the_same_seed_gives_the_same_data_and_order():
    first, second, other = get_dataset("copy", 1), get_dataset("copy", 1), get_dataset("copy", 2)
    assert first.splits == second.splits
    assert first.splits != other.splits
    orders = [next(data(pool, "train", 8)).src[0].tolist() for data in (first, second, second)]
    assert orders[0] == orders[1] != orders[2]


def test_sequences_by_id_are_what_the_batches_hold():
    data = get_dataset("sort")
    source, target = (data.get_seq_by_id(3, "valid", field) for field in ("src", "tgt"))
    assert target == [SOS, *sorted(source), EOS]
    batch = next(data(pool, "valid", 128))
    src, tgt = batch.sentence(3)
    assert data.decode(batch.src[0][src].tolist()) == source
    assert data.decode(batch.tgt[0][tgt].tolist()) == target[:-1]
    assert data.decode(batch.tgt_y[tgt].tolist()) == target[1:]


def test_device_in_both_spellings():
    data = get_dataset("copy")
    for spelling in ({"device": "meta"}, {"devices": ["meta"]}):
        assert next(data(pool, "valid", 2, **spelling)).device.type == "meta"


copy = get_dataset("copy")


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: copy(pool, "dev"), ValueError, "mode must be one of 'train', 'valid', 'test'; got 'dev'"),
        (lambda: copy.encode(["a", "ß"]), ValueError, "symbols must be in the vocabulary, got .'ß'."),
    ],
)
def test_bad_input(call, error, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize("bucketed", [False, True])
def test_batches_by_tokens_hold_every_pair_once_and_no_more_tokens(bucketed):
    data = get_dataset("copy")
    for mode in ("train", "valid"):
        batches = list(data.by_tokens(GraphPool(), mode, 600, bucketed))
        assert max(batch.n_tokens for batch in batches) <= 600
        pairs = sorted(
            (tuple(batch.src[0][src].tolist()), tuple(batch.tgt_y[tgt].tolist()))
            for batch in batches
            for src, tgt in map(batch.sentence, range(batch.n_sentences))
        )
        assert pairs == sorted(
            (tuple(data.encode(source)), (*data.encode(target), data.eos_id))
            for source, target in data.splits[mode]
        )
        spreads = [max(batch.tgt_lengths) - min(batch.tgt_lengths) for batch in batches]
        assert (sum(spreads) / len(spreads) < 2) == bucketed
        means = [batch.n_tokens / batch.n_sentences for batch in batches]
        assert (means == sorted(means)) == (bucketed and mode == "valid")


@pytest.mark.parametrize("bucketed", [False, True])
def test_orders_can_be_drawn_again(bucketed):
    data = get_dataset("copy")

    def first(count=3):
        batches = data.by_tokens(GraphPool(), "train", 600, bucketed)
        return [next(batches).src[0].tolist() for _ in range(count)]

    state = json.loads(json.dumps(data.order_state))
    one, two = first(), first()
    assert one != two
    data.order_state = state
    assert first() == one
    assert first() == two
