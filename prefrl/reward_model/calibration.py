"""Calibration: predicted probabilities against what was answered, and the same as plain numbers to store."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

N_BINS = 10
MOST_ANNOTATORS = 20  # whose agreement is stored with each version
AGREED = "oob_agreed_"
DETAIL = ("oob_bin_", AGREED)  # stay with the version: nobody draws each of them over the run
Agreed = dict[str, tuple[int, int]]  # annotator -> (how often as predicted, of how many)


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
            NaN without comparisons (Guo et al. 2017, equation 3).
    """

    bins: tuple[Bin, ...]
    error: float

    @property
    def n(self) -> int:
        """Comparisons in all bins."""
        return sum(b.n for b in self.bins)


def calibrate(predicted: NDArray[Any], first: NDArray[np.bool_], n_bins: int = N_BINS) -> Calibration:
    """Sort predictions into bins of equal width.

    Args:
        predicted: Probability that segment 1 is preferred, (B,).
        first: Whether it was, (B,).
        n_bins: Bins between 0 and 1; a probability of 1 belongs to the last.
    """
    place = np.minimum((predicted * n_bins).astype(np.int64), n_bins - 1)
    chosen = [place == i for i in range(n_bins)]
    return _of_bins(
        Bin(i, float(predicted[c].mean()), int(c.sum()), int(first[c].sum())) for i, c in enumerate(chosen) if c.any()
    )


def agreed(
    predicted: NDArray[Any], first: NDArray[np.bool_], annotators: Sequence[str], most: int = MOST_ANNOTATORS
) -> Agreed:
    """How often each annotator gave the answer that was predicted as the more probable one.

    Args:
        predicted: Probability that segment 1 is preferred, (B,); exactly one half says nothing.
        first: Whether it was, (B,).
        annotators: Who said so, B names.
        most: Only so many, the busiest ones.
    """
    told = predicted != 0.5
    right = ((predicted > 0.5) == first)[told].tolist()
    names = [name for name, one in zip(annotators, told, strict=True) if one]
    n, k = Counter(names), Counter(name for name, one in zip(names, right, strict=True) if one)
    return {name: (k[name], count) for name, count in n.most_common(most)}


def agreed_to_metrics(result: Agreed) -> dict[str, float]:
    """The counts as ``oob_agreed_k:<annotator>`` and ``oob_agreed_n:<annotator>``."""
    return {f"{AGREED}{key}:{name}": float(v) for name, kn in result.items() for key, v in zip("kn", kn, strict=True)}


def agreed_from_metrics(metrics: Mapping[str, float]) -> Agreed:
    """The way back from `agreed_to_metrics`, the busiest annotator first."""
    names = [key.removeprefix(f"{AGREED}n:") for key in metrics if key.startswith(f"{AGREED}n:")]
    found = {name: tuple(metrics.get(f"{AGREED}{key}:{name}", math.nan) for key in "kn") for name in names}
    known = {name: (int(k), int(n)) for name, (k, n) in found.items() if math.isfinite(k + n) and n >= 1}
    return dict(sorted(known.items(), key=lambda item: (-item[1][1], item[0])))


def to_metrics(result: Calibration) -> dict[str, float]:
    """The bins that are not empty as ``oob_bin_<k>_p``, ``_y`` and ``_n``, with ``oob_ece``.

    ``p`` is the mean prediction of bin k, ``y`` the share that preferred segment 1, ``n`` the comparisons.
    """
    values = {"oob_ece": result.error}
    for one in result.bins:
        values |= {f"oob_bin_{one.place}_{name}": float(v) for name, v in _numbers(one).items()}
    return values


def from_metrics(metrics: Mapping[str, float], n_bins: int = N_BINS) -> Calibration:
    """The way back from `to_metrics`; a version that was published without it has no bins."""
    bins = []
    for place in range(n_bins):
        p, y, n = (metrics.get(f"oob_bin_{place}_{name}", math.nan) for name in ("p", "y", "n"))
        if math.isfinite(p + y + n) and n >= 1:
            bins.append(Bin(place, p, int(n), round(y * n)))
    return _of_bins(bins)


def _of_bins(bins: Iterable[Bin]) -> Calibration:
    listed = tuple(bins)
    n = sum(b.n for b in listed)
    if not n:
        return Calibration((), math.nan)
    return Calibration(listed, sum(b.n * abs(b.predicted - b.observed) for b in listed) / n)


def _numbers(one: Bin) -> dict[str, float]:
    return {"p": one.predicted, "y": one.observed, "n": one.n}
