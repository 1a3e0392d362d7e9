"""From the database to a file: equal comparisons give equal bytes, and a reader never sees half a file."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np

from prefrl.errors import DataError
from prefrl.store.comparisons import active, tail
from prefrl.store.engine import Database
from prefrl.store.folder import is_clips
from prefrl.store.runs import get_run
from prefrl.store.segments import load_segments
from prefrl.transfer.columns import ARRAYS, BATCH, COLUMNS, EXPORTS, SEGMENT, Target, format_of, target
from prefrl.types import Comparison, Segment

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def export_comparisons(db: Database, run_name: str, file: Path) -> int:
    """Writes the comparisons of a run that still stand, oldest first, with their segments.

    An existing file is replaced at the very end, at once; nothing else is left behind.

    Args:
        db: The database of the run.
        run_name: The run.
        file: Ends in .parquet, .jsonl or .csv. In a CSV there are no segments, but also the rows that were
            replaced; of a folder of videos each format has the names of the files instead of segments.

    Returns:
        How many comparisons.

    Raises:
        DataError: The format is unknown, the file cannot be written, or a stored value is not finite.
        StoreError: There is no such run.
    """
    from prefrl.transfer import clips, spreadsheet  # which need the helpers below

    suffix, stored = format_of(file, EXPORTS), get_run(db, run_name)
    if is_clips(stored):
        listed = clips.clip_rows(db, stored)
        with replacing(file) as out:
            clips.write_clips(out, suffix, listed)
        return len(listed)
    if suffix == ".csv":
        every = tail(db, stored.id)
        with replacing(file) as out:
            out.write(spreadsheet.to_csv(every))
        return len(every)
    write = {".parquet": _write_parquet, ".jsonl": _write_jsonl}[suffix]
    run = target(db, run_name)
    rows = active(tail(db, run.run_id))
    with replacing(file) as out:
        write(out, _records(db, run, rows), run)
    return len(rows)


@contextmanager
def replacing(file: Path) -> Iterator[IO[bytes]]:
    """A new file in the same folder that takes the place of ``file`` at the end, or vanishes on an error."""
    real = Path(os.path.realpath(file))  # a link stays a link
    if not real.parent.is_dir():
        raise DataError(f"{file}: there is no folder {real.parent}: type  mkdir -p {real.parent}")
    if real.is_dir():
        raise DataError(f"{file} is a folder: name a file in it")
    # a name of its own, so that two exports at once do not mix
    temporary = real.with_name(f".{real.name}.{secrets.token_hex(8)}.tmp")
    try:
        with open(temporary, "xb") as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        os.replace(temporary, real)
    except OSError as error:
        raise DataError(f"{file}: cannot be written ({error.strerror or error}): name another place") from error
    finally:
        with suppress(OSError):  # the first error tells more
            temporary.unlink(missing_ok=True)


def _records(db: Database, run: Target, rows: Sequence[Comparison]) -> Iterator[dict[str, Any]]:
    spaces = to_json(run.spaces)
    for begin in range(0, len(rows), BATCH):
        some = rows[begin : begin + BATCH]
        found = load_segments(db, {i for row in some for i in (row.segment_1, row.segment_2)}, with_states=True)
        for row in some:
            record = {
                # a row from another run of this database carries the run's name behind its id, see importing.py
                "uuid": row.uuid.removesuffix(f"@{run.run_name}"),
                "preference": row.preference.value,
                "shown_left": row.shown_left,
                "mu": row.mu,
                "annotator": row.annotator,
                "response_ms": row.response_ms,
                "created": to_iso(row.created_ms),
                "detail": to_json(row.detail),
                "env_id": run.env_id,
                "spaces": spaces,
            }
            for side, id_ in ((1, row.segment_1), (2, row.segment_2)):
                if id_ not in found:
                    raise DataError(f"comparison {row.seq}: segment {id_} is gone: restore the database from a backup")
                values = _segment(found[id_], f"comparison {row.seq}: segment {id_}")
                record |= {f"segment_{side}_{name}": values[name] for name in SEGMENT}
            yield record


def _segment(one: Segment, where: str) -> dict[str, Any]:
    values: dict[str, Any] = {
        name: getattr(one, name) for name in ("digest", "env_index", "episode", "start", "env_steps")
    }
    values["source"] = None if one.source == "import" else one.source.removeprefix("import:")
    for name in ARRAYS:
        array = getattr(one, name)
        if array is not None and not np.isfinite(array).all():
            raise DataError(f"{where}: its {name} hold NaN or infinity: withdraw the comparison, then export again")
        values[name] = None if array is None else array.reshape(-1)
        values[f"{name}_shape"] = None if array is None else list(array.shape)
        values[f"{name}_dtype"] = None if array is None else array.dtype.str
    return values


def _write_jsonl(out: IO[bytes], records: Iterator[dict[str, Any]], _run: Target) -> None:
    for record in records:
        plain = {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in record.items()}
        for name in ("detail", "spaces"):
            plain[name] = json.loads(plain[name])
        out.write(json.dumps(plain, allow_nan=False, separators=(",", ":")).encode() + b"\n")


def _write_parquet(out: IO[bytes], records: Iterator[dict[str, Any]], run: Target) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema([(name, _parquet_type(name, run)) for name in COLUMNS])
    with pq.ParquetWriter(out, schema, compression="zstd") as writer:
        while batch := list(islice(records, BATCH)):
            columns = [pa.array([_cell(r, field) for r in batch], field.type) for field in schema]
            writer.write_table(pa.Table.from_arrays(columns, schema=schema))


def _parquet_type(name: str, run: Target) -> Any:
    import pyarrow as pa

    if name == "mu":
        return pa.float64()
    if name in ("shown_left", "response_ms") or name.endswith(("_index", "_episode", "_start", "_steps")):
        return pa.int64()
    if name.endswith("_shape"):
        return pa.list_(pa.int64())
    if name.endswith("_act") and run.n_actions is not None:
        return pa.list_(pa.int64())
    if name.endswith(("_obs", "_act", "_states")):
        return pa.list_(pa.float64())  # holds every narrower number exactly
    return pa.string()


def _cell(record: dict[str, Any], field: Any) -> Any:
    value = record[field.name]
    if not isinstance(value, np.ndarray):
        return value
    wide = value.astype(field.type.value_type.to_pandas_dtype())
    if not np.array_equal(wide.astype(value.dtype), value):
        raise DataError(
            f"{field.name} of comparison {record['uuid']}: {value.dtype} does not fit a Parquet column of "
            f"{wide.dtype}: export to .jsonl"
        )
    return wide


def to_json(value: Any) -> str:
    """Equal values to equal text.

    Raises:
        DataError: It holds NaN or infinity, which JSON cannot.
    """
    try:
        return json.dumps(value, allow_nan=False, sort_keys=True, separators=(",", ":"))
    except ValueError as error:
        raise DataError(f"{value!r} cannot be written as JSON: {error}") from error


def to_iso(ms: int) -> str:
    """Milliseconds since 1970 as ISO 8601 in UTC."""
    return (EPOCH + timedelta(milliseconds=ms)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
