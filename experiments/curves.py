"""Curves of several seeds as one, with an interval: interquartile means and stratified bootstrap.

After Agarwal et al. 2021 (arXiv 2108.13264), section 4: of few runs the interquartile mean and the interval that a
bootstrap over seeds gives it, resampled within each task, say more than a mean and its deviation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import bootstrap, trim_mean

Floats = NDArray[np.float64]
RESAMPLES = 2000
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Band:
    """A statistic of several runs over agent steps.

    Attributes:
        steps: (P,) agent steps.
        middle: (P,) interquartile means.
        low: (P,) lower ends of their 95 % intervals; as the middle where there is one run.
        high: (P,) upper ends.
    """

    steps: Floats
    middle: Floats
    low: Floats
    high: Floats


def interquartile_mean(values: Floats, axis: int = -1) -> Floats:
    """Mean of what is left without the lowest and the highest quarter (rounded down) along an axis."""
    return np.asarray(trim_mean(values, 0.25, axis=axis))


def interval(tasks: Sequence[Floats], seed: int = 0) -> tuple[float, float, float]:
    """Interquartile mean over all runs of all tasks, and the ends of its interval.

    Args:
        tasks: The final values of each task's seeds, (S_1,), (S_2,), …; each task is resampled by itself.
        seed: Of the resampling.
    """
    middle = float(interquartile_mean(np.concatenate(tasks)))
    if any(len(values) < 2 for values in tasks):  # nothing to resample
        return middle, middle, middle

    def statistic(*samples: Floats, axis: int = -1) -> Floats:
        return interquartile_mean(np.concatenate(samples, axis=axis), axis=axis)

    found = bootstrap(
        tuple(tasks),
        statistic,
        n_resamples=RESAMPLES,
        confidence_level=CONFIDENCE,
        method="percentile",
        vectorized=True,
        rng=np.random.default_rng(seed),
    ).confidence_interval
    return middle, float(found.low), float(found.high)


def band(curves: Sequence[Sequence[tuple[float, float]]], n_points: int = 60) -> Band:
    """Several runs of one task on common agent steps, from where all have begun to where the first ends.

    Args:
        curves: (agent steps, value) of each run, in order of steps; between two points a line is drawn.
        n_points: Agent steps at which they are compared.
    """
    runs = [np.asarray(curve, np.float64) for curve in curves]
    steps = np.linspace(max(run[0, 0] for run in runs), min(run[-1, 0] for run in runs), n_points)
    values = np.stack([np.interp(steps, run[:, 0], run[:, 1]) for run in runs], axis=1)  # (P, S)
    ends = np.array([interval([row]) for row in values])
    return Band(steps, *ends.T)
