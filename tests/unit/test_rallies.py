from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from stable_baselines3.common.vec_env import DummyVecEnv

from experiments.rallies import Game, play, summary


class Points(gym.Env[Any, Any]):
    """Gives the rewards of a script; a game is over at each 9, which stands for a point won."""

    observation_space = gym.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, script: list[int]) -> None:
        self.script = script * 2

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        said = self.script.pop(0)
        return np.zeros(1, np.float32), float(np.sign(said)), False, False, {"game_over": True} if said == 9 else {}


class Still:
    def predict(self, obs: Any) -> tuple[Any, None]:
        return np.zeros(len(obs), np.int64), None


def test_a_rally_lasts_from_point_to_point_and_a_game_starts_a_new_one() -> None:
    venv = DummyVecEnv([lambda: Points([0, 0, 1, -1, 0, 9, 0, -1, 9])])
    first, second = play(Still(), venv, 2)  # type: ignore[arg-type]
    assert first == Game((3, 1, 2), 2)
    assert second == Game((2, 1), 1)
    assert (first.score, second.score) == (1, 0)


def test_means_are_over_games_and_over_points() -> None:
    told = summary([Game((3, 1, 2), 2), Game((10,), 0)])
    assert told == {"games": 2, "score": 0.0, "points_won": 1.0, "steps_of_a_rally": 4.0, "longest_rally": 10.0}
    assert np.isnan(summary([Game((), 0)])["steps_of_a_rally"])
