"""Chapter 2: embeddings, positions, feed-forward network, residual connections and layer norm."""

import copy
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn

from attention_on_edges.attention import MultiHeadAttention
from edgewise.propagation.precision import HALF
from edgewise.validation import check_bool, check_count, check_ends, check_probability, check_tokens


def clones(module: nn.Module, count: int) -> nn.ModuleList:
    """Return ``count`` copies of a module, each with its own parameters of the same values."""
    return nn.ModuleList(copy.deepcopy(module) for _ in range(check_count("count", count)))


class Dropout(nn.Dropout):
    """PyTorch's dropout, several times faster on a CPU: four decisions from each random number.

    The probability is rounded to a multiple of 2 ** -16; kept features are scaled by the rounded one.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Drop features in training; any shape."""
        dropped = round(self.p * 2**16)
        if not self.training or x.device.type != "cpu" or not 0 < dropped < 2**16:
            return super().forward(x)
        draws = torch.empty((x.numel() + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
        draws = draws.view(torch.int16)[: x.numel()].view(x.shape)  # each even in -2**15 .. 2**15 - 1
        scale = 2**16 / (2**16 - dropped)
        kept = (draws >= dropped - 2**15).to(x.dtype)
        return x * kept * scale if x.dtype in HALF else x * kept.mul_(scale)  # half would round it


class Embeddings(nn.Module):
    """Token ids to vectors, multiplied by the square root of the width (Vaswani et al. 2017, sec. 3.4)."""

    def __init__(self, vocab: int, dim_model: int):
        super().__init__()
        self.lut = nn.Embedding(check_count("vocab", vocab, 1), check_count("dim_model", dim_model, 1))
        nn.init.normal_(self.lut.weight, std=dim_model**-0.5)

    def forward(self, ids: Tensor) -> Tensor:
        """int64 [N] to [N, dim_model]. On a CPU an id outside the vocabulary is a ``ValueError``."""
        check_tokens("token id", ids, self.lut.num_embeddings)
        return self.lut(ids) * math.sqrt(self.lut.embedding_dim)


class PositionalEncoding(nn.Module):
    """Sinusoidal position encodings (Vaswani et al. 2017, sec. 3.5).

    Parameters
    ----------
    dim_model : int
        Width.
    dropout : float
        For ``self.dropout``, which the model applies to the sum of embedding and position.
    """

    def __init__(self, dim_model: int, dropout: float = 0.0):
        super().__init__()
        self.dim_model = check_count("dim_model", dim_model, 1)
        self.dropout = Dropout(check_probability("dropout", dropout))

    def forward(self, positions: Tensor) -> Tensor:
        """int64 [N] to float32 [N, dim_model]."""
        check_tokens("position", positions, torch.iinfo(torch.int64).max)
        if positions.device.type not in ("cpu", "mps"):  # it would have to say which is the largest
            return waves(positions, self.dim_model)
        longest = int(positions.max()) + 1 if positions.numel() else 1
        if longest > LONGEST:
            return waves(positions.cpu(), self.dim_model).to(positions.device)
        table = _table(max(128, 2 ** (longest - 1).bit_length()), self.dim_model)
        return table.to(positions.device)[positions]


LONGEST = 1 << 14
"""Positions of the largest table that is kept."""


@lru_cache(maxsize=16)
def _table(length: int, dim_model: int) -> Tensor:
    """For all models, instead of a buffer that grows."""
    with torch.inference_mode(False):  # a later pass may need gradients
        return position_table(length, dim_model)


def position_table(length: int, dim_model: int) -> Tensor:
    """The waves of all positions up to a length; float32 [length, dim_model]."""
    return waves(torch.arange(length, device="cpu"), dim_model)


def waves(positions: Tensor, dim_model: int) -> Tensor:
    r"""Even columns :math:`\sin(pos / 10000^{2i/d})`, odd ones the cosine; float32 [N, dim_model]."""
    steps = torch.arange(0, dim_model, 2, dtype=torch.float64, device=positions.device)
    angle = positions[:, None] * 10000.0 ** (-steps / dim_model)
    table = angle.new_empty(len(positions), dim_model)
    table[:, 0::2], table[:, 1::2] = angle.sin(), angle[:, : dim_model // 2].cos()
    return table.float()


class PositionwiseFeedForward(nn.Module):
    """The position-wise feed-forward network: two linear maps and a ReLU (Vaswani et al. 2017, eq. 2).

    With ``dim_ff`` 0 only the bias of the second map is left.
    """

    def __init__(self, dim_model: int, dim_ff: int):
        super().__init__()
        with warnings.catch_warnings():
            if check_count("dim_ff", dim_ff) == 0:
                warnings.simplefilter("ignore")  # PyTorch warns that there are no weights to initialise
            self.inner, self.outer = nn.Linear(dim_model, dim_ff), nn.Linear(dim_ff, dim_model)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw both matrices from Glorot's uniform distribution; set biases to zero."""
        for linear in (self.inner, self.outer):
            _glorot(linear)

    def forward(self, x: Tensor) -> Tensor:
        """[..., dim_model] to [..., dim_model]."""
        return self.outer(self.inner(x).relu())


class SublayerConnection(nn.Module):
    """Residual connection, dropout and layer norm around a sub-layer f.

    Pre-norm is x + dropout(f(norm(x))); post-norm is norm(x + dropout(f(x))), as in Vaswani et al. 2017
    (sec. 3.1 and 5.4).

    Parameters
    ----------
    size : int
        Width.
    dropout : float
        Probability in [0, 1) of dropping a feature of the sub-layer's output.
    norm_first : bool
        Pre-norm, else post-norm.

    Raises
    ------
    TypeError, ValueError
        If ``norm_first`` is not a bool or ``dropout`` is not a probability below one.
    """

    def __init__(self, size: int, dropout: float = 0.0, norm_first: bool = True):
        super().__init__()
        self.norm = nn.LayerNorm(size)
        self.dropout = Dropout(check_probability("dropout", dropout))
        self.norm_first = check_bool("norm_first", norm_first)

    def before(self, x: Tensor) -> Tensor:
        """Return the sub-layer's input: [..., size]."""
        return self.norm(x) if self.norm_first else x

    def after(self, x: Tensor, y: Tensor) -> Tensor:
        """Combine the input ``x`` and the sub-layer's output ``y``, both [..., size]."""
        total = x + self.dropout(y)
        return total if self.norm_first else self.norm(total)

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """Apply ``sublayer``, which keeps the shape [..., size]."""
        return self.after(x, sublayer(self.before(x)))


class EncoderLayer(nn.Module):
    """The parts of one encoder layer: self-attention and feed-forward, each with a residual connection.

    Parameters
    ----------
    size : int
        Width of the states.
    self_attn, feed_forward : MultiHeadAttention, PositionwiseFeedForward
        The sub-layers, of that width.
    dropout : float
        Of a sub-layer's output.
    norm_first : bool
        Pre-norm, else post-norm.
    """

    sublayer: Any  # a ModuleList does not say of what

    def __init__(
        self,
        size: int,
        self_attn: MultiHeadAttention,
        feed_forward: PositionwiseFeedForward,
        dropout: float = 0.0,
        norm_first: bool = True,
    ):
        super().__init__()
        self.size = size
        self.self_attn = self_attn
        self.feed_forward = feed_forward
        self.sublayer = clones(SublayerConnection(size, dropout, norm_first), 2)


class DecoderLayer(nn.Module):
    """The parts of one decoder layer: self-attention, cross-attention (``src_attn``), feed-forward.

    Parameters as in :class:`EncoderLayer`.
    """

    sublayer: Any  # a ModuleList does not say of what

    def __init__(
        self,
        size: int,
        self_attn: MultiHeadAttention,
        src_attn: MultiHeadAttention,
        feed_forward: PositionwiseFeedForward,
        dropout: float = 0.0,
        norm_first: bool = True,
    ):
        super().__init__()
        self.size = size
        self.self_attn = self_attn
        self.src_attn = src_attn
        self.feed_forward = feed_forward
        self.sublayer = clones(SublayerConnection(size, dropout, norm_first), 3)


class Stack(nn.Module):
    """``N`` copies of ``layer``, at least one, and a final norm."""

    layers: Any  # a ModuleList does not say of what

    def __init__(self, layer: EncoderLayer | DecoderLayer, N: int):  # noqa: N803 (the tutorial's keyword)
        super().__init__()
        self.N = check_count("N", N, 1)
        self.layers = clones(layer, N)
        self.norm = nn.LayerNorm(layer.size)


class Generator(nn.Module):
    """States [..., dim_model] to log-probabilities over the vocabulary, [..., vocab]."""

    def __init__(self, dim_model: int, vocab: int):
        super().__init__()
        self.proj = nn.Linear(dim_model, check_count("vocab", vocab, 1))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the matrix from Glorot's uniform distribution; set the bias to zero."""
        _glorot(self.proj)

    def logits(self, x: Tensor) -> Tensor:
        """[N, dim_model] to scores [N, vocab]."""
        return self.proj(x)

    def forward(self, x: Tensor) -> Tensor:
        """[N, dim_model] to log-probabilities [N, vocab]."""
        return self.logits(x).log_softmax(-1)


def check_symbols(generator: Generator, sos_id: int, eos_id: int | Sequence[int]) -> frozenset[int]:
    """Return the end symbols; refuse start and end symbols outside of what a generator predicts."""
    size = generator.proj.out_features
    if check_count("sos_id", sos_id) >= size:
        raise ValueError(f"sos_id must lie in 0..{size - 1}, got {sos_id}")
    return check_ends(eos_id, size)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put a model into evaluation mode, and its modules back into theirs afterwards."""
    modes = [(module, module.training) for module in model.modules()]
    try:
        model.eval()
        yield
    finally:
        for module, training in modes:
            module.training = training


def layer_pair(
    dim_model: int, dim_ff: int, h: int, dropout: float = 0.0, norm_first: bool = True
) -> tuple[EncoderLayer, DecoderLayer]:
    """Build one encoder and one decoder layer, from which a :class:`Stack` makes copies."""
    attention, feed_forward = MultiHeadAttention(h, dim_model), PositionwiseFeedForward(dim_model, dim_ff)
    return (
        EncoderLayer(dim_model, attention, feed_forward, dropout, norm_first),
        DecoderLayer(dim_model, attention, copy.deepcopy(attention), feed_forward, dropout, norm_first),
    )


def draw_weights(model: nn.Module) -> None:
    """Initialise attention, feed-forward and generator of every layer, which copying left identical."""
    for module in model.modules():
        if isinstance(module, MultiHeadAttention | PositionwiseFeedForward | Generator):
            module.reset_parameters()


def share_matrix(model: Any) -> None:
    """Let both embeddings and the output layer of a model use one matrix (Vaswani et al. 2017, sec. 3.4).

    Raises
    ------
    ValueError
        If the two vocabularies differ in size.
    """
    sizes = (model.src_embed.lut.num_embeddings, model.tgt_embed.lut.num_embeddings)
    if sizes[0] != sizes[1]:
        raise ValueError(f"shared needs one vocabulary, got src_vocab {sizes[0]} and tgt_vocab {sizes[1]}")
    model.src_embed.lut.weight = model.generator.proj.weight = model.tgt_embed.lut.weight


def _glorot(linear: nn.Linear) -> None:
    if linear.weight.numel():
        nn.init.xavier_uniform_(linear.weight)
    nn.init.zeros_(linear.bias)
