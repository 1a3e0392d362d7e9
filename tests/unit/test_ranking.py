"""Bradley and Terry's strengths against values worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from prefrl.report.ranking import errors, fit, ranking
from prefrl.types import Comparison, Preference


def answer(seq: int, one: int, two: int, preference: Preference, shown_left: int = 1) -> Comparison:
    return Comparison(seq, one, two, preference, preference.mu(shown_left), shown_left, "ann", f"u{seq}")


def test_without_a_prior_three_wins_to_one_are_odds_of_three() -> None:
    strength = fit(np.array([[0.0, 3.0], [1.0, 0.0]]), prior=1e-9)
    assert strength[0] / strength[1] == pytest.approx(3, rel=1e-6)


def test_one_win_with_the_prior_is_the_root_of_a_cubic() -> None:
    # p = (1 + 1/2) / (1 / (p + 1/p) + 1 / (p + 1))  <=>  p^3 - p^2 - p - 3 = 0
    strength = fit(np.array([[0.0, 1.0], [0.0, 0.0]]))
    p = strength[0]
    assert p == pytest.approx(2.1304, abs=1e-4)
    assert p**3 - p**2 - p - 3 == pytest.approx(0, abs=1e-7)
    assert strength[1] == pytest.approx(1 / p)
    # curvature: a = p^2 / (p^2 + 1)^2 between the two, b = p / (p + 1)^2 from the prior; the difference has 2a + b
    a, b = p**2 / (p**2 + 1) ** 2, p / (p + 1) ** 2
    assert errors(np.array([[0.0, 1.0], [0.0, 0.0]]), strength) == pytest.approx([math.sqrt(0.5 / (2 * a + b))] * 2)


def test_a_circle_and_ties_leave_all_equal() -> None:
    circle = np.array([[0, 1, 0], [0, 0, 1], [1, 0, 0]], float)
    assert fit(circle) == pytest.approx([1, 1, 1])
    assert fit(np.array([[0, 2.5], [2.5, 0]])) == pytest.approx([1, 1])


@pytest.mark.parametrize("seed", range(5))
def test_the_fit_is_at_the_maximum_of_the_posterior(seed: int) -> None:
    rng = np.random.default_rng(seed)
    wins = rng.integers(0, 4, (7, 7)).astype(float)
    np.fill_diagonal(wins, 0)
    p = fit(wins)

    def log_posterior(theta: np.ndarray) -> float:
        total = sum(
            wins[i, j] * (theta[i] - np.logaddexp(theta[i], theta[j])) for i in range(7) for j in range(7) if i != j
        )
        return total + sum(0.5 * (t - 2 * np.logaddexp(t, 0)) for t in theta)

    theta = np.log(p)
    for i in range(7):
        step = np.zeros(7)
        step[i] = 1e-5
        slope = (log_posterior(theta + step) - log_posterior(theta - step)) / 2e-5
        assert slope == pytest.approx(0, abs=1e-5)


def test_who_wins_everything_stays_finite() -> None:
    wins = np.triu(np.full((30, 30), 10.0), 1)
    p = fit(wins)
    assert np.isfinite(p).all()
    assert list(np.argsort(-p)) == list(range(30))
    assert np.isfinite(errors(wins, p)).all()


def test_clips_are_counted_whichever_side_they_were_shown_on() -> None:
    rows = [
        answer(1, 7, 8, Preference.LEFT),  # 7 wins
        answer(2, 8, 7, Preference.LEFT, shown_left=2),  # 7, the second, was left: 7 wins
        answer(3, 9, 7, Preference.RIGHT, shown_left=1),  # 7 wins
        answer(4, 8, 9, Preference.TIE),
        answer(5, 8, 9, Preference.INCOMPARABLE),
    ]
    found = ranking(rows, {7: "best.mp4", 8: "b.mp4", 9: "a.mp4", 10: "never.mp4"})
    assert [(one.name, one.won, one.tied, one.lost) for one in found] == [
        ("best.mp4", 3, 0, 0),
        ("a.mp4", 0, 1, 1),
        ("b.mp4", 0, 1, 2),
    ]
    best = found[0]
    assert 0 < best.low < 0.5 < best.share < best.high < 1
    assert best.share == pytest.approx(best.strength / (1 + best.strength))
    assert best.words == f"{100 * best.share:.0f} % ({100 * best.low:.0f} to {100 * best.high:.0f})"


def test_more_answers_narrow_the_interval() -> None:
    def width(times: int) -> float:
        rows = [answer(i, 1, 2, (Preference.LEFT, Preference.RIGHT)[i % 2]) for i in range(2 * times)]
        one = ranking(rows, {1: "a", 2: "b"})[0]
        return one.high - one.low

    assert width(50) < width(10) / 2 < width(1)


def test_nothing_was_compared() -> None:
    assert ranking([], {1: "a"}) == []
    assert ranking([answer(1, 1, 2, Preference.INCOMPARABLE)], {1: "a", 2: "b"}) == []
