"""Is the policy exploiting mistakes of the learned reward? In one word.

A policy that hacks its reward earns ever more of it while the true return, or what people say of it, falls
(Gao et al. 2022, Scaling laws for reward model overoptimization). Held-out comparisons tell best
(`prefrl.reward_model.held_out`); where there are none, or too few yet, trends have to do.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prefrl.report.numbers import spearman
from prefrl.reward_model.held_out import Look

N_POINTS = 16  # neighbours are averaged, so that noise that lasts for a while is not taken for a trend
N_FEWEST = 8
Z_ONE_SIDED_99 = 2.3263478740408408  # at 95 % every fifteenth look at good runs was an alarm


class Trend(enum.StrEnum):
    """Where a number went lately."""

    RISING = "rising"
    FALLING = "falling"
    STEADY = "steady"  # so many points would have told a trend that matters
    UNKNOWN = "unknown"  # too few points


class Verdict(enum.StrEnum):
    """What the trends mean together."""

    HACKING = "hacking"  # held-out comparisons say so, or learned return rises and another one falls
    WATCH = "watch"  # by the learned reward the policy becomes better, and nothing confirms it yet
    FINE = "fine"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Watch:
    """The verdict, and what it is made of."""

    verdict: Verdict
    learned: Trend
    true: Trend
    accuracy: Trend


def trend(values: NDArray[Any], recent: float = 0.5) -> Trend:
    """Whether the newest part of a series rises or falls more surely than chance would have it.

    The part is averaged into at most 16 points; their rank correlation with time, rho, is a trend where
    ``|rho| sqrt(n - 1)`` exceeds the one-sided 99 % quantile of the normal distribution (Kendall 1948). Fewer points
    than 16 can tell a clear trend, but not that there is none.

    Args:
        values: In order of time, (N,); what is not finite is left out.
        recent: Share of the series that is looked at, 0 to 1.
    """
    finite = np.asarray(values, np.float64)
    finite = finite[np.isfinite(finite)]
    finite = finite[len(finite) - max(math.ceil(recent * len(finite)), min(len(finite), N_FEWEST)) :]
    if len(finite) < N_FEWEST:
        return Trend.UNKNOWN
    points = np.array([part.mean() for part in np.array_split(finite, min(N_POINTS, len(finite)))])
    rho = spearman(np.arange(len(points)), points)
    if math.isnan(rho) or abs(rho) * math.sqrt(len(points) - 1) <= Z_ONE_SIDED_99:
        return Trend.STEADY if len(points) == N_POINTS else Trend.UNKNOWN
    return Trend.RISING if rho > 0 else Trend.FALLING


def watch(learned: NDArray[Any], true: NDArray[Any], accuracy: NDArray[Any], held_out: Look | None) -> Watch:
    """Compare the trends of learned return, true return and out-of-bag accuracy, and what held-out comparisons tell.

    Args:
        learned: Learned return over the run.
        true: True return over the run; empty where the task has none.
        accuracy: Out-of-bag accuracy of each reward version.
        held_out: The newest look at held-out comparisons, if any.
    """
    trends = trend(learned), trend(true), trend(accuracy)
    if held_out and held_out.alarm:
        verdict = Verdict.HACKING
    elif held_out and held_out.window.told:  # what is said of it now is more than old answers
        doubt = Verdict.WATCH if held_out.window.falls_short else Verdict.FINE
        verdict = Verdict.HACKING if _of_trends(*trends[:2]) is Verdict.HACKING else doubt
    else:
        verdict = _of_trends(*trends)
    return Watch(verdict, *trends)


def _of_trends(learned: Trend, *others: Trend) -> Verdict:
    if learned is Trend.UNKNOWN:
        return Verdict.UNKNOWN
    if learned is not Trend.RISING:
        return Verdict.FINE
    if Trend.FALLING in others:
        return Verdict.HACKING
    return Verdict.FINE if Trend.RISING in others else Verdict.WATCH
