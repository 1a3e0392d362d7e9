"""Which clips of a folder are compared: each about as often as every other, no pair twice."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

Pair = tuple[int, int]
EACH = 10  # comparisons in which a clip is shown, unless told otherwise


def n_pairs(n: int) -> int:
    """How many different pairs ``n`` clips have."""
    return n * (n - 1) // 2


def usual_labels(n: int) -> int:
    """Comparisons wanted of ``n`` clips: all pairs if few, else so many that each clip is shown 10 times."""
    return min(n_pairs(n), EACH * n // 2)


def draw_pairs(n: int, wanted: int, known: Collection[Pair], rng: np.random.Generator) -> list[Pair]:
    """Draws pairs of clips.

    The clip that was shown least is paired with the one that was shown least among those it has not met; equal ones
    are drawn. So it is fair at every moment, not only at the end.

    Args:
        n: How many clips, numbered from 0.
        wanted: How many pairs; fewer where there are not so many.
        known: Pairs that are not to be drawn, and count as shown.
        rng: Draws.

    Returns:
        Pairs of two different clips, in the order in which they should be compared.
    """
    met = np.eye(n, dtype=bool)
    for one, two in known:
        met[one, two] = met[two, one] = True
    shown = met.sum(1) - 1.0  # (n,)
    pairs: list[Pair] = []
    while len(pairs) < wanted and not met.all():
        one = _least(np.where(met.all(1), np.inf, shown), rng)
        two = _least(np.where(met[one], np.inf, shown), rng)
        met[one, two] = met[two, one] = True
        shown[[one, two]] += 1
        pairs.append((one, two))
    return pairs


def _least(values: np.ndarray[tuple[int], np.dtype[np.float64]], rng: np.random.Generator) -> int:
    return int(rng.choice(np.flatnonzero(values == values.min())))
