"""Chapter 7: toy tasks with a known answer, in the shape of a translation data set."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from attention_on_edges.pool import Batch, GraphPool
from edgewise.validation import check_choice, check_count

SOS, EOS, PAD = "<sos>", "<eos>", "<pad>"
SPECIAL = (SOS, EOS, PAD)
"""The first symbols of every vocabulary."""

LETTERS = "abcdefghijklmnopqrstuvwxyz"
SIZES = {"train": 9000, "valid": 1000, "test": 1000}
MEAN_LENGTH, LENGTH_DEVIATION = 15, 3

ANSWERS: dict[str, Callable[[list[str]], list[str]]] = {"copy": list, "sort": sorted}

Pair = tuple[list[str], list[str]]

Share = tuple[int, int]
"""A process's rank and the number of processes that share each batch."""


class TranslationDataset:
    """Pairs of symbol sequences in three splits, and the vocabulary they share.

    Call it to iterate over batches. Each call for training shuffles with the data set's own seeded generator;
    validation and test keep their order.

    Parameters
    ----------
    splits : dict of str to list of pairs
        Source and target symbols of each pair, by mode.
    symbols : sequence of str
        All symbols in the order of their ids, which follow those of the special symbols.
    seed : int
        For the order of training pairs.

    Attributes
    ----------
    epoch : int
        Epoch of the training run, from 1; set by the run.

    Raises
    ------
    ValueError
        If ``symbols`` holds a symbol twice.
    """

    epoch = 1

    def __init__(self, splits: dict[str, list[Pair]], symbols: Sequence[str], seed: int = 0):
        self.splits = splits
        self.symbols = [*SPECIAL, *symbols]
        self.ids = {symbol: i for i, symbol in enumerate(self.symbols)}
        if len(self.ids) != len(self.symbols):
            raise ValueError("symbols must be distinct")
        self._generator = np.random.default_rng(seed)

    @property
    def vocab_size(self) -> int:
        """Number of symbols, special ones included."""
        return len(self.symbols)

    @property
    def sos_id(self) -> int:
        """Id of the start symbol."""
        return self.ids[SOS]

    @property
    def eos_id(self) -> int:
        """Id of the end symbol."""
        return self.ids[EOS]

    @property
    def pad_id(self) -> int:
        """Id of padding. Packed batches never hold it; label smoothing gives it no probability."""
        return self.ids[PAD]

    def get_seq_by_id(self, idx: int, mode: str = "train", field: str = "src") -> list[str]:
        """Return one sequence as symbols; a target from start to end symbol.

        Raises
        ------
        ValueError
            If ``mode`` or ``field`` is unknown, or ``idx`` is out of range.
        """
        pairs = self._split(mode)
        check_choice("field", field, ("src", "tgt"))
        if check_count("idx", idx) >= len(pairs):
            raise ValueError(f"idx must lie in 0..{len(pairs) - 1} for mode {mode!r}, got {idx}")
        source, target = pairs[idx]
        return list(source) if field == "src" else [SOS, *target, EOS]

    def __call__(
        self,
        graph_pool: GraphPool,
        mode: str = "train",
        batch_size: int = 32,
        device: torch.device | str = "cpu",
        devices: Sequence[torch.device | str] | None = None,
        share: Share = (0, 1),
    ) -> Iterator[Batch]:
        """Iterate over the batches of a split, the last one maybe smaller.

        Parameters
        ----------
        graph_pool : GraphPool
            Builds the batches.
        mode : str
            ``"train"`` (in a new order), ``"valid"`` or ``"test"`` (in theirs).
        batch_size : int
            Pairs per batch.
        device : torch.device or str
            Where batches go.
        devices : sequence of one device, optional
            The DGL tutorial's spelling of ``device``.
        share : tuple of two int
            This process's share of each batch; together the shares are the batches of a single process. A
            process without a sentence gets one that counts as nothing (``stand_in``).

        Raises
        ------
        TypeError, ValueError
            If an argument is not what it should be; the message says which.
        """
        pairs = self._split(mode)
        check_count("batch_size", batch_size, 1)
        if devices is not None:
            if len(devices) != 1:
                raise ValueError(f"devices must name one device, got {list(devices)!r}")
            [device] = devices
        order = self._order(mode)
        chosen = [order[first : first + batch_size] for first in range(0, len(pairs), batch_size)]
        return self._batches(graph_pool, mode, chosen, device, share)

    def by_tokens(
        self,
        graph_pool: GraphPool,
        mode: str = "train",
        batch_tokens: int = 4096,
        bucketed: bool = False,
        device: torch.device | str = "cpu",
        share: Share = (0, 1),
    ) -> Iterator[Batch]:
        """Iterate over batches of about as many target tokens each.

        Parameters
        ----------
        graph_pool, mode, device, share
            As in a call.
        batch_tokens : int
            Most target tokens of a batch; a longer sentence is a batch of its own.
        bucketed : bool
            Whether sentences of similar length share a batch. In training, batches and sentences of equal
            length are shuffled.

        Raises
        ------
        TypeError, ValueError
            If an argument is not what it should be; the message says which.
        """
        check_count("batch_tokens", batch_tokens, 1)
        check_choice("mode", mode, self.splits)
        lengths = [length + 1 for length in self.target_lengths(mode)]
        order = self._order(mode)
        if bucketed:
            order.sort(key=lambda i: lengths[i])
        chosen: list[list[int]] = []
        room = 0
        for i in order:
            if lengths[i] > room:
                chosen.append([])
                room = batch_tokens
            chosen[-1].append(i)
            room -= lengths[i]
        if bucketed and mode == "train":
            self._generator.shuffle(chosen)
        return self._batches(graph_pool, mode, chosen, device, share)

    def target_lengths(self, mode: str) -> list[int]:
        """Return the symbols of each target of a split."""
        return [len(target) for _, target in self.splits[mode]]

    @property
    def order_state(self) -> dict[str, Any]:
        """State of the generator that shuffles, as JSON: set it to repeat the same orders."""
        return dict(self._generator.bit_generator.state)

    @order_state.setter
    def order_state(self, state: dict[str, Any]) -> None:
        self._generator.bit_generator.state = state

    def _order(self, mode: str) -> list[int]:
        count = len(self._split(mode))
        return self._generator.permutation(count).tolist() if mode == "train" else list(range(count))

    def _batches(
        self,
        graph_pool: GraphPool,
        mode: str,
        chosen: list[list[int]],
        device: torch.device | str,
        share: Share,
    ) -> Iterator[Batch]:
        for numbers in chosen:
            pairs = [self.draw_pair(i, mode) for i in numbers]  # every process draws the same
            shared = share_of([len(target) for _, target in pairs], share)
            pairs = [pairs[i] for i in shared or [0]]
            sources = [self.encode(source) for source, _ in pairs]
            targets = [self.encode([SOS, *target, EOS]) for _, target in pairs]
            batch = graph_pool(sources, targets, device=device)
            yield batch if shared else replace(batch, stand_in=True)

    def draw_pair(self, idx: int, mode: str) -> Pair:
        """Return a pair as it appears in a batch; text may be tokenised differently each time."""
        return self.splits[mode][idx]

    def encode(self, symbols: Sequence[str]) -> list[int]:
        """Symbols to ids.

        Raises
        ------
        ValueError
            If a symbol is not in the vocabulary.
        """
        unknown = [s for s in symbols if s not in self.ids]
        if unknown:
            raise ValueError(f"symbols must be in the vocabulary, got {unknown[:3]!r}")
        return [self.ids[s] for s in symbols]

    def decode(self, ids: Sequence[int]) -> list[str]:
        """Ids to symbols, special ones included.

        Raises
        ------
        ValueError
            If an id is not in the vocabulary.
        """
        for i in ids:
            if check_count("id", i) >= self.vocab_size:
                raise ValueError(f"id must lie in 0..{self.vocab_size - 1}, got {i}")
        return [self.symbols[i] for i in ids]

    def _split(self, mode: str) -> list[Pair]:
        check_choice("mode", mode, self.splits)
        return self.splits[mode]


def share_of(lengths: Sequence[int], share: Share) -> list[int]:
    """Return a process's sentences of a batch, given their lengths.

    A single process gets all, in order. Several take turns from the shortest to the longest, so that their
    token counts differ by less than the longest sentence.
    """
    rank, size = share
    order = range(len(lengths))
    return list(order) if size == 1 else sorted(order, key=lambda i: lengths[i])[rank::size]


def get_dataset(name: str, seed: int = 0) -> TranslationDataset:
    """Return ``"copy"`` or ``"sort"``: sequences of letters to be repeated, or put in order.

    9,000 training, 1,000 validation and 1,000 test sequences; lengths are drawn from a normal distribution of
    mean 15 and standard deviation 3, rounded, at least 1; letters are uniform.

    Raises
    ------
    ValueError
        If the name is unknown.
    """
    check_choice("name", name, ANSWERS)
    check_count("seed", seed)
    generator = np.random.default_rng([seed, len(SIZES)])
    splits = {}
    for mode, size in SIZES.items():
        lengths = np.maximum(generator.normal(MEAN_LENGTH, LENGTH_DEVIATION, size).round().astype(int), 1)
        splits[mode] = _draw_pairs(name, lengths.tolist(), generator)
    return TranslationDataset(splits, LETTERS, seed)


def pairs_of_length(name: str, length: int, count: int, seed: int = 0) -> list[Pair]:
    """Return pairs of one length, for lengths that do not occur in training."""
    return _draw_pairs(name, [length] * count, np.random.default_rng([seed, length]))


def _draw_pairs(name: str, lengths: list[int], generator: np.random.Generator) -> list[Pair]:
    sources = [generator.choice(list(LETTERS), n).tolist() for n in lengths]
    return [(source, ANSWERS[name](source)) for source in sources]
