"""The numbers of the report: rank correlation, calibration, confidence intervals."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Z_95 = 1.959963984540054  # two-sided 95 % quantile of the normal distribution
Floats = NDArray[np.float64]


def ranks(values: NDArray[Any]) -> Floats:
    """Ranks from 1, (N,) -> (N,); equal values share the mean of their ranks."""
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(count)
    mean: Floats = last - (count - 1) / 2
    return mean[place]


def spearman(x: NDArray[Any], y: NDArray[Any]) -> float:
    """Spearman's rank correlation of two samples, (N,) each; NaN where one of them does not vary."""
    if len(x) < 2:
        return math.nan
    a, b = ranks(x) - (len(x) + 1) / 2, ranks(y) - (len(y) + 1) / 2
    scale = math.sqrt(float(a @ a) * float(b @ b))
    return float(a @ b) / scale if scale else math.nan


def wilson(k: int, n: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share of ``k`` in ``n``; 0 to 1 where there is nothing to count."""
    if n == 0:
        return 0.0, 1.0
    share, z2 = k / n, Z_95**2
    centre = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = Z_95 / (1 + z2 / n) * math.sqrt(share * (1 - share) / n + z2 / (4 * n * n))
    return max(0.0, centre - half), min(1.0, centre + half)


@dataclass(frozen=True)
class Bin:
    """Comparisons whose predicted probability falls into the same tenth.

    Attributes:
        place: Which bin, from 0.
        predicted: Mean predicted probability that segment 1 is preferred.
        n: Comparisons.
        n_first: Of these, how often segment 1 was preferred.
    """

    place: int
    predicted: float
    n: int
    n_first: int

    @property
    def observed(self) -> float:
        """How often segment 1 was preferred."""
        return self.n_first / self.n


@dataclass(frozen=True)
class Calibration:
    """Predicted probabilities against what happened.

    Attributes:
        bins: The bins that are not empty, in order.
        error: Expected calibration error: the mean over comparisons of their bin's |predicted - observed|;
            NaN without comparisons.
    """

    bins: tuple[Bin, ...]
    error: float

    @property
    def n(self) -> int:
        """Comparisons in all bins."""
        return sum(b.n for b in self.bins)


def calibrate(predicted: NDArray[Any], first: NDArray[np.bool_], n_bins: int = 10) -> Calibration:
    """Sort predictions into bins of equal width.

    Args:
        predicted: Probability that segment 1 is preferred, (B,).
        first: Whether it was, (B,).
        n_bins: Bins between 0 and 1; a probability of 1 belongs to the last.
    """
    place = np.minimum((predicted * n_bins).astype(np.int64), n_bins - 1)
    chosen = [place == i for i in range(n_bins)]
    bins = tuple(
        Bin(i, float(predicted[c].mean()), int(c.sum()), int(first[c].sum())) for i, c in enumerate(chosen) if c.any()
    )
    if not bins:
        return Calibration((), math.nan)
    return Calibration(bins, sum(b.n * abs(b.predicted - b.observed) for b in bins) / len(predicted))
