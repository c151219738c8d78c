"""Text whose training split stays on disk, tokenised once."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from attention_on_edges.data.corpora.cleaning import CLEANING, cleaned, sampled
from attention_on_edges.data.corpora.files import cache_folder, locked
from attention_on_edges.data.corpora.streams import Stream, json_digest, open_stream
from attention_on_edges.data.prefetch import Cut, Shares, cut_by_count, cut_by_tokens, read
from attention_on_edges.data.tasks import SPECIAL, Pair, Share, one_device
from attention_on_edges.data.text_dataset import TextDataset
from attention_on_edges.data.token_cache import TokenCache, cached
from attention_on_edges.data.tokenization import BPE
from attention_on_edges.data.tokenizer_config import StreamingConfig
from edgewise.graphs import Batch, GraphPool
from edgewise.training.checkpoint_files import write_atomically
from edgewise.validation import check_count

TOGETHER = 1000
"""Texts tokenised in one call."""


class StreamedPairs(Sequence):
    """The training pairs of a cache as symbols, read one at a time."""

    def __init__(self, data: "StreamedText"):
        self._data = data

    def __len__(self) -> int:
        return len(self._data.cache)

    def __getitem__(self, idx: int) -> Pair:
        source, _, target, _ = self._data.cache.take(np.array([idx]))
        return self._data.decode(source.tolist()), self._data.decode(target.tolist())


class StreamedText(TextDataset):
    """A corpus as symbol sequences; training pairs are read from disk batch by batch.

    Parameters
    ----------
    stream : Stream
        The corpus.
    splitter : BPE
        Its tokeniser.
    config : StreamingConfig
        Rules of filtering.
    seed : int
        For shuffling.
    workers : int
        Processes that prefetch.
    say : callable
        Called before the training split is tokenised.
    """

    def __init__(
        self,
        stream: Stream,
        splitter: BPE,
        config: StreamingConfig,
        seed: int = 0,
        workers: int = 0,
        say: Callable[[str], None] = lambda line: None,
    ):
        super().__init__(stream.corpus, splitter, seed=seed)
        self.stream, self.config, self.workers = stream, config, check_count("workers", workers)
        self._say = say
        self.splits["train"] = StreamedPairs(self)

    @cached_property
    def cache(self) -> TokenCache:
        """The training pairs' ids, built at first use; a folder for each pair of data and tokeniser."""
        facts = self.made_from | {"tokenizer": hashlib.sha256(self.splitter.to_json().encode()).hexdigest()}
        folder = _folder(self.stream) / f"train-{json_digest(facts)[:16]}"
        return cached(folder, facts, self._id_pairs, self.vocab_size, self._say)

    @property
    def made_from(self) -> dict[str, Any]:
        """Provenance of the training pairs before tokenisation."""
        config = self.config
        kept = {
            "rules": CLEANING,
            "longest": config.longest,
            "ratio": config.ratio,
            "most_pieces": config.most_pieces,
        }
        return {"corpus": self.stream.digest, "kept": kept}

    @property
    def digest(self) -> str:
        """sha256 that identifies all pairs."""
        return json_digest([self.made_from, dict(self.corpus.splits)])

    def _id_pairs(self) -> Iterator[tuple[list[int], list[int]]]:
        pairs = cleaned(self.stream.train(), self.config.longest, self.config.ratio)
        while some := list(islice(pairs, TOGETHER)):
            ids = self.splitter.numbers(list(chain.from_iterable(some)))
            for source, target in zip(ids[::2], ids[1::2], strict=True):
                if max(len(source), len(target)) <= self.config.most_pieces:
                    yield [i + len(SPECIAL) for i in source], [i + len(SPECIAL) for i in target]

    @cached_property
    def _lengths(self) -> np.ndarray:
        return self.cache.lengths() + 1

    def __call__(
        self,
        graph_pool: GraphPool,
        mode: str = "train",
        batch_size: int = 32,
        device: torch.device | str = "cpu",
        devices: Sequence[torch.device | str] | None = None,
        share: Share = (0, 1),
    ) -> Iterator[Batch]:
        """Iterate over the batches of a split; see the parent's."""
        if mode != "train":
            return super().__call__(graph_pool, mode, batch_size, device, devices, share)
        device = one_device(device, devices)
        return self._read(cut_by_count(self._drawn(), batch_size), graph_pool, device, share)

    def by_tokens(
        self,
        graph_pool: GraphPool,
        mode: str = "train",
        batch_tokens: int = 4096,
        bucketed: bool = False,
        device: torch.device | str = "cpu",
        share: Share = (0, 1),
    ) -> Iterator[Batch]:
        """Iterate over batches of about as many target tokens each; see the parent's."""
        if mode != "train":
            return super().by_tokens(graph_pool, mode, batch_tokens, bucketed, device, share)
        cut = cut_by_tokens(self._drawn(), self._lengths, batch_tokens, bucketed, self._generator)
        return self._read(cut, graph_pool, device, share)

    def _drawn(self) -> np.ndarray:
        return self._generator.permutation(len(self.cache)).astype(np.int32)

    def _read(
        self, cut: Cut, graph_pool: GraphPool, device: torch.device | str, share: Share
    ) -> Iterator[Batch]:
        shares = Shares(self.cache, cut, share)
        return read(shares, graph_pool, self.sos_id, self.eos_id, device, self.workers)


def load_streamed(
    task: str,
    config: StreamingConfig,
    seed: int,
    splitter: BPE | None = None,
    workers: int = 0,
    say: Callable[[str], None] = lambda line: None,
) -> StreamedText:
    """Return a streamed corpus; unless given, ``splitter`` is learned once from a sample of it.

    ``say`` is called before slow work.

    Raises
    ------
    CorpusError
        If a file cannot be had or used.
    """
    stream = open_stream(task)
    if splitter is None:
        splitter = _learned(stream, config, say)
    return StreamedText(stream, splitter, config, seed, workers, say)


def _learned(stream: Stream, config: StreamingConfig, say: Callable[[str], None]) -> BPE:
    """Return a corpus's tokeniser: learned by the first process that needs it, read by the others."""
    asked = [stream.digest, CLEANING, config.vocab_size, config.sample, config.longest, config.ratio]
    path = _folder(stream) / f"tokenizer-{json_digest(asked)[:16]}.json"
    if path.is_file():
        return BPE.load(path)
    say(f"learning {config.vocab_size:,} pieces, once; they are kept in {path}")
    with locked(path):
        if not path.is_file():
            pairs = cleaned(stream.train(), config.longest, config.ratio)
            lines = chain.from_iterable(sampled(pairs, config.sample))
            write_atomically(path, BPE.train(lines, config.vocab_size).to_json().encode())
    return BPE.load(path)


def _folder(stream: Stream) -> Path:
    return cache_folder() / "tokens" / stream.corpus.name
