"""The rows of a file, one after the other, as plain values; what they mean is checked elsewhere."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from prefrl.errors import DataError
from prefrl.transfer.columns import BATCH, COLUMNS, LABELS, REQUIRED, format_of


class RowError(Exception):
    """What is wrong with one row; the importer adds file and number."""


def read_rows(file: Path) -> Iterator[tuple[int, dict[str, Any] | RowError]]:
    """Numbered from 1; in .jsonl the number of the line, and an unreadable line is an error in its place.

    Raises:
        DataError: The file cannot be read as what its name says, or a column is missing.
    """
    read = {".parquet": _parquet, ".jsonl": _jsonl}[format_of(file)]
    try:
        yield from read(file)
    except OSError as error:  # after the formats' own: pyarrow raises it for damaged pages too
        raise DataError(f"{file}: cannot be read ({error.strerror or error}): check the path and the file") from error


def _jsonl(file: Path) -> Iterator[tuple[int, dict[str, Any] | RowError]]:
    with open(file, "rb") as lines:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                yield number, _line(line)


def _line(line: bytes) -> dict[str, Any] | RowError:
    try:
        row = json.loads(line.decode("utf-8-sig"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        return RowError(f"is not valid JSON ({error})")
    return row if isinstance(row, dict) else RowError(f"is not a JSON object but {type(row).__name__}")


def _refuse_constant(word: str) -> Any:
    raise ValueError(f"{word} is not a finite number")


def _parquet(file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(file) as source:
            names = source.schema_arrow.names
            _check_columns(file, names)
            wanted = [name for name in (*COLUMNS, "label") if name in names]
            number = 0
            for batch in source.iter_batches(BATCH, columns=wanted):
                for row in batch.to_pylist():
                    number += 1
                    yield number, row
    except (pa.ArrowException, ValueError, OverflowError) as error:
        raise DataError(f"{file}: is not a readable Parquet file ({error}): write it again") from error


def _check_columns(file: Path, names: list[str]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise DataError(f"{file}: the column {twice[0]} is there twice: leave one")
    missing = [name for name in REQUIRED if name not in names]
    if not set(LABELS) & set(names):
        missing.append("a label (" + ", ".join(LABELS[:-1]) + f" or {LABELS[-1]})")
    if missing:
        raise DataError(f"{file}: missing columns: {', '.join(missing)}; it has {', '.join(names[:20]) or 'none'}")
