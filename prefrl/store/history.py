"""What an annotator held and said lately, so that it can be taken back and answered anew.

An undo is a row ``withdrawn`` that supersedes the answer; the new answer supersedes that row, and keeps the sides
that were shown. All rows of such a chain carry the token of the lease under which the pair was shown.
"""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa

from prefrl.errors import DataError
from prefrl.store.again import UNDO_MS
from prefrl.store.clock import now_ms
from prefrl.store.comparisons import from_row
from prefrl.store.engine import Database
from prefrl.store.leases import of_tab
from prefrl.store.schema import clip, comparison, lease, query, query_skip
from prefrl.types import Comparison, Preference

N_UNDO = 10  # how many answers an undo reaches back


@dataclass(frozen=True)
class Holder:
    """Whom a lease was given to; it is kept for ever, so a late answer finds its pair."""

    run_id: int
    query_id: int
    annotator: str


@dataclass(frozen=True)
class Past:
    """The newest row about a pair that somebody was shown.

    Attributes:
        uuid: The client-made id of that row.
        token: The lease under which the pair was shown.
    """

    seq: int
    uuid: str
    query_id: int
    token: str
    preference: Preference


def holder_of(db: Database, token: str) -> Holder | None:
    """Whom a token was given to, or None where it was never given out."""
    statement = sa.select(query.c.run_id, query.c.id, lease.c.annotator).join_from(lease, query)
    with db.read() as connection:
        row = connection.execute(statement.where(lease.c.token == token)).one_or_none()
    return None if row is None else Holder(row.run_id, row.id, row.annotator)


def by_uuid(db: Database, uuid: str) -> Comparison | None:
    """The row that a client-made id has already, or None."""
    with db.read() as connection:
        row = connection.execute(sa.select(comparison).where(comparison.c.uuid == uuid)).one_or_none()
    return None if row is None else from_row(row)


def newest_of(db: Database, run_id: int, uuid: str) -> Comparison | None:
    """The row that stands now where the one with this id was: itself, or the last one that superseded it."""
    mine = comparison.c.run_id == run_id
    with db.read() as connection:
        row = connection.execute(sa.select(comparison).where(mine, comparison.c.uuid == uuid)).one_or_none()
        while row is not None:
            later = sa.select(comparison).where(mine, comparison.c.supersedes == row.seq)
            newer = connection.execute(later).one_or_none()
            if newer is None:
                return from_row(row)
            row = newer
    return None


def newest_of_lease(db: Database, token: str, annotator: str) -> Comparison | None:
    """The last row under a lease that nothing has superseded, one of the annotator before one of others, or None."""
    said = sa.select(comparison).where(comparison.c.lease_token == token, ~_superseded())
    first = said.order_by((comparison.c.annotator == annotator).desc(), comparison.c.seq.desc()).limit(1)
    with db.read() as connection:
        row = connection.execute(first).one_or_none()
    return None if row is None else from_row(row)


def standing(db: Database, run_id: int, annotator: str, n: int = N_UNDO) -> list[Past]:
    """The last answers of an annotator that still stand, newest first."""
    return _past(db, run_id, annotator, n, comparison.c.preference != Preference.WITHDRAWN.value)


def reopened(db: Database, run_id: int, annotator: str, n: int = N_UNDO, *, tab: str = "") -> list[Past]:
    """The pairs whose answer an annotator took back and has not given anew, newest first.

    Left out are those that he set aside since, and those whose clips are gone; with ``tab`` also those that another
    tab of his took back a moment ago, and shows.
    """
    since = sa.exists().where(
        query_skip.c.query_id == comparison.c.query_id,
        query_skip.c.annotator == annotator,
        query_skip.c.at_ms >= comparison.c.created_ms,
    )
    sides = (comparison.c.segment_1, comparison.c.segment_2)
    drawn = (sa.exists().where(clip.c.segment_id == side, clip.c.state == "ready") for side in sides)
    withdrawn = comparison.c.preference == Preference.WITHDRAWN.value
    here = sa.or_(of_tab(comparison.c.uuid, tab), comparison.c.created_ms <= now_ms() - UNDO_MS)
    return _past(db, run_id, annotator, n, sa.and_(withdrawn, ~since, here, *drawn))


def set_aside(db: Database, token: str, annotator: str) -> None:
    """Notes that an annotator does not want to see a pair again whose answer he took back; once, however often sent.

    Raises:
        DataError: No such lease was ever given out.
    """
    held = holder_of(db, token)
    if held is None:
        raise DataError(f"{db.url}: no lease has the token {token!r}: lease a query first")
    newest = sa.select(sa.func.max(comparison.c.created_ms)).where(comparison.c.lease_token == token)
    skips = sa.select(query_skip.c.id).where(
        query_skip.c.query_id == held.query_id,
        query_skip.c.annotator == annotator,
        query_skip.c.at_ms >= sa.func.coalesce(newest.scalar_subquery(), 0),
    )
    with db.write() as connection:
        if connection.execute(skips.limit(1)).first() is None:
            connection.execute(sa.insert(query_skip).values(query_id=held.query_id, annotator=annotator))


def _past(db: Database, run_id: int, annotator: str, n: int, which: sa.ColumnElement[bool]) -> list[Past]:
    columns = [comparison.c[name] for name in ("seq", "uuid", "query_id", "lease_token", "preference")]
    statement = (
        sa.select(*columns)
        .join(lease, lease.c.token == comparison.c.lease_token)
        .where(comparison.c.run_id == run_id, comparison.c.annotator == annotator)
        # not what he changed of others: their leases are not his to answer under
        .where(lease.c.annotator == annotator, which, ~_superseded())
        .order_by(comparison.c.seq.desc())
        .limit(int(n))
    )
    with db.read() as connection:
        rows = connection.execute(statement).all()
    return [Past(seq, uuid, query_id, token, Preference(said)) for seq, uuid, query_id, token, said in rows]


def _superseded() -> sa.ColumnElement[bool]:
    newer = comparison.alias("newer")
    return sa.exists().where(newer.c.run_id == comparison.c.run_id, newer.c.supersedes == comparison.c.seq)
