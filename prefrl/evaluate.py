"""The true return of a stored policy."""

from __future__ import annotations

import contextlib
import dataclasses
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from prefrl.envs.tasks import has_true_reward
from prefrl.errors import ConfigError, StoreError
from prefrl.seeding import Stream, seed_for
from prefrl.settings import from_dict
from prefrl.store.checkpoints import list_checkpoints, load_checkpoint
from prefrl.store.engine import Database
from prefrl.store.folder import refuse_clips
from prefrl.store.runs import Run, get_run
from prefrl.types import Checkpoint

if TYPE_CHECKING:
    from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
    from stable_baselines3.common.vec_env import VecNormalize


@dataclass(frozen=True)
class Evaluation:
    """True returns of whole episodes, and exactly which policy made them."""

    run: str
    checkpoint: int
    env_steps: int
    sha256: str
    deterministic: bool
    true_returns: tuple[float, ...]
    mean: float
    std: float

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


def restore(
    db: Database, run: Run, checkpoint_id: int | None = None
) -> tuple[Checkpoint, OnPolicyAlgorithm, VecNormalize]:
    """A stored policy, in one environment of the run's task, behind the statistics that it learned with.

    Args:
        db: The run's database; only read.
        run: The run.
        checkpoint_id: Which checkpoint; by default the newest.

    Returns:
        What is stored about it, the learner with its weights, and the environment, which the caller closes.

    Raises:
        StoreError: No such checkpoint.
    """
    from prefrl.rollout import checkpoint as packing
    from prefrl.rollout.learners import make_learner, make_normaliser
    from prefrl.rollout.pace import rollout_size
    from prefrl.rollout.role import make_venv

    config = from_dict(run.config)
    if not list_checkpoints(db, run.id):
        raise StoreError(f"run {run.name!r} has no checkpoint yet; it writes its first when learning starts")
    stored, payload = load_checkpoint(db, run.id, checkpoint_id)
    seed = seed_for(config.seed, Stream.EVALUATION, 0)
    venv = make_normaliser(make_venv(config.env, 1, seed), config.policy, training=False)
    # one environment instead of many: a rollout keeps the size that the learner's settings fit
    policy = dataclasses.replace(config.policy, n_steps=rollout_size(config.policy))
    try:
        model = make_learner(policy, venv, seed)
        packing.unpack(payload, model, venv)
    except BaseException:
        venv.close()
        raise
    return stored, model, venv


def evaluate(
    db: Database, run_name: str, checkpoint_id: int | None = None, episodes: int = 10, *, deterministic: bool = True
) -> Evaluation:
    """Let a checkpoint's policy act in fresh episodes and sum the environment's own reward.

    Args:
        db: The run's database; only read.
        run_name: The run.
        checkpoint_id: Which checkpoint; by default the newest.
        episodes: How many episodes, at least 1.
        deterministic: The most likely action, or sampled ones.

    Raises:
        ConfigError: Fewer than one episode, a task that has no true reward, or a run that trains nothing.
        StoreError: No such run or checkpoint.
    """
    if episodes < 1:
        raise ConfigError(f"--episodes must be at least 1, not {episodes}")
    run = get_run(db, run_name)
    refuse_clips(run, "evaluate")
    config = from_dict(run.config)
    if not has_true_reward(config.env.id):
        raise ConfigError(
            f"{config.env.id} has no true reward, so the policies of run {run_name!r} have no true return; "
            f"`prefrl report {run_name}` shows how its reward model fits the comparisons"
        )
    stored, model, venv = restore(db, run, checkpoint_id)
    returns: list[float] = []
    with contextlib.closing(venv):
        obs: Any = venv.reset()
        while len(returns) < episodes:
            obs, _, _, infos = venv.step(model.predict(obs, deterministic=deterministic)[0])
            returns += [float(info["episode"]["r"]) for info in infos if "episode" in info]
    return Evaluation(
        run=run.name,
        checkpoint=stored.id,
        env_steps=stored.env_steps,
        sha256=stored.sha256,
        deterministic=deterministic,
        true_returns=tuple(returns),
        mean=float(np.mean(returns)),
        std=float(np.std(returns)),
    )


def describe(result: Evaluation) -> str:
    """Two lines for a person."""
    how = "deterministic" if result.deterministic else "stochastic"
    policy = f"sha256 {result.sha256[:16]}"
    return (
        f"checkpoint {result.checkpoint} of run {result.run}: {result.env_steps:,} steps, {policy}\n"
        f"true return of {len(result.true_returns)} {how} episodes: {result.mean:.2f} (std {result.std:.2f})"
    )
