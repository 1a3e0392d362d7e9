"""Which database and run the app shows: two environment variables, so that every process agrees."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass

from prefrl.errors import StoreError
from prefrl.store import urls
from prefrl.store.engine import Database
from prefrl.store.runs import Run, list_runs

DB_VARIABLE = "PREFRL_DB"
RUN_VARIABLE = "PREFRL_RUN"

_lock = threading.Lock()
_open: dict[str, Database] = {}


@dataclass(frozen=True)
class Source:
    """A database URL, and the name of a run in it; "" is the newest one."""

    url: str
    run_name: str


def source() -> Source:
    """What the environment names.

    Raises:
        StoreError: It names no database.
    """
    url = os.environ.get(DB_VARIABLE, "")
    if not url:
        raise StoreError(f"{DB_VARIABLE} is not set: give the database, for example sqlite:///runs/hopper.db")
    return Source(url, os.environ.get(RUN_VARIABLE, ""))


def database(url: str) -> Database:
    """The handle of this process on a database; opened at the first call that succeeds.

    Raises:
        StoreError: It cannot be opened.
    """
    with _lock:
        if url not in _open:
            _open[url] = Database.open(url)
        return _open[url]


def exists(url: str) -> bool:
    """Whether there can be something at a URL: false only for an SQLite file that nobody has made yet.

    Raises:
        StoreError: It is no database URL.
    """
    path = urls.parse(url).path
    return path is None or path.exists()


def find_run(db: Database, name: str) -> Run | None:
    """The run of that name, or the newest one for ""; None where there is none yet.

    Raises:
        StoreError: The database does not answer.
    """
    runs = list_runs(db)
    if name:
        return next((run for run in runs if run.name == name), None)
    return runs[-1] if runs else None
