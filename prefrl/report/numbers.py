"""The numbers of the report: rank correlation, calibration, confidence intervals."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prefrl.reward_model.calibration import Bin, Calibration, calibrate

__all__ = ["Bin", "Calibration", "Floats", "calibrate", "concordance", "ranks", "spearman", "wilson"]

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


def concordance(x: NDArray[Any], y: NDArray[Any]) -> float:
    """Share of the pairs that differ in ``y`` which ``x`` orders the same way, (N,) each; a tie in ``x`` is a half.

    NaN where no pair differs.
    """
    first, second = np.triu_indices(len(x), 1)
    order = np.sign(x[first] - x[second]) * np.sign(y[first] - y[second])
    decided = y[first] != y[second]
    return float((1 + order[decided]).mean() / 2) if decided.any() else math.nan


def wilson(k: int, n: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share of ``k`` in ``n``; 0 to 1 where there is nothing to count."""
    if n == 0:
        return 0.0, 1.0
    share, z2 = k / n, Z_95**2
    centre = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = Z_95 / (1 + z2 / n) * math.sqrt(share * (1 - share) / n + z2 / (4 * n * n))
    return max(0.0, centre - half), min(1.0, centre + half)
