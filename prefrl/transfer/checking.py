"""One row of a file against the run it is meant for; anything that does not fit is refused by name."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prefrl.transfer.columns import Target
from prefrl.transfer.exporting import EPOCH
from prefrl.transfer.labels import read_label
from prefrl.transfer.reading import RowError
from prefrl.types import MAX_NAME, Preference, Segment

_BASE = [np.dtype(kind) for kind in ("?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8")]
DTYPES = {name: t for b in _BASE for t in (b.newbyteorder(">"), b) for name in (t.str, t.name)}
FLOAT, INTEGER = np.dtype(np.float32), np.dtype(np.int64)
BIGGEST = 2**63 - 1


@dataclass(frozen=True)
class Row:
    """A comparison that fits the run.

    Attributes:
        uuid: The file's, or "" until one is made.
        answer: As shown; or a number, until the whole file has told its encoding.
        created_ms: None means now.
        digests: Of the two segments.
    """

    number: int
    uuid: str
    answer: Preference | float
    shown_left: int
    annotator: str
    response_ms: int | None
    created_ms: int | None
    detail: dict[str, Any]
    digests: tuple[str, str]

    @property
    def preference(self) -> Preference:
        """The answer, once its encoding is known."""
        assert isinstance(self.answer, Preference)
        return self.answer


def check_row(number: int, row: dict[str, Any], run: Target, labels: str | None) -> tuple[Row, tuple[Segment, Segment]]:
    """Reads a row and its segments.

    Raises:
        RowError: Something is missing, malformed, or not of this run.
    """
    _check_env(row, run)
    shown_left = 1 if row.get("shown_left") is None else _whole(row, "shown_left")
    if shown_left not in (1, 2):
        raise RowError(f"shown_left is {shown_left}: 1 or 2 is needed")
    answer = read_label(row, shown_left, labels)
    first, second = _segment(row, "segment_1", run), _segment(row, "segment_2", run)
    if first.digest == second.digest:
        raise RowError("compares a segment with itself: both have the same obs and act")
    if row.get("uuid") == "":
        raise RowError("uuid is empty: leave the column out, and ids are made")
    checked = Row(
        number,
        _text(row, "uuid", ""),
        answer,
        shown_left,
        _annotator(row),
        _whole(row, "response_ms"),
        _created_ms(row.get("created")),
        _json_object(row, "detail") or {},
        (first.digest, second.digest),
    )
    return checked, (first, second)


def _annotator(row: dict[str, Any]) -> str:
    name = _text(row, "annotator", "import")
    if len(name) > MAX_NAME:
        raise RowError(f"annotator has {len(name)} signs: at most {MAX_NAME} are allowed")
    return name


def _check_env(row: dict[str, Any], run: Target) -> None:
    env_id = row.get("env_id")
    if env_id is not None and env_id != run.env_id:
        raise RowError(f"env_id is {env_id!r}, but run {run.run_name!r} is about {run.env_id!r}")
    spaces = _json_object(row, "spaces")
    if spaces is not None and {name: spaces.get(name) for name in run.spaces} != run.spaces:
        raise RowError(f"spaces are {spaces}, but those of run {run.run_name!r} are {run.spaces}")


def _segment(row: dict[str, Any], name: str, run: Target) -> Segment:
    obs = _array(row, f"{name}_obs", FLOAT)
    act = _array(row, f"{name}_act", FLOAT if run.n_actions is None else INTEGER)
    for what, array, shape in (("obs", obs, run.obs_shape), ("act", act, run.act_shape)):
        if array.shape != (run.segment_steps, *shape):
            raise RowError(
                f"{name}_{what} has shape {array.shape}, but run {run.run_name!r} has {(run.segment_steps, *shape)} "
                f"(flat lists need {name}_{what}_shape)"
            )
    if run.n_actions is not None:
        if act.dtype.kind not in "iu":
            raise RowError(f"{name}_act has dtype {act.dtype}, but the actions of run {run.run_name!r} are integers")
        if act.min() < 0 or act.max() >= run.n_actions:
            raise RowError(f"{name}_act holds {act.min()} to {act.max()}; actions go from 0 to {run.n_actions - 1}")
    states = None if row.get(f"{name}_states") is None else _array(row, f"{name}_states", np.dtype(np.float64))
    for what, array in (("obs", obs), ("act", act)):
        if array.dtype.kind == "f" and np.abs(array).max(initial=0) > np.finfo(np.float32).max:
            raise RowError(f"{name}_{what} holds numbers beyond 3.4e38, more than the reward model's float32 can hold")
    where = {key: _whole(row, f"{name}_{key}") or 0 for key in ("env_index", "episode", "start", "env_steps")}
    # marked as imported: only segments of the run itself have true rewards, and are asked about
    source = f"import:{_text(row, f'{name}_source', '')}".removesuffix(":")
    segment = Segment(obs, act, states, **where, source=source)
    if states is not None and (states.ndim < 2 or not (segment.replayed or len(states) == run.segment_steps)):
        raise RowError(f"{name}_states has shape {states.shape}: ({run.segment_steps}, n_state) is needed")
    digest = row.get(f"{name}_digest")
    if digest is not None and digest != segment.digest:
        raise RowError(f"{name}_digest does not match the arrays: they were changed or damaged")
    return segment


def _array(row: dict[str, Any], name: str, default: np.dtype[Any]) -> NDArray[Any]:
    value, dtype, shape = row.get(name), row.get(f"{name}_dtype"), row.get(f"{name}_shape")
    if value is None:
        raise RowError(f"{name} is missing")
    if dtype is not None and not (isinstance(dtype, str) and dtype in DTYPES):
        raise RowError(f"{name}_dtype is {dtype!r}: a number type such as float32 is needed")
    try:
        raw = np.asarray(value if isinstance(value, list) else None)
    except (ValueError, OverflowError):  # ragged
        raise RowError(f"{name} is ragged: its inner lists differ in length") from None
    if raw.dtype.kind not in "biuf":
        raise RowError(f"{name} is not a list of numbers")
    if shape is not None:
        raw = _shaped(raw, name, shape)
    if not np.isfinite(raw).all():
        raise RowError(f"{name} holds NaN or infinity")
    return _cast(raw, name, default if dtype is None else DTYPES[dtype])


def _shaped(raw: NDArray[Any], name: str, shape: Any) -> NDArray[Any]:
    if not isinstance(shape, list) or not all(type(n) is int and n >= 0 for n in shape):
        raise RowError(f"{name}_shape is {shape!r}: a list of whole numbers is needed")
    if list(raw.shape) == shape:
        return raw
    size = 1
    for n in shape:
        size *= n
    if raw.ndim != 1 or raw.size != size:
        raise RowError(f"{name} has shape {raw.shape}, which {name}_shape {shape} does not fit")
    return raw.reshape(shape)


def _cast(raw: NDArray[Any], name: str, dtype: np.dtype[Any]) -> NDArray[Any]:
    with np.errstate(all="ignore"):
        array = raw.astype(dtype)
    exact = dtype.kind == "f" or np.array_equal(array, raw)
    if not exact or not np.isfinite(array).all():
        raise RowError(f"{name} holds numbers that {dtype.name} cannot")
    return array


def _whole(row: dict[str, Any], name: str) -> int | None:
    value = row.get(name)
    if value is None:
        return None
    number = int(value) if isinstance(value, float) and value.is_integer() else value
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= BIGGEST:
        raise RowError(f"{name} is {value!r}: a whole number from 0 is needed")
    return number


def _text(row: dict[str, Any], name: str, default: str) -> str:
    value = row.get(name)
    if value is None:
        return default
    # neither engine stores half a surrogate pair, and PostgreSQL no NUL
    if not isinstance(value, str) or "\0" in value or any("\ud800" <= c <= "\udfff" for c in value):
        raise RowError(f"{name} is {value!r}: text is needed")
    return value


def _created_ms(value: Any) -> int | None:
    if value is None:
        return None
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else value
        if not isinstance(moment, datetime) or (moment.tzinfo is None and isinstance(value, str)):
            raise ValueError(value)
        aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)  # a Parquet timestamp without a zone
        return (aware - EPOCH) // timedelta(milliseconds=1)
    except (ValueError, OverflowError):
        raise RowError(f"created is {value!r}: a time such as 2025-01-31T12:00:00.000Z is needed") from None


def _json_object(row: dict[str, Any], name: str) -> dict[str, Any] | None:
    value = row.get(name)
    if value is None:
        return None
    try:
        value = json.loads(value) if isinstance(value, str) else value
        json.dumps(value, allow_nan=False)
    except (ValueError, TypeError, RecursionError) as error:
        raise RowError(f"{name} is not valid JSON ({error})") from None
    if not isinstance(value, dict):
        raise RowError(f"{name} is {value!r}: a JSON object is needed")
    return value
