"""A task in pictures: a bright square that moves left, right or not at all, which no single frame tells."""

from __future__ import annotations

import numpy as np

from prefrl.reward_model.dataset import PreferenceDataset
from prefrl.reward_model.spaces import Spaces
from prefrl.segments.frames import to_stacks
from prefrl.types import Comparison, Preference, Segment

SIZE, STEPS = 36, 6
SPACES = Spaces((4, SIZE, SIZE), (), n_actions=3)


def moving_square(velocity: int, rng: np.random.Generator) -> Segment:
    """A segment in which the square moves by ``velocity`` pixels a step to the right, round the edge."""
    frames = np.full((STEPS + 3, SIZE, SIZE), 20, np.uint8)
    row, column = rng.integers(0, SIZE - 6), rng.integers(0, SIZE)
    for step, frame in enumerate(frames):
        frame[row : row + 6, (column + velocity * step + np.arange(6)) % SIZE] = 220
    return Segment(to_stacks(frames, 4), rng.integers(0, 3, STEPS))


def segments(n: int, seed: int) -> tuple[list[Segment], np.ndarray]:
    """Segments, and how fast the square moves to the right in each, -3, 0 or 3."""
    rng = np.random.default_rng(seed)
    velocities = rng.choice([-3, 0, 3], n)
    return [moving_square(int(v), rng) for v in velocities], velocities


def row(seq: int, first: int, second: int, answer: Preference, supersedes: int | None = None) -> Comparison:
    """A comparison of two segments, the first on the left."""
    return Comparison(seq, first, second, answer, answer.mu(1), 1, "me", str(seq), supersedes=supersedes)


def comparisons(n: int, seed: int, window: int = 0, shuffled: bool = False) -> PreferenceDataset:
    """``n`` answers that prefer the square to move right; shuffled ones prefer nothing."""
    found, velocities = segments(120, seed)
    rng = np.random.default_rng(seed)
    pairs = [(a, b) for a in range(120) for b in range(120) if velocities[a] != velocities[b]]
    pairs = [pairs[i] for i in rng.choice(len(pairs), n, replace=False)]
    right = np.array([velocities[b] > velocities[a] for a, b in pairs])
    if shuffled:
        right = rng.permutation(right)
    answers = [Preference.RIGHT if r else Preference.LEFT for r in right]
    data = PreferenceDataset(SPACES, STEPS, window)
    data.extend(
        [row(i, a, b, p) for i, ((a, b), p) in enumerate(zip(pairs, answers, strict=True), 1)], dict(enumerate(found))
    )
    return data
