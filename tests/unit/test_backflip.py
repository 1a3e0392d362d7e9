"""The judge of back-flips looks at whole attempts and at the whole body; the count of landed flips is strict."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from experiments.backflip import angles, before_fall, heights, judge, landed_flips, score, turned
from prefrl.envs.make import make_env
from prefrl.oracle.teachers import Judged, ReturnStatistics
from prefrl.testing import check_oracle
from prefrl.types import Preference

STATS = ReturnStatistics(1.0, 0.0)


def obs(turns, heights, hip=0.0, knee=0.0):
    """Observations of a hopper whose torso has turned backwards so far, of these heights and bent joints (turns)."""
    values = np.zeros((len(turns), 13))
    values[:, 0], values[:, 1] = heights, -np.asarray(turns) * 2 * np.pi
    values[:, 2], values[:, 3] = -2 * np.pi * np.asarray(hip), -2 * np.pi * np.asarray(knee)
    return values


def turning(far, high=1.3, then=30, low=1.2):
    """Turns so far in 30 steps that far over the floor, and stays so at another height."""
    return obs(np.r_[np.linspace(0, far, 30), np.full(then, far)], np.r_[np.full(30, high), np.full(then, low)])


def there_and_back(far, n=10):
    return np.tile(np.r_[np.linspace(0, far, n), np.linspace(far, 0, n)], 60 // (2 * n))


STANDING = obs(np.zeros(60), np.full(60, 1.2))
LYING = obs(np.full(60, 0.25), np.full(60, 0.1))
FLIP = turning(1.0)
FALLS_LATER = np.concatenate([FLIP[:45], obs(np.full(15, 1.0), np.full(15, 0.3))])
FALLS = turning(1.0, low=0.3)
HALF = turning(0.5)
OVER = turning(1.4, low=1.3)
BACKWARDS = obs(np.r_[np.linspace(0, 0.25, 30), np.full(30, 0.25)], np.r_[np.linspace(1.25, 0.1, 30), np.full(30, 0.1)])
ROLL = obs(np.linspace(0, 3, 60), np.full(60, 0.1))
FORWARD = obs(np.linspace(0, -1, 60), np.full(60, 1.3))
# falls on its back, pushes itself off with the head, turns over in the air and stands
OFF_THE_HEAD = np.concatenate([BACKWARDS, obs(np.linspace(0.25, 1, 30), np.full(30, 1.5)), FLIP[-30:]])
BOWS = obs(there_and_back(0.4), np.tile(np.r_[[1.2] * 12, [0.1] * 8], 3))
HOPPING_FOLDED = obs(there_and_back(0.05) + 0.5, np.full(60, 0.9), hip=0.5)
FOLDS = obs(
    np.r_[np.linspace(0, 0.5, 30), np.full(30, 0.5)], np.full(60, 0.9), hip=np.r_[np.linspace(0, 0.5, 30), [0.5] * 30]
)


def test_the_angles_and_heights_are_the_simulators():
    env = make_env("backflip-hopper")
    seen, _ = env.reset(seed=0)
    data: Any = env.unwrapped
    data = data.data
    env.action_space.seed(0)
    path, true, high = [], [], []
    for _ in range(100):
        bodies = [data.body(name).xmat for name in ("torso", "thigh", "leg", "foot")]
        true.append([-np.arctan2(x[2], x[0]) / (2 * np.pi) for x in bodies])
        ends = [("torso", 0.2), ("torso", -0.2), ("thigh", -0.225), ("leg", -0.25), ("foot", 0.195), ("foot", -0.195)]
        high.append([data.geom(f"{n}_geom").xpos[2] + half * data.geom(f"{n}_geom").xmat[8] for n, half in ends])
        path.append(seen)
        seen, *_ = env.step(env.action_space.sample())
    env.close()
    assert np.allclose(angles(np.array(path)), np.array(true) - true[0], atol=2e-3)
    assert np.allclose(heights(np.array(path)), high, atol=2e-3)


def test_net_turns_in_the_air_count_and_those_of_the_whole_body_most():
    assert [round(turned(path).mean(), 6) for path in (STANDING, FLIP, HALF, OVER, FORWARD)] == [0, 1, 0.5, 1.4, -1]
    assert abs(turned(HOPPING_FOLDED).mean()) < 0.1, "hopping with the torso folded back is no turn"
    assert turned(FOLDS).mean() < 0.2, "nor is folding it back"


def test_nothing_counts_after_head_hip_or_knee_was_on_the_floor():
    assert len(before_fall(FLIP)) == 60
    assert len(before_fall(FALLS)) == 30
    assert len(before_fall(ROLL)) == 1
    assert 0 < score(BACKWARDS) < 0.1
    assert score(OFF_THE_HEAD) == pytest.approx(score(BACKWARDS))


@pytest.mark.parametrize(
    ("better", "worse"), list(itertools.pairwise((FLIP, FALLS_LATER, FALLS, OVER, HALF, STANDING)))
)
def test_the_judge_prefers_what_is_nearer_to_a_landed_flip_on_either_side(better, worse):
    a, b = (Judged(np.zeros(60), path, np.zeros((60, 3))) for path in (better, worse))
    rng = np.random.default_rng(0)
    assert judge()(a, b, STATS, rng) == Preference.LEFT
    assert judge()(b, a, STATS, rng) == Preference.RIGHT
    assert judge()(a, a, STATS, rng) == Preference.TIE


@pytest.mark.parametrize("better", [FLIP, FALLS, HALF])
@pytest.mark.parametrize("worse", [LYING, BACKWARDS, BOWS, FOLDS, HOPPING_FOLDED, ROLL, FORWARD, OFF_THE_HEAD])
def test_nothing_passes_for_a_turn_in_the_air(better, worse):
    a, b = (Judged(np.zeros(len(path)), path, np.zeros((len(path), 3))) for path in (better, worse))
    assert judge()(a, b, STATS, np.random.default_rng(0)) == Preference.LEFT


def test_the_judge_is_an_oracle():
    check_oracle(judge, (13,), (3,))


def test_a_flip_counts_when_the_hopper_comes_down_on_its_foot_and_stands():
    paths = (STANDING, LYING, FLIP, FALLS, HALF, OVER, ROLL, FORWARD, FOLDS, OFF_THE_HEAD)
    assert [landed_flips(path) for path in paths] == [0, 0, 1, 0, 0, 0, 0, 0, 0, 0]
    assert landed_flips(turning(1.0, low=1.3)) == 0, "it is still in the air"
    assert landed_flips(turning(1.0, then=20)) == 0, "it stands too shortly"
    assert landed_flips(np.concatenate([FLIP, FLIP - [0, 2 * np.pi, *[0] * 11]])) == 2
    assert landed_flips(obs(np.linspace(0, 4, 60), np.full(60, 1.3))) == 0, "turning through is not landing"
