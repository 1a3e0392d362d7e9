"""Driver errors in one line that a person can act on."""

from __future__ import annotations

import sqlalchemy as sa

from prefrl.errors import DataError, PrefrlError
from prefrl.store.urls import Place

# (words of the driver, what they mean and how to mend it), first match wins
MEANINGS = (
    (
        "database or disk is full",
        "the disk is full: free some space and start again; nothing is half-written",
    ),
    ("no space left on device", "the disk is full: free some space and start again; nothing is half-written"),
    ("readonly database", "the database is read-only for this user: check the rights of the file and folder"),
    ("read-only transaction", "this connection only reads: a writer must use Database.write()"),
    ("database is locked", "another process has held the write lock for 30 s: end it (see `prefrl status`)"),
    ("file is not a database", "the file is something else, not an SQLite database: name another file"),
    ("malformed", "the file is damaged: copy it away and restore a backup, or try sqlite3's `.recover`"),
    ("disk i/o error", "the disk reports an error: check that it is local and healthy, or use PostgreSQL"),
    (
        "unable to open database file",
        "the file cannot be opened: check that file and folder exist and your rights",
    ),
    ("password authentication failed", "the server refuses this user or password: check them, or ~/.pgpass"),
    ("no password supplied", "the server wants a password: put it in the URL or ~/.pgpass"),
    (
        "does not exist",
        "the server knows no such database or user: make it (`createdb NAME`), or check the URL",
    ),
    ("connection refused", "no server listens there: start PostgreSQL, or check host and port"),
    ("could not translate host", "the host name is unknown: check the URL"),
    ("name or service not known", "the host name is unknown: check the URL"),
    ("failed to resolve host", "the host name is unknown: check the URL"),
    ("timeout", "the server does not answer: check host, port and network"),
    ("permission denied", "this user may not do that: ask the owner of the database for the right"),
    ("terminating connection", "the server has ended the connection: start again when it is back"),
    ("server closed the connection", "the server is gone: start again when it is back"),
    ("connection is closed", "the server is gone: start again when it is back"),
    ("connection is lost", "the server is gone: start again when it is back"),
)
ADVICE = "see `prefrl doctor` and the documentation of the database"


def first_line(error: BaseException) -> str:
    """The driver's own words without SQL, parameters and hints."""
    cause = getattr(error, "orig", None) or error
    return next(iter(str(cause).strip().splitlines()), type(cause).__name__)


def explain(error: sa.exc.SQLAlchemyError, place: Place) -> PrefrlError:
    """The error of prefrl that stands for an error of SQLAlchemy or a driver."""
    words = first_line(error)
    if isinstance(error, sa.exc.IntegrityError):
        return DataError(f"{place.masked}: the database refuses this record ({words}): check its ids and values")
    if isinstance(error, sa.exc.DataError):
        return DataError(f"{place.masked}: a value does not fit its column ({words})")
    if isinstance(error, sa.exc.StatementError) and not isinstance(error, sa.exc.DBAPIError):
        return DataError(f"{place.masked}: a value cannot be stored ({words}): use plain JSON values, no NaN")
    lowered = words.lower()
    for pattern, meaning in MEANINGS:
        if pattern in lowered:
            return place.named(f"{meaning} [{words}]")
    return place.named(f"{words} ({ADVICE})")
