"""A checker for people who write an environment for prefrl."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np

from prefrl.envs.make import check_spaces
from prefrl.errors import EnvError

MAX_STEPS = 5000

AnyEnv = gym.Env[Any, Any]
Trace = list[tuple[Any, float]]  # (observation, reward) of each step, the reset first


def check_env(make: Callable[[], AnyEnv], *, seed: int = 0) -> None:
    """Check that an environment can be used to learn from preferences.

    Checked are the spaces, finite values of the right shape, a fixed horizon that is reached by
    truncation, equal trajectories for equal seeds and actions, and different episodes within one seed.

    Args:
        make: Makes a new environment at each call, e.g. ``lambda: make_env("hopper")``.
        seed: Seed of the environment and of the random actions.

    Raises:
        EnvError: With every reason that was found.
    """
    env, twin = make(), make()
    name = env.spec.id if env.spec else type(env.unwrapped).__name__
    try:
        check_spaces(name, env)
        reasons = _find_faults(env, twin, seed)
    finally:
        env.close()
        twin.close()
    if reasons:
        raise EnvError(f"{name} is not fit to learn from preferences: " + "; ".join(reasons))


def _find_faults(env: AnyEnv, twin: AnyEnv, seed: int) -> list[str]:
    for each in (env, twin):
        each.action_space.seed(seed)
    first, *faults = _episode(env, seed)
    if faults:
        return faults  # the other checks would only repeat them
    again, *faults = _episode(twin, seed)
    if faults or not _equal(first, again):
        return [*faults, f"two environments with seed {seed} and the same actions differ"]
    reasons = []
    episodes = [first, *(_episode(env, None)[0] for _ in range(2))]
    lengths = [len(episode) - 1 for episode in episodes]
    if len(set(lengths)) > 1:
        reasons.append(f"episodes have different lengths ({', '.join(map(str, lengths))} steps)")
    if all(np.array_equal(first[0][0], episode[0][0]) for episode in episodes[1:]):
        reasons.append("all episodes of one seed start alike (is every reset seeded?)")
    return reasons


def _episode(env: AnyEnv, seed: int | None) -> tuple[Any, ...]:
    """Run an episode of random actions; return its trace, then a fault if there is one."""
    obs, _ = env.reset(seed=seed)
    trace: Trace = [(np.array(obs), 0.0)]
    for step in range(MAX_STEPS + 1):
        shape = env.observation_space.shape
        if np.shape(obs) != shape:
            return trace, f"the observation at step {step} has shape {np.shape(obs)} instead of {shape}"
        if not (np.isfinite(obs).all() and np.isfinite(trace[-1][1])):
            return trace, f"the observation or reward at step {step} is not finite"
        if step == MAX_STEPS:
            return trace, f"the episode has not ended after {MAX_STEPS} steps"
        obs, reward, terminated, truncated, _ = env.step(env.action_space.sample())
        trace.append((np.array(obs), float(reward)))
        if terminated:
            return trace, f"the episode terminated at step {step + 1}: its length leaks the answer"
        if truncated:
            break
    return (trace,)


def _equal(a: Trace, b: Trace) -> bool:
    return len(a) == len(b) and all(
        np.array_equal(obs_a, obs_b) and rew_a == rew_b for (obs_a, rew_a), (obs_b, rew_b) in zip(a, b, strict=True)
    )
