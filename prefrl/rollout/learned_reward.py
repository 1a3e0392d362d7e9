"""Replaces the reward by the learned one, before the learner's time-limit bootstrap and advantages see it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper
from stable_baselines3.common.vec_env.base_vec_env import VecEnvObs, VecEnvStepReturn

from prefrl.errors import RewardError
from prefrl.reward_model.published import RewardSource


class LearnedReward(VecEnvWrapper):
    """Rewards of one pinned version of the ensemble; works under any on-policy stable-baselines3 algorithm.

    The version changes only in ``pin``, which ``PinNewest`` calls where a rollout starts, so that no
    rollout mixes two versions. Episode statistics in ``infos`` are of the learned reward.

    Args:
        venv: Environments with raw observations (normalise above this wrapper, not below).
        source: Where versions come from, see ``prefrl.reward_model.published``.
    """

    def __init__(self, venv: VecEnv, source: RewardSource) -> None:
        super().__init__(venv)
        self.source = source
        self.version = 0
        self._return = np.zeros(venv.num_envs)
        self._length = np.zeros(venv.num_envs, np.int64)

    def pin(self) -> int:
        """Use the newest published version from now on and return its number (0: none yet)."""
        if self.source.newest() != self.version:
            self.version, self._reward = self.source.load()
        return self.version

    def reset(self) -> VecEnvObs:
        """Reset every environment."""
        obs = self.venv.reset()
        self._last_obs = np.array(obs)
        self._return[:] = 0.0
        self._length[:] = 0
        return obs

    def step_async(self, actions: NDArray[Any]) -> None:
        """Remember the actions, which the reward may depend on."""
        self._actions = np.array(actions)
        self.venv.step_async(actions)

    def step_wait(self) -> VecEnvStepReturn:
        """Step, with r(o_t, a_t) of the pinned version for the observations acted upon.

        Raises:
            RewardError: No version is pinned, or the reward is not finite; names version and environment.
        """
        obs, _, dones, infos = self.venv.step_wait()
        if not self.version:
            raise RewardError("no version of the learned reward is pinned; call pin() before stepping")
        rewards = self._reward(self._last_obs, self._actions)  # (E,)
        if not np.isfinite(rewards).all():
            env = int(np.argmin(np.isfinite(rewards)))
            raise RewardError(
                f"version {self.version} of the learned reward gave {rewards[env]} in environment {env} at step "
                f"{int(self._length[env])} of its episode; the policy has not seen it"
            )
        self._last_obs = np.array(obs)
        self._return += rewards
        self._length += 1
        for i in range(self.num_envs):
            if not (dones[i] or infos[i].get("game_over")):  # a game's end inside an endless episode
                continue
            infos[i]["episode"] = {"r": float(self._return[i]), "l": int(self._length[i]), "t": 0.0}
            self._return[i], self._length[i] = 0.0, 0
        return obs, rewards, dones, infos


class PinNewest(BaseCallback):
    """Pins the newest reward version where each rollout starts; for scripts of your own.

    Args:
        reward: The wrapper under the algorithm.
    """

    def __init__(self, reward: LearnedReward) -> None:
        super().__init__()
        self.reward = reward

    def _on_training_start(self) -> None:
        if hasattr(self.model, "replay_buffer"):
            name = type(self.model).__name__
            raise RewardError(f"{name} keeps transitions with rewards of old versions; use an on-policy algorithm")

    def _on_rollout_start(self) -> None:
        self.logger.record("reward/version", self.reward.pin())

    def _on_step(self) -> bool:
        return True
