"""Simulator states: recorded at every step, put back later to draw a clip.

MuJoCo's clips are drawn from stored states, never by simulating again: re-stepping from (qpos, qvel) drifts, because
the solver's warm start is not part of them. An Atari emulator's state is all of it: from one, with the actions, the
same frames come again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from prefrl.envs.atari import AtariEnv
from prefrl.errors import EnvError

State = NDArray[Any]


class StateInInfo(gym.Wrapper[Any, Any, Any, Any], gym.utils.RecordConstructorArgs):
    """Put the simulator's state after each reset and step into ``info["state"]``, a 1-D copy.

    MuJoCo environments give qpos and qvel, classic-control ones their ``state``, both float64; Atari games the bytes of
    the emulator's state, uint8; others get no key.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        gym.utils.RecordConstructorArgs.__init__(self)
        super().__init__(env)
        self._read: Callable[[], State] | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset, and read the first state."""
        obs, info = self.env.reset(seed=seed, options=options)
        if self._read is None:  # some environments have no state before their first reset
            self._read = _reader(self.env.unwrapped)
        if self._read is not None:
            info["state"] = self._read()
        return obs, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step, and read the state after it."""
        result = self.env.step(action)
        if self._read is not None:
            result[4]["state"] = self._read()
        return result


def is_mujoco(simulator: Any) -> bool:
    """Whether an unwrapped environment is one of Gymnasium's MuJoCo environments (or like them)."""
    return hasattr(getattr(simulator, "data", None), "qpos") and hasattr(simulator, "set_state")


def set_state(env: gym.Env[Any, Any], state: State) -> None:
    """Put a recorded state into an environment that is only used for drawing.

    Args:
        env: An environment of the same id and keyword arguments; reset first where it never was.
        state: What ``info["state"]`` held, shape (n_state,).

    Raises:
        EnvError: The environment keeps no state, or one of another size.
    """
    if env.has_wrapper_attr("has_reset") and not env.get_wrapper_attr("has_reset"):
        env.reset()
    simulator: Any = env.unwrapped
    if isinstance(simulator, AtariEnv):
        simulator.restore_state(state)
        return
    name = env.spec.id if env.spec else type(simulator).__name__
    read = _reader(simulator)
    if read is None:
        raise EnvError(f"{name} keeps no state that could be put back; its clips must be stored as frames")
    found, expected = np.shape(state), read().shape
    if found != expected:
        raise EnvError(f"{name} has a state of shape {expected}, but the stored one has {found}")
    if is_mujoco(simulator):
        n_qpos = simulator.model.nq
        simulator.set_state(state[:n_qpos], state[n_qpos:])
        return
    simulator.state = np.array(state)
    if hasattr(simulator, "last_u"):
        simulator.last_u = None  # Pendulum draws its last torque, which a stored state does not hold


def _reader(simulator: Any) -> Callable[[], State] | None:
    """Find how to read the state of an environment that has been reset, or None."""
    if isinstance(simulator, AtariEnv):
        return simulator.clone_state
    if is_mujoco(simulator):
        data = simulator.data
        concatenate = np.concatenate
        return lambda: concatenate((data.qpos, data.qvel))
    if not hasattr(simulator, "state"):
        return None
    try:
        first = np.asarray(simulator.state, dtype=np.float64)
    except (TypeError, ValueError):
        return None
    if first.ndim != 1:
        return None
    return lambda: np.array(simulator.state, dtype=np.float64)
