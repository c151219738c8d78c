"""A reach that is learned: each head's window grows and shrinks with the loss."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from edgewise.graphs import AttentionGraph, window
from edgewise.message_passing import softmax_over_in_edges
from edgewise.validation import check_count


class AdaptiveSpan(nn.Module):
    r"""Attention whose heads learn how far back they listen (Sukhbaatar et al. 2019).

    A head of span :math:`z` weighs a sender at distance :math:`x` by a soft mask,

    .. math::
        m_z(x) = \min(\max((R + z - x) / R,\, 0),\, 1), \qquad
        w_{ij} = \frac{m_z(j - i) \exp(s_{ij})}{\sum_{i' \to j} m_z(j - i') \exp(s_{i'j})},

    which falls from one to zero over a ramp of :math:`R` tokens, so that the loss has a slope in :math:`z`.
    A factor on the exponential is a term on the score: the softmax over in-edges stays as it is. Where the
    mask is zero for every head there is no edge; the graph is the window that the longest span needs.

    Parameters
    ----------
    h : int
        Heads.
    longest : int
        Longest span, in tokens.
    ramp : int
        Tokens over which the mask falls, R.
    start : float
        Spans at first, as a share of the longest.

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
        """Let receivers gather what their heads' spans reach.

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
        src, dst = graph.src, graph.dst
        score = (q.index_select(0, dst) * k.index_select(0, src)).sum(-1) / math.sqrt(q.shape[-1])  # [E, h]
        mask = self.mask(dst - src)
        silent = torch.full_like(mask, -torch.inf)
        score = score + torch.where(mask > 0, mask.clamp(min=torch.finfo(mask.dtype).tiny).log(), silent)
        message = softmax_over_in_edges(graph, score)[..., None] * v.index_select(0, src)
        return v.new_zeros(v.shape).index_add(0, dst, message)

    def penalty(self) -> Tensor:
        """Mean span in tokens: what a training loss adds, times a small weight, to keep spans short."""
        return self.spans.mean()
