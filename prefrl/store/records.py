"""Small things that several record modules need."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import sqlalchemy as sa

from prefrl.store.schema import counter

T = TypeVar("T")
CHUNK = 5_000  # ids of one IN (…): SQLite takes 32,766 parameters, PostgreSQL 65,535


def chunks(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """Cuts a list into pieces that fit one statement."""
    return (items[i : i + CHUNK] for i in range(0, len(items), CHUNK))


def whole(ids: Iterable[int]) -> list[int]:
    """Plain integers, each once: drivers refuse NumPy's."""
    return list(dict.fromkeys(int(i) for i in ids))


def lock_counter(connection: sa.Connection, run_id: int, name: str) -> int:
    """The last number of a series; nobody else gets it before this transaction ends."""
    place = (counter.c.run_id == run_id) & (counter.c.name == name)
    statement = sa.select(counter.c.value).where(place).with_for_update()
    value = connection.execute(statement).scalar()
    if value is None:  # the first time; two processes may both get here
        connection.execute(insert_or_ignore(connection, counter).values(run_id=run_id, name=name, value=0))
        value = connection.execute(statement).scalar_one()
    return int(value)


def set_counter(connection: sa.Connection, run_id: int, name: str, value: int) -> None:
    """Writes the new last number of a series that `lock_counter` holds."""
    place = (counter.c.run_id == run_id) & (counter.c.name == name)
    connection.execute(sa.update(counter).where(place).values(value=value))


def insert_or_ignore(connection: sa.Connection, table: sa.Table) -> Any:
    """An INSERT that leaves an existing row alone."""
    return dialect_insert(connection, table).on_conflict_do_nothing()


def dialect_insert(connection: sa.Connection, table: sa.Table) -> Any:
    """The INSERT with ON CONFLICT of this connection's dialect."""
    if connection.dialect.name == "postgresql":
        from sqlalchemy.dialects import postgresql

        return postgresql.insert(table)
    from sqlalchemy.dialects import sqlite

    return sqlite.insert(table)


def finite_or_none(values: Mapping[str, float]) -> dict[str, float | None]:
    """Floats as JSON can hold them: NaN and infinities become null."""
    return {name: float(value) if math.isfinite(value) else None for name, value in values.items()}


def none_to_nan(values: Mapping[str, float | None]) -> dict[str, float]:
    """The way back from `finite_or_none`."""
    return {name: math.nan if value is None else float(value) for name, value in values.items()}
