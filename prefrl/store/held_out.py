"""Held-out comparisons: answers about pairs that are never trained on, whoever else is asked about them."""

from __future__ import annotations

import sqlalchemy as sa

from prefrl.store.engine import Database
from prefrl.store.schema import OPEN, comparison, query

HELD_OUT = "held_out"  # purpose of their queries


def held_out_pairs(db: Database, run_id: int) -> set[tuple[int, int]]:
    """All pairs that were ever asked to be held out, the smaller segment id first."""
    pairs = sa.select(query.c.segment_1, query.c.segment_2).where(_held_out(run_id))
    with db.read() as connection:
        return {(min(a, b), max(a, b)) for a, b in connection.execute(pairs)}


def n_held_out_asked(db: Database, run_id: int) -> int:
    """How many are open, or answered so that the budget counts them."""
    newer = comparison.alias("newer")
    superseded = sa.exists().where(newer.c.run_id == run_id, newer.c.supersedes == comparison.c.seq)
    counted = sa.exists().where(
        comparison.c.query_id == query.c.id, comparison.c.mu.is_not(None), ~comparison.c.late, ~superseded
    )
    statement = sa.select(sa.func.count()).select_from(query).where(_held_out(run_id), sa.or_(OPEN, counted))
    with db.read() as connection:
        return int(connection.execute(statement).scalar_one())


def _held_out(run_id: int) -> sa.ColumnElement[bool]:
    return sa.and_(query.c.run_id == run_id, query.c.purpose == HELD_OUT)
