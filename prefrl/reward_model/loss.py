"""The preference model and its loss (paper section 2.2.3, equation 1)."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F


def log_preference(z: Tensor, noise: float) -> Tensor:
    """Logarithm of the probability that segment 1 is preferred, finite for any finite ``z``.

    With probability ``noise`` the annotator is assumed to answer uniformly at random:
    ``P' = (1 - noise) * sigmoid(z) + noise / 2``, computed on logits.

    Args:
        z: Sum of rewards of segment 1 minus that of segment 2, any shape.
        noise: Between 0 and 1 (paper: 0.1).
    """
    if noise == 0.0:
        return F.logsigmoid(z)
    return torch.logaddexp(math.log1p(-noise) + F.logsigmoid(z), torch.full_like(z, math.log(noise) - math.log(2)))


def preference_loss(z: Tensor, mu: Tensor, noise: float) -> Tensor:
    """Cross-entropy of each comparison, not averaged.

    Args:
        z: Difference of the segments' summed rewards, (M, B).
        mu: Mass on segment 1 (1, 0.5 or 0), broadcastable to ``z``.
        noise: As in ``log_preference``.
    """
    return -(mu * log_preference(z, noise) + (1 - mu) * log_preference(-z, noise))
