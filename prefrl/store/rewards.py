"""Reward versions: each published ensemble is a new row; none is ever overwritten."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from prefrl.errors import StoreError
from prefrl.store.engine import Database
from prefrl.store.records import finite_or_none, lock_counter, none_to_nan, set_counter
from prefrl.store.schema import reward_version, reward_weights
from prefrl.types import RewardVersion

SERIES = "reward"


@dataclass(frozen=True)
class NewReward:
    """A version that is in no run yet.

    Attributes:
        weights: The ensemble as safetensors.
        last_seq: ``seq`` of the last comparison it was fitted to.
        metrics: Losses and the like; what is not finite reads back as NaN.
    """

    weights: bytes
    last_seq: int
    metrics: Mapping[str, float]


def publish(
    db: Database, run_id: int, weights: bytes, *, last_seq: int, env_steps: int, metrics: Mapping[str, float]
) -> int:
    """Adds the next version, weights and description in one transaction.

    Args:
        db: The database of the run.
        run_id: The run.
        weights: The ensemble as safetensors.
        last_seq: ``seq`` of the last comparison it was fitted to.
        env_steps: Agent steps of the run now.
        metrics: Losses and the like; what is not finite reads back as NaN.

    Returns:
        The version: 1, 2, 3, …
    """
    with db.write() as connection:
        return add_version(connection, run_id, NewReward(weights, last_seq, metrics), env_steps)


def add_version(connection: sa.Connection, run_id: int, new: NewReward, env_steps: int) -> int:
    """Adds the next version within a transaction; its number."""
    version = lock_counter(connection, run_id, SERIES) + 1
    values = {
        "run_id": run_id,
        "version": version,
        "last_seq": int(new.last_seq),
        "env_steps": int(env_steps),
        "metrics": finite_or_none(new.metrics),
    }
    row = connection.execute(sa.insert(reward_version).values(values).returning(reward_version.c.id)).scalar()
    connection.execute(sa.insert(reward_weights).values(reward_version_id=row, weights=new.weights))
    set_counter(connection, run_id, SERIES, version)
    return version


def newest_version(db: Database, run_id: int) -> int:
    """The number of the newest version, 0 before the first."""
    statement = sa.select(sa.func.max(reward_version.c.version)).where(reward_version.c.run_id == run_id)
    with db.read() as connection:
        return connection.execute(statement).scalar() or 0


def newest_fit(db: Database, run_id: int) -> int:
    """Agent steps of the run when the newest version was fitted, 0 before the first."""
    statement = sa.select(reward_version.c.env_steps).where(reward_version.c.run_id == run_id)
    with db.read() as connection:
        return connection.execute(statement.order_by(reward_version.c.version.desc()).limit(1)).scalar() or 0


def load_reward(db: Database, run_id: int, version: int | None = None) -> tuple[RewardVersion, bytes]:
    """A version and its weights; the newest one where none is named.

    Raises:
        StoreError: There is no such version, or its weights were pruned.
    """
    statement = (
        sa.select(reward_version, reward_weights.c.weights)
        .join_from(reward_version, reward_weights, isouter=True)
        .where(reward_version.c.run_id == run_id)
        .order_by(reward_version.c.version.desc())
        .limit(1)
    )
    if version is not None:
        statement = statement.where(reward_version.c.version == int(version))
    with db.read() as connection:
        row = connection.execute(statement).one_or_none()
    if row is None:
        what = "no reward version yet" if version is None else f"no reward version {version}"
        raise StoreError(f"{db.url}: the run has {what}: the reward process publishes them (see `prefrl status`)")
    if row.weights is None:
        raise StoreError(f"{db.url}: the weights of reward version {row.version} were pruned: use a newer version")
    return _version(row), bytes(row.weights)


def reward_versions(db: Database, run_id: int) -> list[RewardVersion]:
    """All versions of a run, oldest first, also those whose weights were pruned."""
    statement = sa.select(reward_version).where(reward_version.c.run_id == run_id)
    with db.read() as connection:
        return [_version(row) for row in connection.execute(statement.order_by(reward_version.c.version))]


def prune_rewards(db: Database, run_id: int, keep: set[int]) -> int:
    """Deletes the weights of all versions but these and the newest; their descriptions stay.

    Returns:
        How many went.
    """
    mine = reward_version.c.run_id == run_id
    with db.write() as connection:
        newest = connection.execute(sa.select(sa.func.max(reward_version.c.version)).where(mine)).scalar() or 0
        stay = {int(version) for version in keep} | {newest}
        old = sa.select(reward_version.c.id).where(mine, reward_version.c.version.not_in(stay))
        gone = sa.delete(reward_weights).where(reward_weights.c.reward_version_id.in_(old))
        return connection.execute(gone).rowcount


def _version(row: sa.Row[Any]) -> RewardVersion:
    return RewardVersion(row.version, row.last_seq, row.env_steps, none_to_nan(row.metrics), row.created_ms)
