"""Label smoothing."""

import math

import torch
from torch import Tensor, nn

from edgewise.validation import check_count, check_ids, check_probability, check_tokens


class LabelSmoothing(nn.Module):
    r"""KL divergence of the prediction from the smoothed target (Szegedy et al. 2016, sec. 7).

    The right token gets :math:`1 - \epsilon`; the others share :math:`\epsilon` evenly; padding gets nothing.
    The loss is :math:`\sum_t D_\mathrm{KL}(\mathrm{target}_t \,\|\, \mathrm{prediction}_t)` over the tokens
    that are not padding.

    Parameters
    ----------
    size : int
        Vocabulary, at least 3.
    padding_idx : int
        Id of padding.
    smoothing : float
        :math:`\epsilon` in [0, 1).

    Raises
    ------
    TypeError, ValueError
        If an argument is not what it should be.
    """

    def __init__(self, size: int, padding_idx: int, smoothing: float = 0.0):
        super().__init__()
        self.size = check_count("size", size, 3)
        self.padding_idx = check_count("padding_idx", padding_idx)
        if padding_idx >= size:
            raise ValueError(f"padding_idx must lie in 0..{size - 1}, got {padding_idx}")
        self.smoothing = check_probability("smoothing", smoothing)

    def forward(self, log_probs: Tensor, target: Tensor) -> Tensor:
        """Sum the divergence over tokens.

        Parameters
        ----------
        log_probs : Tensor
            [N, size]
        target : Tensor
            int64 [N]

        Returns
        -------
        Tensor
            Scalar, in nats.

        Raises
        ------
        TypeError, ValueError
            If shapes differ, or on a CPU a target lies outside the vocabulary.
        """
        self.check(target, *log_probs.shape)
        right = log_probs.gather(1, target[:, None]).squeeze(1)
        cross_entropy = -self.certain * right
        if self.share:
            others = log_probs.index_fill(1, target.new_tensor([self.padding_idx]), 0.0)
            cross_entropy = cross_entropy - self.share * others.sum(1)
        return torch.where(target != self.padding_idx, cross_entropy - self.entropy(), 0.0).sum()

    def check(self, target: Tensor, *shape: int) -> None:
        """Check targets against predictions of this shape, which should be [N, size]."""
        check_tokens("target", target, self.size)
        if target.dim() != 1 or shape != (len(target), self.size):
            raise ValueError(
                f"log_probs and target must be [N, {self.size}] and [N], "
                f"got {list(shape)} and {list(target.shape)}"
            )

    @property
    def share(self) -> float:
        """Smoothed probability of each token that is neither the target nor padding."""
        return self.smoothing / (self.size - 2)

    @property
    def certain(self) -> float:
        """Excess of the target's smoothed probability over :attr:`share`."""
        return 1 - self.smoothing - self.share

    def entropy(self) -> float:
        """Entropy of a smoothed target in nats: the cross-entropy of a perfect prediction."""
        others = self.size - 2
        parts = [(1 - self.smoothing, 1), (self.smoothing / others, others)]
        return -sum(count * p * math.log(p) for p, count in parts if p > 0)

    def distribution(self, target: Tensor) -> Tensor:
        """Return the smoothed targets themselves: [N, size], rows of zeros for padding."""
        check_ids("target", target, self.size)
        rows = torch.full((len(target), self.size), self.smoothing / (self.size - 2), device=target.device)
        rows.scatter_(1, target[:, None], 1 - self.smoothing)
        rows[:, self.padding_idx] = 0.0
        rows[target == self.padding_idx] = 0.0
        return rows
