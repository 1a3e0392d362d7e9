"""Statistics over seeds: hand-computed values, and what an interval must and must not do."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.curves import band, interquartile_mean, interval


def test_the_interquartile_mean_leaves_out_the_outer_quarters() -> None:
    assert interquartile_mean(np.array([100.0, 1, 2, 3, 4, -50, 5, 6])) == pytest.approx((2 + 3 + 4 + 5) / 4)
    assert interquartile_mean(np.array([1.0, 2, 9])) == 4  # of three none is a quarter


def test_one_lost_seed_of_ten_moves_the_interval_not_the_middle() -> None:
    good = np.array([99.0, 100, 100, 99.5, 100, 99.9, 100, 99.8, 100, 99.9])
    lost = good.copy()
    lost[6] = -117
    middle, low, high = interval([lost])
    assert middle == pytest.approx(interval([good])[0], abs=0.2)
    assert low < 99 < high
    assert interval([good])[1] > 99


def test_the_interval_covers_the_middle_of_what_it_was_drawn_from() -> None:
    rng = np.random.default_rng(0)
    inside = 0
    for i in range(100):
        _, low, high = interval([rng.normal(5, 1, 20)], seed=i)
        inside += low < 5 < high
    assert 85 <= inside <= 99, "about 95"


def test_tasks_are_resampled_each_by_itself() -> None:
    """Two tasks on levels apart, their seeds alike: were they one pool, the interval would span both."""
    low_task, high_task = np.full(4, 0.0), np.full(4, 1.0)
    assert interval([low_task, high_task]) == (0.5, 0.5, 0.5)
    _, low, high = interval([np.concatenate([low_task, high_task])])
    assert high - low > 0.5


def test_one_run_has_no_width() -> None:
    assert interval([np.array([3.0])]) == (3.0, 3.0, 3.0)


def test_a_band_stands_on_steps_that_all_runs_have() -> None:
    found = band([[(0, 0.0), (100, 10.0)], [(10, 11.0), (110, 21.0)], [(0, 2.0), (50, 7.0), (200, 22.0)]], n_points=10)
    np.testing.assert_allclose(found.steps, np.linspace(10, 100, 10))
    np.testing.assert_allclose(found.middle, found.steps / 10 + (0 + 10 + 2) / 3)
    assert (found.low <= found.middle).all()
    assert (found.high >= found.middle).all()
    assert (found.high - found.low > 1).all()
