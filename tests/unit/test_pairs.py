"""Pairs of clips: fair at every moment, none twice, the same for a seed."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from prefrl.run.pairs import draw_pairs, n_pairs, usual_labels


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def unordered(pairs: list[tuple[int, int]]) -> set[tuple[int, int]]:
    return {(min(pair), max(pair)) for pair in pairs}


@pytest.mark.parametrize(("n", "labels"), [(2, 1), (3, 3), (11, 55), (12, 60), (13, 65), (100, 500)])
def test_all_pairs_if_few_else_ten_comparisons_a_clip(n: int, labels: int) -> None:
    assert usual_labels(n) == labels


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("n", [2, 3, 4, 7, 12, 41])
def test_every_clip_is_shown_about_equally_often_at_every_moment(n: int, seed: int) -> None:
    pairs = draw_pairs(n, usual_labels(n), (), rng(seed))
    assert len(pairs) == len(unordered(pairs)) == usual_labels(n)
    for end in range(1, len(pairs) + 1):
        shown = Counter(side for pair in pairs[:end] for side in pair)
        times = [shown[i] for i in range(n)]
        assert max(times) - min(times) <= 2, (end, times)


@pytest.mark.parametrize("n", [2, 5, 8])
def test_all_pairs_are_there_if_all_are_wanted(n: int) -> None:
    every = {(i, j) for i in range(n) for j in range(i + 1, n)}
    assert unordered(draw_pairs(n, 1000, (), rng())) == every
    assert len(every) == n_pairs(n)


def test_a_seed_decides() -> None:
    assert draw_pairs(20, 50, (), rng(1)) == draw_pairs(20, 50, (), rng(1))
    assert draw_pairs(20, 50, (), rng(1)) != draw_pairs(20, 50, (), rng(2))


def test_known_pairs_are_left_out_and_count_as_shown() -> None:
    known = {(0, 1), (2, 0), (0, 3)}
    pairs = draw_pairs(5, 100, known, rng())
    assert unordered(pairs) == {(i, j) for i in range(5) for j in range(i + 1, 5)} - {(0, 1), (0, 2), (0, 3)}
    assert 0 not in pairs[0]
    assert 4 in pairs[0]  # it was never shown


def test_a_new_clip_is_shown_first() -> None:
    old = draw_pairs(10, 40, (), rng())
    pairs = draw_pairs(11, 6, unordered(old), rng())
    assert all(10 in pair for pair in pairs)
