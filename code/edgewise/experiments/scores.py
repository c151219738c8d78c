"""What a model can do, by its own decoding."""

def figures(
    model: Transformer, data: TranslationDataset, mode: str, limit: int | None = None
) -> dict[str, float]:
    """Score a model on a split: given the true tokens before each one, and by its own decoding.

    Parameters
    ----------
    model : Transformer
        Runs without dropout.
    data : TranslationDataset
        Holds the split.
    mode : str
        ``"train"``, ``"valid"`` or ``"test"``.
    limit : int, optional
        Sequences to decode, the first ones; all if not given.
    """
    criterion = LabelSmoothing(data.vocab_size, data.pad_id)
    loss = StateLossCompute(model.generator, criterion)
    device = next(model.parameters()).device
    with evaluating(model), torch.no_grad():
        run_epoch(data(GraphPool(), mode, 250, device), model.hidden, loss, is_train=False)
    forced = {"loss": loss.avg_loss, "accuracy": loss.accuracy}
    return forced | decoded_figures(model, data, mode, limit)


def decoded_figures(
    model: Transformer, data: TranslationDataset, mode: str, limit: int | None = None
) -> dict[str, float]:
    """Decode a split greedily: share of sequences exactly right, share of tokens in their places."""
    pairs = data.splits[mode][:limit]
    predictions = decode(model, data, [source for source, _ in pairs])
    targets = [target for _, target in pairs]
    return {
        "exact_match": exact_match(predictions, targets),
        "token_accuracy": token_accuracy(predictions, targets),
    }


def decode(
    model: Transformer, data: TranslationDataset, sources: list[list[str]], batch_size: int = 250
) -> list[list[str]]:
    """Decode symbol sequences greedily, ``batch_size`` at a time."""
    ids = [data.encode(source) for source in sources]
    hypotheses = [
        hypothesis
        for first in range(0, len(ids), batch_size)
        for hypothesis in greedy(model, ids[first : first + batch_size], data.sos_id, data.eos_id)
    ]
    return [data.decode(hypothesis.ids) for hypothesis in hypotheses]


