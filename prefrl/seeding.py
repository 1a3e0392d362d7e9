"""Random streams: every use of randomness has a stream of its own, derived from the run's seed and a counter.

Streams keyed by counters, rather than generators that live, need not be saved for a run to be resumed.
"""

from __future__ import annotations

import enum

import numpy as np


class Stream(enum.IntEnum):
    """What the random numbers are for; keeps streams apart that share a counter."""

    BATCHES = 1
    CANDIDATES = 2
    SEGMENTS = 3
    ORACLE = 4
    SIDES = 5
    POLICY = 6
    EVALUATION = 7
    HELD_OUT = 8


def rng_for(seed: int, stream: Stream, counter: int) -> np.random.Generator:
    """A generator for one use: the same for the same (seed, stream, counter) in every process."""
    return np.random.default_rng([seed, int(stream), counter])


def seed_for(seed: int, stream: Stream, counter: int) -> int:
    """A 31-bit integer seed for libraries that want one."""
    return int(rng_for(seed, stream, counter).integers(2**31))
