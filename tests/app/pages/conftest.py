"""A database of its own for each test of a page."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from prefrl.store.engine import Database
from prefrl.store.schema import metadata


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/app.db"


@pytest.fixture
def db(url: str) -> Iterator[Database]:
    with Database.create(url) as database:
        yield database


@pytest.fixture
def content(db: Database) -> Callable[[], str]:
    """A digest of every row of every table now: equal before and after where nothing was written."""

    def digest() -> str:
        sha = hashlib.sha256()
        with db.read() as connection:
            for table in metadata.sorted_tables:
                for row in connection.execute(sa.select(table)):
                    sha.update(repr(tuple(row)).encode())
        return sha.hexdigest()

    return digest
