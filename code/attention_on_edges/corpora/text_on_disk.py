"""Chapter 12: text that need not fit into memory, tokenised once and mapped from a file."""

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path

import numpy as np

from attention_on_edges.corpora import Corpus
from attention_on_edges.corpora.cleaning import cleaned
from attention_on_edges.corpora.files import cache_folder, json_digest
from attention_on_edges.corpora.text_dataset import TextDataset
from attention_on_edges.corpora.tokenization import BPE
from attention_on_edges.tasks import Pair
from attention_on_edges.training.checkpoint_files import locked

EVERY = 9
"""A tokenizer is learned from every ninth training pair: half a million of WMT14's."""

MOST_PIECES = 256
"""Longest side that is kept."""

TOGETHER = 1000
"""Pairs tokenised in one call."""

IdPair = tuple[Sequence[int], Sequence[int]]


class PairsOnDisk:
    """Pairs of symbol sequences, read one at a time.

    Their ids are packed in one file, source and target in turn; another holds the start of each, and the end
    of the last. Both are mapped into memory, of which the system keeps only as much as it has room for.

    Parameters
    ----------
    folder : Path
        Written by :func:`write_pairs`.
    symbols : sequence of str
        The symbol of each id.
    """

    def __init__(self, folder: Path, symbols: Sequence[str]):
        self.symbols = symbols
        self._ids = np.memmap(folder / "ids.bin", np.min_scalar_type(len(symbols)), "r")
        self._starts = np.memmap(folder / "starts.bin", np.int64, "r")

    def __len__(self) -> int:
        return len(self._starts) // 2

    def __getitem__(self, idx: int) -> Pair:
        start, middle, end = self._starts[2 * idx : 2 * idx + 3]
        source, target = (
            [self.symbols[i] for i in ids] for ids in (self._ids[start:middle], self._ids[middle:end])
        )
        return source, target

    def target_lengths(self) -> list[int]:
        """Return the number of ids of each target."""
        return (self._starts[2::2] - self._starts[1::2]).tolist()


def write_pairs(folder: Path, pairs: Iterable[IdPair], vocab_size: int) -> None:
    """Write pairs of ids below ``vocab_size`` for :class:`PairsOnDisk`, one at a time."""
    folder.mkdir(exist_ok=True)
    starts = array("q", [0])
    with open(folder / "ids.bin", "wb") as file:
        for side in chain.from_iterable(pairs):
            file.write(np.asarray(side, np.min_scalar_type(vocab_size)).tobytes())
            starts.append(starts[-1] + len(side))
    np.array(starts).tofile(folder / "starts.bin")


class TextOnDisk(TextDataset):
    """A corpus as symbol sequences whose training pairs stay on disk.

    Its folder in the cache is made at the first use of a corpus with a tokenizer, whose digest is its name:
    another tokenizer never finds these ids.

    Parameters
    ----------
    corpus : Corpus
        Text by split; training pairs are consumed once.
    splitter : BPE
        Its tokenizer.
    seed : int
        For shuffling.
    """

    def __init__(self, corpus: Corpus, splitter: BPE, seed: int = 0):
        held = {mode: pairs for mode, pairs in corpus.splits.items() if mode != "train"}
        super().__init__(replace(corpus, splits=held), splitter, seed=seed)
        self.digest = json_digest([_digest(corpus), splitter.to_json()])
        ids = _numbered(corpus, splitter)
        folder = made_once(
            _folder(corpus) / self.digest[:16], lambda fresh: write_pairs(fresh, ids, len(splitter.symbols))
        )
        self._stored = PairsOnDisk(folder, splitter.symbols)
        self.splits["train"] = self._stored  # type: ignore[assignment]  # read like a list

    def target_lengths(self, mode: str) -> list[int]:
        """Return the symbols of each target of a split."""
        return self._stored.target_lengths() if mode == "train" else super().target_lengths(mode)


def _numbered(corpus: Corpus, splitter: BPE) -> Iterator[IdPair]:
    pairs = cleaned(corpus.splits["train"])
    while some := list(islice(pairs, TOGETHER)):
        ids = splitter.numbers(list(chain.from_iterable(some)))
        for pair in zip(ids[::2], ids[1::2], strict=True):
            if max(map(len, pair)) <= MOST_PIECES:
                yield pair


def learned(corpus: Corpus, vocab_size: int) -> BPE:
    """Return a corpus's tokenizer, learned at the first call from a sample of its training pairs."""
    name = json_digest([_digest(corpus), vocab_size])[:16]

    def learn(fresh: Path) -> None:
        pairs = islice(cleaned(corpus.splits["train"]), 0, None, EVERY)
        fresh.write_text(BPE.train(chain.from_iterable(pairs), vocab_size).to_json(), "utf-8")

    return BPE.load(made_once(_folder(corpus) / f"{name}.json", learn))


def made_once(path: Path, make: Callable[[Path], None]) -> Path:
    """Return a file or folder, which the first process to ask makes under a temporary name and renames."""
    if not path.exists():
        fresh = path.with_name(f".{path.name}.part")
        with locked(path):
            if not path.exists():
                make(fresh)
                fresh.rename(path)
    return path


def _folder(corpus: Corpus) -> Path:
    return cache_folder() / "tokens" / corpus.name


def _digest(corpus: Corpus) -> str:
    return json_digest([file.sha256 for file in corpus.files] or corpus.splits)
