"""Looking through a run's comparisons, page by page; nothing here writes.

Filters and order come from a web page: columns are looked up in a fixed table, values are bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import sqlalchemy as sa

from prefrl.errors import DataError
from prefrl.store.clock import now_ms
from prefrl.store.comparisons import from_row
from prefrl.store.engine import Database
from prefrl.store.schema import OPEN, clip, comparison, query, segment
from prefrl.types import Comparison, Preference

SORTS: dict[str, sa.ColumnElement[Any]] = {
    name: comparison.c[name] for name in ("seq", "created_ms", "response_ms", "annotator", "preference", "env_steps")
}
MAX_LIMIT = 1000


@dataclass(frozen=True)
class Filter:
    """Which comparisons are wanted; None means any.

    Attributes:
        annotator: Answered by this one.
        preference: With this answer, as shown.
        late: Whether the query had been answered already.
        superseded: Whether a later row has replaced it or taken it back.
    """

    annotator: str | None = None
    preference: Preference | None = None
    late: bool | None = None
    superseded: bool | None = None


@dataclass(frozen=True)
class Entry:
    """A comparison, and the ``seq`` of the row that replaced it, or None."""

    comparison: Comparison
    superseded_by: int | None


@dataclass(frozen=True)
class Page:
    """Some entries of ``total``."""

    entries: tuple[Entry, ...]
    total: int


@dataclass(frozen=True)
class Waiting:
    """Open queries (proposed, leased or skipped) and how long they have waited, in milliseconds."""

    n: int
    oldest_ms: int
    median_ms: int


def comparisons_page(
    db: Database,
    run_id: int,
    wanted: Filter | None = None,
    *,
    sort: str = "seq",
    descending: bool = True,
    limit: int = 25,
    offset: int = 0,
) -> Page:
    """One page of comparisons.

    Args:
        db: The database of the run.
        run_id: The run.
        wanted: Which ones; None takes all.
        sort: A name of `SORTS`; equal ones are in the order of ``seq``, unknown values last.
        descending: Largest first.
        limit: Entries of a page, 1 to 1000.
        offset: How many to pass over, at least 0.

    Raises:
        DataError: There is no such column to sort by, or a page of that size.
    """
    if sort not in SORTS:
        raise DataError(f"comparisons cannot be sorted by {sort!r}: use one of {', '.join(SORTS)}")
    if not 1 <= limit <= MAX_LIMIT or offset < 0:
        raise DataError(f"a page has 1 to {MAX_LIMIT} comparisons from 0 on, not {limit} from {offset} on")
    newer = comparison.alias("newer")
    joined = comparison.outerjoin(
        newer, sa.and_(newer.c.run_id == comparison.c.run_id, newer.c.supersedes == comparison.c.seq)
    )
    where = _where(run_id, wanted or Filter(), newer)
    keys = [SORTS[sort], comparison.c.seq]
    # "IS NULL" first: the engines disagree about where NULL belongs
    order = [SORTS[sort].is_(None), *(key.desc() if descending else key.asc() for key in keys)]
    columns = sa.select(comparison, newer.c.seq.label("superseded_by")).select_from(joined).where(*where)
    count = sa.select(sa.func.count()).select_from(joined).where(*where)
    with db.read() as connection:
        total = int(connection.execute(count).scalar_one())
        rows = connection.execute(columns.order_by(*order).limit(int(limit)).offset(int(offset))).all()
    return Page(tuple(_entry(row) for row in rows), total)


def annotators(db: Database, run_id: int) -> list[str]:
    """Who has answered in this run, in alphabetical order."""
    names = sa.select(comparison.c.annotator).distinct().where(comparison.c.run_id == run_id)
    with db.read() as connection:
        return sorted(connection.execute(names).scalars())


def history(db: Database, run_id: int, seq: int) -> list[Comparison]:
    """A comparison with everything that it replaced and that replaced it, oldest first.

    Raises:
        DataError: There is no such comparison.
    """
    mine = comparison.c.run_id == run_id
    with db.read() as connection:
        found = connection.execute(sa.select(comparison).where(mine, comparison.c.seq == int(seq))).one_or_none()
        if found is None:
            raise DataError(f"{db.url}: the run has no comparison {seq}")
        # an edit is about the same pair, so the whole chain is among these
        pair = (comparison.c.segment_1 == found.segment_1, comparison.c.segment_2 == found.segment_2)
        rows = [from_row(row) for row in connection.execute(sa.select(comparison).where(mine, *pair))]
    by_seq = {row.seq: row for row in rows}
    newer = {row.supersedes: row.seq for row in rows if row.supersedes is not None}
    first = int(seq)
    while (older := by_seq[first].supersedes) is not None:
        first = older
    chain = [by_seq[first]]
    while chain[-1].seq in newer:
        chain.append(by_seq[newer[chain[-1].seq]])
    return chain


def waiting(db: Database, run_id: int) -> Waiting | None:
    """How long open queries have waited; None where none is open."""
    age = sa.select(now_ms() - query.c.proposed_ms).where(query.c.run_id == run_id, OPEN)
    with db.read() as connection:
        ages = sorted(max(0, int(ms)) for ms in connection.execute(age).scalars())
    return Waiting(len(ages), ages[-1], ages[len(ages) // 2]) if ages else None


def expected_answers(db: Database, run_id: int, purpose: str = "gold") -> dict[int, float]:
    """The right answers of gold questions: their ``score`` is the mass on segment 1 (1, 0.5 or 0)."""
    gold = sa.select(query.c.id, query.c.score).where(
        query.c.run_id == run_id, query.c.purpose == purpose, query.c.score.in_((0.0, 0.5, 1.0))
    )
    with db.read() as connection:
        return {id_: float(score) for id_, score in connection.execute(gold)}


def clips_over_the_run(db: Database, run_id: int, n: int = 2) -> tuple[list[int], list[int]]:
    """Segments with a drawn clip that the run itself recorded: the earliest ``n`` and the newest ``n``.

    A segment is in one of the two lists only; each is in the order of agent steps.
    """
    drawn = (
        sa.select(segment.c.id)
        .join(clip, clip.c.segment_id == segment.c.id)
        .where(segment.c.run_id == run_id, clip.c.state == "ready", ~segment.c.source.startswith("import"))
    )
    steps = (segment.c.env_steps, segment.c.id)
    with db.read() as connection:
        early = list(connection.execute(drawn.order_by(*steps).limit(int(n))).scalars())
        late = list(connection.execute(drawn.order_by(*(s.desc() for s in steps)).limit(int(n))).scalars())
    return early, [id_ for id_ in reversed(late) if id_ not in early]


def segment_steps(db: Database, ids: Sequence[int]) -> dict[int, int]:
    """Agent steps of the run when segments were recorded; one that was pruned is left out."""
    statement = sa.select(segment.c.id, segment.c.env_steps).where(segment.c.id.in_([int(i) for i in ids]))
    with db.read() as connection:
        return {row.id: row.env_steps for row in connection.execute(statement)}


def database_now_ms(db: Database) -> int:
    """The database's clock."""
    with db.read() as connection:
        return int(connection.execute(sa.select(now_ms())).scalar_one())


def _where(run_id: int, wanted: Filter, newer: sa.FromClause) -> list[sa.ColumnElement[bool]]:
    where: list[sa.ColumnElement[bool]] = [comparison.c.run_id == run_id]
    if wanted.annotator is not None:
        where.append(comparison.c.annotator == wanted.annotator)
    if wanted.preference is not None:
        where.append(comparison.c.preference == Preference(wanted.preference).value)
    if wanted.late is not None:
        where.append(comparison.c.late if wanted.late else ~comparison.c.late)
    if wanted.superseded is not None:
        where.append(newer.c.seq.is_not(None) if wanted.superseded else newer.c.seq.is_(None))
    return where


def _entry(row: sa.Row[Any]) -> Entry:
    values = {f.name: row._mapping[f.name] for f in fields(Comparison)}
    return Entry(Comparison(**{**values, "preference": Preference(row.preference)}), row.superseded_by)
