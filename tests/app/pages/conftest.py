"""A database of its own for each test of a page."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
import streamlit as st

from labeling_app import rights, source
from labeling_app.serve import ACCESS_VARIABLE, CODE_VARIABLE, USER_VARIABLE
from prefrl.store.engine import Database
from prefrl.store.schema import metadata
from tests.app.pages.made import NAME


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


@pytest.fixture
def where(url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """The app shows this database, on this machine alone; a wrong code takes no time."""
    monkeypatch.setenv(source.DB_VARIABLE, url)
    monkeypatch.setenv(source.RUN_VARIABLE, NAME)
    for variable in (ACCESS_VARIABLE, CODE_VARIABLE, USER_VARIABLE):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(st, "get_option", lambda _: "127.0.0.1")
    monkeypatch.setattr(rights, "WRONG_S", 0)
    yield monkeypatch
    if url in source._open:
        source._open.pop(url).close()
