"""The states of a query as conditions, the same ones for every statement."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from prefrl.store.clock import now_ms
from prefrl.store.engine import Database
from prefrl.store.schema import OPEN, QUERY_STATES, clip, query, query_skip

AGAIN = ("overlap", "repeat", "gold")  # purposes of questions asked again, each of one annotator (see `again.py`)
UNLEASED: dict[str, Any] = {"lease_token": None, "lease_expires_ms": None}
GONE: dict[str, Any] = {"state": "expired", "closed_ms": now_ms()}
RAN_OUT = sa.and_(query.c.state == "leased", query.c.lease_expires_ms <= now_ms())


def clips_drawn(pair: sa.FromClause, state: str = "ready") -> list[sa.ColumnElement[bool]]:
    """For each side of a pair, whether its clip is in this state."""
    sides = (pair.c.segment_1, pair.c.segment_2)
    return [sa.exists().where(clip.c.segment_id == side, clip.c.state == state) for side in sides]


DRAWN = sa.and_(*clips_drawn(query))
UNDRAWABLE = sa.or_(*clips_drawn(query, "failed"))


def counts(db: Database, run_id: int) -> dict[str, int]:
    """How many queries are in each state; a lease that ran out counts as what becomes of it."""
    then = sa.case((query.c.purpose.in_(AGAIN), "expired"), else_="proposed")
    now = sa.case((RAN_OUT, then), else_=query.c.state).label("now")
    statement = sa.select(now, sa.func.count()).where(query.c.run_id == run_id).group_by(now)
    zero = dict.fromkeys(QUERY_STATES, 0)
    with db.read() as connection:
        return zero | {row[0]: row[1] for row in connection.execute(statement)}


def claimable(run_id: int, annotator: str, skip_cooldown_ms: int, *, clips: bool = False) -> sa.ColumnElement[bool]:
    """Which queries `lease` may hand to an annotator now; with ``clips`` only those that can be watched."""
    return sa.and_(
        query.c.run_id == run_id,
        OPEN,
        query.c.purpose.not_in(AGAIN),
        sa.or_(query.c.state.in_(("proposed", "skipped")), RAN_OUT),
        ~cooling(annotator, skip_cooldown_ms),
        *([DRAWN] if clips else []),
    )


def cooling(annotator: str, skip_cooldown_ms: int) -> sa.ColumnElement[bool]:
    """Which queries an annotator skipped a short while ago."""
    return sa.exists().where(
        query_skip.c.query_id == query.c.id,
        query_skip.c.annotator == annotator,
        query_skip.c.at_ms > now_ms() - int(skip_cooldown_ms),
    )


def move(
    connection: sa.Connection, where: sa.ColumnElement[bool], values: dict[str, Any], limit: int | None = None
) -> int:
    """One arrow for many rows, oldest first, and how many moved; those in somebody's hands at this moment stay."""
    free = sa.select(query.c.id).where(where).order_by(query.c.id).limit(limit).with_for_update(skip_locked=True)
    arrow = sa.update(query).where(query.c.id.in_(sa.select(free.cte("free").c.id))).values(values)
    # counted by hand: Python's sqlite3 knows no rowcount of an UPDATE that begins with WITH
    return len(connection.execute(arrow.returning(query.c.id)).all())
