"""Tagging each word with its dependency relation, on several graphs, one of which is the parse."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import torch

from attention_on_edges.analysis.long_context.fit import LongContextConfig, fit
from attention_on_edges.analysis.long_context.reader import Reader, make_reader
from attention_on_edges.analysis.long_context.recall_tasks import PAD, LongBatch
from attention_on_edges.data.corpora.annotated import Parse
from edgewise.graphs import AttentionGraph, batch, complete, dependency_tree, window
from edgewise.layers import evaluating
from edgewise.validation import check_count

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
    return AttentionGraph.from_mask(mask)


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
    """Data for tagging each word with its relation, without subtypes after a colon.

    Parameters
    ----------
    train : sequence of Parse
        Defines the vocabularies of words and relations.

    Raises
    ------
    ValueError
        If there is no sentence.
    """

    def __init__(self, train: Sequence[Parse]):
        if not train:
            raise ValueError("train must hold one sentence at least, got none")
        counts = Counter(word for parse in train for word in parse.words)
        known = sorted(word for word, count in counts.items() if count > 1)
        self.words = {word: i for i, word in enumerate(known, UNKNOWN + 1)}
        names = {relation.split(":")[0] for parse in train for relation in parse.relations}
        self.relations = {name: i for i, name in enumerate(sorted(names), PAD + 1)}
        self.answers = PAD + 1 + len(names)

    def batch(self, parses: Sequence[Parse], graph: str) -> LongBatch:
        """Pack sentences, each with its graph; every word is a question.

        Raises
        ------
        ValueError
            If a relation does not occur in the training sentences.
        """
        names = [relation.split(":")[0] for parse in parses for relation in parse.relations]
        if strange := sorted(set(names) - self.relations.keys()):
            raise ValueError(f"relations must be known from training, got {', '.join(strange)}")
        ids = [self.words.get(word, UNKNOWN) for parse in parses for word in parse.words]
        positions = torch.cat([torch.arange(len(parse.words)) for parse in parses])
        answers = torch.tensor([self.relations[name] for name in names])
        joined = batch([WORD_GRAPHS[graph](parse) for parse in parses])
        return LongBatch(joined, (torch.tensor(ids), positions), torch.arange(len(ids)), answers)

    def batches(self, parses: Sequence[Parse], graph: str, config: LongContextConfig) -> Iterator[LongBatch]:
        """Iterate endlessly over batches of about equally many words, reshuffled in every epoch."""
        generator = torch.Generator().manual_seed(check_count("seed", config.seed))
        waiting: list[int] = []
        for _ in range(config.steps):
            chosen, words = [], 0
            while words < config.batch_tokens:
                waiting = waiting or torch.randperm(len(parses), generator=generator).tolist()
                chosen.append(parses[waiting.pop()])
                words += len(chosen[-1].words)
            yield self.batch(chosen, graph)


def train_tagger(tags: Tags, train: Sequence[Parse], graph: str, config: LongContextConfig) -> Reader:
    """Train a new tagger on a kind of graph; ``config.lengths`` is not used."""
    torch.manual_seed(config.seed)
    model = make_reader(len(tags.words) + 1, answers=tags.answers, **config.size)
    fit(model, tags.batches(train, graph, config), config, tags.answers)
    return model


def tagged_right(model: Reader, tags: Tags, parses: Sequence[Parse], graph: str) -> float:
    """Return the share of words tagged correctly."""
    right = total = 0
    with evaluating(model), torch.no_grad():
        for first in range(0, len(parses), 100):
            some = tags.batch(parses[first : first + 100], graph)
            right += int((model(some).argmax(1) == some.tgt_y).sum())
            total += some.n_tokens
    return right / total
