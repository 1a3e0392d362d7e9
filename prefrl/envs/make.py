"""Make an environment by task name or Gymnasium id, with what every prefrl run relies on."""

from __future__ import annotations

import difflib
import warnings
from functools import partial
from importlib import import_module, metadata
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit

from prefrl.envs import register
from prefrl.envs.atari import AtariEnv, build, rom_ids
from prefrl.envs.ends import ENDS, FixedHorizon
from prefrl.envs.states import StateInInfo, is_mujoco
from prefrl.envs.tasks import TASKS, find_task
from prefrl.errors import EnvError, describe

DEFAULT_HORIZON = 1000
MAX_PROBE_STEPS = 2000
ENDLESS_PROBE_STEPS = 100

AnyEnv = gym.Env[Any, Any]


def make_env(
    env_id: str,
    *,
    horizon: int | None = None,
    ends: str = "refuse",
    kwargs: dict[str, Any] | None = None,
    record_states: bool = True,
    render_mode: str | None = None,
) -> AnyEnv:
    """Make one environment of fixed horizon, or a game without an end, with finite values and simple spaces.

    The caller seeds once, with the first ``reset(seed=...)``; no later reset is ever seeded here, or all
    episodes would be the same.

    Args:
        env_id: A task name (``hopper``) or a registered Gymnasium id, as ``id`` or ``module:id``.
        horizon: Steps of an episode; None takes the environment's own limit, or 1000 where it has none.
        ends: What to do when an episode ends early: ``refuse``, ``reset`` or ``allow``; see
            :class:`prefrl.envs.ends.FixedHorizon`.
        kwargs: Keyword arguments for the environment.
        record_states: Whether ``info["state"]`` carries the simulator's state.
        render_mode: ``rgb_array`` to draw; a task is then seen through its own camera.

    Raises:
        EnvError: The id is unknown, the environment cannot be made, its spaces are not supported, or it never ends and
            a horizon or an end is asked for.
    """
    if ends not in ENDS:
        raise EnvError(f"ends is {ends!r}; it must be one of {', '.join(ENDS)}")
    if horizon is not None and horizon < 1:
        raise EnvError(f"{env_id}: the horizon is {horizon}; it must be at least 1 step")
    spec = _find_spec(env_id)
    options = dict(kwargs or {})
    task = find_task(spec.id)
    endless = task is not None and task.horizon is None
    if endless and (horizon is not None or ends == "allow"):
        raise EnvError(f"{env_id} never ends, as in the paper: leave out env.horizon and env.ends")
    if render_mode is not None:
        options = (task.camera if task else {}) | options | {"render_mode": render_mode}
    env, own_limit = _strip_time_limits(_build(spec, options))
    try:
        if render_mode is not None and render_mode not in env.metadata.get("render_modes", ()):
            raise EnvError(f"{env_id} cannot draw with render_mode={render_mode!r}: {env.metadata}")
        check_spaces(env_id, env)
    except EnvError:
        env.close()
        raise
    if endless:
        return StateInInfo(env) if record_states else env
    steps = horizon or spec.max_episode_steps or own_limit or DEFAULT_HORIZON
    env = TimeLimit(FixedHorizon(env, steps, ends, env_id), steps)
    return StateInInfo(env) if record_states else env


def probe_env(
    env_id: str,
    *,
    horizon: int | None = None,
    ends: str = "refuse",
    kwargs: dict[str, Any] | None = None,
    seed: int = 0,
) -> None:
    """Run random actions for one horizon (at most 2,000 steps; 100 of a game), before anything of a run is written.

    Raises:
        EnvError: With the environment and the step, for whatever :func:`make_env` refuses, an early end,
            a value that is not finite, an observation of the wrong shape, or an exception inside.
    """
    env = make_env(env_id, horizon=horizon, ends=ends, kwargs=kwargs)
    env.action_space.seed(seed)
    step = 0
    try:
        obs, _ = env.reset(seed=seed)
        _check_obs(env_id, env, obs, step)
        endless = isinstance(env.unwrapped, AtariEnv)
        for step in range(1, (ENDLESS_PROBE_STEPS if endless else MAX_PROBE_STEPS) + 1):
            obs, _, terminated, truncated, _ = env.step(env.action_space.sample())
            _check_obs(env_id, env, obs, step)
            if terminated or truncated:
                break
    except EnvError:
        raise
    except Exception as error:
        raise EnvError(f"{env_id}: step {step} failed: {describe(error)}") from error
    finally:
        env.close()


def env_versions(env_id: str, kwargs: dict[str, Any] | None = None) -> dict[str, str]:
    """Describe what defines the task; stored with the run, so that unlike data are never mixed.

    A library's new version may change rewards and shapes without a change of the code that uses it.
    """
    env = make_env(env_id, kwargs=kwargs, record_states=False)
    try:
        simulator = env.unwrapped
        versions = {
            "env_id": _find_spec(env_id).id,
            "base": f"{type(simulator).__module__}:{type(simulator).__qualname__}",
            "gymnasium": gym.__version__,
            "observation_space": repr(env.observation_space),
            "action_space": repr(env.action_space),
        }
        if is_mujoco(simulator):
            versions["mujoco"] = metadata.version("mujoco")
        if isinstance(simulator, AtariEnv):
            versions |= simulator.versions()
        return versions
    finally:
        env.close()


def check_spaces(env_id: str, env: AnyEnv) -> None:
    """Refuse spaces that no part of prefrl can learn from.

    Raises:
        EnvError: The observation is neither a 1-D float Box nor the stacked frames of our own Atari games, or the
            action neither a bounded 1-D float Box nor a Discrete that starts at 0.
    """
    for name in ("observation_space", "action_space"):
        if not isinstance(getattr(env, name, None), spaces.Space):
            raise EnvError(f"{env_id} has no {name}: set it in the environment's __init__, or in its class")
    obs, act = env.observation_space, env.action_space
    vector = isinstance(obs, spaces.Box) and len(obs.shape) == 1 and np.issubdtype(obs.dtype, np.floating)
    if not vector and not isinstance(env.unwrapped, AtariEnv):
        raise EnvError(
            f"{env_id}: the observation space must be a float Box of one dimension, but it is {obs}; "
            f"{_advice(obs)} in the environment you register"
        )
    if isinstance(act, spaces.Discrete):
        if act.start != 0:
            raise EnvError(f"{env_id}: a Discrete action space must start at 0, but it is {act}")
        return
    if not isinstance(act, spaces.Box) or len(act.shape) != 1 or not np.issubdtype(act.dtype, np.floating):
        raise EnvError(f"{env_id}: the action space must be Discrete or a float Box of one dimension, but it is {act}")
    if not (np.isfinite(act.low).all() and np.isfinite(act.high).all()):
        raise EnvError(
            f"{env_id}: the action space must have finite bounds, but it is {act}; "
            "give its Box finite low and high in the environment you register"
        )


def _advice(obs: spaces.Space[Any]) -> str:
    """How to turn observations into a float Box of one dimension."""
    if isinstance(obs, spaces.Box) and np.issubdtype(obs.dtype, np.floating):
        return "flatten it with gymnasium.wrappers.FlattenObservation"
    flatten = "" if isinstance(obs, spaces.Box) and len(obs.shape) == 1 else "FlattenObservation and then "
    return f"use {flatten}DtypeObservation(env, np.float32) of gymnasium.wrappers"


def _find_spec(env_id: str) -> gym.envs.registration.EnvSpec:
    """Resolve a task name or id to a registered spec; exact versions only, never the latest by default."""
    register()
    module, _, name = env_id.rpartition(":")
    if module:
        try:
            import_module(module)
        except Exception as error:  # whatever the module does
            raise EnvError(f"{env_id}: the module {module!r} cannot be imported: {describe(error)}") from error
    task = find_task(name)
    if task is not None and task.env_id.startswith("ALE/"):
        return gym.envs.registration.EnvSpec(task.env_id, entry_point=partial(build, task.env_id))
    spec = gym.registry.get(task.env_id if task else name)
    if spec is not None and spec.entry_point is not None:
        return spec
    games = [f"ALE/{rom}-v5" for rom in rom_ids()] if name.startswith("ALE/") else []
    known = {known.lower(): known for known in [*gym.registry, *TASKS, *games]}
    near = [known[match] for match in difflib.get_close_matches(name.lower(), known, n=3)]
    hint = f"did you mean {' or '.join(near)}?" if near else f"the tasks are {', '.join(TASKS)}"
    raise EnvError(
        f"unknown environment {env_id!r}: {hint} (`module:id` imports a module that registers its ids first)"
    )


def _build(spec: gym.envs.registration.EnvSpec, options: dict[str, Any]) -> AnyEnv:
    """``gymnasium.make`` without a time limit and without its checker, which only warns of what we refuse."""
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*not in the possible render_modes")
            env: AnyEnv = gym.make(spec, max_episode_steps=-1, disable_env_checker=True, **options)
            return env
    except EnvError:
        raise
    except Exception as error:  # whatever its constructor does
        how = f"env.kwargs {options}" if options else "no env.kwargs"
        raise EnvError(f"{spec.id} cannot be made with {how}: {describe(error)}") from error


def _strip_time_limits(env: AnyEnv) -> tuple[AnyEnv, int | None]:
    """Take out time limits that the environment brings along; return the shortest of them too."""
    limits = []
    outer: gym.Wrapper[Any, Any, Any, Any] | None = None
    inner = env
    while isinstance(inner, gym.Wrapper):
        if isinstance(inner, TimeLimit):
            limits.append(inner._max_episode_steps)
            if outer is None:
                env = inner.env
            else:
                outer.env = inner.env
        else:
            outer = inner
        inner = inner.env
    return env, min(limits, default=None)


def _check_obs(env_id: str, env: AnyEnv, obs: Any, step: int) -> None:
    expected = env.observation_space.shape
    if np.shape(obs) != expected:
        raise EnvError(
            f"{env_id}: the observation at step {step} has shape {np.shape(obs)}, but its space says {expected}"
        )
