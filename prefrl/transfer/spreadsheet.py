"""Comparisons as CSV for spreadsheets: what was answered, without the segments' arrays; cells cannot run formulas."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from typing import Any

from prefrl.transfer.exporting import to_iso, to_json
from prefrl.types import Comparison

HEADER = (
    *("seq", "uuid", "annotator", "preference", "mu", "shown_left", "segment_1", "segment_2", "query_id"),
    *("late", "supersedes", "superseded_by", "response_ms", "env_steps", "created", "detail"),
)
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")  # noqa: RUF001  # full-width ones count too


def to_csv(rows: Iterable[Comparison]) -> bytes:
    """Rows with their whole history as CSV.

    UTF-8 with a byte order mark, without which spreadsheets garble other letters; lines end as RFC 4180 says.

    Args:
        rows: All comparisons of a run, also replaced ones, oldest first.
    """
    listed = list(rows)
    by = {row.supersedes: row.seq for row in listed if row.supersedes is not None}
    out = io.StringIO(newline="")
    writer = csv.writer(out)
    writer.writerow(HEADER)
    for row in listed:
        more = {
            "preference": row.preference.value,
            "superseded_by": by.get(row.seq),
            "created": to_iso(row.created_ms),
            "detail": to_json(row.detail),
        }
        writer.writerow([guarded(more[name] if name in more else getattr(row, name)) for name in HEADER])
    return b"\xef\xbb\xbf" + out.getvalue().encode("utf-8")


def guarded(value: Any) -> Any:
    """A text that a spreadsheet would take for a formula gets an apostrophe in front.

    OWASP, CSV Injection: cells that begin with ``= + - @``, a tab or a line break; blanks before them do not help.
    """
    if isinstance(value, str) and (value.startswith(FORMULA) or value.lstrip().startswith(FORMULA)):
        return f"'{value}"
    return value
