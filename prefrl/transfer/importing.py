"""From a file to the database: every row is checked first, then all are stored in one transaction, or none."""

from __future__ import annotations

import dataclasses
import logging
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from prefrl.errors import DataError
from prefrl.store.clock import now_ms
from prefrl.store.comparisons import SERIES, append
from prefrl.store.engine import Database
from prefrl.store.records import chunks, insert_or_ignore, lock_counter, set_counter
from prefrl.store.schema import comparison, segment, segment_data
from prefrl.store.segments import pack_segment
from prefrl.transfer.checking import Row, check_row
from prefrl.transfer.columns import Target, target
from prefrl.transfer.exporting import to_json
from prefrl.transfer.labels import ENCODINGS, decode, encoding
from prefrl.transfer.reading import RowError, read_rows
from prefrl.types import Preference, Segment

SHOWN = 10  # different errors named in one message
NAMESPACE = uuid.UUID("5ac1c9f5-6f0e-5a0c-9a4e-8f2a3a6f6f0b")  # ids of rows that bring none
logger = logging.getLogger(__name__)


@dataclass
class Staged:
    """What a file holds so far; segments are kept compressed, each once."""

    rows: list[Row] = field(default_factory=list)
    segments: dict[str, tuple[dict[str, Any], dict[str, Any]]] = field(default_factory=dict)


def import_comparisons(
    db: Database, run_name: str, file: Path, *, labels: str | None = None, dry_run: bool = False
) -> int:
    """Adds the comparisons of a file to a run, with their segments, all or nothing.

    Rows keep their ``uuid``, so a file that is imported twice adds nothing the second time. Where another run
    of the same database has a uuid already, the run's name is put behind it (and taken off again by export).
    A row without one gets an id made of its content.

    Args:
        db: The database of the run.
        run_name: The run.
        file: Ends in .parquet or .jsonl; see `prefrl.transfer` for the columns.
        labels: Encoding of a column ``label``: ``mu``, ``sign`` or ``index``; None finds out, or refuses to guess.
        dry_run: Checks everything and writes nothing.

    Returns:
        How many comparisons were added; with ``dry_run``, how many rows are valid.

    Raises:
        DataError: The file cannot be read, or rows are not valid; names them by number, and the first ten things
            that are wrong.
        StoreError: There is no such run, or the database cannot be written.
    """
    if labels is not None and labels not in ENCODINGS:
        raise DataError(f"--labels is {labels!r}: one of {', '.join(ENCODINGS)} is needed")
    run = target(db, run_name)
    staged = _stage(run, file, labels)
    rows = _decoded(staged, file, labels)
    if dry_run:
        with db.read() as connection:
            _new_rows(connection, run, rows, file)
        return len(rows)
    with db.write() as connection:
        seq = lock_counter(connection, run.run_id, SERIES)
        new = _new_rows(connection, run, rows, file)
        ids = _add_segments(connection, run, staged, {digest for row, _ in new for digest in row.digests})
        for row, stored_uuid in new:
            seq += 1
            append(connection, {"run_id": run.run_id, "seq": seq, "uuid": stored_uuid, **_values(row, ids)})
        set_counter(connection, run.run_id, SERIES, seq)
    n_known = len(rows) - len(new)
    if n_known:
        which = f"all {len(rows)}" if n_known == len(rows) else f"{n_known} of {len(rows)}"
        logger.warning("%s: %s comparisons are in run %r already and were not added again", file, which, run_name)
    return len(new)


def _stage(run: Target, file: Path, labels: str | None) -> Staged:
    staged = Staged()
    faults: dict[int, str] = {}
    first: dict[str, int] = {}
    for number, values in read_rows(file):
        try:
            if isinstance(values, RowError):
                raise values
            row, segments = check_row(number, values, run, labels)
            if row.uuid and first.setdefault(row.uuid, number) != number:
                raise RowError(f"uuid {row.uuid} is that of row {first[row.uuid]} already")
        except RowError as error:
            faults[number] = str(error)
            continue
        if faults:  # nothing will be stored: only look for more of them
            continue
        staged.rows.append(row)
        for one in segments:
            if one.digest not in staged.segments:
                staged.segments[one.digest] = _packed(run, one)
    _raise(file, faults)
    if not staged.rows:
        logger.warning("%s: holds no comparisons", file)
    return staged


def _packed(run: Target, one: Segment) -> tuple[dict[str, Any], dict[str, Any]]:
    names = ("digest", "env_index", "episode", "start", "env_steps", "source")
    row = {"run_id": run.run_id, "n_steps": len(one), **{name: getattr(one, name) for name in names}}
    return row, pack_segment(one)


def _decoded(staged: Staged, file: Path, labels: str | None) -> list[Row]:
    """Now that all labels are known, they can be understood."""
    numbers = [row.answer for row in staged.rows if not isinstance(row.answer, Preference)]
    try:
        code = encoding(labels, numbers) if numbers else ""
    except DataError as error:
        raise DataError(f"{file}: {error}; nothing was imported") from None
    rows: list[Row] = []
    faults: dict[int, str] = {}
    occurrences: Counter[str] = Counter()
    for row in staged.rows:
        try:
            if not isinstance(row.answer, Preference):
                row = dataclasses.replace(row, answer=decode(row.answer, code, row.shown_left))
        except RowError as error:
            faults[row.number] = str(error)
            continue
        rows.append(row if row.uuid else dataclasses.replace(row, uuid=_made_uuid(row, occurrences)))
    _raise(file, faults)
    return rows


def _made_uuid(row: Row, occurrences: Counter[str]) -> str:
    content = to_json([value for name, value in dataclasses.asdict(row).items() if name != "number"])
    occurrences[content] += 1  # equal rows are separate answers
    return str(uuid.uuid5(NAMESPACE, f"{occurrences[content]} {content}"))


def _new_rows(connection: sa.Connection, run: Target, rows: list[Row], file: Path) -> list[tuple[Row, str]]:
    """The rows that the run has not yet, each with the id to store it under."""
    new, faults = [], {}
    taken = dict(_stored(connection, [key for row in rows for key in (row.uuid, _own(run, row))]))
    for row in rows:
        here = [taken[k] for k in (row.uuid, _own(run, row)) if k in taken and taken[k].run_id == run.run_id]
        if not here:
            new.append((row, _own(run, row) if row.uuid in taken else row.uuid))
            continue
        old = here[0]
        stored = (old.digest_1, old.digest_2, old.preference, old.shown_left)
        if stored != (*row.digests, row.preference.value, row.shown_left):
            faults[row.number] = f"uuid {row.uuid} is in run {run.run_name!r} already, with other content"
    _raise(file, faults)
    return new


def _own(run: Target, row: Row) -> str:
    return f"{row.uuid}@{run.run_name}"


def _stored(connection: sa.Connection, uuids: list[str]) -> Iterator[tuple[str, Any]]:
    first, second = segment.alias("first"), segment.alias("second")
    statement = (
        sa.select(
            comparison.c.uuid,
            comparison.c.run_id,
            comparison.c.preference,
            comparison.c.shown_left,
            first.c.digest.label("digest_1"),
            second.c.digest.label("digest_2"),
        )
        .join(first, first.c.id == comparison.c.segment_1)
        .join(second, second.c.id == comparison.c.segment_2)
    )
    for some in chunks(uuids):
        for row in connection.execute(statement.where(comparison.c.uuid.in_(some))):
            yield row.uuid, row


def _add_segments(connection: sa.Connection, run: Target, staged: Staged, wanted: set[str]) -> dict[str, int]:
    for digest in sorted(wanted):  # one order: two writers cannot deadlock
        row, data = staged.segments[digest]
        insert = insert_or_ignore(connection, segment).values(row).returning(segment.c.id)
        new = connection.execute(insert).scalar()
        if new is not None:
            connection.execute(sa.insert(segment_data).values(segment_id=new, **data))
    ids: dict[str, int] = {}
    for some in chunks(sorted(wanted)):
        found = sa.select(segment.c.digest, segment.c.id).where(segment.c.digest.in_(some))
        rows = connection.execute(found.where(segment.c.run_id == run.run_id))
        ids.update((row.digest, row.id) for row in rows)
    return ids


def _values(row: Row, ids: dict[str, int]) -> dict[str, Any]:
    return {
        "segment_1": ids[row.digests[0]],
        "segment_2": ids[row.digests[1]],
        "preference": row.preference.value,
        "mu": row.preference.mu(row.shown_left),
        "shown_left": row.shown_left,
        "annotator": row.annotator,
        "late": False,
        "response_ms": row.response_ms,
        "env_steps": 0,
        "detail": row.detail,
        "created_ms": now_ms() if row.created_ms is None else row.created_ms,
    }


def _raise(file: Path, faults: dict[int, str]) -> None:
    if not faults:
        return
    alike: dict[str, list[int]] = {}
    for number in sorted(faults):
        alike.setdefault(faults[number], []).append(number)
    lines = [f"  {_which(numbers)}: {what}" for what, numbers in list(alike.items())[:SHOWN]]
    n_more = sum(map(len, list(alike.values())[SHOWN:]))
    if n_more:
        lines.append(f"  and {n_more} more")
    n = "1 row is" if len(faults) == 1 else f"{len(faults)} rows are"
    raise DataError("\n".join([f"{file}: {n} not valid; nothing was imported:", *lines]))


def _which(numbers: list[int]) -> str:
    """Rows in ascending order as words: ``row 2``, ``rows 1 to 10``, ``rows 1, 4, 9 and 20 more``."""
    first, last = numbers[0], numbers[-1]
    if first == last:
        return f"row {first}"
    if last - first == len(numbers) - 1 and len(numbers) > 2:
        return f"rows {first} to {last}"
    if len(numbers) <= 4:
        return f"rows {', '.join(map(str, numbers[:-1]))} and {last}"
    return f"rows {', '.join(map(str, numbers[:3]))} and {len(numbers) - 3} more"
