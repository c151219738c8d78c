"""What tests of the workshop share: small toy tasks, corpora read once, PyTorch's layers with our weights."""

import unicodedata
from functools import cache, partial

import torch

from attention_on_edges import corpora
from attention_on_edges.bench.baselines import PaddedTransformer
from attention_on_edges.lab import given
from attention_on_edges.runs import Experiment, ModelConfig
from edgewise.training import TrainingConfig
from support import copy_parts, copy_to_torch

TASKS = {
    1: given.MultiHeadAttention,
    2: given.FeedForward,
    3: given.EncoderStack,
    4: given.MultiHeadAttention,
    5: given.DecoderStack,
    6: given.Transformer,
}
"""The solution of each task of the lab."""

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

TINY_COPY = Experiment(
    "copy",
    "A tiny one, in several processes.",
    "copy",
    ModelConfig(N=1, dim_model=8, dim_ff=8, h=1, dropout=0.1),
    TrainingConfig(epochs=2, batch_size=20, warmup=20),
)


def torch_twin(model):
    """Return the model made of ``torch.nn.Transformer``'s own layers, weights copied, in evaluation mode.

    If the model's encoder attends to windows, PyTorch's gets their mask.
    """
    layers, vocab = model.encoder.N, model.generator.proj.out_features
    attention, inner = model.encoder.layers[0].self_attn, model.encoder.layers[0].feed_forward.inner
    twin = PaddedTransformer(vocab, layers, attention.dim_model, inner.out_features, attention.h, dropout=0.0)
    copy_to_torch(model, twin.body)
    pairs = [(model.src_embed, twin.src_embed), (model.tgt_embed, twin.tgt_embed)]
    copy_parts([*pairs, (model.generator.proj, twin.generator.proj)])
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
    hidden = [
        "",
        "",
        "\u200b",
        "\u00ad",
        "\ufeff",
        "\x00",
        "\u202e",
        "\ufe0f",
        "\u034f",
        "\u3164",
        "\U000e0101",
    ]
    typed_ = [rng.choice(typed.get(c, c)) + rng.choice(hidden) for c in unicodedata.normalize("NFD", text)]
    return rng.choice(" \n") + "".join(typed_) + " \u00a0"
