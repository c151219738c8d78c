"""A Transformer as message passing on a graph of tokens, in one file, with PyTorch alone.

`python one_file.py` trains a small one to copy strings, in half a minute on a CPU, and prints what it
attends to. The book *Attention on Edges* explains each part; its package `edgewise` is the same, and faster.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention

# 1. The graph: which token attends to which
# Tokens of a batch lie one after the other, sentence by sentence and without padding: [tokens, width].


@dataclass
class Graph:
    """Edge e: token ``dst[e]`` attends to token ``src[e]``. Sentences share no edge."""

    src: Tensor  # [E]
    dst: Tensor  # [E]
    receivers: Tensor  # [B, n], the tokens of each sentence that attend, filled up with token 0
    senders: Tensor  # [B, m], those that are attended to
    edge: Tensor  # [B, n, m], whether there is an edge: one tile per sentence


def packed(sentences: list[list[int]]) -> Tensor:
    """Sentences of ids as one list."""
    return torch.cat([torch.tensor(sentence) for sentence in sentences])


def connect(receivers: list[int], senders: list[int], causal: bool = False) -> Graph:
    """Let each token of a sentence attend to all of its senders, or only to those up to itself."""
    to, of = torch.tensor(receivers), torch.tensor(senders)
    i, j = torch.arange(int(to.max())), torch.arange(int(of.max()))
    edge = (i < to[:, None])[:, :, None] & (j < of[:, None])[:, None, :]
    if causal:
        edge = edge & (j <= i[:, None])
    to_token = ((to.cumsum(0) - to)[:, None] + i).where(i < to[:, None], 0)
    of_token = ((of.cumsum(0) - of)[:, None] + j).where(j < of[:, None], 0)
    b, i, j = edge.nonzero().T
    return Graph(of_token[b, j], to_token[b, i], to_token, of_token, edge)


# 2. Attention: each token gets the softmax-weighted sum of the values on its in-edges


def attention_weights(graph: Graph, q: Tensor, k: Tensor) -> Tensor:
    """Softmax over the in-edges of each token: q [N, h, d] and k [M, h, d] to [E, h]."""
    score = (q[graph.dst] * k[graph.src]).sum(-1) / math.sqrt(q.shape[-1])
    index = graph.dst[:, None].expand_as(score)
    most = torch.full_like(q[..., 0], -math.inf).scatter_reduce(0, index, score.detach(), "amax")
    weight = (score - most[graph.dst]).exp()  # no overflow: each token's largest score counts as 0
    return weight / torch.zeros_like(most).scatter_add(0, index, weight)[graph.dst]


def on_edges(graph: Graph, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Message passing: a message per edge, a weighted sum per token; [N, h, d]."""
    weights, messages = attention_weights(graph, q, k), v[graph.src]  # [E, h] and [E, h, d]
    return torch.zeros_like(q).index_add(0, graph.dst, weights[..., None] * messages)


def in_tiles(graph: Graph, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The same in dense tiles, one per sentence; no edge, no score."""
    q, k, v = (x.transpose(1, 2) for x in (q[graph.receivers], k[graph.senders], v[graph.senders]))
    out = scaled_dot_product_attention(q, k, v, graph.edge[:, None])
    return out.transpose(1, 2)[graph.edge.any(-1)]


# 3. The Transformer: attention on three graphs, and a network at each token


class Attention(nn.Module):
    """Multi-head attention on any graph."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads, self.attend = heads, in_tiles  # or on_edges
        self.in_proj, self.out_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def fields(self, to: Tensor, of: Tensor) -> list[Tensor]:
        """Queries of the tokens that attend, keys and values of those attended to: [tokens, h, d] each."""
        parts = zip((to, of, of), self.in_proj.weight.chunk(3), self.in_proj.bias.chunk(3), strict=True)
        return [nn.functional.linear(*part).unflatten(-1, (self.heads, -1)) for part in parts]

    def forward(self, graph: Graph, to: Tensor, of: Tensor) -> Tensor:
        """States [N, width] of receivers and [M, width] of senders to [N, width]."""
        return self.out_proj(self.attend(graph, *self.fields(to, of)).flatten(1))


class Layer(nn.Module):
    """One round of messages on each graph, then the feed-forward network; norms come first."""

    def __init__(self, width: int, heads: int, graphs: int):
        super().__init__()
        self.attention = nn.ModuleList(Attention(width, heads) for _ in range(graphs))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(graphs + 1))
        self.feed_forward = nn.Sequential(nn.Linear(width, 4 * width), nn.ReLU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor, own: Graph, *source: Graph | Tensor) -> Tensor:
        """States [N, width] to states [N, width]; a decoder's ``source`` is a graph and the states there."""
        y = self.norms[0](x)
        x = x + self.attention[0](own, y, y)
        if source:
            x = x + self.attention[1](source[0], self.norms[1](x), source[1])
        return x + self.feed_forward(self.norms[-1](x))


class Transformer(nn.Module):
    """Encoder and decoder on packed tokens: no padding, and no mask but the graph."""

    def __init__(self, vocab: int, layers: int = 2, width: int = 64, heads: int = 4):
        super().__init__()
        self.width, self.output = width, nn.Linear(width, vocab)
        self.source, self.target = nn.Embedding(vocab, width), nn.Embedding(vocab, width)
        self.encoder = nn.ModuleList(Layer(width, heads, 1) for _ in range(layers))
        self.decoder = nn.ModuleList(Layer(width, heads, 2) for _ in range(layers))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))

    def embed(self, table: nn.Embedding, sentences: list[list[int]]) -> Tensor:
        """Sentences of ids to packed tokens [N, width], with sinusoidal positions."""
        ids, place = packed(sentences), torch.cat([torch.arange(len(s)) for s in sentences])
        angle = place[:, None] * 10000.0 ** (-torch.arange(0, self.width, 2) / self.width)
        return table(ids) + torch.stack([angle.sin(), angle.cos()], -1).flatten(1)

    def forward(self, sources: list[list[int]], targets: list[list[int]]) -> Tensor:
        """Scores of the next token after each target token: [target tokens, vocab]."""
        m, n = [len(source) for source in sources], [len(target) for target in targets]
        enc, dec, cross = connect(m, m), connect(n, n, causal=True), connect(n, m)
        x, y = self.embed(self.source, sources), self.embed(self.target, targets)
        for layer in self.encoder:
            x = layer(x, enc)
        x = self.norms[0](x)
        for layer in self.decoder:
            y = layer(y, dec, cross, x)
        return self.output(self.norms[1](y))

    @torch.no_grad()
    def greedy(self, sources: list[list[int]], length: int) -> list[list[int]]:
        """Append the likeliest next token to each target, ``length`` times."""
        targets = [[START] for _ in sources]
        for _ in range(length):
            last = torch.tensor([len(target) for target in targets]).cumsum(0) - 1
            for target, token in zip(targets, self(sources, targets)[last].argmax(-1).tolist(), strict=True):
                target.append(token)
        return [target[1:] for target in targets]


# 4. Training: copy a string of letters

LETTERS = "abcdefghijklmnopqrstuvwxyz"
START, LENGTH = len(LETTERS), 10  # an id for the start, and the longest string


def strings(number: int) -> list[list[int]]:
    """Random strings of 5 to 10 letters."""
    return [torch.randint(START, (int(torch.randint(5, LENGTH + 1, ())),)).tolist() for _ in range(number)]


def train(model: Transformer, updates: int = 400, batch: int = 64) -> None:
    """Teacher forcing with Adam; the rate rises and falls linearly."""
    adam = torch.optim.Adam(model.parameters())
    rate = torch.optim.lr_scheduler.OneCycleLR(adam, 0.002, updates, anneal_strategy="linear")
    for update in range(1, updates + 1):
        sources = strings(batch)
        scores = model(sources, [[START, *source[:-1]] for source in sources])
        loss = cross_entropy(scores, packed(sources))
        adam.zero_grad()
        loss.backward()
        adam.step()
        rate.step()
        if update % (updates // 10) == 0:
            print(f"update {update:4}: loss {loss:.4f}")


def show_attention(model: Transformer, text: str) -> None:
    """Print how the decoder's last layer attends to the source: a row for each letter that is predicted."""
    source = [LETTERS.index(letter) for letter in text]
    attention, seen = model.decoder[-1].attention[1], []
    hook = attention.register_forward_pre_hook(lambda module, given: seen.extend(given))
    model([source], [[START, *source[:-1]]])
    hook.remove()
    q, k, _ = attention.fields(*seen[1:])
    weights = attention_weights(seen[0], q, k).mean(1).view(len(text), len(text))
    print("\nattention to:  " + " ".join(text))
    for letter, row in zip(text, weights.tolist(), strict=True):
        print(f"predicting {letter}:  " + " ".join(" .:-=+*#%@"[min(int(10 * weight), 9)] for weight in row))


if __name__ == "__main__":
    torch.manual_seed(0)
    model = Transformer(vocab=len(LETTERS) + 1)
    train(model)
    tests = [source for source in strings(2000) if len(source) == LENGTH]
    right = sum(copy == source for copy, source in zip(model.greedy(tests, LENGTH), tests, strict=True))
    print(f"{right} of {len(tests)} new strings are copied without a mistake")
    show_attention(model, "messages")
