"""Chapter 13: a decoder-only Transformer on packed texts, as Llama is; its cache is a graph that grows."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from edgewise.graphs import AttentionGraph, causal
from edgewise.propagation import propagate_attention
from edgewise.validation import check_bool, check_count, check_ids, check_real, check_tokens


@dataclass(frozen=True)
class CausalLMConfig:
    """What there is to choose.

    Attributes
    ----------
    vocab_size, num_layers, dim_model, dim_ff, num_heads : int
        Sizes.
    num_kv_heads : int, optional
        Heads of keys and values, each shared by a group of heads of queries (Ainslie et al. 2023);
        ``num_heads`` if not given.
    dim_head : int, optional
        Width of a head; ``dim_model / num_heads`` if not given.
    rope_base : float
        Base of the wavelengths at which positions turn queries and keys (Su et al. 2024).
    tied : bool
        Whether the output layer is the table of embeddings.
    eps : float
        Of the norms.
    """

    vocab_size: int
    num_layers: int
    dim_model: int
    dim_ff: int
    num_heads: int
    num_kv_heads: int | None = None
    dim_head: int | None = None
    rope_base: float = 10_000.0
    tied: bool = False
    eps: float = 1e-5

    def __post_init__(self) -> None:
        for name in ("vocab_size", "num_layers", "dim_model", "dim_ff", "num_heads"):
            check_count(name, getattr(self, name), 1)
        for name in ("num_kv_heads", "dim_head"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name), 1)
        if self.dim_head is None and self.dim_model % self.num_heads:
            raise ValueError(
                f"dim_model ({self.dim_model}) must be divisible by num_heads ({self.num_heads})"
            )
        if self.num_heads % self.kv_heads:
            raise ValueError(
                f"num_heads ({self.num_heads}) must be divisible by num_kv_heads ({self.kv_heads})"
            )
        for name in ("rope_base", "eps"):
            if check_real(name, getattr(self, name)) <= 0:
                raise ValueError(f"{name} must be above 0, got {getattr(self, name)}")
        if self.head_width % 2:
            raise ValueError(f"rotary positions need an even width of heads, got {self.head_width}")

    @property
    def kv_heads(self) -> int:
        """Heads of keys and values."""
        return self.num_kv_heads or self.num_heads

    @property
    def head_width(self) -> int:
        """Width of a head."""
        return self.dim_head or self.dim_model // self.num_heads


class PackedTexts(NamedTuple):
    """Texts one after the other: ids int64 [n], who attends to whom, and each token's place in its text."""

    ids: Tensor
    graph: AttentionGraph
    positions: Tensor


class CausalLM(nn.Module):
    """A language model that reads from left to right, on any graph of tokens.

    Parameters
    ----------
    config : CausalLMConfig
        Sizes and kinds.
    """

    def __init__(self, config: CausalLMConfig):
        super().__init__()
        self.config = config
        self.embed = nn.Embedding(config.vocab_size, config.dim_model)
        self.layers = nn.ModuleList(CausalLayer(config) for _ in range(config.num_layers))
        self.norm = nn.RMSNorm(config.dim_model, config.eps)
        self.out = nn.Linear(config.dim_model, config.vocab_size, bias=False)
        for parameter in self.parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)
        if check_bool("tied", config.tied):
            self.out.weight = self.embed.weight

    def pack(self, texts: Sequence[Sequence[int]]) -> PackedTexts:
        """Pack texts, given as lists of ids, for a call of the model: ``model(*model.pack(texts))``."""
        ids, lengths = self.ids_of(texts), [len(text) for text in texts]
        device = ids.device
        positions = torch.cat([torch.arange(n, device=device) for n in lengths] or [ids])
        return PackedTexts(ids, causal(lengths).to(device), positions)

    def ids_of(self, texts: Sequence[Sequence[int]]) -> Tensor:
        """Return the ids of all texts, one after the other: int64 [n].

        Raises
        ------
        TypeError, ValueError
            If one is no integer, or not of the vocabulary.
        """
        ids, device = [i for text in texts for i in text], self.embed.weight.device
        found = torch.tensor(ids, dtype=None if ids else torch.int64, device=device)
        check_ids("ids", found, self.config.vocab_size)
        return found

    def forward(
        self, ids: Tensor, graph: AttentionGraph, positions: Tensor, past: "KeyValueCache | None" = None
    ) -> Tensor:
        """Return the logits of the next token after each token, [n, vocab_size]; see :meth:`hidden`."""
        return self.out(self.hidden(ids, graph, positions, past))

    def hidden(
        self, ids: Tensor, graph: AttentionGraph, positions: Tensor, past: "KeyValueCache | None" = None
    ) -> Tensor:
        """Return the final states, from which ``out`` computes logits.

        Parameters
        ----------
        ids, positions : Tensor
            int64 [n]: tokens, and their places in their texts.
        graph : AttentionGraph
            Who attends to whom; with ``past``, from all that is in it to these tokens.
        past : KeyValueCache, optional
            Keys and values of earlier tokens.

        Returns
        -------
        Tensor
            [n, dim_model]

        Raises
        ------
        TypeError, ValueError
            If ids are not of the vocabulary, or do not fit the graph.
        """
        check_tokens("ids", ids, self.config.vocab_size)
        if past is not None:
            past.check(self, graph)
        if ids.shape != (graph.num_dst,) or positions.shape != ids.shape:
            raise ValueError(
                f"ids and positions must be [{graph.num_dst}] for this graph, got {list(ids.shape)} and "
                f"{list(positions.shape)}"
            )
        x = self.embed(ids)
        cos_sin = rotation(positions, self.config.head_width, self.config.rope_base, x.dtype)
        for number, layer in enumerate(self.layers):
            x = layer(x, graph, cos_sin, past, number)
        return self.norm(x)


class CausalLayer(nn.Module):
    """Attention and a SwiGLU network (Shazeer 2020), each with a residual connection around it.

    A norm by the root mean square (Zhang and Sennrich 2019) comes before each.

    Parameters
    ----------
    config : CausalLMConfig
        Sizes and kinds.
    """

    def __init__(self, config: CausalLMConfig):
        super().__init__()
        self.heads, self.kv_heads, width = config.num_heads, config.kv_heads, config.head_width
        first, second = (nn.RMSNorm(config.dim_model, config.eps) for _ in range(2))
        self.attention_norm, self.feed_forward_norm = first, second
        self.qkv = nn.Linear(config.dim_model, (self.heads + 2 * self.kv_heads) * width, bias=False)
        self.attention_out = nn.Linear(self.heads * width, config.dim_model, bias=False)
        self.inner = nn.Linear(config.dim_model, 2 * config.dim_ff, bias=False)
        self.outer = nn.Linear(config.dim_ff, config.dim_model, bias=False)

    def forward(
        self, x: Tensor, graph: AttentionGraph, cos_sin: Tensor, past: "KeyValueCache | None", number: int
    ) -> Tensor:
        """States [n, dim_model] to states; ``cos_sin`` rotates queries and keys; ``number`` counts layers."""
        fields = self.qkv(self.attention_norm(x)).unflatten(1, (self.heads + 2 * self.kv_heads, -1))
        q, k, v = fields.split([self.heads, self.kv_heads, self.kv_heads], 1)
        q, k = (rotated(each, cos_sin).to(v.dtype) for each in (q, k))
        if past is not None:
            k, v = past.append(number, k, v)
        x = x + self.attention_out(propagate_attention(graph, q, k, v).flatten(1))
        gate, up = self.inner(self.feed_forward_norm(x)).chunk(2, -1)
        return x + self.outer(nn.functional.silu(gate) * up)


def rotation(positions: Tensor, width: int, base: float, dtype: torch.dtype) -> Tensor:
    """Cosines and sines of the angles by which positions turn the pairs of a head: [2, n, 1, width / 2].

    Pair ``c`` turns by ``base ** (-2 * c / width)`` a position (Su et al. 2024, eq. 15).
    """
    speed = base ** (-torch.arange(0, width, 2, device=positions.device).float() / width)
    angle = positions[:, None, None].float() * speed
    return torch.stack([angle.cos(), angle.sin()]).to(dtype)


def rotated(x: Tensor, cos_sin: Tensor) -> Tensor:
    """Turn queries or keys [n, h, width], whose pairs are columns ``c`` and ``c + width / 2``."""
    cosine, sine = cos_sin
    first, second = x.chunk(2, -1)
    return torch.cat([first * cosine - second * sine, second * cosine + first * sine], -1)


class KeyValueCache:
    """Keys and values of several texts, with room for more.

    Reading a prompt and writing a token are the same: the graph is extended by new tokens, which attend to
    those before them in their text; they count once the model has read them to its last layer. Outside
    ``torch.no_grad`` it keeps the history of all that is written.

    Parameters
    ----------
    model : CausalLM
        Whose keys and values they are.
    texts, room : int
        How many texts, and the most tokens of each.
    """

    def __init__(self, model: CausalLM, texts: int, room: int):
        config, like = model.config, model.embed.weight
        self.room, self._model = check_count("room", room, 1), model
        self._graph: AttentionGraph | None = None
        shape = (2, check_count("texts", texts) * room, config.kv_heads, config.head_width)
        self._stored = [like.new_zeros(shape) for _ in range(config.num_layers)]
        self.lengths = torch.zeros(texts, dtype=torch.int64, device=like.device)

    def extend(self, new: Sequence[Sequence[int]]) -> PackedTexts:
        """Make place for new tokens of each text; return what the model takes to read them.

        Parameters
        ----------
        new : sequence of sequences of int
            Ids, a list for each text; it may be empty.

        Returns
        -------
        PackedTexts
            Ids and positions of all new tokens, and the graph from all slots to them.

        Raises
        ------
        TypeError, ValueError
            If there is not one list for each text, or no room for one, or an id is not of the vocabulary;
            the cache stays as it was.
        """
        ids = self._model.ids_of(new)
        counts = torch.tensor([len(text) for text in new], dtype=torch.int64, device=ids.device)
        if counts.shape != self.lengths.shape or bool((self.lengths + counts > self.room).any()):
            raise ValueError(
                f"there is room for {(self.room - self.lengths).tolist()} tokens, got {counts.tolist()}"
            )
        before = (counts.cumsum(0) - counts).repeat_interleave(counts)
        number = torch.arange(len(before), device=before.device) - before
        positions = self.lengths.repeat_interleave(counts) + number
        first = torch.arange(len(counts), device=before.device).repeat_interleave(counts) * self.room
        self._slots = first + positions
        rows = len(counts) if len(counts.unique()) == 1 else None  # of one length
        self._graph = AttentionGraph.from_intervals(
            first, self._slots + 1, len(counts) * self.room, self_attention=False, blocks=rows
        )
        self._grown = self.lengths + counts
        return PackedTexts(ids, self._graph, positions)

    def check(self, model: CausalLM, graph: AttentionGraph) -> None:
        """Refuse a pass of another model, or on another graph than the last :meth:`extend` returned.

        Raises
        ------
        ValueError
            If it is one.
        """
        if model is not self._model or graph is not self._graph:
            whose = "model" if model is not self._model else "graph than its last extend() returned"
            raise ValueError(f"the keys and values are those of another {whose}")

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Write keys and values of the new tokens; return those of all slots, [texts * room, h_kv, d_k]."""
        stored = self._stored[layer]
        stored[:, self._slots] = torch.stack([k, v]).to(stored.dtype)
        if layer == len(self._stored) - 1:
            self.lengths = self._grown
        keys, values = stored.to(k.dtype)
        return keys, values
