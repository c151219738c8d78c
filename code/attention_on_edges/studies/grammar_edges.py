"""Chapter 10's question: which graph names words' grammatical relations; one is the parse."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch

from attention_on_edges.corpora.gold_annotations import Parse, treebank
from attention_on_edges.models.reader import Questions, Reader
from attention_on_edges.runs.fitting import FitConfig, fit
from attention_on_edges.sparse_graphs import dependency_tree
from edgewise.graphs import AttentionGraph, batch, complete, window

UNKNOWN = 0
"""Id of words that occur at most once in training."""


def random_tree(parse: Parse) -> AttentionGraph:
    """Return a random tree with as many edges as the parse: the control."""
    n = len(parse.words)
    generator = torch.Generator().manual_seed(n)
    order = torch.randperm(n, generator=generator).tolist()
    heads = [-1] * n
    for place in range(1, n):
        heads[order[place]] = order[int(torch.randint(place, (1,), generator=generator))]
    return dependency_tree(heads)


def same_distances(parse: Parse) -> AttentionGraph:
    """Return links at the distances of the parse's, each at a random place: the control for locality.

    A link of the parse's own is drawn only where its distance leaves no other place.
    """
    n, parsed = len(parse.words), dependency_tree(parse.heads).to_mask()
    generator = torch.Generator().manual_seed(n)
    mask = torch.eye(n, dtype=torch.bool)
    for word, head in enumerate(parse.heads):
        if head >= 0:
            distance = abs(head - word)
            taken, own = mask.diagonal(distance), parsed.diagonal(distance)
            free = (~(taken | own) if (~(taken | own)).any() else ~taken).nonzero().flatten()
            place = int(free[torch.randint(len(free), (1,), generator=generator)])
            mask[place, place + distance] = mask[place + distance, place] = True
    return AttentionGraph.from_mask(mask, self_attention=True)


WORD_GRAPHS: dict[str, Callable[[Parse], AttentionGraph]] = {
    "complete": lambda parse: complete(len(parse.words)),
    "neighbours": lambda parse: window(len(parse.words), 1, 1),
    "tree": lambda parse: dependency_tree(parse.heads),
    "same distances": same_distances,
    "random tree": random_tree,
    "itself": lambda parse: window(len(parse.words), 0, 0),
}
"""By sentence; all but the first and the last have 3 n - 2 edges over n words."""


def shared_links(parses: Sequence[Parse], graph: str) -> float:
    """Return the share of the parses' links that a graph has, too."""
    shared = count = 0
    for parse in parses:
        own = dependency_tree(parse.heads).to_mask().triu(1)
        shared += int((own & WORD_GRAPHS[graph](parse).to_mask()).sum())
        count += int(own.sum())
    return shared / count


class Tags:
    """Data for tagging each word with its relation, without subtypes after a colon, on one kind of graph.

    Parameters
    ----------
    train : sequence of Parse
        Defines the vocabularies of words and relations.
    graph : str
        One of ``WORD_GRAPHS``.
    """

    def __init__(self, train: Sequence[Parse], graph: str):
        self.train, self.graph = train, graph
        counts = Counter(word for parse in train for word in parse.words)
        known = sorted(word for word, count in counts.items() if count > 1)
        self.words = {word: i for i, word in enumerate(known, UNKNOWN + 1)}
        names = {relation.split(":")[0] for parse in train for relation in parse.relations}
        self.relations = {name: i for i, name in enumerate(sorted(names), 1)}  # 0 is no answer

    def batch(self, parses: Sequence[Parse]) -> Questions:
        """Pack sentences, each with its graph; every word is a question."""
        ids = [self.words.get(word, UNKNOWN) for parse in parses for word in parse.words]
        positions = torch.cat([torch.arange(len(parse.words)) for parse in parses])
        answers = [self.relations[r.split(":")[0]] for parse in parses for r in parse.relations]
        joined = batch([WORD_GRAPHS[self.graph](parse) for parse in parses])
        asked = torch.arange(len(ids))
        return Questions(joined, (torch.tensor(ids), positions), asked, torch.tensor(answers))

    def batches(self, tokens: int, generator: torch.Generator) -> Iterator[Questions]:
        """Iterate endlessly over batches of about equally many words, reshuffled in every epoch."""
        waiting: list[int] = []
        while True:
            chosen, words = [], 0
            while words < tokens:
                waiting = waiting or torch.randperm(len(self.train), generator=generator).tolist()
                chosen.append(self.train[waiting.pop()])
                words += len(chosen[-1].words)
            yield self.batch(chosen)


def measure_tagger(training: FitConfig, graph: str) -> dict[str, Any]:
    """Train on EWT's training split, about so many words at a time, on one of ``WORD_GRAPHS``.

    Returns accuracy on the test split, edges per word, and the share of the parses' links among them.
    """
    test, tags = treebank("test"), Tags(treebank("train"), graph)
    make = partial(Reader, len(tags.words) + 1, len(tags.relations) + 1)
    model, _ = fit(make, partial(tags.batches, training.size), training)
    batches = [tags.batch(test[first : first + 100]) for first in range(0, len(test), 100)]
    words = sum(len(batch.tgt_y) for batch in batches)
    return {
        "right": sum(map(model.right, batches)) / words,
        "edges": sum(batch.enc.num_edges for batch in batches) / words,
        "shared": shared_links(test, graph),
    }
