"""How far annotators can be trusted: agreement, consistency, bias and pace, from their comparisons alone.

Every function takes comparisons with all of their history and looks at those that still stand
(`prefrl.store.comparisons.active`). What cannot be computed is None, never zero and never an exception.

Two answers are about the same question where they compare the same two segments, whichever was shown left and
whichever query asked: a query that was answered twice, a repeated one and an imported one count alike.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prefrl.report.numbers import wilson
from prefrl.store.comparisons import active
from prefrl.types import Comparison, Preference

CATEGORIES = ("lower", "higher", "tie", "incomparable")
DECIDED = (Preference.LEFT, Preference.RIGHT)
Pair = tuple[int, int]


@dataclass(frozen=True)
class Share:
    """``k`` of ``n``, n above 0."""

    k: int
    n: int

    @property
    def value(self) -> float:
        """The share."""
        return self.k / self.n

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's 95 % interval."""
        return wilson(self.k, self.n)


@dataclass(frozen=True)
class Kappa:
    """Agreement beyond chance.

    Attributes:
        value: 1 for perfect agreement, 0 for that of chance; None where everybody always gave one and the same
            answer, so that chance agrees as often.
        agreement: Share of equal answers (of pairs of answers, for many annotators), 0 to 1.
        n: Questions with at least two answers.
    """

    value: float | None
    agreement: float
    n: int


def category(one: Comparison) -> str:
    """What was said about the pair itself: the segment with the lower or higher id, tie, or incomparable."""
    if one.preference not in DECIDED:
        return one.preference.value
    winner = one.shown_left if one.preference is Preference.LEFT else 3 - one.shown_left
    first_is_lower = one.segment_1 < one.segment_2
    return "lower" if (winner == 1) == first_is_lower else "higher"


def cohen(one: Sequence[Hashable], two: Sequence[Hashable]) -> float | None:
    """Cohen's kappa of two raters who classified the same items, in the same order.

    ``kappa = (p_o - p_e) / (1 - p_e)`` with p_o the share of equal answers and p_e the sum over categories of
    the product of both raters' shares (Cohen 1960, A coefficient of agreement for nominal scales, equation 1).

    Returns:
        None without items, or where both always gave one and the same answer.
    """
    n = len(one)
    if not n:
        return None
    n_equal = sum(a == b for a, b in zip(one, two, strict=True))
    counts_1, counts_2 = Counter(one), Counter(two)
    n_chance = sum(counts_1[c] * counts_2[c] for c in counts_1)  # p_e n²: whole numbers, so that 1 is exact
    return None if n_chance == n * n else (n_equal * n - n_chance) / (n * n - n_chance)


def fleiss(table: NDArray[Any]) -> float | None:
    """Fleiss' kappa of many raters.

    ``kappa = (P - P_e) / (1 - P_e)``, where P is the mean over items of the share of agreeing pairs of their
    answers, ``P_i = (sum_j n_ij² - n_i) / (n_i (n_i - 1))``, and P_e the sum over categories of their squared shares
    (Fleiss 1971, Measuring nominal scale agreement among many raters). Fleiss has the same number of
    answers for every item; where it varies, the shares are over all answers, and items weigh alike in P.

    Args:
        table: How many raters put item i into category j, (items, categories); items with fewer than two answers
            are left out.

    Returns:
        None without items, or where all answers are the same.
    """
    counts = np.asarray(table, np.float64)
    counts = counts[counts.sum(1) >= 2] if counts.ndim == 2 else counts[:0]
    if not len(counts) or np.count_nonzero(counts.sum(0)) < 2:
        return None
    expected = float(np.square(counts.sum(0) / counts.sum()).sum())
    return (float(_agreeing(counts).mean()) - expected) / (1 - expected)


def _agreeing(counts: NDArray[np.float64]) -> NDArray[np.float64]:
    n = counts.sum(1)
    agreeing: NDArray[np.float64] = (np.square(counts).sum(1) - n) / (n * (n - 1))
    return agreeing


def between(comparisons: Iterable[Comparison], one: str, two: str) -> Kappa | None:
    """Cohen's kappa of two annotators on the pairs that both answered; their first answers count."""
    answers = _first_answers(active(comparisons))
    return _common(answers.get(one, {}), answers.get(two, {})) if one != two else None


def every_two(comparisons: Iterable[Comparison]) -> dict[tuple[str, str], Kappa]:
    """`between` for every two annotators who answered a common pair."""
    answers = _first_answers(active(comparisons))
    found = ((names, _common(*(answers[name] for name in names))) for names in combinations(sorted(answers), 2))
    return {(one, two): kappa for (one, two), kappa in found if kappa is not None}


def _first_answers(rows: Iterable[Comparison]) -> dict[str, dict[Pair, str]]:
    """What each annotator said first about each pair."""
    answers: dict[str, dict[Pair, str]] = {}
    for row in rows:
        answers.setdefault(row.annotator, {}).setdefault(row.pair, category(row))
    return answers


def _common(one: Mapping[Pair, str], two: Mapping[Pair, str]) -> Kappa | None:
    both = sorted(one.keys() & two.keys())
    if not both:
        return None
    a, b = [one[p] for p in both], [two[p] for p in both]
    return Kappa(cohen(a, b), sum(x == y for x, y in zip(a, b, strict=True)) / len(both), len(both))


def among_all(comparisons: Iterable[Comparison]) -> Kappa | None:
    """Fleiss' kappa of all annotators on the pairs that at least two of them answered."""
    said: dict[Pair, list[str]] = {}
    for answers in _first_answers(active(comparisons)).values():
        for pair, answer in answers.items():
            said.setdefault(pair, []).append(answer)
    rows = [[some.count(c) for c in CATEGORIES] for _, some in sorted(said.items()) if len(some) > 1]
    table = np.array(rows, np.float64)
    if not len(table):
        return None
    return Kappa(fleiss(table), float(_agreeing(table).mean()), len(table))


def self_consistency(comparisons: Iterable[Comparison], annotator: str | None = None) -> Share | None:
    """How often the next answer of an annotator to a pair that he had answered before was the same.

    Args:
        comparisons: With all of their history.
        annotator: Only this one; None takes all, each compared with himself.
    """
    last: dict[tuple[str, Pair], str] = {}
    k = n = 0
    for row in active(comparisons):
        if annotator is not None and row.annotator != annotator:
            continue
        key, said = (row.annotator, row.pair), category(row)
        if key in last:
            k, n = k + (last[key] == said), n + 1
        last[key] = said
    return Share(k, n) if n else None


def with_model(
    comparisons: Iterable[Comparison], predicted: Mapping[int, float], annotator: str | None = None
) -> Share | None:
    """How often a decided answer is the one that the reward model held more probable.

    Args:
        comparisons: With all of their history.
        predicted: From ``seq`` to the probability that segment 1 is preferred, predicted without that answer;
            rows that are not in it, and predictions of exactly one half, are left out.
        annotator: Only this one; None takes all.
    """
    rows = [
        c
        for c in active(comparisons)
        if c.mu in (0.0, 1.0) and predicted.get(c.seq, 0.5) != 0.5 and annotator in (None, c.annotator)
    ]
    k = sum((predicted[c.seq] > 0.5) == (c.mu == 1.0) for c in rows)
    return Share(k, len(rows)) if rows else None


def gold_pass(
    comparisons: Iterable[Comparison], expected: Mapping[int, float], annotator: str | None = None
) -> Share | None:
    """How often a question whose answer is known was answered rightly; a tie or can't-tell is not.

    Args:
        comparisons: With all of their history.
        expected: From the id of a query of purpose ``gold`` to the mass on segment 1 that is right (1, 0.5 or 0).
        annotator: Only this one; None takes all.
    """
    rows = [c for c in active(comparisons) if c.query_id in expected and annotator in (None, c.annotator)]
    k = sum(c.mu == expected[c.query_id] for c in rows if c.query_id is not None)
    return Share(k, len(rows)) if rows else None


def left_share(comparisons: Iterable[Comparison]) -> Share | None:
    """Share of LEFT among decided answers to queries; imported ones were never shown on a side here.

    Sides are drawn by a coin, so without bias it is one half: see `even`.
    """
    sides = Counter(c.preference for c in active(comparisons) if c.query_id is not None)
    n = sides[Preference.LEFT] + sides[Preference.RIGHT]
    return Share(sides[Preference.LEFT], n) if n else None


def even(share: Share) -> bool:
    """Whether one half is inside the 95 % interval, so that there is no sign of a bias."""
    low, high = share.interval
    return low <= 0.5 <= high


def share_of(comparisons: Iterable[Comparison], preference: Preference) -> Share | None:
    """Share of one answer, for example ties, among all that stand."""
    rows = active(comparisons)
    return Share(sum(c.preference is preference for c in rows), len(rows)) if rows else None
