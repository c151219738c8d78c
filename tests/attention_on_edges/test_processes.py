"""The command line in several processes, as torchrun starts them; who reads what of each batch."""

import json
import os

import torch
from hypothesis import given
from hypothesis import strategies as st

from attention_on_edges import runs, tasks
from attention_on_edges.cli import app as cli
from attention_on_edges.pool import GraphPool
from attention_on_edges.tasks import TranslationDataset
from book_support import FEW, TINY_COPY
from processes import free_port, process, set_role

pairs = st.lists(st.integers(1, 9), min_size=1, max_size=30)


@given(pairs, st.integers(2, 5), st.integers(1, 40), st.booleans(), st.integers(0, 3))
def test_every_example_is_seen_once_over_all_processes(lengths, size, budget, bucketed, seed):
    """Batch for batch the shares are what one process gets, each sentence in one of them."""
    splits = {"train": [([str(i)], ["x"] * n) for i, n in enumerate(lengths)]}
    symbols = ["x", *map(str, range(len(lengths)))]

    def epochs(share):
        data = TranslationDataset(splits, symbols, seed)
        for _ in range(2):
            for batch in data(GraphPool(), "train", budget, share=share):
                yield [] if batch.stand_in else data.decode(batch.src[0].tolist())
            for batch in data.by_tokens(GraphPool(), "train", budget, bucketed, share=share):
                yield [] if batch.stand_in else data.decode(batch.src[0].tolist())

    whole = [sorted(batch) for batch in epochs((0, 1))]
    shares = zip(*(epochs((rank, size)) for rank in range(size)), strict=True)
    assert [sorted(name for part in parts for name in part) for parts in shares] == whole
    names = sorted(symbols[1:])
    assert sorted(name for batch in whole for name in batch) == sorted(names * 4)


def call(rank, port, words, errors):
    """The command line as one of two processes, its errors in a file."""
    set_role(os.environ, rank, 2, port)
    with open(errors, "w") as file:
        os.dup2(file.fileno(), 2)
    torch.set_num_threads(1)
    runs.EXPERIMENTS["copy"], tasks.SIZES = TINY_COPY, FEW
    cli.app(words)


def call_both(words, folder):
    """Exit codes of two processes, and the errors that each of them wrote."""
    port, files = free_port(), [folder / f"errors-{rank}" for rank in range(2)]
    both = [process(call, rank, port, [str(word) for word in words], files[rank]) for rank in range(2)]
    for each in both:
        each.start()
    for each in both:
        each.join(300)
    lines = [[line for line in file.read_text().splitlines() if "error" in line] for file in files]
    return [each.exitcode for each in both], lines


def test_the_first_process_alone_writes(tmp_path):
    words = ["train", "copy", "--out", tmp_path / "run"]
    assert call_both([*words, "--steps", 3], tmp_path) == ([0, 0], [[], []])
    codes, lines = call_both(words, tmp_path)
    assert codes == [1, 1]
    assert all(len(said) == 1 and "holds a run already" in said[0] for said in lines)
    assert call_both([*words, "--resume"], tmp_path) == ([0, 0], [[], []])
    log = (tmp_path / "run" / "metrics.jsonl").read_text()
    steps = [json.loads(line)["step"] for line in log.splitlines()]
    assert steps == [*range(1, 10), 9, *range(10, 19), 18]
    provenance = json.loads((tmp_path / "run" / "artifact" / "provenance.json").read_text())
    assert provenance["processes"] == 2
