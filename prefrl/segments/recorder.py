"""Cuts segments from rollouts, beneath the learned reward, above the true one."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper
from stable_baselines3.common.vec_env.base_vec_env import VecEnvObs, VecEnvStepReturn

from prefrl.errors import EnvError
from prefrl.segments.observed import Observed
from prefrl.types import Segment


class SegmentRecorder(VecEnvWrapper):
    """Keeps the newest steps of every environment and cuts segments from them.

    It copies what it keeps, never cuts across a reset (a hidden one included), and takes the true reward
    out of what the learner gets: rewards above it are zero and ``infos`` hold no episode return. Where a game ends
    inside an endless episode, ``info["game_over"]`` and ``info["episode"]["r"]`` tell its true score.

    Args:
        venv: Environments whose rewards are the true ones.
        segment_steps: Steps of a segment.
        n_steps: Steps of each environment between two calls of ``cut``.
    """

    def __init__(self, venv: VecEnv, segment_steps: int, n_steps: int) -> None:
        super().__init__(venv)
        self.segment_steps = segment_steps
        self.capacity = n_steps + segment_steps - 1  # starts whose end lies in the next rollout are kept
        shape = venv.observation_space.shape or ()
        self._obs = Observed(shape[0] if len(shape) == 3 else 0)
        self._act: list[NDArray[Any]] = []
        self._rew: list[NDArray[np.float64]] = []
        self._states: list[list[NDArray[Any] | None]] = []
        self._where: list[NDArray[np.int64]] = []  # (E, 2): episode, time step
        self._episode = np.full(venv.num_envs, -1)
        self._life = np.full(venv.num_envs, -1)
        self._time = np.zeros(venv.num_envs, np.int64)
        self._return = np.zeros(venv.num_envs)
        self._lived = np.zeros(venv.num_envs, np.int64)  # steps since the last reset, hidden ones included
        self.episode_returns: list[float] = []
        self.n_short = 0  # lives that ended before they were as long as a segment
        self.n_env_steps = 0

    def reset(self) -> VecEnvObs:
        """Reset every environment; steps before and after never share a segment."""
        obs = self.venv.reset()
        self._last_obs = self._checked(obs, "observation")
        self._obs.see(self._last_obs, None)
        self._last_states = [_state(info) for info in self.venv.reset_infos]
        self._episode += 1
        self._life += 1
        self._time[:] = 0
        self._lived[:] = 0
        self._return[:] = 0.0
        return obs

    def step_async(self, actions: NDArray[Any]) -> None:
        """Remember a copy of the actions and pass them on."""
        self._actions = np.array(actions)
        self.venv.step_async(actions)

    def step_wait(self) -> VecEnvStepReturn:
        """Record the step; the rewards returned are zero."""
        obs, rewards, dones, infos = self.venv.step_wait()
        self.n_env_steps += self.num_envs
        self._checked(rewards, "reward")
        self._obs.act()
        self._act.append(self._actions)
        self._rew.append(np.array(rewards, np.float64))
        self._states.append(self._last_states)
        self._where.append(np.stack([self._life, self._time], axis=1))
        before, self._last_obs = self._last_obs, self._checked(obs, "observation")
        self._obs.see(self._last_obs, before)
        self._return += rewards
        self._time += 1
        self._lived += 1
        states = []
        for i, (done, info) in enumerate(zip(dones, infos, strict=True)):
            states.append(_state(self.venv.reset_infos[i] if done else info))
            told = info.pop("episode", None)
            if info.get("game_over") and told is not None:
                self.episode_returns.append(float(told["r"]))
            if done or info.get("hidden_reset"):
                self._life[i] += 1
                self.n_short += int(self._lived[i] < self.segment_steps)
                self._lived[i] = 0
            if done:
                self.episode_returns.append(float(self._return[i]))
                self._episode[i] += 1
                self._time[i] = 0
                self._return[i] = 0.0
        self._last_states = states
        excess = len(self._where) - self.capacity
        if excess > 0:
            self._drop(excess)
        return obs, np.zeros_like(rewards), dones, infos

    def cut(
        self, n: int, rng: np.random.Generator, *, env_steps: int, source: str
    ) -> tuple[list[Segment], list[NDArray[np.float64]]]:
        """Draw up to ``n`` segments, every start with equal probability, and forget what cannot start another.

        Returns:
            The segments, and the true rewards (T,) of each.
        """
        k = self.segment_steps
        starts = np.empty((0, 2), np.int64)
        if len(self._where) >= k:
            where = np.stack(self._where)  # (N, E, 2)
            starts = np.argwhere(where[: len(where) - k + 1, :, 0] == where[k - 1 :, :, 0])
        chosen = starts[rng.permutation(len(starts))[:n]]
        segments = [self._segment(int(s), int(e), env_steps, source) for s, e in chosen]
        rewards = [np.array([self._rew[t][e] for t in range(s, s + k)]) for s, e in chosen]
        self._drop(max(0, len(self._where) - (k - 1)))
        return segments, rewards

    def _segment(self, start: int, env: int, env_steps: int, source: str) -> Segment:
        steps = range(start, start + self.segment_steps)
        states = [self._states[t][env] for t in steps]
        if states[0] is not None and states[0].dtype == np.uint8:  # an emulator's: the actions lead to all the others
            del states[1:]
        return Segment(
            obs=self._obs.cut(start, self.segment_steps, env),
            act=np.stack([self._act[t][env] for t in steps]),
            states=None if any(s is None for s in states) else np.stack([s for s in states if s is not None]),
            env_index=env,
            episode=int(self._where[start][env, 0]),
            start=int(self._where[start][env, 1]),
            env_steps=env_steps,
            source=source,
        )

    def _drop(self, n: int) -> None:
        self._obs.drop(n)
        for kept in (self._act, self._rew, self._states, self._where):
            del kept[:n]

    def _checked(self, values: Any, what: str) -> NDArray[Any]:
        array = np.array(values)
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            env = int(np.argwhere(~np.isfinite(array))[0][0])
            raise EnvError(
                f"environment {env} returned {what} {array[env]} at step {int(self._time[env])} of its episode "
                f"{int(self._episode[env])}; the run stops before it can reach the policy"
            )
        return array


def _state(info: dict[str, Any]) -> NDArray[Any] | None:
    """A copy of the simulator's state, where there is one."""
    return np.array(info["state"]) if "state" in info else None
