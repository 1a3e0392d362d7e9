"""The judge of back-flips looks at whole clips; the count of landed flips is strict."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.backflip import judge, landed_flips, turned
from prefrl.oracle.teachers import Judged, ReturnStatistics
from prefrl.testing import check_oracle
from prefrl.types import Preference

STATS = ReturnStatistics(1.0, 0.0)


def obs(angles, heights):
    """Observations of a hopper with these torso angles (turns, backwards is negative) and heights."""
    values = np.zeros((len(angles), 11))
    values[:, 0], values[:, 1] = heights, np.asarray(angles) * 2 * np.pi
    return values


STANDING = obs(np.zeros(60), np.full(60, 1.2))
LYING = obs(np.full(60, -0.25), np.full(60, 0.1))
FLIP = obs(np.concatenate([np.linspace(0, -1, 30), np.full(30, -1)]), np.full(60, 1.3))
FALL = obs(np.concatenate([np.linspace(0, -1, 30), np.full(30, -1)]), np.r_[np.full(30, 1.3), np.full(30, 0.2)])
ROLL = obs(np.linspace(0, -3, 60), np.full(60, 0.2))
FORWARD = obs(np.linspace(0, 1, 60), np.full(60, 1.3))


BOWS = obs(
    np.tile(np.r_[np.linspace(0, -0.4, 10), np.linspace(-0.4, 0, 10)], 3), np.tile(np.r_[[1.2] * 12, [0.3] * 8], 3)
)


def test_only_net_turns_off_the_floor_count_and_forward_ones_against():
    assert abs(turned(BOWS)) < 1e-9, "bowing backwards and coming up again is no turn"
    assert [round(turned(path), 6) for path in (STANDING, FLIP, ROLL, FORWARD)] == [0, 1, 0, -1]


@pytest.mark.parametrize(
    ("better", "worse"), [(FLIP, STANDING), (FLIP, FALL), (FALL, STANDING), (STANDING, LYING), (STANDING, FORWARD)]
)
def test_the_judge_follows_the_instructions_on_either_side(better, worse):
    a, b = (Judged(np.zeros(60), path, np.zeros((60, 3))) for path in (better, worse))
    rng = np.random.default_rng(0)
    assert judge()(a, b, STATS, rng) == Preference.LEFT
    assert judge()(b, a, STATS, rng) == Preference.RIGHT
    assert judge()(a, a, STATS, rng) == Preference.TIE


def test_the_judge_is_an_oracle():
    check_oracle(judge, (11,), (3,))


def test_a_flip_counts_when_the_hopper_stands_after_it():
    assert [landed_flips(path) for path in (STANDING, LYING, FLIP, FALL, ROLL, FORWARD)] == [0, 0, 1, 0, 0, 0]
    twice = np.concatenate([FLIP, FLIP - [0, 2 * np.pi, *[0] * 9]])
    assert landed_flips(twice) == 2
    assert landed_flips(obs(np.linspace(0, -4, 60), np.full(60, 1.3))) == 0, "turning through is not landing"
