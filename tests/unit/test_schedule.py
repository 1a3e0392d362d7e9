"""How many comparisons are due when; and when things happen, in agent steps."""

from __future__ import annotations

import dataclasses
import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefrl.config import SCHEDULES, EnvConfig, LabelConfig, PolicyConfig, RewardConfig, RunConfig
from prefrl.resolve import resolve
from prefrl.reward_model.schedule import held_out_scheduled, n_initial, n_scheduled
from prefrl.rollout.pace import learning_starts, rollout_size, sync_steps

M = 1_000_000
PAPER = LabelConfig(budget=700, initial_fraction=0.25, schedule="paper", tau=2 * M)


@pytest.mark.parametrize(
    ("millions", "n"),
    [(0, 175), (0.5, 224), (1, 264), (2, 327), (5, 449), (10, 567), (20, 700)],
)
def test_the_papers_numbers_for_700_labels(millions: float, n: int) -> None:
    """To the label: the closed form gives 175 + 525 ln(1 + T / 2e6) / ln 11."""
    exact = 175 + 525 * math.log(1 + millions / 2) / math.log(11)
    assert round(exact) == n
    assert n_scheduled(PAPER, int(millions * M), 20 * M) in (n, n - 1)
    assert n_scheduled(PAPER, int(millions * M), 20 * M) == math.floor(exact + 1e-9)


@pytest.mark.parametrize(("budget", "factor"), [(1400, 2), (350, 0.5)])
def test_other_budgets_scale_the_curve(budget: int, factor: float) -> None:
    label = dataclasses.replace(PAPER, budget=budget)
    for millions in (0, 1, 5, 20):
        expected = factor * n_scheduled(PAPER, millions * M, 20 * M)
        assert n_scheduled(label, millions * M, 20 * M) == pytest.approx(expected, abs=2)


def test_the_first_rate_is_one_label_in_9135_steps_and_halves_after_tau() -> None:
    def rate(at: int) -> float:
        return (n_scheduled(label, at + 200_000, 20 * M) - n_scheduled(label, at, 20 * M)) / 200_000

    label = dataclasses.replace(PAPER, budget=700_000)  # a thousand times as many, to see the slope
    assert 1000 / rate(0) == pytest.approx(9135, rel=0.06)
    assert rate(2 * M) == pytest.approx(rate(0) / 2, rel=0.06)


def test_a_scaled_down_run_keeps_the_shape() -> None:
    small = dataclasses.replace(PAPER, tau=30_000)
    for share in (0.0, 0.1, 0.37, 0.5, 1.0):
        a, b = n_scheduled(small, int(share * 300_000), 300_000), n_scheduled(PAPER, int(share * 20 * M), 20 * M)
        assert abs(a - b) <= 1


def test_constant_rate() -> None:
    label = dataclasses.replace(PAPER, schedule="constant")
    assert [n_scheduled(label, share * 2 * M, 20 * M) for share in range(11)] == [
        175 + 525 * i // 10 for i in range(11)
    ]


def test_upfront_asks_everything_at_once() -> None:
    label = dataclasses.replace(PAPER, schedule="upfront")
    assert n_initial(label) == 700
    assert [n_scheduled(label, steps, 20 * M) for steps in (0, 1, 20 * M)] == [700] * 3


STAIRS = LabelConfig(budget=5500, initial_fraction=500 / 5500, schedule="staircase", tau=5 * M)


def test_the_staircase_of_the_paper_by_hand() -> None:
    """Ten stretches of 5e6 steps, the k-th at 1 / k of the first one's rate: 5000 / (1 + 1/2 + … + 1/10) = 1707.085."""
    counts = [n_scheduled(STAIRS, k * 5 * M, 50 * M) for k in range(11)]
    assert counts == [500, 2207, 3060, 3629, 4056, 4397, 4682, 4926, 5139, 5329, 5500]
    assert n_scheduled(STAIRS, int(2.5 * M), 50 * M) == 500 + 853  # half of the first stretch: half of its share
    assert n_scheduled(STAIRS, int(7.5 * M), 50 * M) == 500 + 2133  # 1707.085 and a quarter of it


def test_the_staircase_is_straight_within_a_stretch_and_bends_between() -> None:
    fine = dataclasses.replace(STAIRS, budget=5_500_000)
    asked = [n_scheduled(fine, step, 50 * M) for step in range(0, 50 * M + 1, M)]
    gained = [b - a for a, b in itertools.pairwise(asked)]  # in each million of steps
    for stretch in range(10):
        rates = gained[5 * stretch : 5 * stretch + 5]
        assert max(rates) - min(rates) <= 1
        assert rates[0] == pytest.approx(gained[0] / (stretch + 1), abs=1)


def test_a_run_that_ends_within_a_stretch_still_asks_everything() -> None:
    assert [n_scheduled(STAIRS, step * M, 7 * M) for step in (0, 5, 6, 7)] == [500, 4666, 5083, 5500]


LABELS = st.builds(
    LabelConfig,
    budget=st.integers(1, 3000),
    initial_fraction=st.floats(0, 1),
    schedule=st.sampled_from(SCHEDULES),
    tau=st.integers(1, 10**7),
)


@given(LABELS, st.integers(1, 10**8), st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_the_number_due_grows_from_the_initial_share_to_the_budget(
    label: LabelConfig, total: int, shares: list[float]
) -> None:
    due = [n_scheduled(label, int(share * total), total) for share in sorted(shares)]
    assert due == sorted(due)
    assert 1 <= n_initial(label) <= due[0]
    assert due[-1] <= label.budget
    assert n_scheduled(label, 0, total) == n_initial(label)


@given(LABELS, st.integers(1, 10**8), st.integers(0, 10**6))
def test_the_whole_budget_is_due_exactly_at_the_end_and_never_more(label: LabelConfig, total: int, beyond: int) -> None:
    assert n_scheduled(label, total, total) == label.budget
    assert n_scheduled(label, total + beyond, total) == label.budget


@pytest.mark.parametrize(("budget", "initial"), [(1, 1), (2, 1), (3, 1), (4, 1), (5, 1), (8, 2), (700, 175)])
@pytest.mark.parametrize("schedule", ["paper", "constant"])
def test_small_budgets_start_with_at_least_one(budget: int, initial: int, schedule: str) -> None:
    label = dataclasses.replace(PAPER, budget=budget, schedule=schedule)
    assert n_initial(label) == initial
    assert n_scheduled(label, 0, 1000) == initial
    assert n_scheduled(label, 1000, 1000) == budget


@pytest.mark.parametrize(("fraction", "initial"), [(0.0, 1), (0.5, 350), (1.0, 700)])
def test_initial_fractions(fraction: float, initial: int) -> None:
    assert n_initial(dataclasses.replace(PAPER, initial_fraction=fraction)) == initial


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("total", [0, -1948])
def test_a_run_that_ends_before_the_policy_learns_asks_everything(schedule: str, total: int) -> None:
    """A run may be shorter than its first rollout."""
    assert n_scheduled(dataclasses.replace(PAPER, schedule=schedule), 0, total) == 700


def _config(**policy: object) -> RunConfig:
    settings = {"learner": "trpo", "n_envs": 2, "n_steps": 1000, "steps": 300_000, **policy}
    return resolve(RunConfig(env=EnvConfig(id="pendulum"), policy=PolicyConfig(**settings)))  # type: ignore[arg-type]


@pytest.mark.parametrize(("sync_every", "expected"), [(1, 2000), (2000, 2000), (2001, 4000), (5999, 6000)])
def test_exchanges_are_rounded_up_to_whole_rollouts(sync_every: int, expected: int) -> None:
    policy = _config(sync_every=sync_every).policy
    assert rollout_size(policy) == 2000
    assert sync_steps(policy) == expected


def test_the_untrained_policy_runs_a_segment_for_each_initial_comparison() -> None:
    """175 comparisons of 15 steps are 2,625 agent steps: two rollouts of 2,000."""
    assert learning_starts(_config()) == 4000


def test_the_untrained_policy_takes_at_most_half_of_the_run_but_at_least_one_rollout() -> None:
    assert learning_starts(_config(steps=7000)) == 2000
    assert learning_starts(_config(steps=1500)) == 2000


def test_the_true_reward_needs_no_untrained_policy() -> None:
    assert learning_starts(dataclasses.replace(_config(), reward=RewardConfig(source="true"))) == 0


@given(st.integers(1, 10**6), st.integers(1, 16), st.integers(1, 4096), st.integers(1, 2000))
def test_learning_starts_on_a_rollout(steps: int, n_envs: int, n_steps: int, budget: int) -> None:
    config = dataclasses.replace(_config(steps=steps, n_envs=n_envs, n_steps=n_steps), label=LabelConfig(budget=budget))
    start, unit = learning_starts(config), n_envs * n_steps
    assert start % unit == 0
    assert start >= unit
    assert start <= max(unit, steps // 2)


def test_those_held_out_come_at_a_constant_rate_out_of_the_budget() -> None:
    label = dataclasses.replace(PAPER, held_out_share=0.1)
    assert n_initial(label) == round(0.25 * 630)
    assert [held_out_scheduled(label, share * 2 * M, 20 * M) for share in range(11)] == [7 * i for i in range(11)]
    train = dataclasses.replace(PAPER, budget=630)
    for share in range(11):
        step = share * 2 * M
        assert n_scheduled(label, step, 20 * M) == n_scheduled(train, step, 20 * M) + 7 * share
    upfront = dataclasses.replace(label, schedule="upfront")
    assert n_initial(upfront) == 630, "nothing the policy does can be asked about before it learns"
    assert [n_scheduled(upfront, step, 20 * M) for step in (0, 10 * M, 20 * M)] == [630, 665, 700]
    assert n_scheduled(label, 5, 0) == 700
