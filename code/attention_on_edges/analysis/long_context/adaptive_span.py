"""Adaptive attention span: a learned window for each head."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from edgewise.graphs import AttentionGraph, window
from edgewise.message_passing import propagate_attention
from edgewise.validation import check_count


class AdaptiveSpan(nn.Module):
    r"""Attention whose heads learn how far back they attend (Sukhbaatar et al. 2019).

    A head of span :math:`z` weighs a sender at distance :math:`x` by a soft mask,

    .. math::
        m_z(x) = \min(\max((R + z - x) / R,\, 0),\, 1), \qquad
        w_{ij} = \frac{m_z(j - i) \exp(s_{ij})}{\sum_{i' \to j} m_z(j - i') \exp(s_{i'j})},

    which falls from one to zero over a ramp of :math:`R` tokens, so that the loss has a gradient with respect
    to :math:`z`. The factor on the exponential is added to the score as its logarithm, so the softmax over
    in-edges is the usual one. The graph is the window of the longest span.

    Parameters
    ----------
    h : int
        Heads.
    longest : int
        Longest span, in tokens.
    ramp : int
        Tokens over which the mask falls, R.
    start : float
        Initial spans, as a share of the longest.

    Raises
    ------
    TypeError, ValueError
        If a count is not a positive integer or ``start`` lies outside [0, 1].
    """

    def __init__(self, h: int, longest: int, ramp: int = 32, start: float = 0.5):
        super().__init__()
        self.longest = check_count("longest (tokens that a span may reach back)", longest, 1)
        self.ramp = check_count("ramp (tokens over which the mask falls)", ramp, 1)
        if not 0 <= start <= 1:
            raise ValueError(
                f"start (spans at first, as a share of the longest) must lie in [0, 1], got {start}"
            )
        self.share = nn.Parameter(torch.full((check_count("h", h, 1),), float(start)))

    @property
    def spans(self) -> Tensor:
        """Span of each head in tokens, [h]; gradients reach ``share`` while it lies in [0, 1]."""
        return self.longest * self.share.clamp(0, 1)

    def mask(self, distance: Tensor) -> Tensor:
        """Distances [E] to the soft mask [E, h]."""
        return ((self.ramp + self.spans - distance[:, None]) / self.ramp).clamp(0, 1)

    def graph(self, sizes: int | Sequence[int]) -> AttentionGraph:
        """Return the causal window outside which every head's mask is zero, for texts of these sizes."""
        reach = math.ceil(self.spans.max().item() + self.ramp) - 1
        return window(sizes, reach, 0).to(self.share.device)

    def forward(self, graph: AttentionGraph, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attend within each head's span.

        Parameters
        ----------
        graph : AttentionGraph
            Causal, of self-attention, with an edge from every token to itself: :meth:`graph`, or any other.
        q, k, v : Tensor
            [N, h, d] each.

        Returns
        -------
        Tensor
            [N, h, d]
        """
        mask = self.mask(graph.dst - graph.src)
        tiny = torch.finfo(mask.dtype).tiny
        bias = torch.where(mask > 0, mask.clamp(min=tiny).log(), -torch.inf)
        return propagate_attention(graph, q, k, v, bias=bias)

    def penalty(self) -> Tensor:
        """Mean span in tokens: a regulariser to add to the loss with a small weight."""
        return self.spans.mean()
