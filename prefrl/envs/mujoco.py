"""The paper's MuJoCo tasks on Gymnasium's v5 models: never terminated, torque-free true rewards.

The paper says that ends were replaced by a penalty for leaving the healthy range and that torque costs
were removed, because a person cannot see torques (appendix A.1); it prints no formulas. These are the
ones its authors released with rl-teacher; they explain where the curves of figure 2 start for ant,
walker and hopper. v5's own health reward is left out: with termination off it would be a second penalty.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import gymnasium as gym
import mujoco
import numpy as np
from gymnasium.envs.mujoco.ant_v5 import AntEnv
from gymnasium.envs.mujoco.half_cheetah_v5 import HalfCheetahEnv
from gymnasium.envs.mujoco.hopper_v5 import HopperEnv
from gymnasium.envs.mujoco.inverted_double_pendulum_v5 import InvertedDoublePendulumEnv
from gymnasium.envs.mujoco.inverted_pendulum_v5 import InvertedPendulumEnv
from gymnasium.envs.mujoco.reacher_v5 import ReacherEnv
from gymnasium.envs.mujoco.swimmer_v5 import SwimmerEnv
from gymnasium.envs.mujoco.walker2d_v5 import Walker2dEnv

AnyEnv = gym.Env[Any, Any]
RewardFn = Callable[[Any, dict[str, Any]], float]  # (unwrapped env after the step, its info) -> reward


class PaperReward(gym.Wrapper[Any, Any, Any, Any], gym.utils.RecordConstructorArgs):
    """Replace the reward by ``reward_fn(unwrapped, info)``, and never say ``terminated``.

    Args:
        env: The environment, usually one that ends when the robot falls.
        reward_fn: The true reward as a function of the simulator's state after the step.
    """

    def __init__(self, env: AnyEnv, reward_fn: RewardFn) -> None:
        gym.utils.RecordConstructorArgs.__init__(self, reward_fn=reward_fn, _disable_deepcopy=True)
        super().__init__(env)
        self._reward_fn = reward_fn
        self._simulator = env.unwrapped

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Step; the environment's own reward and termination are dropped."""
        obs, _, _, truncated, info = self.env.step(action)
        return obs, float(self._reward_fn(self._simulator, info)), False, truncated, info


class TurningTorso(gym.ObservationWrapper[Any, Any, Any], gym.utils.RecordConstructorArgs):
    """The hopper's observation with cosine and sine of its torso's angle at the end, 13 numbers instead of 11.

    The simulator counts the angle on past whole turns: it tells how often the hopper has turned over, but upright after
    a flip is 6.3 radians from upright before it. Cosine and sine are the same there, as for a person who looks.
    """

    def __init__(self, env: AnyEnv) -> None:
        gym.utils.RecordConstructorArgs.__init__(self)
        super().__init__(env)
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (13,), np.float64)

    def observation(self, observation: Any) -> Any:
        """(height, angle, ...) -> (height, angle, ..., cosine, sine)."""
        angle = observation[1]
        return np.concatenate((observation, (np.cos(angle), np.sin(angle))))


def forward_reward(env: Any, info: dict[str, Any]) -> float:
    """Cheetah and swimmer: forward speed, m/s."""
    return float(info["x_velocity"])


def hopper_reward(env: Any, info: dict[str, Any]) -> float:
    """Forward speed + 1 + (z - 1), with z the height of the torso in metres."""
    return float(info["x_velocity"] + 1.0 + (env.data.qpos[1] - 1.0))


def walker_reward(env: Any, info: dict[str, Any]) -> float:
    """Forward speed + 1 + (z - 2), with z the height of the torso in metres."""
    return float(info["x_velocity"] + 1.0 + (env.data.qpos[1] - 2.0))


def ant_reward(env: Any, info: dict[str, Any]) -> float:
    """Forward speed + (z - 1.2), with z the height of the torso in metres."""
    return float(info["x_velocity"] + (env.data.qpos[2] - 1.2))


def reacher_reward(env: Any, info: dict[str, Any]) -> float:
    """Minus the distance of fingertip and target, m."""
    return float(info["reward_dist"])


def pendulum_reward(env: Any, info: dict[str, Any]) -> float:
    """1 - angle^2, with the pole's angle from upright in radians."""
    return float(1.0 - env.data.qpos[1] ** 2)


def double_pendulum_reward(env: Any, info: dict[str, Any]) -> float:
    """10 - distance penalty - velocity penalty + 10 (z - 1), with z the height of the tip in metres.

    The penalties are Gymnasium's: 0.01 x^2 + (z - 2)^2 and 0.001 v1^2 + 0.005 v2^2.
    """
    x, _, z = env.data.site_xpos[0]
    v1, v2 = env.data.qvel[1:3]
    distance_penalty = 0.01 * x**2 + (z - 2.0) ** 2
    velocity_penalty = 1e-3 * v1**2 + 5e-3 * v2**2
    return float(10.0 - distance_penalty - velocity_penalty + 10.0 * (z - 1.0))


def no_reward(env: Any, info: dict[str, Any]) -> float:
    """Back-flips and running on one leg: nobody has a formula, so 0."""
    return 0.0


def cheetah(**kwargs: Any) -> AnyEnv:
    """Build ``prefrl/Cheetah-v0``; keyword arguments go to Gymnasium's HalfCheetah."""
    return PaperReward(_half_cheetah(kwargs), forward_reward)


def hopper(**kwargs: Any) -> AnyEnv:
    """Build ``prefrl/Hopper-v0``; keyword arguments go to Gymnasium's Hopper."""
    return PaperReward(HopperEnv(**_ENDLESS | kwargs), hopper_reward)


def walker(**kwargs: Any) -> AnyEnv:
    """Build ``prefrl/Walker-v0``; keyword arguments go to Gymnasium's Walker2d."""
    return PaperReward(Walker2dEnv(**_ENDLESS | kwargs), walker_reward)


def ant(**kwargs: Any) -> AnyEnv:
    """Build ``prefrl/Ant-v0``; keyword arguments go to Gymnasium's Ant (without contact forces)."""
    fixed = {**_ENDLESS, "contact_cost_weight": 0.0, "include_cfrc_ext_in_observation": False}
    return PaperReward(AntEnv(**fixed | kwargs), ant_reward)


def swimmer(**kwargs: Any) -> AnyEnv:
    """Build ``prefrl/Swimmer-v0``; keyword arguments go to Gymnasium's Swimmer."""
    return PaperReward(SwimmerEnv(**{"ctrl_cost_weight": 0.0, **kwargs}), forward_reward)


def reacher(**kwargs: Any) -> AnyEnv:
    """Build ``prefrl/Reacher-v0``; keyword arguments go to Gymnasium's Reacher."""
    return PaperReward(ReacherEnv(**{"reward_control_weight": 0.0, **kwargs}), reacher_reward)


def pendulum(**kwargs: Any) -> AnyEnv:
    """Build ``prefrl/Pendulum-v0``; keyword arguments go to Gymnasium's InvertedPendulum."""
    return PaperReward(InvertedPendulumEnv(**kwargs), pendulum_reward)


def double_pendulum(**kwargs: Any) -> AnyEnv:
    """Build ``prefrl/DoublePendulum-v0``; keyword arguments go to Gymnasium's InvertedDoublePendulum."""
    return PaperReward(InvertedDoublePendulumEnv(**kwargs), double_pendulum_reward)


def backflip_hopper(**kwargs: Any) -> AnyEnv:
    """Build ``prefrl/BackflipHopper-v0``; keyword arguments go to Gymnasium's Hopper."""
    return PaperReward(TurningTorso(HopperEnv(**_ENDLESS | kwargs)), no_reward)


def one_leg_cheetah(**kwargs: Any) -> AnyEnv:
    """Build ``prefrl/OneLegCheetah-v0``; keyword arguments go to Gymnasium's HalfCheetah."""
    return PaperReward(_half_cheetah(kwargs), no_reward)


def _half_cheetah(kwargs: dict[str, Any]) -> AnyEnv:
    with _without_mass_warning():
        return HalfCheetahEnv(**{"ctrl_cost_weight": 0.0, **kwargs})


_ENDLESS: dict[str, Any] = {"terminate_when_unhealthy": False, "ctrl_cost_weight": 0.0}


@contextmanager
def _without_mass_warning() -> Iterator[None]:
    """Drop one warning of MuJoCo 4 about Gymnasium's cheetah model.

    It can be mended only in that model, and MuJoCo would write it into a file MUJOCO_LOG.TXT in the working
    directory each time a cheetah is made.
    """
    previous = mujoco.get_mju_user_warning()
    keep = previous or (lambda message: print(f"MuJoCo: {message}", file=sys.stderr))  # noqa: T201
    mujoco.set_mju_user_warning(lambda message: None if "settotalmass" in message else keep(message))
    try:
        yield
    finally:
        mujoco.set_mju_user_warning(previous)
