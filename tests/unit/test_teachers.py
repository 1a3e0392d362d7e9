"""Synthetic annotators: by hand, by frequency, at every scale of the reward; and what an answer means."""

from __future__ import annotations

import math
import re
from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefrl.config import LabelConfig, RunConfig
from prefrl.errors import ConfigError
from prefrl.oracle.role import OracleRole
from prefrl.oracle.teachers import TEACHERS, Judged, ReturnStatistics, make_teacher
from prefrl.settings import to_dict
from prefrl.types import Lease, Preference

STATS = ReturnStatistics(spread=2.0, recent_mean=1.0)
PARAMETERS: dict[str, dict[str, Any]] = {
    "true-return": {},
    "stochastic": {"beta": 2.0},
    "mistake": {"epsilon": 0.2},
    "skip": {"threshold": 0.1},
    "equal": {"threshold": 0.5},
    "myopic": {"gamma": 0.8},
}
LEFT, RIGHT, TIE, INCOMPARABLE = Preference.LEFT, Preference.RIGHT, Preference.TIE, Preference.INCOMPARABLE
DETERMINISTIC = [name for name in TEACHERS if name not in ("stochastic", "mistake")]


def _seen(rewards: Any) -> Judged:
    values = np.asarray(rewards, float)
    return Judged(values, np.zeros((len(values), 3)), np.zeros((len(values), 1)))


def _ask(name: str, left: Any, right: Any, seed: int = 0, stats: ReturnStatistics = STATS, **parameters: Any) -> str:
    return make_teacher(name, parameters)[0](_seen(left), _seen(right), stats, np.random.default_rng(seed))


def _many(name: str, left: Any, right: Any, n: int = 20_000, **parameters: Any) -> Counter[str]:
    teacher, rng = make_teacher(name, parameters)[0], np.random.default_rng(0)
    return Counter(teacher(_seen(left), _seen(right), STATS, rng) for _ in range(n))


def _near(count: int, n: int, p: float) -> bool:
    return abs(count - n * p) < 4 * math.sqrt(n * p * (1 - p))


def test_every_teacher_is_covered_here() -> None:
    assert set(PARAMETERS) == set(TEACHERS)


@pytest.mark.parametrize(
    ("left", "right", "answer"),
    [
        ([1, 1, 1], [1, 1, 0], LEFT),
        ([-5, 0, 0], [0, -4.999, 0], RIGHT),
        ([3, 0, 0], [1, 1, 1], TIE),
        ([0, 0, 0], [0, 0, 0], TIE),
        ([1e-9, 0, 0], [0, 0, 0], LEFT),  # no threshold, however small the difference
        ([1e6, 1e-4, 0], [1e6, 0, 0], LEFT),
        ([0, 0, 0], [-1e-300, 0, 0], LEFT),
    ],
)
def test_the_papers_oracle_prefers_the_larger_return_and_ties_at_equality(
    left: list[float], right: list[float], answer: str
) -> None:
    assert _ask("true-return", left, right) == answer


@pytest.mark.parametrize("name", ["true-return", "mistake", "equal"])
def test_500_pairs_of_equal_return_are_ties(name: str) -> None:
    """A sparse reward under a random policy: never an answer for one side."""
    rng = np.random.default_rng(0)
    teacher = make_teacher(name, PARAMETERS[name])[0]
    for _ in range(500):
        rewards = np.zeros(25)
        rewards[: rng.integers(0, 25)] = 1.0
        assert teacher(_seen(rng.permutation(rewards)), _seen(rng.permutation(rewards)), STATS, rng) == TIE


@pytest.mark.parametrize("value", [0.1, 0.01, 1 / 3, 100.0])
def test_equal_returns_are_ties_whatever_the_order_of_their_rewards(value: float) -> None:
    """Sums of equal rewards in another order differ by rounding, which is no preference."""
    rng = np.random.default_rng(0)
    rounded = 0
    for _ in range(500):
        rewards = np.zeros(60)
        rewards[: rng.integers(1, 60)] = value
        left, right = rng.permutation(rewards), rng.permutation(rewards)
        rounded += left.sum() != right.sum()
        assert make_teacher("true-return", {})[0](_seen(left), _seen(right), STATS, rng) == TIE
    assert rounded > 0 or value == 100.0  # else the test shows nothing


def test_a_stochastic_teacher_tosses_a_fair_coin_at_equality() -> None:
    answers = _many("stochastic", [1, 2], [2, 1], n=500)
    assert set(answers) == {LEFT, RIGHT}
    assert _near(answers[LEFT], 500, 0.5)


@pytest.mark.parametrize("name", TEACHERS)
@pytest.mark.parametrize("factor", [100.0, 0.01])
def test_no_answer_depends_on_the_scale_of_the_reward(name: str, factor: float) -> None:
    rng = np.random.default_rng(0)
    pairs = rng.normal(0.2, 1.0, (500, 2, 10))
    returns = pairs.sum(-1)
    teacher = make_teacher(name, PARAMETERS[name])[0]

    def answers(scale: float) -> list[Preference]:
        stats = ReturnStatistics(scale * float(returns.std()), scale * float(returns.mean()))
        return [
            teacher(_seen(scale * left), _seen(scale * right), stats, np.random.default_rng(i))
            for i, (left, right) in enumerate(pairs)
        ]

    plain = answers(1.0)
    assert answers(factor) == plain
    assert {LEFT, RIGHT} <= set(plain)
    if name in ("skip", "equal"):
        assert len(set(plain)) == 3  # the thresholds were felt


@pytest.mark.parametrize("factor", [100.0, 0.01])
def test_ties_do_not_depend_on_the_scale_of_the_reward(factor: float) -> None:
    rng = np.random.default_rng(1)
    pairs = rng.integers(0, 3, (500, 2, 6)).astype(float)
    plain = [_ask("true-return", *pair) for pair in pairs]
    assert [_ask("true-return", *(factor * pair)) for pair in pairs] == plain
    assert 30 < plain.count(TIE) < 250


def test_the_scale_would_matter_if_statistics_did_not_scale_with_it() -> None:
    """Negative control: a temperature in raw units turns answers into coin flips at another scale."""
    p = [_many("stochastic", [0.2 * s], [0.0], n=2000, beta=5.0)[LEFT] / 2000 for s in (100.0, 1.0, 0.01)]
    assert p[0] > 0.99
    assert 0.55 < p[1] < 0.7
    assert p[2] < 0.55


@pytest.mark.parametrize(
    ("beta", "difference", "p"),
    [
        (5.0, 0.4, 1 / (1 + math.exp(-1.0))),  # 5 * 0.4 / 2
        (1.0, -2.0, 1 / (1 + math.exp(1.0))),
        (0.0, 3.0, 0.5),
        (5.0, 1e6, 1.0),
    ],
)
def test_stochastic_answers_follow_the_logistic_in_units_of_the_spread(
    beta: float, difference: float, p: float
) -> None:
    answers = _many("stochastic", [difference, 0], [0, 0], beta=beta)
    assert answers[LEFT] == 20_000 if p == 1.0 else _near(answers[LEFT], 20_000, p)
    assert answers[LEFT] + answers[RIGHT] == 20_000


def test_a_spread_of_zero_is_survived() -> None:
    none = ReturnStatistics(spread=0.0, recent_mean=0.0)
    for name in TEACHERS:
        assert _ask(name, [1.0, 1.0], [0.0, 0.0], stats=none, **({"epsilon": 0.0} if name == "mistake" else {})) == LEFT
        assert _ask(name, [1.0], [1.0], stats=none) in (TIE, LEFT, RIGHT)


@pytest.mark.parametrize("epsilon", [0.1, 0.5])
def test_mistakes_are_made_at_the_stated_rate(epsilon: float) -> None:
    for left, right, wrong in (([1], [0], RIGHT), ([0], [1], LEFT)):
        assert _near(_many("mistake", left, right, epsilon=epsilon)[wrong], 20_000, epsilon)


def test_no_mistakes_nothing_but_mistakes_and_no_mistaken_ties() -> None:
    assert _many("mistake", [1], [0], n=500, epsilon=0.0) == {LEFT: 500}
    assert _many("mistake", [1], [0], n=500, epsilon=1.0) == {RIGHT: 500}
    assert _many("mistake", [1], [1], n=500, epsilon=1.0) == {TIE: 500}


@pytest.mark.parametrize(
    ("left", "right", "threshold", "answer"),
    [  # recent mean 1, spread 2
        ([0.9], [0.5], 0.0, INCOMPARABLE),
        ([1.0], [0.5], 0.0, LEFT),  # the better one is not below the mean
        ([-3.0], [1.5], 0.0, RIGHT),
        ([0.1], [-5.0], 0.5, LEFT),  # limit 1 - 0.5 * 2 = 0
        ([-0.1], [-5.0], 0.5, INCOMPARABLE),
        ([-0.1], [-0.1], 0.5, INCOMPARABLE),
        ([2.0], [2.0], 0.0, TIE),
        ([2.0], [1.9], -1.0, INCOMPARABLE),  # limit 1 + 1 * 2 = 3
    ],
)
def test_skip_by_hand(left: list[float], right: list[float], threshold: float, answer: str) -> None:
    assert _ask("skip", left, right, threshold=threshold) == answer


@pytest.mark.parametrize(
    ("left", "right", "threshold", "answer"),
    [  # spread 2
        ([0.999], [0.0], 0.5, TIE),
        ([0.0], [0.999], 0.5, TIE),
        ([1.001], [0.0], 0.5, LEFT),
        ([0.0], [1.001], 0.5, RIGHT),
        ([1e-6], [0.0], 0.0, LEFT),
        ([0.0], [0.0], 0.0, TIE),
    ],
)
def test_equal_by_hand(left: list[float], right: list[float], threshold: float, answer: str) -> None:
    assert _ask("equal", left, right, threshold=threshold) == answer


@pytest.mark.parametrize(
    ("left", "right", "gamma", "answer"),
    [
        ([3, 0, 0], [0, 0, 1], 0.5, RIGHT),  # 3 / 4 against 1, though 3 > 1
        ([8, 0, 0], [0, 0, 1.5], 0.5, LEFT),  # 2 against 1.5
        ([4, 0, 0], [0, 2, 0], 0.5, TIE),  # 1 against 1
        ([0, 1, 1], [0, 0, 1.75], 0.9, LEFT),  # 1.9 against 1.75
        ([3, 0, 0], [0, 0, 1], 1.0, LEFT),  # the plain return
    ],
)
def test_myopic_by_hand(left: list[float], right: list[float], gamma: float, answer: str) -> None:
    assert _ask("myopic", left, right, gamma=gamma) == answer


MIRROR = {LEFT: RIGHT, RIGHT: LEFT, TIE: TIE, INCOMPARABLE: INCOMPARABLE}
REWARDS = st.lists(st.floats(-100, 100), min_size=4, max_size=4)


@pytest.mark.parametrize("name", DETERMINISTIC)
@given(REWARDS, REWARDS)
def test_the_sides_do_not_matter(name: str, left: list[float], right: list[float]) -> None:
    answer = _ask(name, left, right, **PARAMETERS[name])
    assert _ask(name, right, left, **PARAMETERS[name]) == MIRROR[Preference(answer)]


@pytest.mark.parametrize("name", TEACHERS)
def test_answers_are_reproducible_from_the_generator(name: str) -> None:
    first, second = ([_ask(name, [0.1], [0.0], seed=s, **PARAMETERS[name]) for s in range(50)] for _ in range(2))
    assert first == second


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("stochastic", {"beat": 2.0}, "label.oracle_kwargs do not fit the oracle 'stochastic': .*beat"),
        ("true-return", {"beta": 2.0}, "label.oracle_kwargs do not fit the oracle 'true-return': .*beta"),
        ("stochastic", {"beta": -1.0}, "the oracle's beta must be .* at least 0, not -1.0"),
        ("stochastic", {"beta": math.nan}, "beta must be .*, not nan"),
        ("stochastic", {"beta": math.inf}, "beta must be a finite number .*, not inf"),
        ("stochastic", {"beta": "hot"}, "label.oracle_kwargs do not fit the oracle 'stochastic'"),
        ("mistake", {"epsilon": 1.5}, "epsilon must lie between 0 and 1, not 1.5"),
        ("mistake", {"epsilon": -0.1}, "epsilon must lie between 0 and 1, not -0.1"),
        ("mistake", {"epsilon": math.nan}, "epsilon must lie between 0 and 1, not nan"),
        ("equal", {"threshold": -1.0}, "threshold must be .* at least 0, not -1.0"),
        ("skip", {"threshold": math.nan}, "threshold must be .*, not nan"),
        ("skip", {"threshold": "low"}, "label.oracle_kwargs do not fit the oracle 'skip'"),
        ("myopic", {"gamma": 0.0}, r"gamma must lie in \(0, 1\], not 0.0"),
        ("myopic", {"gamma": 1.01}, r"gamma must lie in \(0, 1\], not 1.01"),
        ("true-retrun", {}, "unknown oracle 'true-retrun'.*did you mean true-return"),
    ],
)
def test_wrong_parameters_are_refused_by_name_before_the_run_starts(
    name: str, parameters: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        make_teacher(name, parameters)


def _role(**label: Any) -> OracleRole:
    config = RunConfig(label=LabelConfig(**label), seed=3)
    return OracleRole(cast(Any, None), cast(Any, SimpleNamespace(config=to_dict(config))))


def _lease(shown_left: int) -> Lease:
    return Lease(query_id=7, token="t", segment_1=1, segment_2=2, shown_left=shown_left, expires_ms=0)


def test_the_role_answers_as_shown() -> None:
    judged = {1: _seen(np.ones(3)), 2: _seen(np.zeros(3))}
    for shown_left, answer in ((1, LEFT), (2, RIGHT)):
        given = _role()._answer(_lease(shown_left), judged, STATS)
        assert given.preference == answer
        assert given.preference.mu(shown_left) == 1.0
        assert given.annotator == "oracle:true-return"


@pytest.mark.parametrize(
    ("oracle", "given", "recorded"),
    [
        ("stochastic", {"beta": 2.5}, {"oracle": "stochastic", "beta": 2.5}),
        ("stochastic", {}, {"oracle": "stochastic", "beta": 5.0}),
        ("mistake", {}, {"oracle": "mistake", "epsilon": 0.1}),
    ],
)
def test_the_record_of_an_answer_states_the_teachers_parameters(
    oracle: str, given: dict[str, Any], recorded: dict[str, Any]
) -> None:
    """Those left at their defaults too: a default may change between versions, a record may not."""
    judged = {1: _seen(np.ones(3)), 2: _seen(np.zeros(3))}
    assert _role(oracle=oracle, oracle_kwargs=given)._answer(_lease(1), judged, STATS).detail == recorded


def test_mu_of_each_answer() -> None:
    assert [p.mu(1) for p in (LEFT, RIGHT, TIE)] == [1.0, 0.0, 0.5]
    assert [p.mu(2) for p in (LEFT, RIGHT, TIE)] == [0.0, 1.0, 0.5]
    for nothing in (INCOMPARABLE, Preference.WITHDRAWN):
        assert nothing.mu(1) is nothing.mu(2) is None


def test_an_unknown_oracle_lists_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=re.escape(", ".join(TEACHERS))):
        make_teacher("nobody", {})
