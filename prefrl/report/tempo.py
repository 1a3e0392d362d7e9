"""How fast comparisons come in: time per answer, answers per hour, time left to the budget."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from prefrl.store.comparisons import active
from prefrl.types import Comparison

HOUR_MS = 3_600_000
SHORTEST_MS = 60_000  # two answers within a second are no rate for an hour


@dataclass(frozen=True)
class Times:
    """Time from the first frame to the answer, of ``n`` answers that were timed."""

    n: int
    median_ms: float
    p90_ms: float


def response_times(comparisons: Iterable[Comparison]) -> Times | None:
    """Median and 90th percentile (linear interpolation between ranks) of the answers that were timed."""
    ms = [c.response_ms for c in active(comparisons) if c.response_ms is not None]
    if not ms:
        return None
    median, p90 = np.percentile(np.array(ms, np.float64), [50, 90])
    return Times(len(ms), float(median), float(p90))


def per_hour(comparisons: Iterable[Comparison], now_ms: int, window_ms: int = HOUR_MS) -> float | None:
    """Answers to queries in the last ``window_ms``, scaled to an hour.

    Where the first answer is younger than that, the time since it; at least a minute, so that the first two
    answers make no rate.

    Args:
        comparisons: With all of their history.
        now_ms: The database's clock.
        window_ms: How far to look back.

    Returns:
        0 where nobody answered in that time, None where nobody ever did.
    """
    times = [c.created_ms for c in active(comparisons) if c.query_id is not None]
    if not times:
        return None
    span = min(window_ms, max(now_ms - min(times), SHORTEST_MS))
    return sum(now_ms - t <= window_ms for t in times) * HOUR_MS / span


def time_left_ms(n_done: int, budget: int, rate: float | None) -> float | None:
    """Milliseconds to the budget at ``rate`` answers an hour; None where nothing comes in."""
    if n_done >= budget:
        return 0.0
    return (budget - n_done) / rate * HOUR_MS if rate else None
