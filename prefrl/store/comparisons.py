"""Comparisons: the append-only evidence, D of the paper (section 2.2.2), in order and without gaps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from prefrl.errors import DataError
from prefrl.store.clock import now_ms
from prefrl.store.engine import Database
from prefrl.store.records import chunks, lock_counter, set_counter, whole
from prefrl.store.schema import comparison, segment
from prefrl.types import Comparison, Preference

SERIES = "comparison"


@dataclass(frozen=True)
class NewComparison:
    """A comparison from elsewhere, to be imported; ``created_ms`` None means now."""

    segment_1: int
    segment_2: int
    preference: Preference
    annotator: str
    uuid: str
    shown_left: int = 1
    detail: dict[str, Any] = field(default_factory=dict)
    created_ms: int | None = None


def tail(db: Database, run_id: int, after_seq: int = 0, limit: int | None = None) -> list[Comparison]:
    """The comparisons after a known one, ordered by ``seq`` and without a gap.

    A reader that goes on from the last ``seq`` it saw misses none, whoever writes meanwhile.
    """
    statement = (
        sa.select(comparison)
        .where(comparison.c.run_id == run_id, comparison.c.seq > after_seq)
        .order_by(comparison.c.seq)
        .limit(limit)
    )
    with db.read() as connection:
        return [from_row(row) for row in connection.execute(statement)]


def answered_within(db: Database, run_id: int, ms: int) -> bool:
    """Whether anyone has answered a query in the last ``ms`` milliseconds, by the database's clock; imports do not."""
    mine = sa.and_(comparison.c.run_id == run_id, comparison.c.query_id.is_not(None))
    newest = sa.select(sa.func.max(comparison.c.seq)).where(mine).scalar_subquery()
    fresh = sa.exists().where(mine, comparison.c.seq == newest, comparison.c.created_ms > now_ms() - int(ms))
    with db.read() as connection:
        return bool(connection.execute(sa.select(fresh)).scalar())


def active(comparisons: Iterable[Comparison]) -> list[Comparison]:
    """Those that still stand: neither superseded by another of them nor withdrawn."""
    rows = list(comparisons)
    superseded = {row.supersedes for row in rows}
    return [row for row in rows if row.seq not in superseded and row.preference is not Preference.WITHDRAWN]


def supersede(
    db: Database,
    run_id: int,
    seq: int,
    preference: Preference,
    annotator: str,
    uuid: str,
    *,
    response_ms: int | None = None,
    detail: dict[str, Any] | None = None,
) -> Comparison:
    """Edits an answer, or takes it back, by a new row; sending the same uuid again changes nothing.

    Args:
        db: The database of the run.
        run_id: The run.
        seq: The comparison to replace.
        preference: As it was shown then; ``WITHDRAWN`` is an undo.
        annotator: Who says so.
        uuid: Made by the client.
        response_ms: How long the new answer took, where it was measured.
        detail: What else is worth knowing of the new answer, as plain JSON values.

    Raises:
        DataError: There is no such comparison, or another row has replaced it.
    """
    preference = Preference(preference)
    with db.write() as connection:
        last = lock_counter(connection, run_id, SERIES)
        known = stored(connection, [uuid])
        if known:
            return known[uuid]
        mine = comparison.c.run_id == run_id
        old = connection.execute(sa.select(comparison).where(mine, comparison.c.seq == seq)).one_or_none()
        if old is None:
            raise DataError(f"{db.url}: the run has no comparison {seq}: it has 1 to {last}")
        by = sa.select(comparison.c.seq).where(mine, comparison.c.supersedes == seq)
        newer = connection.execute(by).scalar()
        if newer is not None:
            raise DataError(f"{db.url}: comparison {seq} was superseded already: change number {newer} instead")
        values = {
            **old._mapping,
            "seq": last + 1,
            "uuid": uuid,
            "preference": preference.value,
            "mu": preference.mu(old.shown_left),
            "annotator": annotator,
            "supersedes": seq,
            "response_ms": response_ms,
            "detail": detail or {},
        }
        del values["id"], values["created_ms"]
        row = append(connection, values)
        set_counter(connection, run_id, SERIES, last + 1)
    return row


def add_comparisons(db: Database, run_id: int, rows: Sequence[NewComparison]) -> list[Comparison]:
    """Imports comparisons, all or none; one whose uuid is stored already with the same content stays.

    Raises:
        DataError: A row is not valid; the message names its position, counted from 1.
    """
    with db.write() as connection:
        seq = lock_counter(connection, run_id, SERIES)
        _check_segments(connection, run_id, rows)
        known = stored(connection, [row.uuid for row in rows])
        result = []
        for number, row in enumerate(rows, start=1):
            values = _imported(number, row)
            old = known.get(row.uuid)
            if old is None:
                seq += 1
                old = known[row.uuid] = append(connection, {"run_id": run_id, "seq": seq, **values})
            elif (old.segment_1, old.segment_2, old.mu) != tuple(
                values[name] for name in ("segment_1", "segment_2", "mu")
            ):
                raise DataError(f"row {number}: uuid {row.uuid} is stored with other content: give it another one")
            result.append(old)
        set_counter(connection, run_id, SERIES, seq)
    return result


def n_counted(db: Database, run_id: int) -> int:
    """How much of the label budget is spent: active, training comparisons that were not late."""
    newer = comparison.alias("newer")
    superseded = sa.exists().where(newer.c.run_id == run_id, newer.c.supersedes == comparison.c.seq)
    statement = (
        sa.select(sa.func.count())
        .select_from(comparison)
        .where(comparison.c.run_id == run_id, comparison.c.mu.is_not(None), ~comparison.c.late, ~superseded)
    )
    with db.read() as connection:
        return int(connection.execute(statement).scalar_one())


def append(connection: sa.Connection, values: dict[str, Any]) -> Comparison:
    """Inserts one row whose ``seq`` came from the locked counter of the same transaction."""
    return from_row(connection.execute(sa.insert(comparison).values(values).returning(comparison)).one())


def stored(connection: sa.Connection, uuids: Sequence[str]) -> dict[str, Comparison]:
    """The rows that these client-made ids have already."""
    found: dict[str, Comparison] = {}
    for some in chunks(uuids):
        rows = connection.execute(sa.select(comparison).where(comparison.c.uuid.in_(some)))
        found.update((row.uuid, from_row(row)) for row in rows)
    return found


def from_row(row: sa.Row[Any]) -> Comparison:
    """A row of the table as the record."""
    values = dict(row._mapping)
    for name in ("id", "run_id", "lease_token"):
        del values[name]
    values["preference"] = Preference(values["preference"])
    return Comparison(**values)


def _check_segments(connection: sa.Connection, run_id: int, rows: Sequence[NewComparison]) -> None:
    ids = whole(side for row in rows for side in (row.segment_1, row.segment_2))
    found: set[int] = set()
    for some in chunks(ids):
        here = sa.select(segment.c.id).where(segment.c.run_id == run_id, segment.c.id.in_(some))
        found.update(connection.execute(here).scalars())
    missing = sorted(set(ids) - found)
    if missing:
        raise DataError(f"the run has no segments {missing[:5]}: import the segments first")


def _imported(number: int, row: NewComparison) -> dict[str, Any]:
    preference = Preference(row.preference)
    if preference is Preference.WITHDRAWN:
        raise DataError(f"row {number}: {preference.value!r} is no answer: leave the row out")
    if row.segment_1 == row.segment_2:
        raise DataError(f"row {number}: compares segment {row.segment_1} with itself: leave the row out")
    if row.shown_left not in (1, 2):
        raise DataError(f"row {number}: shown_left is {row.shown_left!r}: 1 or 2 is needed")
    return {
        "uuid": row.uuid,
        "segment_1": int(row.segment_1),
        "segment_2": int(row.segment_2),
        "preference": preference.value,
        "mu": preference.mu(row.shown_left),
        "shown_left": int(row.shown_left),
        "annotator": row.annotator,
        "late": False,
        "env_steps": 0,
        "detail": row.detail,
        "created_ms": now_ms() if row.created_ms is None else int(row.created_ms),
    }
