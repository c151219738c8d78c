"""Chapter 8: lossless tokenisation of text."""

import json
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from attention_on_edges.corpora.text import listed
from edgewise.validation import InputError, check_count


class BPE:
    """Byte-pair encoding of text (Sennrich et al. 2016), one vocabulary for both languages.

    Bytes are the smallest pieces, so no character is unknown. The first piece of a word includes the space
    before it; the first word of a text gets one too.

    Parameters
    ----------
    tokenizer : tokenizers.Tokenizer
        A byte-level byte-pair encoding; :meth:`train` and :meth:`load` make it, and a BPE of it.
    """

    def __init__(self, tokenizer: Tokenizer):
        self._tokenizer = tokenizer

    @classmethod
    def train(cls, lines: Iterable[str], vocab_size: int) -> "BPE":
        """Learn merges from training text.

        Parameters
        ----------
        lines : iterable of str
            Text of both languages.
        vocab_size : int
            Size of the vocabulary, at least the 256 bytes.

        Raises
        ------
        ValueError
            If ``vocab_size`` is below 256.
        """
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=check_count("vocab_size", vocab_size, 256),
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        if isinstance(lines, str):
            listed("lines", lines)
        tokenizer.train_from_iterator((" " + line for line in lines), trainer)
        return cls(tokenizer)

    @classmethod
    def load(cls, path: Path | str) -> "BPE":
        """Read what :meth:`to_json` gave, from a file.

        Raises
        ------
        FileNotFoundError
            If there is no such file.
        InputError
            If it holds no tokenizer.
        """
        data = Path(path).read_bytes()
        try:
            return cls(Tokenizer.from_str(data.decode("utf-8")))
        except Exception as error:  # the library raises nothing narrower
            raise InputError(f"{path} holds no tokenizer: {error}") from None

    def to_json(self) -> str:
        """Return what a file for :meth:`load` should hold."""
        return self._tokenizer.to_str() + "\n"

    @cached_property
    def symbols(self) -> list[str]:
        """All pieces, in the order of their numbers."""
        vocabulary = self._tokenizer.get_vocab()
        return sorted(vocabulary, key=vocabulary.__getitem__)

    def split(self, text: str) -> list[str]:
        """Text to pieces."""
        return self._tokenizer.encode(" " + text).tokens

    def numbers(self, texts: Sequence[str]) -> list[list[int]]:
        """Texts to the numbers of their pieces in :attr:`symbols`, many at a time."""
        spaced = [" " + text for text in listed("texts", texts)]
        return [found.ids for found in self._tokenizer.encode_batch(spaced)]

    def join(self, pieces: Sequence[str]) -> str:
        """Pieces to text; the inverse of :meth:`split`. Bytes that form no character become U+FFFD."""
        return self._tokenizer.decoder.decode(list(pieces)).removeprefix(" ")

    def show(self, pieces: Sequence[str]) -> list[str]:
        """Return readable pieces: each as text, with ``_`` for the space before a word."""
        return [self._tokenizer.decoder.decode([piece]).replace(" ", "_") for piece in pieces]

    @cached_property
    def _merges(self) -> dict[tuple[str, str], int]:
        """Merges and their ranks."""
        merges = json.loads(self._tokenizer.to_str())["model"]["merges"]
        return {(left, right): rank for rank, (left, right) in enumerate(merges)}

    def words(self, text: str) -> list[str]:
        """Pre-tokenise: text to the words and punctuation marks that merges never cross."""
        return [word for word, _ in self._tokenizer.pre_tokenizer.pre_tokenize_str(f" {text}")]

    def sample_word(self, word: str, dropout: float, generator: np.random.Generator) -> list[str]:
        """Split one of :meth:`words` with BPE-dropout: merges skipped at random (Provilkov et al. 2020)."""
        pieces = list(word)
        while len(pieces) > 1:
            ranks = [self._merges.get(pair) for pair in pairwise(pieces)]
            left_out = generator.random(len(ranks)) < dropout
            choices = [(rank, i) for i, rank in enumerate(ranks) if rank is not None and not left_out[i]]
            if not choices:
                break
            _, i = min(choices)
            pieces[i : i + 2] = [pieces[i] + pieces[i + 1]]
        return pieces
