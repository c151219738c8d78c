"""The model in matrices against PyTorch's, and against itself, step by step."""

import warnings

import torch
from hypothesis import given
from hypothesis import strategies as st

from attention_on_edges.models import dense
from attention_on_edges.models.transformer import make_model
from attention_on_edges.pool import GraphPool
from attention_on_edges.studies.twins import share_layers
from book_support import VOCAB, random_pairs, small_model
from support import assert_equal_as_stated, refusals

pool = GraphPool()
ragged = st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6)), min_size=1, max_size=4)
IDS = torch.zeros(1, 2, dtype=torch.int64)


def real_of(lengths):
    return torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]


@given(ragged, st.booleans())
def test_equals_torchs_transformer_in_value_and_gradient(sizes, norm_first):
    """With its final norms, which it has in both orders; padded, causal, every parameter and both tables."""
    model, batch = small_model(norm_first=norm_first).double(), pool(*random_pairs(sizes))
    lengths, real = batch.src_lengths, real_of(batch.tgt_lengths)
    src, tgt = dense.pad(batch.src[0], lengths), dense.pad(batch.tgt[0], batch.tgt_lengths)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a fast path is off
        twin = torch.nn.Transformer(
            8, 2, 2, 2, 12, dropout=0.0, batch_first=True, norm_first=norm_first, dtype=torch.float64
        )
    share_layers(model, twin)
    tables = [embed.lut.weight for embed in (model.src_embed, model.tgt_embed)]
    x, y = (
        table[ids] * 8**0.5 + model.pos_enc(torch.arange(ids.shape[1]))
        for table, ids in zip(tables, (src, tgt), strict=True)
    )
    no_src, later = ~real_of(lengths), torch.ones(2 * [tgt.shape[1]], dtype=torch.bool).triu(1)
    theirs = twin(
        x, y, tgt_mask=later, src_key_padding_mask=no_src,
        tgt_key_padding_mask=~real, memory_key_padding_mask=no_src,
    )[real]  # fmt: skip
    ours = dense.hidden(model, src, tgt, lengths)[real]
    used = [*tables, *model.encoder.parameters(), *model.decoder.parameters()]
    assert_equal_as_stated(ours, theirs, used)


def test_greedy_decodes_the_most_probable_token_each_time_and_reads_it():
    """Sentence by sentence from whole prefixes, against all at once, padded; dropout off, the mode kept."""
    model = make_model(VOCAB, VOCAB, 2, 8, 12, 2, dropout=0.5)
    lengths = [4, 2, 6]
    sources, _ = random_pairs([(n, 1) for n in lengths], seed=3)
    src = dense.pad(torch.cat([torch.tensor(source) for source in sources]), lengths)
    ends = dense.greedy(model, src, 1, 0, 9, lengths)[0][2]  # a symbol that occurs
    found = dense.greedy(model, src, 1, ends, 9, lengths)
    assert model.training
    expected = []
    for source in sources:
        written = [1]
        while len(written) <= 9 and written[-1] != ends:
            states = dense.hidden(model.eval(), torch.tensor([source]), torch.tensor([written]))
            written.append(int(model.generator(states[0, -1]).argmax()))
        expected.append([i for i in written[1:] if i != ends])
    assert found == expected
    assert {len(row) < 9 for row in expected} == {True, False}, "one row ends, one is cut off"


test_bad_input = refusals(
    (lambda m: dense.hidden(m, IDS + VOCAB, IDS), rf"token id must lie in 0\.\.{VOCAB - 1}"),
    (lambda m: dense.hidden(m, IDS, IDS, [2, 1]), "one length per row: 1 rows, 2 lengths"),
    (lambda m: dense.greedy(m, IDS, VOCAB, 1, 3), rf"sos_id must lie in 0\.\.{VOCAB - 1}"),
    (lambda m: dense.greedy(m, IDS, 0, 1, 0), "max_len must be at least 1, got 0"),
    model=small_model,
)
