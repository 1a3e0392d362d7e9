"""Why an annotator gets nothing: answers that must never be mixed up."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from prefrl.store.clock import now_ms
from prefrl.store.engine import Database
from prefrl.store.leases import of_tab
from prefrl.store.schema import lease, query, query_skip
from prefrl.store.states import AGAIN, DRAWN, UNDRAWABLE, claimable, cooling, counts


class Reason(enum.StrEnum):
    """Why `lease` returned nothing."""

    AVAILABLE = "available"  # something has come in since: ask again
    HELD_BY_YOU = "held_by_you"  # resume_leases() returns it
    NOTHING_PROPOSED = "nothing_proposed"
    CLIPS_COMING = "clips_coming"  # queries wait for a renderer to draw their clips
    HELD_ELSEWHERE = "held_elsewhere"  # by another tab of this annotator
    LEASED_BY_OTHERS = "leased_by_others"
    CLIPS_FAILED = "clips_failed"  # all that is left cannot be watched before retry_clips()
    NOTHING_LEFT_FOR_YOU = "nothing_left_for_you"  # you have answered or skipped everything


@dataclass(frozen=True)
class QueueState:
    """What an annotator can be told about the queue.

    Attributes:
        reason: Why there was nothing.
        counts: Queries of the run in each state.
        n_available: What `lease` would hand out now.
        n_held_by_you: Open leases of this annotator, in the tab that asks.
        n_leased_by_others: Open leases of others, and of his own other tabs.
        n_skipped_by_you: Open queries that come back to him when his cool-down ends.
        until_ms: When the first lease or cool-down ends (database clock), or None.
        wait_ms: The same as a time to wait from now, or None.
        n_clips_coming: Queries that `lease` would hand out once their clips are drawn.
        n_clips_failed: Queries that it cannot hand out because a clip failed; where none is open, those of them
            that were withdrawn (see `n_undrawable`).
        n_held_elsewhere: Those of the leased ones that his own other tabs hold.
    """

    reason: Reason
    counts: dict[str, int]
    n_available: int
    n_held_by_you: int
    n_leased_by_others: int
    n_skipped_by_you: int
    until_ms: int | None
    wait_ms: int | None
    n_clips_coming: int = 0
    n_clips_failed: int = 0
    n_held_elsewhere: int = 0


def why_empty(
    db: Database, run_id: int, annotator: str, *, skip_cooldown_ms: int = 600_000, clips: bool = False, tab: str = ""
) -> QueueState:
    """Tells nothing proposed, all leased by others, and nothing left for this annotator apart.

    With ``clips`` also clips that are not drawn yet and clips that cannot be drawn.

    Args:
        db: The database of the run.
        run_id: The run.
        annotator: Who asks.
        skip_cooldown_ms: The same as for `lease`.
        clips: The same as for `lease`.
        tab: Which of his browser tabs asks.
    """
    waiting = claimable(run_id, annotator, skip_cooldown_ms)
    statement = _tally(run_id, annotator, sa.and_(waiting, DRAWN) if clips else waiting, skip_cooldown_ms, tab)
    undrawn = sa.select(_count(sa.and_(waiting, ~DRAWN, ~UNDRAWABLE)), _count(sa.and_(waiting, UNDRAWABLE)))
    with db.read() as connection:
        row = connection.execute(statement).one()
        available, held, n_others, n_elsewhere, cooling_down, had, lease_end, his_end, skip_at, now = row
        coming, failed = connection.execute(undrawn).one() if clips else (0, 0)
    if clips and not failed:
        failed = n_undrawable(db, run_id)
    until: int | None = None
    if available:
        reason = Reason.AVAILABLE
    elif held:
        reason = Reason.HELD_BY_YOU
    elif coming:  # within seconds, long before a lease of others ends
        reason = Reason.CLIPS_COMING
    elif n_elsewhere:
        reason, until = Reason.HELD_ELSEWHERE, his_end
    elif n_others:
        reason, until = Reason.LEASED_BY_OTHERS, lease_end
    elif failed and not cooling_down:
        reason = Reason.CLIPS_FAILED
    elif cooling_down or had:
        reason = Reason.NOTHING_LEFT_FOR_YOU
        until = None if skip_at is None else skip_at + skip_cooldown_ms
    else:
        reason = Reason.NOTHING_PROPOSED
    wait = None if until is None else max(0, until - now)
    totals = counts(db, run_id)
    return QueueState(reason, totals, available, held, n_others, cooling_down, until, wait, coming, failed, n_elsewhere)


def _tally(
    run_id: int, annotator: str, available: sa.ColumnElement[bool], skip_cooldown_ms: int, tab: str
) -> sa.Select[Any]:
    """One row: what `why_empty` counts, when the first leases and cool-downs end, and the time now."""
    his = sa.exists().where(lease.c.token == query.c.lease_token, lease.c.annotator == annotator)
    mine = sa.and_(his, of_tab(query.c.lease_token, tab))
    leased = sa.and_(query.c.run_id == run_id, query.c.state == "leased", query.c.lease_expires_ms > now_ms())
    others = sa.and_(leased, ~mine, query.c.purpose.not_in(AGAIN))  # what was asked of others again is for nobody else
    cool = cooling(annotator, skip_cooldown_ms)
    unheld = sa.or_(query.c.state.in_(("proposed", "skipped")), query.c.lease_expires_ms <= now_ms())
    skipped = sa.and_(query.c.run_id == run_id, unheld, cool)
    his_skip = sa.and_(query_skip.c.query_id == query.c.id, query_skip.c.annotator == annotator)
    last_skip = sa.select(sa.func.max(query_skip.c.at_ms)).where(his_skip).scalar_subquery()
    return sa.select(
        _count(available),
        _count(sa.and_(leased, mine)),
        _count(sa.and_(others, ~cool)),
        _count(sa.and_(others, his)),
        _count(skipped),
        # every query of this run that he has ever had in his hands
        _count(sa.and_(query.c.run_id == run_id, _had(annotator))),
        _first_end(sa.and_(others, ~cool)),
        _first_end(sa.and_(others, his)),
        sa.select(sa.func.min(last_skip)).select_from(query).where(skipped).scalar_subquery(),
        now_ms(),
    )


def _first_end(where: sa.ColumnElement[bool]) -> sa.ScalarSelect[int]:
    return sa.select(sa.func.min(query.c.lease_expires_ms)).where(where).scalar_subquery()


def n_undrawable(db: Database, run_id: int) -> int:
    """How many queries were withdrawn because a clip failed; 0 where a newer one than these was asked."""
    newest = query.alias("newest")
    last = sa.select(sa.func.max(newest.c.id)).where(newest.c.run_id == run_id).scalar_subquery()
    withdrawn = sa.and_(query.c.run_id == run_id, query.c.state == "expired", UNDRAWABLE)
    statement = sa.select(sa.case((sa.func.max(query.c.id) == last, sa.func.count()), else_=0)).where(withdrawn)
    with db.read() as connection:
        return int(connection.execute(statement).scalar_one())


def _count(where: sa.ColumnElement[bool]) -> sa.ScalarSelect[int]:
    return sa.select(sa.func.count()).select_from(query).where(where).scalar_subquery()


def _had(annotator: str) -> sa.ColumnElement[bool]:
    return sa.exists().where(lease.c.query_id == query.c.id, lease.c.annotator == annotator)
