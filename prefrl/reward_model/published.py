"""Published reward versions: how rollouts, evaluation and other people's scripts get the learned reward."""

from __future__ import annotations

from typing import Protocol

from prefrl.errors import RewardError
from prefrl.reward_model.ensemble import RewardEnsemble, tensors_from_bytes
from prefrl.reward_model.inference import RewardFn, stepwise
from prefrl.reward_model.spaces import Spaces
from prefrl.settings import from_dict
from prefrl.store import rewards
from prefrl.store.engine import Database
from prefrl.store.runs import Run, get_run


class RewardSource(Protocol):
    """Where ``LearnedReward`` gets its versions."""

    def newest(self) -> int:
        """Number of the newest version; 0 if there is none."""

    def load(self) -> tuple[int, RewardFn]:
        """Number of the newest version, and its reward of steps (N, *obs), (N, *act) -> (N,)."""


class PublishedReward:
    """Versions that a run's reward role publishes.

    Args:
        db: The run's database.
        run: The run.
    """

    def __init__(self, db: Database, run: Run) -> None:
        self.db, self.run = db, run

    def newest(self) -> int:
        """Number of the newest version; 0 if there is none."""
        return rewards.newest_version(self.db, self.run.id)

    def load(self) -> tuple[int, RewardFn]:
        """Number of the newest version, and its reward of steps."""
        version, ensemble = load_ensemble(self.db, self.run)
        return version, stepwise(ensemble)


def load_ensemble(db: Database, run: Run, version: int | None = None) -> tuple[int, RewardEnsemble]:
    """Number and ensemble of a version, by default the newest."""
    record, payload = rewards.load_reward(db, run.id, version)
    ensemble = new_ensemble(run)
    ensemble.load(tensors_from_bytes(payload))
    return record.version, ensemble


def new_ensemble(run: Run) -> RewardEnsemble:
    """An untrained ensemble of the run's settings."""
    config = from_dict(run.config)
    return RewardEnsemble(Spaces.from_dict(run.versions["spaces"]), config.reward, config.seed)


def published_reward(url: str, run_name: str) -> PublishedReward:
    """The reward versions of a run, for ``LearnedReward`` in a script of your own.

    Args:
        url: Database URL, such as ``sqlite:///runs/prefrl.db``.
        run_name: Name of the run.
    """
    db = Database.open(url, readonly=True)
    return PublishedReward(db, get_run(db, run_name))


def load_reward(url: str, run_name: str, version: int | None = None) -> RewardEnsemble:
    """The learned reward of a run, for scoring: ``load_reward(url, name).reward(obs, act)``.

    Args:
        url: Database URL, such as ``sqlite:///runs/prefrl.db``.
        run_name: Name of the run.
        version: Which version; by default the newest.

    Raises:
        RewardError: The run has no reward version yet.
    """
    published = published_reward(url, run_name)
    try:
        if not published.newest():
            raise RewardError(f"run {run_name!r} has no reward version yet; it needs its first comparisons")
        return load_ensemble(published.db, published.run, version)[1]
    finally:
        published.db.close()
