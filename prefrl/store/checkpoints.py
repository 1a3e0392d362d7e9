"""Policy checkpoints, checked by their hash whenever they are loaded."""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from typing import Any

import sqlalchemy as sa

from prefrl.errors import StoreError
from prefrl.store.engine import Database
from prefrl.store.schema import policy_checkpoint, policy_weights
from prefrl.types import Checkpoint


def save_checkpoint(db: Database, run_id: int, weights: bytes, *, env_steps: int, meta: dict[str, Any]) -> Checkpoint:
    """Stores a policy, weights and description in one transaction; the newest one again keeps its row.

    Args:
        db: The database of the run.
        run_id: The run.
        weights: Tensors as safetensors.
        env_steps: Agent steps of the run now.
        meta: What else is needed to go on, as JSON.
    """
    values = {
        "run_id": run_id,
        "env_steps": int(env_steps),
        "sha256": hashlib.sha256(weights).hexdigest(),
        "meta": meta,
    }
    newest = sa.select(policy_checkpoint).where(policy_checkpoint.c.run_id == run_id)
    newest = newest.order_by(policy_checkpoint.c.id.desc()).limit(1)
    with db.write() as connection:
        old = connection.execute(newest).one_or_none()
        if old is not None and (old.env_steps, old.sha256) == (values["env_steps"], values["sha256"]):
            return _checkpoint(old)
        insert = sa.insert(policy_checkpoint).values(values).returning(policy_checkpoint)
        saved = _checkpoint(connection.execute(insert).one())
        connection.execute(sa.insert(policy_weights).values(checkpoint_id=saved.id, weights=weights))
    return saved


def list_checkpoints(db: Database, run_id: int) -> list[Checkpoint]:
    """All checkpoints of a run, oldest first."""
    statement = sa.select(policy_checkpoint).where(policy_checkpoint.c.run_id == run_id)
    with db.read() as connection:
        return [_checkpoint(row) for row in connection.execute(statement.order_by(policy_checkpoint.c.id))]


def load_checkpoint(db: Database, run_id: int, checkpoint_id: int | None = None) -> tuple[Checkpoint, bytes]:
    """A checkpoint and its weights; the newest one where none is named.

    Raises:
        StoreError: There is no such checkpoint, or its weights are damaged.
    """
    statement = (
        sa.select(policy_checkpoint, policy_weights.c.weights)
        .join_from(policy_checkpoint, policy_weights)
        .where(policy_checkpoint.c.run_id == run_id)
        .order_by(policy_checkpoint.c.id.desc())
        .limit(1)
    )
    if checkpoint_id is not None:
        statement = statement.where(policy_checkpoint.c.id == int(checkpoint_id))
    with db.read() as connection:
        row = connection.execute(statement).one_or_none()
    if row is None:
        what = "no checkpoint yet" if checkpoint_id is None else f"no checkpoint {checkpoint_id}"
        raise StoreError(f"{db.url}: the run has {what}: `prefrl eval RUN --list` shows what there is")
    weights = bytes(row.weights)
    found = hashlib.sha256(weights).hexdigest()
    if found != row.sha256:
        raise StoreError(
            f"{db.url}: policy checkpoint {row.id} is damaged (sha256 {found[:12]}…, stored as "
            f"{row.sha256[:12]}…): load an older one, or restore a backup"
        )
    return _checkpoint(row), weights


def prune_checkpoints(db: Database, run_id: int, keep_ids: Collection[int]) -> int:
    """Deletes all checkpoints of a run but these.

    Returns:
        How many went.
    """
    stay = [int(id_) for id_ in keep_ids]
    old = (policy_checkpoint.c.run_id == run_id) & policy_checkpoint.c.id.not_in(stay)
    with db.write() as connection:
        # the weights go with their row (ON DELETE CASCADE)
        return connection.execute(sa.delete(policy_checkpoint).where(old)).rowcount


def _checkpoint(row: sa.Row[Any]) -> Checkpoint:
    return Checkpoint(row.id, row.env_steps, row.sha256, row.meta, row.created_ms)
