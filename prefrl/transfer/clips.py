"""Comparisons of a folder of videos as tables: there are no arrays, and the clips are named by their files."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from typing import IO, Any

from prefrl.store.comparisons import active, tail
from prefrl.store.engine import Database
from prefrl.store.folder import clip_names, stored_clips
from prefrl.store.runs import Run
from prefrl.transfer.exporting import to_iso, to_json
from prefrl.transfer.spreadsheet import guarded
from prefrl.types import Comparison, Preference

CLIP_COLUMNS = (
    *("seq", "uuid", "annotator", "preference", "left", "right", "preferred", "response_ms", "created", "late"),
    *("sha256_left", "sha256_right", "detail"),
)
WHOLE = ("seq", "response_ms")


def clip_rows(db: Database, run: Run) -> list[dict[str, Any]]:
    """The answers about a folder of videos that still stand, oldest first, with the names of the files.

    ``left`` and ``right`` are what was shown there, ``preferred`` the better one (None for a tie and for can't tell).
    """
    names = clip_names(db, run.id)
    digests = {one.id: one.digest for one in stored_clips(db, run.id)}
    return [_row(one, names, digests) for one in active(tail(db, run.id))]


def _row(one: Comparison, names: dict[int, str], digests: dict[int, str]) -> dict[str, Any]:
    sides = (one.segment_1, one.segment_2) if one.shown_left == 1 else (one.segment_2, one.segment_1)
    left, right = (names[id_] for id_ in sides)
    return {
        "seq": one.seq,
        "uuid": one.uuid,
        "annotator": one.annotator,
        "preference": one.preference.value,
        "left": left,
        "right": right,
        "preferred": {Preference.LEFT: left, Preference.RIGHT: right}.get(one.preference),
        "response_ms": one.response_ms,
        "created": to_iso(one.created_ms),
        "late": one.late,
        "sha256_left": digests[sides[0]],
        "sha256_right": digests[sides[1]],
        "detail": one.detail,
    }


def write_clips(out: IO[bytes], suffix: str, rows: Sequence[dict[str, Any]]) -> None:
    """Rows of `clip_rows` as ``.csv``, ``.jsonl`` or ``.parquet``."""
    {".csv": _csv, ".jsonl": _jsonl, ".parquet": _parquet}[suffix](out, rows)


def _csv(out: IO[bytes], rows: Sequence[dict[str, Any]]) -> None:
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(CLIP_COLUMNS)
    writer.writerows([guarded(value) for value in _flat(row)] for row in rows)
    out.write(b"\xef\xbb\xbf" + text.getvalue().encode("utf-8"))  # as in spreadsheet.py


def _jsonl(out: IO[bytes], rows: Sequence[dict[str, Any]]) -> None:
    for row in rows:
        out.write(json.dumps(row, allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode() + b"\n")


def _parquet(out: IO[bytes], rows: Sequence[dict[str, Any]]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    kinds = {"late": pa.bool_(), **dict.fromkeys(WHOLE, pa.int64())}
    schema = pa.schema([(name, kinds.get(name, pa.string())) for name in CLIP_COLUMNS])
    flat = [dict(zip(CLIP_COLUMNS, _flat(row), strict=True)) for row in rows]
    pq.write_table(pa.Table.from_pylist(flat, schema=schema), out, compression="zstd")


def _flat(row: dict[str, Any]) -> Iterator[Any]:
    return (to_json(row[name]) if name == "detail" else row[name] for name in CLIP_COLUMNS)
