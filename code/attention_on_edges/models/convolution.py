"""A convolution as attention."""

import math

import torch
from torch import Tensor, nn

from edgewise.graphs import bipartite
from edgewise.propagation import propagate_attention


class ConvolutionAttention(nn.Module):
    r"""Multi-head attention with relative positions that equals a 1-D convolution (Cordonnier et al. 2020).

    Head w of a kernel of width W attends to the token at offset :math:`\Delta_w = w - (W - 1) / 2`.
    Its score for sender i at receiver j is

    .. math::
        -\alpha\,(i - j - \Delta_w)^2 = \langle (2 \alpha (j + \Delta_w), -\alpha), (i, i^2) \rangle + c_j

    where :math:`c_j` is the same for all senders and cancels in the softmax: a dot product of a query from j
    and a key from i. Each head's output is projected by the kernel's matrix of that offset. The sequence is
    padded with zeros.

    Parameters
    ----------
    conv : torch.nn.Conv1d
        Of odd width with at least two input channels; stride, dilation and groups 1; zero padding, given as
        a number, that keeps the length.
    sharpness : float
        :math:`\alpha`: neighbours of the right token get :math:`e^{-\alpha}` of its weight.
    """

    def __init__(self, conv: nn.Conv1d, sharpness: float = 40.0):
        super().__init__()
        width = conv.kernel_size[0]
        self.sharpness = sharpness
        self.offsets = torch.arange(width) - width // 2
        self.out_proj = nn.Linear(width * conv.in_channels, conv.out_channels)
        with torch.no_grad():
            self.out_proj.weight.copy_(conv.weight.permute(0, 2, 1).flatten(1))
            self.out_proj.bias.copy_(torch.zeros(conv.out_channels) if conv.bias is None else conv.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Convolve a sequence [n, in_channels] to [n, out_channels]; scores are in double precision."""
        n, width = x.shape
        heads, reach = len(self.offsets), len(self.offsets) // 2
        places = torch.arange(n, dtype=torch.float64)
        senders = torch.arange(-reach, n + reach, dtype=torch.float64)
        q = torch.zeros(n, heads, width, dtype=torch.float64)
        k = torch.zeros(len(senders), heads, width, dtype=torch.float64)
        q[..., 0] = 2 * self.sharpness * (places[:, None] + self.offsets)
        q[..., 1] = -self.sharpness
        k[..., 0], k[..., 1] = senders[:, None], senders[:, None].square()
        v = nn.functional.pad(x.double(), (0, 0, reach, reach))[:, None].expand(-1, heads, -1)
        graph = bipartite(len(senders), n)
        found = propagate_attention(graph, q * math.sqrt(width), k, v.contiguous())
        return self.out_proj(found.flatten(-2).to(x.dtype))
