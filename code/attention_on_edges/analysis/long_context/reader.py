"""An encoder that answers questions about a text, on any graph."""

from torch import Tensor

from attention_on_edges.analysis.long_context.recall_tasks import LongBatch
from edgewise.layers import Embeddings, Generator, PositionalEncoding, draw_weights, layer_pair
from edgewise.message_passing import ENGINES
from edgewise.models.transformer import Encoder, Output, Transformer
from edgewise.validation import check_choice, check_count


class Reader(Transformer):
    """The encoder of chapter 6 and an output layer; the graph comes with the batch.

    Parameters
    ----------
    encoder, embed, pos_enc, generator
        The parts.
    engine : str
        How attention is executed.
    """

    def __init__(
        self,
        encoder: Encoder,
        embed: Embeddings,
        pos_enc: PositionalEncoding,
        generator: Generator,
        engine: str = "auto",
    ):
        super().__init__(encoder, None, embed, None, pos_enc, generator, engine)

    def run(self, batch: LongBatch) -> Output:
        """Encode the texts and return the states of the questions, [n_tokens, dim_model]."""
        return Output(self.encode(batch)["enc"].index_select(0, batch.asked))

    def forward(self, batch: LongBatch) -> Tensor:
        """Return log-probabilities of the answers, [n_tokens, answers]."""
        return self.generator(self.hidden(batch))


def make_reader(
    vocab_size: int,
    N: int = 2,  # noqa: N803 (the tutorial's keyword)
    dim_model: int = 64,
    dim_ff: int = 128,
    h: int = 4,
    dropout: float = 0.0,
    engine: str = "auto",
    answers: int | None = None,
) -> Reader:
    """Build a reader; arguments as in :func:`edgewise.models.transformer.make_model`.

    ``answers`` is the size of the output vocabulary; by default that of the texts.

    Raises
    ------
    TypeError, ValueError
        If an argument is not what it should be; the message says which.
    """
    check_choice("engine", engine, ["auto", *ENGINES])
    check_count("vocab_size", vocab_size, 1)
    answers = vocab_size if answers is None else check_count("answers", answers, 1)
    layer, _ = layer_pair(dim_model, dim_ff, h, dropout)
    model = Reader(
        Encoder(layer, N),
        Embeddings(vocab_size, dim_model),
        PositionalEncoding(dim_model, dropout),
        Generator(dim_model, answers),
        engine,
    )
    draw_weights(model)
    return model
