"""What happens when an environment ends an episode early: the length must not leak the answer."""

from __future__ import annotations

import math
from typing import Any

import gymnasium as gym
import numpy as np

from prefrl.errors import EnvError, describe

ENDS = ("refuse", "reset", "allow")


class FixedHorizon(gym.Wrapper[Any, Any, Any, Any], gym.utils.RecordConstructorArgs):
    """Every episode lasts ``horizon`` steps (counted here, cut by the time limit around this wrapper).

    Where episodes end early, a learned reward looks good by merely keeping the episode alive, or ending
    it; the paper therefore removes all variable-length episodes. An end exactly at the horizon is fine
    and is left to the time limit. Values that are not finite are refused at the step where they appear.

    Args:
        env: The environment, without a time limit.
        horizon: Steps of an episode.
        ends: ``refuse`` raises at an early end; ``reset`` really resets inside and hides it: the returned
            observation is the first of the new life, and ``info["hidden_reset"]`` is True at that step;
            ``allow`` passes the end through.
        name: What messages call the environment.
    """

    def __init__(self, env: gym.Env[Any, Any], horizon: int, ends: str, name: str) -> None:
        gym.utils.RecordConstructorArgs.__init__(self, horizon=horizon, ends=ends, name=name)
        super().__init__(env)
        self._horizon = horizon
        self._ends = ends
        self._name = name
        self._step = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode."""
        self._step = 0
        try:
            obs, info = self.env.reset(seed=seed, options=options)
        except Exception as error:  # whatever the environment does
            raise EnvError(f"{self._name}: reset failed: {describe(error)}") from error
        self._check_finite(obs, 0.0)
        return obs, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step; never ended before the horizon unless ``ends`` is ``allow``.

        Raises:
            EnvError: The observation or reward is not finite, or the episode ended early and
                ``ends`` is ``refuse``.
        """
        self._step += 1
        try:
            obs, reward, terminated, truncated, info = self.env.step(action)
        except Exception as error:  # whatever the environment does
            raise EnvError(f"{self._name}: step {self._step} failed: {describe(error)}") from error
        self._check_finite(obs, reward)
        if self._ends == "allow" or not (terminated or truncated):
            return obs, reward, terminated, truncated, info
        if self._step < self._horizon:
            if self._ends == "refuse":
                raise EnvError(self._early_end(terminated))
            obs, reset_info = self.env.reset()
            self._check_finite(obs, 0.0)
            info = {**info, **reset_info, "hidden_reset": True}
        return obs, reward, False, False, info

    def _check_finite(self, obs: Any, reward: Any) -> None:
        if (isinstance(reward, np.ndarray) and reward.ndim) or not math.isfinite(reward):
            raise EnvError(f"{self._name}: the reward at step {self._step} is {reward}, not one finite number")
        finite = np.isfinite(obs)
        if not finite.all():
            bad = int(np.argmin(finite))
            raise EnvError(
                f"{self._name}: the observation at step {self._step} is not finite "
                f"(entry {bad} is {np.ravel(obs)[bad]})"
            )

    def _early_end(self, terminated: bool) -> str:
        how = "terminated" if terminated else "was truncated by the environment"
        fixed = "" if terminated else f"; if all its episodes have {self._step} steps, say `--env.horizon {self._step}`"
        return (
            f"{self._name}: the episode {how} at step {self._step} of {self._horizon}. Where episodes end "
            "early, their length leaks the answer, and the learned reward looks better than it is. Use "
            "`--env.ends reset` to go on in a new life behind the agent's back, or `--env.ends allow` "
            f"to keep the ends all the same{fixed}"
        )
