"""The database's clock as a SQL expression: one time for all machines of a run."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.expression import ColumnElement


class now_ms(ColumnElement[int]):
    """Integer milliseconds since 1970 (UTC) by the clock of the database."""

    type = sa.BigInteger()
    inherit_cache = True


@compiles(now_ms, "sqlite")
def _sqlite(_element: now_ms, _compiler: Any, **_kw: Any) -> str:
    # unixepoch('subsec') needs SQLite 3.42; a Julian day as a double is good to 0.04 ms
    return "CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER)"


@compiles(now_ms, "postgresql")
def _postgresql(_element: now_ms, _compiler: Any, **_kw: Any) -> str:
    # now() stands still within a transaction; a lease must not be born old
    return "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)"
