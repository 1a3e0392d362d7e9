"""Why an annotator gets nothing: three answers that must never be mixed up."""

from __future__ import annotations

import enum
from dataclasses import dataclass

import sqlalchemy as sa

from prefrl.store.clock import now_ms
from prefrl.store.engine import Database
from prefrl.store.schema import lease, query, query_skip
from prefrl.store.states import claimable, cooling, counts


class Reason(enum.StrEnum):
    """Why `lease` returned nothing."""

    AVAILABLE = "available"  # something has come in since: ask again
    HELD_BY_YOU = "held_by_you"  # resume_leases() returns it
    NOTHING_PROPOSED = "nothing_proposed"
    LEASED_BY_OTHERS = "leased_by_others"
    NOTHING_LEFT_FOR_YOU = "nothing_left_for_you"  # you have answered or skipped everything


@dataclass(frozen=True)
class QueueState:
    """What an annotator can be told about the queue.

    Attributes:
        reason: Why there was nothing.
        counts: Queries of the run in each state.
        n_available: What `lease` would hand out now.
        n_held_by_you: Open leases of this annotator.
        n_leased_by_others: Open leases of others.
        n_skipped_by_you: Open queries that come back to him when his cool-down ends.
        until_ms: When the first lease or cool-down ends (database clock), or None.
        wait_ms: The same as a time to wait from now, or None.
    """

    reason: Reason
    counts: dict[str, int]
    n_available: int
    n_held_by_you: int
    n_leased_by_others: int
    n_skipped_by_you: int
    until_ms: int | None
    wait_ms: int | None


def why_empty(db: Database, run_id: int, annotator: str, *, skip_cooldown_ms: int = 600_000) -> QueueState:
    """Tells nothing proposed, all leased by others, and nothing left for this annotator apart.

    Args:
        db: The database of the run.
        run_id: The run.
        annotator: Who asks.
        skip_cooldown_ms: The same as for `lease`.
    """
    mine = sa.exists().where(lease.c.token == query.c.lease_token, lease.c.annotator == annotator)
    leased = sa.and_(query.c.run_id == run_id, query.c.state == "leased", query.c.lease_expires_ms > now_ms())
    cool = cooling(annotator, skip_cooldown_ms)
    unheld = sa.or_(query.c.state.in_(("proposed", "skipped")), query.c.lease_expires_ms <= now_ms())
    skipped = sa.and_(query.c.run_id == run_id, unheld, cool)
    his_skip = sa.and_(query_skip.c.query_id == query.c.id, query_skip.c.annotator == annotator)
    last_skip = sa.select(sa.func.max(query_skip.c.at_ms)).where(his_skip).scalar_subquery()

    def count(where: sa.ColumnElement[bool]) -> sa.ScalarSelect[int]:
        return sa.select(sa.func.count()).select_from(query).where(where).scalar_subquery()

    statement = sa.select(
        count(claimable(run_id, annotator, skip_cooldown_ms)),
        count(sa.and_(leased, mine)),
        count(sa.and_(leased, ~mine, ~cool)),
        count(skipped),
        # every query of this run that he has ever had in his hands
        count(sa.and_(query.c.run_id == run_id, _had(annotator))),
        sa.select(sa.func.min(query.c.lease_expires_ms)).where(leased, ~mine, ~cool).scalar_subquery(),
        sa.select(sa.func.min(last_skip)).select_from(query).where(skipped).scalar_subquery(),
        now_ms(),
    )
    with db.read() as connection:
        available, held, others, cooling_down, had, lease_end, skip_at, now = connection.execute(statement).one()
    until: int | None = None
    if available:
        reason = Reason.AVAILABLE
    elif held:
        reason = Reason.HELD_BY_YOU
    elif others:
        reason, until = Reason.LEASED_BY_OTHERS, lease_end
    elif cooling_down or had:
        reason = Reason.NOTHING_LEFT_FOR_YOU
        until = None if skip_at is None else skip_at + skip_cooldown_ms
    else:
        reason = Reason.NOTHING_PROPOSED
    wait = None if until is None else max(0, until - now)
    return QueueState(reason, counts(db, run_id), available, held, others, cooling_down, until, wait)


def _had(annotator: str) -> sa.ColumnElement[bool]:
    return sa.exists().where(lease.c.query_id == query.c.id, lease.c.annotator == annotator)
