"""Making a run: everything that can be wrong is found here, before anything is written."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces

from prefrl.config import LEARNERS, NETS, SELECTORS, RunConfig
from prefrl.envs.make import env_versions, make_env, probe_env
from prefrl.envs.tasks import has_true_reward
from prefrl.errors import ConfigError, EnvError, PrefrlError, describe
from prefrl.registry import find
from prefrl.resolve import resolve, resolve_label, usual_fit_steps
from prefrl.reward_model.convolutions import refuse_net
from prefrl.reward_model.schedule import budget_of
from prefrl.reward_model.spaces import Spaces
from prefrl.rollout.pace import least_steps, rollout_size
from prefrl.run.status import live_roles
from prefrl.settings import from_dict, to_dict
from prefrl.store.engine import Database
from prefrl.store.folder import CLIPS, refuse_clips
from prefrl.store.metrics import add_event, events
from prefrl.store.rewards import NewReward
from prefrl.store.runs import Run, create_run, update_config
from prefrl.store.workers import STALE_MS


def _look(config: RunConfig) -> tuple[Spaces, int | None]:
    """Spaces and horizon of the configured environment."""
    env = make_env(config.env.id, horizon=config.env.horizon, ends=config.env.ends, kwargs=config.env.kwargs)
    try:
        action = env.action_space
        n_actions = int(action.n) if isinstance(action, spaces.Discrete) else None
        found = Spaces(tuple(env.observation_space.shape or ()), tuple(action.shape or ()), n_actions)
        return found, env.spec.max_episode_steps if env.spec else None
    finally:
        env.close()


def prepare(config: RunConfig) -> tuple[RunConfig, dict[str, Any]]:
    """Resolve and try out a configuration; returns it with the versions and spaces to be stored.

    Raises:
        ConfigError: A setting cannot work for this environment.
        EnvError: The environment is unknown or unsuitable.
    """
    if config.env.id == CLIPS:
        raise ConfigError(f"env.id {CLIPS!r} means a folder of videos: `prefrl label --clips FOLDER` compares them")
    custom = bool(config.policy.kwargs)  # before the task adds its own
    config = resolve(config)
    check_steps(config)
    if config.reward.source != "frozen":  # nobody is asked, and nothing true is learned from
        check_truth(config)
    env = config.env
    probe_env(env.id, horizon=env.horizon, ends=env.ends, kwargs=env.kwargs, seed=config.seed)
    found, horizon = _look(config)
    if horizon is not None and env.segment_steps is not None and env.segment_steps > horizon:
        raise ConfigError(
            f"env.segment_steps is {env.segment_steps}, longer than an episode of {env.id} ({horizon}); make it shorter"
        )
    if config.label.oracle != "none" and config.reward.source != "frozen":
        _try_oracle(config, found)
    elif config.reward.source == "learned":
        _try_drawing(config)
    # what ships with prefrl and is given no settings of its own needs no trial, and torch two seconds to import
    if config.query.selector not in SELECTORS:
        _try_selector(config.query.selector)
    try_net(config, found)
    policy = config.policy
    if custom or policy.learner not in LEARNERS or policy.device == "cuda" or rollout_size(policy) < 2:
        _try_learner(config)
    versions = {**env_versions(env.id, env.kwargs), "spaces": found.to_dict()}
    return config, versions


def check_steps(config: RunConfig) -> None:
    """Refuse a run that ends before its policy learns.

    Raises:
        ConfigError: Names the smallest useful number of steps.
    """
    steps, least, unit = config.policy.steps, least_steps(config), rollout_size(config.policy)
    if steps >= least:
        return
    first = "" if least == unit else f"the untrained policy makes {least - unit} or more, and "
    raise ConfigError(
        f"policy.steps is {steps}: the run would end before the policy learns ({first}an update takes a rollout of "
        f"{unit}: policy.n_steps times policy.n_envs); give at least --steps {least}, or a smaller --policy.n_steps"
    )


def check_truth(config: RunConfig) -> None:
    """Refuse to learn from, or to ask an oracle about, a true reward that the task does not have.

    Raises:
        ConfigError: Says what to use instead.
    """
    from prefrl.oracle.teachers import TEACHERS

    env, oracle = config.env.id, config.label.oracle
    if config.reward.objective == "target" and oracle != "true-return":
        raise ConfigError(
            f"reward.objective is target, which is fitted to true returns, but label.oracle is {oracle!r}: only the "
            "oracle true-return tells them"
        )
    if has_true_reward(env):
        return
    if config.reward.source == "true":
        raise ConfigError(
            f"reward.source is true, but {env} has no true reward: only people can teach it; use --human instead"
        )
    if oracle in TEACHERS:
        raise ConfigError(
            f"the oracle {oracle!r} compares true rewards, but {env} has none: only people can teach it; use --human"
        )


def _try_drawing(config: RunConfig) -> None:
    """Whether people will have anything to look at; OpenGL itself is for the renderer to try, maybe elsewhere.

    Raises:
        EnvError: The environment draws no pictures, or keeps no state to draw them from later.
    """
    env = make_env(config.env.id, kwargs=config.env.kwargs, render_mode="rgb_array")
    try:
        if "state" not in env.reset(seed=config.seed)[1]:
            raise EnvError(f"{config.env.id} keeps no state to draw clips from, so people cannot compare its behaviour")
    finally:
        env.close()


def _try_oracle(config: RunConfig, found: Spaces) -> None:
    from prefrl.oracle.teachers import Judged, ReturnStatistics, ask, make_teacher

    name, steps = config.label.oracle, config.env.segment_steps
    assert steps is not None, "the configuration is resolved"
    teacher, _ = make_teacher(name, config.label.oracle_kwargs)
    obs, act = np.zeros((steps, *found.obs_shape), np.float32), np.zeros((steps, *found.act_shape), np.float32)
    left, right = (Judged(rewards, obs, act) for rewards in (np.zeros(steps), np.ones(steps)))
    ask(name, teacher, left, right, ReturnStatistics(1.0, 0.0), np.random.default_rng(0))


def _try_selector(name: str) -> None:
    from prefrl.reward_model.selection import SELECTORS as BUILT_IN

    select = find("selector", name, BUILT_IN)
    from prefrl.testing import check_selector

    try:
        check_selector(select)
    except PrefrlError as error:
        raise ConfigError(f"query.selector {name!r}: {error}") from error
    except Exception as error:  # whatever a plug-in raises
        raise ConfigError(f"query.selector {name!r} failed: {describe(error)}") from error


def try_net(config: RunConfig, found: Spaces) -> None:
    """Refuse a net that is not for these observations, one of the user's own that fails, or a device that is not there.

    Raises:
        ConfigError: Says which net fits, or what the user's own raised.
        RewardError: It has other shapes than the ensemble needs, or there is no such device.
    """
    refuse_net(config.reward.net, found)
    if config.reward.net in NETS and config.reward.device != "cuda":
        return
    from prefrl.reward_model.ensemble import RewardEnsemble

    try:
        ensemble = RewardEnsemble(found, config.reward, config.seed)
        obs = np.zeros((2, *found.obs_shape), np.uint8 if found.n_stacked else np.float32)
        ensemble.reward(obs, np.zeros((2, *found.act_shape)))
    except PrefrlError:
        raise
    except Exception as error:  # whatever a plug-in raises
        raise ConfigError(f"reward.net {config.reward.net!r} does not work here: {describe(error)}") from error


def _try_learner(config: RunConfig) -> None:
    from prefrl.reward_model.ensemble import resolve_device
    from prefrl.rollout.learners import make_learner
    from prefrl.rollout.role import make_venv

    resolve_device(config.policy.device)
    venv = make_venv(config.env, config.policy.n_envs, config.seed)
    try:
        # a rollout and an update: some settings fail only there
        make_learner(config.policy, venv, config.seed).learn(1)
    except PrefrlError:
        raise
    except Exception as error:  # whatever the learner does
        name = config.policy.learner
        raise ConfigError(f"the learner {name!r} fails with these policy.kwargs: {describe(error)}") from error
    finally:
        venv.close()


def new_run(
    db: Database, name: str, config: RunConfig, versions: dict[str, Any], reward: NewReward | None = None
) -> Run:
    """Write the row of a run that ``prepare`` has found sound, with the reward that it has from another, if any."""
    return create_run(db, name, to_dict(config), versions, reward)


def check_start(mode: str, config: RunConfig) -> None:
    """Refuse what the mode cannot do.

    Raises:
        ConfigError: Lockstep with people as annotators.
    """
    if mode == "lockstep" and config.label.oracle == "none" and config.reward.source == "learned":
        raise ConfigError(
            "lockstep mode runs everything in one process and cannot wait for people; use --mode async, or an --oracle"
        )


def check_resume(db: Database, run: Run, mode: str, steps: int | None = None) -> None:
    """Refuse to start a run that is running, or done and not to be given a new total of ``steps``.

    Raises:
        ConfigError: Says which process is alive, or how to go on beyond the end; or that nothing is trained at all.
    """
    refuse_clips(run, "resume")
    check_start(mode, from_dict(run.config))
    refuse_live(db, run)
    total = from_dict(run.config).policy.steps
    if run.state == "done" and (steps is None or steps == total):
        raise ConfigError(f"run {run.name!r} is done with all its {total} steps; --steps and a larger number trains on")


def refuse_live(db: Database, run: Run) -> None:
    """Leave a run alone that is going on.

    Raises:
        ConfigError: Names the process that is alive.
    """
    for role in live_roles(db, run):
        raise ConfigError(
            f"run {run.name!r} is running: its {role.role} (process {role.pid} on {role.host}) gave a sign of life "
            f"{role.age_ms / 1000:.0f} s ago; stop it first, or wait {STALE_MS // 1000} s if it was killed"
        )


def check_versions(db: Database, run: Run) -> list[str]:
    """What has changed beneath the environment since the run began, in words; noted with the run.

    Raises:
        ConfigError: The spaces are no longer the same, so that policy and reward model cannot go on.
    """
    env = from_dict(run.config).env
    now = env_versions(env.id, env.kwargs)
    changed = {k: (run.versions.get(k), v) for k, v in now.items() if run.versions.get(k) != v}
    began, found = Spaces.from_dict(run.versions["spaces"]), _look(from_dict(run.config))[0]
    if began != found:
        raise ConfigError(
            f"run {run.name!r} began with {began}, but {env.id} now has {found}; "
            "go on with the libraries it began with: "
            + ", ".join(f"{k} {run.versions[k]}" for k in ("gymnasium", "mujoco") if k in run.versions)
        )
    words = [
        f"run {run.name!r} began with {name.replace('_', ' ')} {old} and goes on with {new}: "
        "its rewards may have changed"
        for name, (old, new) in changed.items()
    ]
    noted = {event.message for event in events(db, run.id, limit=None)}
    for line in (line for line in words if line not in noted):
        add_event(db, run.id, "supervisor", "version", line)
    return words


def check_folder(folder: Path) -> None:
    """Refuse a folder for logs that cannot be made or written, without making it.

    Raises:
        ConfigError: Names the part of its path that is in the way.
    """
    existing = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    if not existing.is_dir():
        raise ConfigError(f"--folder {folder}: {existing} is a file; name a folder for the logs")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise ConfigError(f"--folder {folder}: {existing} is not writable for this user; name another for the logs")


def make_folder(folder: Path) -> None:
    """Make the folder for the logs of a run, before the run itself: some failures show only here.

    Raises:
        ConfigError: It cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"the folder for logs {folder} cannot be made ({error.strerror}): choose another --folder"
        ) from error


def extend(db: Database, run: Run, steps: int | None, labels: int | None) -> Run:
    """Give a run a new total of agent steps, of comparisons, or of both.

    What was a share of the old run (tau, the age at which queries expire, the minibatches of an exchange) becomes that
    of the new one; how far people may be behind follows the budget.

    Raises:
        ConfigError: Less than the run has already.
    """
    config = from_dict(run.config)
    for flag, new, old in (("--steps", steps, config.policy.steps), ("--labels", labels, budget_of(config.label))):
        if new is not None and new < old:
            raise ConfigError(f"{flag} {new} is less than the total of run {run.name!r}, {old}")
    tenth, total = max(1, config.policy.steps // 10), steps or config.policy.steps
    label, query = config.label, config.query
    usual = resolve_label(dataclasses.replace(label, max_lag=None), config.policy.steps)
    reward = config.reward
    fit_steps = 0 if reward.fit_steps == usual_fit_steps(config.policy) else reward.fit_steps
    longer = dataclasses.replace(
        config,
        policy=dataclasses.replace(config.policy, steps=total),
        reward=dataclasses.replace(reward, fit_steps=fit_steps),
        label=dataclasses.replace(
            label,
            budget=labels or label.budget,
            tau=0 if label.tau == tenth else label.tau,
            max_lag=None if label.max_lag == usual.max_lag else label.max_lag,
        ),
        query=dataclasses.replace(query, max_age=0 if query.max_age == tenth else query.max_age),
    )
    return update_config(db, run.id, to_dict(resolve(longer)))
