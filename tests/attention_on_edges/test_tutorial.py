"""The closing script of DGL's tutorial, with only its import lines changed."""

import pytest
import torch

from attention_on_edges import tasks
from attention_on_edges.live import att_animation
from attention_on_edges.pool import GraphPool
from attention_on_edges.tasks import get_dataset
from attention_on_edges.training import LabelSmoothing
from attention_on_edges.tutorial import NoamOpt, SimpleLossCompute, make_model


@pytest.mark.parametrize(
    ("mean_length", "epochs", "warmup"), [(6, 3, 200), pytest.param(15, 4, 400, marks=pytest.mark.nightly)]
)
def test_a_tutorial_readers_calls_train_on_copy_and_record_the_attention(
    mean_length, epochs, warmup, monkeypatch
):
    """The calls of DGL's closing script: on shorter sequences in every run, else on the book's."""
    monkeypatch.setattr(tasks, "MEAN_LENGTH", mean_length)
    torch.manual_seed(0)
    data = get_dataset("copy")
    criterion = LabelSmoothing(data.vocab_size, padding_idx=data.pad_id, smoothing=0.1)
    model = make_model(data.vocab_size, data.vocab_size, N=1, dim_model=128, dim_ff=128, h=1)
    model.src_embed.lut.weight = model.generator.proj.weight = model.tgt_embed.lut.weight
    pool, losses, maps = GraphPool(), [], []
    optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), eps=1e-9)
    schedule = NoamOpt(128, 1, warmup, optimizer)
    for _ in range(epochs):
        model.train(True)
        learn = SimpleLossCompute(criterion, schedule)
        for g in data(pool, mode="train", batch_size=128, devices=["cpu"]):
            with torch.set_grad_enabled(True):
                learn(model(g), g.tgt_y, g.n_tokens)
        model.att_weight_map = None
        model.eval()
        judge = SimpleLossCompute(criterion, None)
        for g in data(pool, mode="valid", batch_size=128, devices=["cpu"]):
            with torch.set_grad_enabled(False):
                judge(model(g), g.tgt_y, g.n_tokens)
        losses.append(judge.avg_loss)
        maps.append(model.att_weight_map)
    assert losses[-1] < 0.2 < losses[0]
    assert judge.accuracy >= 0.95
    source = data.get_seq_by_id(3, mode="valid", field="src")
    target = data.get_seq_by_id(3, mode="valid", field="tgt")[:-1]
    for epoch_maps in maps:
        assert [tuple(m.shape) for m in epoch_maps] == [
            (1, len(source), len(source)), (1, len(target), len(source)), (1, len(target), len(target)),
        ]  # fmt: skip
    diagonal = [m[1][0].diagonal().mean().item() for m in maps]
    assert diagonal[-1] > 0.5 > diagonal[0]
    model.att_weight_map = None
    model(next(data(pool, mode="valid", batch_size=3)))  # in which no sentence has the script's number
    assert model.att_weight_map is None
    assert f"epoch {epochs}" in att_animation(maps, "e2d", source, target, 0)._repr_html_()
