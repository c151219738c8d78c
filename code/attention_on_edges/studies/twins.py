"""Chapter 8's control: a small translator that trains in ``torch.nn.Transformer``, on weights of its own."""

import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from torch import nn

from attention_on_edges.models.padded import PaddedTransformer
from attention_on_edges.models.transformer import Output, Transformer
from attention_on_edges.pool import Batch
from attention_on_edges.runs.experiment import Experiment
from attention_on_edges.runs.fitting import Part
from attention_on_edges.runs.running import start


def in_matrices(model: Transformer) -> PaddedTransformer:
    """Return ``torch.nn.Transformer`` on the same parameters: padded, masked, with PyTorch's attention."""
    first = model.encoder.layers[0]
    sizes = (model.encoder.N, first.self_attn.dim_model, first.feed_forward.inner.out_features)
    vocab, dropout = model.generator.proj.out_features, model.pos_enc.dropout.p
    twin = PaddedTransformer(vocab, *sizes, first.self_attn.h, dropout)
    twin.src_embed, twin.tgt_embed, twin.generator = model.src_embed, model.tgt_embed, model.generator
    share_layers(model, twin.body)
    return twin


def share_layers(model: Transformer, body: Any) -> None:
    """Give ``torch.nn.Transformer`` the parameters of a model's layers and norms, in place of its own."""
    for own, other in ((model.encoder, body.encoder), (model.decoder, body.decoder)):
        other.norm = own.norm
        for layer, torchs in zip(own.layers, other.layers, strict=True):
            torchs.linear1, torchs.linear2 = layer.feed_forward.inner, layer.feed_forward.outer
            for i, sublayer in enumerate(layer.sublayer, 1):
                setattr(torchs, f"norm{i}", sublayer.norm)
            attentions = [(layer.self_attn, torchs.self_attn)]
            if hasattr(layer, "src_attn"):
                attentions.append((layer.src_attn, torchs.multihead_attn))
            for mine, its in attentions:
                its.in_proj_weight, its.in_proj_bias = mine.in_proj.weight, mine.in_proj.bias
                its.out_proj.weight, its.out_proj.bias = mine.out_proj.weight, mine.out_proj.bias


def train_in_matrices(model: Transformer) -> None:
    """Let a model's training steps run in matrices; it is evaluated along edges, which computes the same."""
    twin, along_edges = in_matrices(model), model.run

    def run(batch: Batch) -> Output:
        if not model.training:
            return along_edges(batch)
        sources = batch.src[0].split(batch.src_lengths)
        targets = [nn.functional.pad(ids, (0, 1)) for ids in batch.tgt[0].split(batch.tgt_lengths)]
        return Output(twin.hidden(sources, targets)[0])  # which leaves out the last id of each

    model.run = run  # type: ignore[method-assign]


def measure_twin(experiment: dict[str, Any], matrices: bool) -> dict[str, Any]:
    """Train, along edges or in matrices; return the validation figures after the last epoch."""
    with tempfile.TemporaryDirectory() as folder:
        trainer = start(Experiment.of(experiment), Path(folder))
        if matrices:
            train_in_matrices(trainer.model)
        trainer.train()
        row = {"seed": trainer.config.seed, "first_losses": trainer.losses[:3]}
        return row | trainer.epochs[-1]["valid"]


def twin_runs(experiments: Iterable[Experiment]) -> Iterator[Part]:
    """Each experiment both ways."""
    for experiment in experiments:
        for way in ("along edges", "in matrices"):
            settings = {"experiment": experiment.config, "matrices": way == "in matrices"}
            yield Part(way, measure_twin, settings)
