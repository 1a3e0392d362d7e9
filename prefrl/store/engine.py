"""Transactions on one comparison database, SQLite or PostgreSQL, whoever forks or threads around them."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Self
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy.pool import ConnectionPoolEntry, QueuePool

from prefrl.errors import StoreError
from prefrl.store import faults, forks, migrate, urls

BUSY_S = 30.0  # how long a writer waits for another one
_inherited: list[Any] = []  # engines of a parent process: kept from the garbage collector, never used


class Database:
    """A handle on the database of some runs; safe to share between threads and to carry over a fork.

    Open one with `Database.open` or `Database.create`. Every statement runs inside `write` or `read`,
    and nothing stays open between them: a person may look at a clip for an hour without holding a lock.

    Attributes:
        url: The URL with its password masked.
        dialect: ``sqlite`` or ``postgresql``.
        readonly: True where `write` refuses.
    """

    def __init__(self, place: urls.Place, *, readonly: bool = False) -> None:
        self.url = place.masked
        self.dialect = place.dialect
        self.readonly = readonly
        self._place = place
        self._closed = False
        self._file: tuple[int, int] | None = None  # (device, inode) of the SQLite file since it was first used
        self._engines: dict[tuple[int, bool], sa.Engine] = {}  # (pid, writes) -> engine
        forks.watch(self)

    @classmethod
    def open(cls, url: str, *, readonly: bool = False) -> Database:
        """Opens a database that exists.

        Args:
            url: ``sqlite:///PATH`` or ``postgresql://user@host/database``.
            readonly: For viewers: changes no byte, works on a write-protected file and folder.

        Raises:
            StoreError: It cannot be reached, is not a prefrl database, or has another schema.
        """
        place = urls.parse(url)
        if place.path is not None:
            if not readonly:
                urls.check_local_disk(place)
            urls.check_file(place, readonly=readonly)
        database = cls(place, readonly=readonly)
        try:
            with database.read() as connection:
                migrate.check(connection, place)
        except BaseException:
            database.close()
            raise
        return database

    @classmethod
    def create(cls, url: str) -> Database:
        """Opens a database, and makes its tables where it is empty (its folder and file too).

        Raises:
            StoreError: As `open`, or it holds the tables of something else.
        """
        place = urls.parse(url)
        if place.path is not None:
            urls.check_local_disk(place)
            urls.make_folder(place)
            if place.path.exists():
                urls.check_file(place, readonly=False)
        database = cls(place)
        try:
            database._make_tables()
        except BaseException:
            database.close()
            raise
        return database

    def write(self) -> AbstractContextManager[sa.Connection]:
        """One transaction that may write: committed at the end, rolled back on an exception.

        On SQLite it holds the write lock from the start (``BEGIN IMMEDIATE``): keep it short.

        Raises:
            StoreError: The database is read-only, full, locked for 30 s, or gone.
            DataError: A constraint of the schema refuses a record.
        """
        if self.readonly:
            raise self._place.named("opened for reading only: open it without readonly=True to write")
        return self._transaction(writes=True)

    def read(self) -> AbstractContextManager[sa.Connection]:
        """One transaction that sees a single state of the database and cannot write.

        Raises:
            StoreError: The database is unreadable or gone.
        """
        return self._transaction(writes=False)

    def close(self) -> None:
        """Closes the connections of this process; the handle is of no use afterwards."""
        self._closed = True
        self.release_idle()

    def release_idle(self) -> None:
        """Closes connections that nobody is using; new ones are made on demand."""
        for (pid, _writes), engine in list(self._engines.items()):
            if pid == os.getpid():
                engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Database({self.url!r}{', readonly=True' if self.readonly else ''})"

    @contextmanager
    def _transaction(self, *, writes: bool, make: bool = False) -> Iterator[sa.Connection]:
        if self._closed:
            raise self._place.named("this handle was closed: open the database again")
        with forks.transaction():
            if self._file:  # before SQLite says no more than that it cannot open the file
                self._check_in_place()
            try:
                with self._engine(writes=writes, make=make).begin() as connection:
                    self._check_in_place()
                    yield connection
            except sa.exc.SQLAlchemyError as error:
                raise faults.explain(error, self._place) from error

    def _check_in_place(self) -> None:
        """Refuse to go on in a file without its name: SQLite would write into it, and all would be lost with it.

        Raises:
            StoreError: The file was deleted, moved or replaced since this handle first used it.
        """
        path = self._place.path
        if path is None:
            return
        try:
            found = path.stat()
        except OSError as error:
            raise self._place.named(
                "the file was deleted, renamed or moved while in use, so nothing more is written: move it back "
                f"(its {path.name}-wal too, if that was moved), or restore a backup, and start again [{error.strerror}]"
            ) from error
        if self._file is None:
            self._file = (found.st_dev, found.st_ino)
        elif self._file != (found.st_dev, found.st_ino):
            raise self._place.named(
                "another file was put in its place while in use, so nothing more is written: end all processes "
                "that use it, put the right file there, and start again"
            )

    def _engine(self, *, writes: bool, make: bool = False) -> sa.Engine:
        key = (os.getpid(), writes)
        engine = self._engines.get(key)
        if engine is None:
            with forks.exclusive():
                for stale in [other for other in self._engines if other[0] != key[0]]:
                    _inherited.append(self._engines.pop(stale))
                engine = self._engines.get(key)
                if engine is None:
                    engine = self._engines[key] = self._new_engine(writes=writes, make=make)
        return engine

    def _new_engine(self, *, writes: bool, make: bool) -> sa.Engine:
        if self._place.path is None:
            return _postgresql_engine(self._place, writes=writes)
        if make:
            mode = "rwc"
        elif self.readonly:
            mode = "ro"
        else:
            mode = "rw"
        return _sqlite_engine(self._place, mode, writes=writes)

    def _make_tables(self) -> None:
        place = self._place
        empty_file = place.path is not None and not (place.path.exists() and place.path.stat().st_size)
        if not empty_file:
            with self.read() as connection:
                if not migrate.is_empty(connection):
                    migrate.check(connection, place)
                    return
        if place.path is not None:
            _switch_to_wal(place)
        with self._transaction(writes=True, make=True) as connection:
            if migrate.is_empty(connection, lock=True):
                migrate.migrate(connection)
            migrate.check(connection, place)


class _Pool(QueuePool):
    """Closes a connection that comes back after the others were closed, instead of keeping it for ever."""

    _disposed = False

    def dispose(self) -> None:
        self._disposed = True
        super().dispose()

    def _do_return_conn(self, record: ConnectionPoolEntry) -> None:
        super()._do_return_conn(record)
        if self._disposed:
            super().dispose()


def _sqlite_engine(place: urls.Place, mode: str, *, writes: bool) -> sa.Engine:
    path = place.path
    assert path is not None
    options = f"mode={mode}"
    if mode == "ro" and not os.access(path.parent, os.W_OK) and not path.with_name(path.name + "-wal").exists():
        options += "&immutable=1"  # nobody can be writing there, and WAL could not make its -shm file

    def connect() -> sqlite3.Connection:
        connection = sqlite3.connect(
            f"file:{quote(str(path))}?{options}",
            uri=True,
            timeout=BUSY_S,
            isolation_level=None,  # BEGIN is ours, see below
            check_same_thread=False,  # the pool hands a connection to one thread at a time
        )
        connection.execute("PRAGMA foreign_keys=ON")
        connection.execute("PRAGMA synchronous=FULL")  # an answer that was confirmed survives a power cut
        if not writes:
            connection.execute("PRAGMA query_only=ON")
        return connection

    engine = sa.create_engine("sqlite://", creator=connect, poolclass=_Pool, max_overflow=-1)
    begin = "BEGIN IMMEDIATE" if writes else "BEGIN"

    @sa.event.listens_for(engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        connection.exec_driver_sql(begin)

    return engine


def _switch_to_wal(place: urls.Place) -> None:
    """Turns the write-ahead log on, for good; readers then never wait for a writer."""
    assert place.path is not None
    deadline = time.monotonic() + BUSY_S
    while True:
        try:
            connection = sqlite3.connect(place.path, timeout=BUSY_S, isolation_level=None)
            try:
                mode = connection.execute("PRAGMA journal_mode=WAL").fetchone()[0]
            finally:
                connection.close()
            break
        except sqlite3.Error as error:
            # this one switch does not honour the busy timeout when two processes make one file
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise faults.explain(sa.exc.DBAPIError("", None, error), place) from error
            time.sleep(0.02)
    if mode != "wal":
        raise place.named(
            f"SQLite cannot keep a write-ahead log here (journal mode {mode!r}): use a local disk or PostgreSQL"
        )


def _postgresql_engine(place: urls.Place, *, writes: bool) -> sa.Engine:
    arguments = {"connect_timeout": "10", "application_name": "prefrl"}
    try:
        engine = sa.create_engine(
            place.url,
            pool_pre_ping=True,  # the server may have been restarted since
            poolclass=_Pool,
            max_overflow=-1,
            isolation_level="READ COMMITTED" if writes else "REPEATABLE READ",
            connect_args={key: value for key, value in arguments.items() if key not in place.url.query},
        )
    except ImportError as error:
        raise StoreError(
            f"{place.masked}: PostgreSQL needs psycopg 3 ({error}): pip install 'prefrl[postgres]'"
        ) from error
    if not writes:

        @sa.event.listens_for(engine, "connect")
        def _read_only(connection: Any, _entry: ConnectionPoolEntry) -> None:
            connection.read_only = True

    return engine
