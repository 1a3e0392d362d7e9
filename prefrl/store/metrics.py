"""Metrics and events: append-only, for charts, reports and `prefrl status`."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from prefrl.store.engine import Database
from prefrl.store.schema import event, metric


@dataclass(frozen=True)
class Metric:
    """One number that a role measured after ``env_steps`` agent steps."""

    id: int
    role: str
    env_steps: int
    name: str
    value: float
    at_ms: int


@dataclass(frozen=True)
class Event:
    """Something that happened, in words."""

    id: int
    role: str
    kind: str
    message: str
    at_ms: int


def add_metrics(db: Database, run_id: int, role: str, env_steps: int, values: Mapping[str, float]) -> None:
    """Stores numbers that were measured together; NaN is allowed."""
    rows = [
        {
            "run_id": run_id,
            "role": role,
            "env_steps": int(env_steps),
            "name": name,
            "value": None if math.isnan(value) else float(value),
        }
        for name, value in values.items()
    ]
    if rows:
        with db.write() as connection:
            connection.execute(sa.insert(metric), rows)


def read_metrics(db: Database, run_id: int, names: Collection[str] | None = None, after_id: int = 0) -> list[Metric]:
    """The metrics of a run in the order of their ids.

    Args:
        db: The database of the run.
        run_id: The run.
        names: Only these; None means all.
        after_id: Only newer ones. On PostgreSQL ids of different writers can appear out of order, so a
            reader that goes on from the last id may miss a point: good for a chart, not for a sum.
    """
    statement = sa.select(metric).where(metric.c.run_id == run_id, metric.c.id > after_id)
    if names is not None:
        statement = statement.where(metric.c.name.in_(list(names)))
    with db.read() as connection:
        return [_metric(row) for row in connection.execute(statement.order_by(metric.c.id))]


def latest_metrics(db: Database, run_id: int) -> dict[str, Metric]:
    """The last value of each metric of a run."""
    last = sa.select(sa.func.max(metric.c.id)).where(metric.c.run_id == run_id).group_by(metric.c.name)
    with db.read() as connection:
        rows = connection.execute(sa.select(metric).where(metric.c.id.in_(last)).order_by(metric.c.name))
        return {row.name: _metric(row) for row in rows}


def add_event(db: Database, run_id: int, role: str, kind: str, message: str) -> None:
    """Notes that something happened."""
    with db.write() as connection:
        connection.execute(sa.insert(event).values(run_id=run_id, role=role, kind=kind, message=message))


def events(db: Database, run_id: int, limit: int | None = 100) -> list[Event]:
    """The last events of a run, newest first; None lifts the limit."""
    statement = sa.select(event).where(event.c.run_id == run_id).order_by(event.c.id.desc()).limit(limit)
    with db.read() as connection:
        return [Event(row.id, row.role, row.kind, row.message, row.at_ms) for row in connection.execute(statement)]


def _metric(row: sa.Row[Any]) -> Metric:
    value = math.nan if row.value is None else row.value
    return Metric(row.id, row.role, row.env_steps, row.name, value, row.at_ms)
