"""What is asked to be held out, and what the reward claims of it."""

from __future__ import annotations

import math
from typing import Any, cast

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from prefrl.reward_model import watch
from prefrl.reward_model.held_out import ALARM, Evidence, alarms, evidence, from_metrics, looks, recent, to_metrics
from prefrl.reward_model.spaces import Spaces
from prefrl.reward_model.watch import disagreement, draw_held_out, judge_held_out
from prefrl.types import Comparison, Preference, RewardVersion, Segment

SPACES = Spaces((1,), (1,))


def test_evidence_by_hand() -> None:
    one = evidence([0.9, 0.5, 0.7], [1.0, 0.5, 0.0])
    assert one.n == 3
    assert one.claimed == pytest.approx(2.1)
    assert one.seen == 1.5
    assert one.variance == pytest.approx(0.09 + 0.25 + 0.21)
    assert one.z == pytest.approx(0.6 / math.sqrt(0.55))
    assert evidence([], []) == Evidence()
    assert Evidence().z == 0.0


def test_it_is_stored_as_plain_numbers() -> None:
    one = evidence([0.9, 0.2], [1.0, 0.5])
    assert from_metrics(to_metrics(one)) == one
    assert from_metrics({"oob_loss": 0.3}) == Evidence()
    assert to_metrics(Evidence()) == {}


def test_the_newest_window_is_in_whole_versions() -> None:
    each = [evidence([p] * n, [0.0] * n) for p, n in ((0.1, 30), (0.6, 3), (0.8, 4))]
    assert recent(each, 4) == each[2]
    assert recent(each, 5).n == 7
    assert recent(each, 8).n == 37
    assert recent([], 5) == Evidence()


def test_it_alarms_where_the_reward_claims_more_than_people_see() -> None:
    wrong, right = evidence([0.8] * 30, [1.0] * 15 + [0.0] * 15), evidence([0.8] * 30, [1.0] * 24 + [0.0] * 6)
    assert alarms(wrong, before=False)
    assert not alarms(right, before=False)
    assert not alarms(evidence([0.8] * 30, [1.0] * 30), before=False), "better than claimed"
    assert not alarms(evidence([0.5] * 30, [0.0] * 30), before=False), "nothing is claimed"
    assert not alarms(evidence([0.95] * 14, [0.0] * 14), before=False), "too few"
    assert alarms(evidence([0.95] * 15, [0.5] * 15), before=False), "ties are no progress"
    assert not alarms(evidence([0.6] * 3000, [1.0] * 1600 + [0.0] * 1400), before=False), "too little to matter"


def test_an_alarm_stands_until_people_agree_again() -> None:
    doubtful, right = evidence([0.8] * 30, [1.0] * 21 + [0.0] * 9), evidence([0.8] * 30, [1.0] * 24 + [0.0] * 6)
    assert [alarms(doubtful, before) for before in (False, True)] == [False, True]
    assert not alarms(right, before=True)


def test_by_chance_alone_it_alarms_seldom() -> None:
    rng = np.random.default_rng(0)
    p = rng.uniform(0.3, 0.95, (2000, 30))
    n = sum(alarms(evidence(one, (rng.random(30) < one).astype(float)), before=False) for one in p)
    assert 0 < n / 2000 < 0.02


def test_by_chance_alone_one_run_in_twenty_alarms() -> None:
    """As the README says, of 35 answers one by one, with predictions that are right."""
    rng, n_runs = np.random.default_rng(0), 1000
    ever = 0
    for _ in range(n_runs):
        p = rng.uniform(0.3, 0.95, 35)
        each = [evidence([one], [float(rng.random() < one)]) for one in p]
        ever += any(alarms(recent(each[: i + 1]), before=False) for i in range(35))
    assert 0.02 < ever / n_runs < 0.07


def test_looks_are_at_the_versions_with_something_new() -> None:
    metrics = [{}, to_metrics(evidence([0.9] * 20, [1.0] * 20)), {}, to_metrics(evidence([0.6] * 12, [0.0] * 12))]
    metrics[3][ALARM] = 1.0
    versions = [RewardVersion(i + 1, 0, 100 * i, m) for i, m in enumerate(metrics)]
    first, second = looks(versions)
    assert (first.env_steps, first.window.n, first.alarm) == (100, 20, False)
    assert (second.env_steps, second.window.n, second.window.seen, second.alarm) == (300, 32, 20, True)


@given(st.integers(0, 5), st.integers(0, 5), st.integers(0, 40), st.integers(0, 2**32 - 1))
def test_pairs_are_of_a_newer_and_an_older_one_and_new(n_newer: int, n_older: int, n: int, seed: int) -> None:
    newer, older = list(range(100, 100 + n_newer)), list(range(n_older))
    asked = {(0, 100), (1, 101), (7, 9)}
    pairs = draw_held_out(newer, older, n, asked, np.random.default_rng(seed))
    assert len(set(pairs)) == len(pairs)
    assert all(a in newer and b in older and (b, a) not in asked for a, b in pairs)
    possible = n_newer * n_older - sum(b in older and a in newer for b, a in asked)
    assert len(pairs) == min(n, possible)


class Fake:
    """Members whose reward of a step is a weight times its observation."""

    spaces = SPACES

    def __init__(self, *weights: float) -> None:
        self.weights = torch.tensor(weights)

    def segment_rewards(self, obs: torch.Tensor, act: torch.Tensor) -> torch.Tensor:
        return self.weights[:, None, None] * obs[..., 0]


def test_the_newer_segment_is_the_one_with_the_higher_id_in_whatever_order_the_pair_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    segments = {
        id_: Segment(np.full((4, 1), x, np.float32), np.zeros((4, 1), np.float32)) for id_, x in ((1, 0.0), (9, 0.25))
    }
    monkeypatch.setattr(watch, "load_segments", lambda db, ids: {i: segments[i] for i in sorted(ids) if i in segments})
    p = 0.9 / (1 + math.exp(-1)) + 0.05  # z is 1
    for first, second, mu in ((9, 1, 1.0), (1, 9, 0.0)):
        row = Comparison(1, first, second, Preference.LEFT, mu, 1, "ann", "u")
        one = judge_held_out(cast(Any, None), [row], cast(Any, Fake(1.0)), 0.1)
        assert (one.n, one.seen) == (1, 1.0)
        assert one.claimed == pytest.approx(p)
    pruned = Comparison(1, 9, 2, Preference.LEFT, 1.0, 1, "ann", "u")
    assert judge_held_out(cast(Any, None), [pruned], cast(Any, Fake(1.0)), 0.1) == Evidence()


def test_disagreement_by_hand() -> None:
    two = [Segment(np.full((4, 1), x, np.float32), np.zeros((4, 1), np.float32)) for x in (0.25, 0.0)]
    p = [1 / (1 + math.exp(-1)), 1 / (1 + math.exp(1))]  # z is 1 and -1
    assert disagreement(Fake(1.0, -1.0), two, noise=0.0) == pytest.approx(abs(p[0] - p[1]) / 2)
    assert disagreement(Fake(1.0, -1.0), two, noise=0.1) == pytest.approx(0.9 * abs(p[0] - p[1]) / 2)
    assert disagreement(Fake(2.0, 2.0), two, noise=0.1) == 0.0
    assert math.isnan(disagreement(Fake(1.0), two[:1], noise=0.1))
