"""Bootstrap weights that do not change when comparisons are appended.

Paper section 2.2.3 trains each member on |D| triples drawn with replacement, and holds out 1/e of the data
for validation. Poisson(1) counts have both properties, comparison by comparison: weight 0 has
probability 1/e, so the comparisons a member never sees are its validation set. The counts come from a
counter-based generator keyed by (seed, member, comparison seq).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

_CDF = np.cumsum([math.exp(-1) / math.factorial(k) for k in range(20)])


def bootstrap_weights(seed: int, n_members: int, seqs: NDArray[np.int64]) -> NDArray[np.int64]:
    """Poisson(1) counts, (M, B): how often each member sees each comparison in an epoch.

    Args:
        seed: Seed of the run.
        n_members: Networks in the ensemble.
        seqs: Sequence numbers of the comparisons, (B,).
    """
    members = np.arange(n_members, dtype=np.uint64)[:, None]
    key = _mix(_mix(np.full((1, 1), seed, dtype=np.uint64)) ^ members)
    uniform = (_mix(key ^ _mix(seqs.astype(np.uint64))[None, :]) >> np.uint64(11)) * 2.0**-53  # (M, B)
    return np.searchsorted(_CDF, uniform, side="right")


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64's finaliser (Steele, Lea and Flood 2014), one 64-bit hash an element."""
    with np.errstate(over="ignore"):
        z = x + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))
