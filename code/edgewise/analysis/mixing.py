"""A Transformer that does without attention."""

from torch import Tensor

from edgewise.gnn import AGGREGATORS, aggregate
from edgewise.graphs import AttentionGraph
from edgewise.transformer import Transformer, make_model
from edgewise.validation import check_choice


class MixingTransformer(Transformer):
    """A Transformer whose tokens combine what they hear by sum, mean or maximum instead of attention.

    Queries and keys are still projected, and nobody looks at them: the number of weights stays the same.

    Attributes
    ----------
    how : str
        One of ``gnn.AGGREGATORS``; ``"attention"`` is the ordinary Transformer.
    """

    how: str = "attention"

    def propagate_attention(self, graph: AttentionGraph, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Let every receiver of ``graph`` combine what it hears: [num_dst, h, d_k]."""
        return aggregate(graph, v, self.how, q, k)


def make_mixing_model(src_vocab: int, tgt_vocab: int, how: str = "attention", **size) -> MixingTransformer:
    """Build one; ``size`` as in :func:`make_model`, from the same random numbers.

    Raises
    ------
    TypeError, ValueError
        If an argument is not what it should be; the message says which.
    """
    check_choice("how", how, AGGREGATORS)
    plain = make_model(src_vocab, tgt_vocab, **size)
    model = MixingTransformer(
        plain.encoder, plain.decoder, plain.src_embed, plain.tgt_embed, plain.pos_enc, plain.generator
    )
    model.how = how
    return model
