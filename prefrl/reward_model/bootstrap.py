"""Bootstrap weights that do not change when comparisons are appended.

Paper section 2.2.3 trains each member on |D| triples drawn with replacement, and holds out 1/e of the data
for validation. Poisson(1) counts have both properties, comparison by comparison: weight 0 has
probability 1/e, so the comparisons a member never sees are its validation set. The counts come from a
counter-based generator keyed by (seed, member, seq of the first comparison of the pair).
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from prefrl.types import Comparison

_CDF = np.cumsum([math.exp(-1) / math.factorial(k) for k in range(20)])


def bags(rows: Iterable[Comparison], history: Iterable[Comparison]) -> NDArray[np.int64]:
    """For each comparison the ``seq`` of the first one about the same two segments, (B,).

    All that was ever said about a pair is seen by a member or held out from it together: were a pair that was asked
    twice in both, a member would be validated on what it was fitted to.

    Args:
        rows: B comparisons.
        history: All comparisons of the run up to the last of them, in order of ``seq``.
    """
    first: dict[tuple[int, int], int] = {}
    for row in history:
        first.setdefault(row.pair, row.seq)
    return np.array([first[row.pair] for row in rows], np.int64)


def bootstrap_weights(seed: int, n_members: int, bags: NDArray[np.int64]) -> NDArray[np.int64]:
    """Poisson(1) counts, (M, B): how often each member sees each comparison in an epoch.

    Args:
        seed: Seed of the run.
        n_members: Networks in the ensemble.
        bags: Of the comparisons, (B,): see `bags`.
    """
    members = np.arange(n_members, dtype=np.uint64)[:, None]
    key = _mix(_mix(np.full((1, 1), seed, dtype=np.uint64)) ^ members)
    uniform = (_mix(key ^ _mix(bags.astype(np.uint64))[None, :]) >> np.uint64(11)) * 2.0**-53  # (M, B)
    return np.searchsorted(_CDF, uniform, side="right")


def subset(seqs: NDArray[np.int64], n: int) -> NDArray[np.int64]:
    """Up to ``n`` of the comparisons, drawn at random but the same ones for as long as they are there, (n,).

    Args:
        seqs: Of the comparisons, (B,).
        n: How many at most.
    """
    if len(seqs) <= n:
        return np.arange(len(seqs))
    return np.sort(np.argsort(_mix(seqs.astype(np.uint64)), kind="stable")[:n])


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64's finaliser (Steele, Lea and Flood 2014), one 64-bit hash an element."""
    with np.errstate(over="ignore"):
        z = x + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))
