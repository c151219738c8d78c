"""What tests of the book share: small models and tasks, corpora read once, PyTorch's layers."""

import unicodedata
from copy import deepcopy
from dataclasses import replace
from functools import cache, partial

import numpy as np
import torch

from attention_on_edges import corpora
from attention_on_edges.corpora.tokenizer_config import TokenizerConfig
from attention_on_edges.models.transformer import make_model
from attention_on_edges.pool import GraphPool
from attention_on_edges.runs import Experiment, ModelConfig
from attention_on_edges.studies.twins import in_matrices
from attention_on_edges.tasks import TranslationDataset
from attention_on_edges.training import TrainingConfig

VOCAB = 11

FEW = {"train": 180, "valid": 30, "test": 30}
"""Sizes of a toy task, ``attention_on_edges.tasks.SIZES``, where it does not matter what is learned."""

corpus_of = cache(corpora.load)
"""A corpus by its name, read once for all tests that only look at it."""


TINY = Experiment(
    "copy",
    "A tiny one.",
    "copy",
    ModelConfig(N=1, dim_model=16, dim_ff=16, h=2),
    TrainingConfig(epochs=1, batch_size=10, average=1, warmup=20),
)

TINY_COPY = replace(TINY, training=TrainingConfig(epochs=2, batch_size=20, warmup=20))
"""For several processes."""

TINY_TEXT = Experiment(
    "tiny",
    "Captions made by rule, a few of them.",
    "captions",
    ModelConfig(N=1, dim_model=16, dim_ff=16, h=2, shared=True),
    TrainingConfig(epochs=1, batch_tokens=500, bucketed=True, warmup=20),
    TokenizerConfig(vocab_size=400, dropout=0.2),
    tests=("valid", "test"),
)


def torch_twin(model):
    """Return the model made of ``torch.nn.Transformer``'s own layers, weights copied, in evaluation mode.

    If the model's encoder attends to windows, PyTorch's gets their mask.
    """
    attention, twin = model.encoder.layers[0].self_attn, deepcopy(in_matrices(model))
    if getattr(model, "source_graph", "complete") != "complete":
        assert model.source_graph == "window"
        mask_windows = partial(_with_windows, model.reach, attention.h)
        twin.body.register_forward_pre_hook(mask_windows, with_kwargs=True)
    return twin.eval()


def _with_windows(reach, heads, body, args, kwargs):
    """Mask, for each sentence and head, what is farther away; padding may attend to all real tokens."""
    padding = kwargs["src_key_padding_mask"]
    place = torch.arange(padding.shape[1])
    far = ((place[:, None] - place).abs() > reach) & ~padding[:, :, None]
    return args, kwargs | {"src_mask": far.repeat_interleave(heads, 0)}


@torch.no_grad()
def torch_greedy(twin, sources, sos_id, eos_id, limits):
    """Decode greedily with PyTorch's layers, padded, everything computed again at every step."""
    written, going = [[] for _ in sources], list(range(len(sources)))
    while going:
        texts = [torch.tensor(sources[i]) for i in going]
        targets = [torch.tensor([sos_id, *written[i], eos_id]) for i in going]
        logits, _ = twin(texts, targets)
        ends = torch.tensor([len(target) - 1 for target in targets]).cumsum(0) - 1
        tokens = logits[ends].argmax(1).tolist()
        chosen = [(i, t) for i, t in zip(going, tokens, strict=True) if t != eos_id]
        going = [i for i, _ in chosen if len(written[i]) < limits[i]]
        for i, token in chosen:
            if i in going:
                written[i].append(token)
    return written


PLAIN = ['Where\'s the "caf\u00e9" -- the old one?', "\u00c5ngstr\u00f6m, a co-worker", "I can't say."]
"""Texts with what programs and typographers change."""


def noisy(text, rng):
    """A text as programs and typographers make it of a plain one."""
    typed = {
        "'": "'`\u00b4\u02b9\u02bb\u02bc\u2018\u2019\u201a\u201b\u2032\u2035\u2039\u203a\uff07",
        '"': "\u00ab\u00bb\u201c\u201d\u201e\u201f\u2033\uff02",
        "-": "-\u2010\u2011\u2012\u2013\u2014\u2015\u2212",
    }
    text = text.replace(" ", rng.choice([" ", "  "]))
    typed[" "] = "\t\u00a0\u202f\u3000\u2028\x85 "
    hidden = ["", "", *"\u200b\u00ad\ufeff\x00\u202e\ufe0f\u034f\u3164\U000e0101"]
    typed_ = [rng.choice(typed.get(c, c)) + rng.choice(hidden) for c in unicodedata.normalize("NFD", text)]
    return rng.choice(" \n") + "".join(typed_) + " \u00a0"


def scale_states(model, factor):
    """Multiply the final states of each pass by what ``factor`` returns then."""
    run = model.run

    def scaled(batch):
        output = run(batch)
        return replace(output, hidden=output.hidden * factor())

    model.run = scaled


def small_model(engine="auto", N=2, h=2, dim_model=8, dim_ff=12, norm_first=True):
    """A small Transformer in evaluation mode whose norms and biases differ from their start values."""
    model = make_model(VOCAB, VOCAB, N, dim_model, dim_ff, h, engine=engine, norm_first=norm_first).eval()
    for parameter in model.parameters():
        if parameter.dim() == 1:
            torch.nn.init.normal_(parameter, mean=parameter.mean().item(), std=0.2)
    return model


def random_pairs(lengths, seed=0):
    """Source and target id lists of the given (source, target) lengths; targets hold one id more."""
    generator = torch.Generator().manual_seed(seed)
    return tuple(
        [torch.randint(0, VOCAB, (pair[side] + side,), generator=generator).tolist() for pair in lengths]
        for side in (0, 1)
    )


@torch.no_grad()
def dropped_and_doubled(model, continue_):
    """Grow three targets, drop one, double another, swap them, and grow on.

    Returns their last states, and the model's for the same targets computed at once.
    """
    sources, targets = random_pairs([(3, 6), (5, 6), (2, 6)])
    ids = torch.tensor(targets)
    continuation = continue_(model, sources)
    for position in range(3):
        continuation.step(ids[:, position])
    rows = torch.tensor([2, 0, 2])
    continuation.select(rows)
    for position in range(3, 6):
        states = continuation.step(ids[rows, position])
    batch = GraphPool()([sources[i] for i in rows], [targets[i] for i in rows])
    return states, model.hidden(batch).view(3, 6, -1)[:, -1]


def sorting_data(seed=0):
    """Letters to put in order: 44 sequences to train on and 10 to validate."""
    generator = np.random.default_rng(seed)
    sources = {
        mode: [generator.choice(list("abcd"), n).tolist() for n in generator.integers(1, 9, size)]
        for mode, size in (("train", 44), ("valid", 10))
    }
    splits = {mode: [(source, sorted(source)) for source in found] for mode, found in sources.items()}
    return TranslationDataset(splits, "abcd", seed)
