"""Runs on a learned reward that stays as it is: taken from another run, or fitted afresh to its comparisons.

Either way the new run begins with the reward as its version 1, whose weights are its own, and with the settings that
they were fitted with: what becomes of the other run changes nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping
from math import isfinite
from typing import Any

from prefrl.config import RewardConfig, RunConfig
from prefrl.errors import ConfigError
from prefrl.reward_model.calibration import DETAIL
from prefrl.reward_model.held_out import ALARM, PREFIX
from prefrl.reward_model.spaces import Spaces
from prefrl.run.create import new_run, prepare, refuse_live, try_net
from prefrl.settings import from_dict
from prefrl.store.engine import Database
from prefrl.store.folder import refuse_clips
from prefrl.store.records import finite_or_none
from prefrl.store.rewards import NewReward, load_reward, reward_versions
from prefrl.store.runs import Run, check_free, free_name, get_run

ITS_OWN = ("source", "origin", "device", "max_age")  # settings of a reward that are not those of its fit


def prepare_frozen(
    db: Database, config: RunConfig, asked: Collection[str] = ()
) -> tuple[RunConfig, dict[str, Any], NewReward]:
    """Resolve and try out the configuration of a run on the reward that ``reward.origin`` names.

    Args:
        db: The database of that reward's run; only read.
        config: Of the new run.
        asked: Fields of ``config.reward`` that somebody asked for; others are what they are by default.

    Returns:
        The configuration, with the reward's settings and its version; the versions and spaces to be stored; the reward.

    Raises:
        ConfigError: There is no such reward, its settings are others than those asked for, or it is for other spaces.
        StoreError: There is no such run, or the weights of the version were pruned.
    """
    name, at, number = config.reward.origin.partition("@")
    if at and not number:
        raise ConfigError(f"reward.origin {name}@ names no version: {name}@2 means the second, {name} the newest")
    run = get_run(db, name)
    version = _version(db, run, number)
    record, weights = load_reward(db, run.id, version)
    fitted = from_dict(run.config).reward
    _check_settings(config.reward, fitted, name, asked)
    own = {key: getattr(config.reward, key) for key in ITS_OWN}
    reward = dataclasses.replace(fitted, **{**own, "origin": f"{name}@{version}"})
    config, versions = prepare(dataclasses.replace(config, reward=reward))
    known, found = (Spaces.from_dict(v["spaces"]) for v in (run.versions, versions))
    if known != found:
        raise ConfigError(
            f"the reward of run {name!r} is for {known}, but {config.env.id} has {found}: a policy can learn from it "
            "only where both are the same"
        )
    metrics = {k: v for k, v in record.metrics.items() if k != ALARM and not k.startswith(PREFIX)}  # of another policy
    return config, versions, NewReward(weights, record.last_seq, metrics)


def _version(db: Database, run: Run, number: str) -> int:
    """The version that ``number`` means, the newest one where it is empty."""
    refuse_clips(run, "learn a reward from")
    if from_dict(run.config).reward.source == "true":
        raise ConfigError(f"run {run.name!r} learns from the true reward (reward.source true): it has no learned one")
    versions = [record.version for record in reward_versions(db, run.id)]
    if not versions:
        raise ConfigError(
            f"run {run.name!r} has no reward version yet: `prefrl fit {run.name}` fits one to the comparisons there are"
        )
    if not number:
        return versions[-1]
    if not number.isdecimal() or int(number) not in versions:
        raise ConfigError(f"run {run.name!r} has the reward versions 1 to {versions[-1]}, but no {number!r}")
    return int(number)


def _check_settings(wanted: RewardConfig, fitted: RewardConfig, name: str, asked: Collection[str]) -> None:
    for field in (f.name for f in dataclasses.fields(wanted) if f.name in asked and f.name not in ITS_OWN):
        value, its = getattr(wanted, field), getattr(fitted, field)
        if value != its:
            raise ConfigError(
                f"reward.{field} is {value}, but the reward of run {name!r} was fitted with {its} and stays as it is: "
                "leave the setting out"
            )


def fit_run(
    db: Database,
    run_name: str,
    name: str | None,
    change: Callable[[Mapping[str, Any]], Mapping[str, Any]] = lambda settings: settings,
    tell: Callable[[str], None] = lambda line: None,
) -> tuple[Run, NewReward]:
    """Fit a reward afresh to all comparisons of a run, and make a new run of the same task that begins with it.

    The run itself is only read: a run's settings describe all of its versions, and the fit may have others.

    Args:
        db: The database of both.
        run_name: The run with the comparisons.
        name: Of the new run; by default made from that of the other.
        change: From the run's settings, as nested dictionaries, to those of the fit.
        tell: Is given a line before the fit, which may take a while.

    Returns:
        The new run, and its reward.

    Raises:
        ConfigError: The run is going on, or nothing can be learned from what it has.
        RewardError: A comparison does not fit the settings, or the weights are no longer finite.
        StoreError: There is no such run, or there is one of the new name.
    """
    run = get_run(db, run_name)
    refuse_clips(run, "fit")
    if from_dict(run.config).reward.source == "true":
        raise ConfigError(f"run {run_name!r} learns from the true reward (reward.source true): nothing is compared")
    refuse_live(db, run)
    if name is not None:
        check_free(db, name)
    config = from_dict(change(run.config))
    config = dataclasses.replace(config, reward=dataclasses.replace(config.reward, source="frozen", origin=run_name))
    try_net(config, Spaces.from_dict(run.versions["spaces"]))
    from prefrl.reward_model.afresh import fit_afresh
    from prefrl.run.settle import settle

    settle(config.policy.threads)
    reward = fit_afresh(db, run, config, tell)
    return new_run(db, name or free_name(db, f"{run_name}-fit"), config, run.versions, reward), reward


def facts(run: Run, reward: NewReward) -> dict[str, Any]:
    """How well a reward fits, as plain values for JSON; None is what could not be measured."""
    config = from_dict(run.config)
    numbers = {n: v for n, v in reward.metrics.items() if not n.startswith(DETAIL)}
    return {
        "run": run.name,
        "origin": config.reward.origin,
        "last_seq": reward.last_seq,
        "n_members": config.reward.n_members,
        "steps": config.reward.pretrain_steps,
        "seed": config.seed,
        **finite_or_none(numbers),
    }


def describe(run: Run, reward: NewReward) -> str:
    """The same in three lines for a person."""
    config, m = from_dict(run.config), reward.metrics
    n = config.reward.n_members
    left_out = f"; {m['n_held_out']:.0f} more held out" if m["n_held_out"] else ""
    held_out = (
        f"out-of-bag loss {m['oob_loss']:.4g}, accuracy {100 * m['oob_accuracy']:.1f} % of the decided"
        if isfinite(m["oob_accuracy"])
        else "too few comparisons to leave any out of a bag"
    )
    return (
        f"run {run.name} begins with a reward fitted to {m['n_comparisons']:.0f} comparisons of "
        f"{config.reward.origin} ({m['n_ties']:.0f} of them ties{left_out})\n"
        f"{n} {'network' if n == 1 else 'networks'}, {config.reward.pretrain_steps:,} minibatches, seed {config.seed}: "
        f"training loss {m['train_loss']:.4g}, L2 coefficient {m['l2']:.4g}\n"
        f"{held_out}"
    )
