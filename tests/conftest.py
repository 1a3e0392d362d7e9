"""Fixtures that several test folders share: a fresh database on each engine."""

from __future__ import annotations

import contextlib
import glob
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from prefrl.store.engine import Database

APT = "apt-get install postgresql"
pytest.register_assert_rewrite("tests.app.screen")  # its helpers tell what they compared, as tests do


@dataclass(frozen=True)
class Server:
    """A PostgreSQL server of this test session."""

    port: int
    process: subprocess.Popen[bytes]

    def url(self, database: str) -> str:
        return f"postgresql://prefrl:secret@127.0.0.1:{self.port}/{database}"

    def sql(self, statement: str) -> list[tuple[object, ...]]:
        import psycopg

        where = self.url("postgres")
        with contextlib.closing(psycopg.connect(where, autocommit=True, connect_timeout=5)) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []


def _binary(name: str) -> str | None:
    found = shutil.which(name)
    return found or next(iter(sorted(glob.glob(f"/usr/lib/postgresql/*/bin/{name}"), reverse=True)), None)


def _as_other_user(folder: Path) -> list[str]:
    """PostgreSQL refuses to run as root: the words to put before its command."""
    if os.geteuid() != 0:
        return []
    import pwd

    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            user = pwd.getpwnam(name)
            os.chown(folder, user.pw_uid, user.pw_gid)
            return ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups", "--"]
    raise RuntimeError("PostgreSQL does not run as root, and there is no user postgres or nobody")


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """A server on 127.0.0.1 for this session (with xdist: one for each worker)."""
    initdb, postgres = _binary("initdb"), _binary("postgres")
    if initdb is None or postgres is None:
        message = f"no PostgreSQL server to test against: {APT}"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    folder = Path(tempfile.mkdtemp(prefix="prefrl-pg-", dir="/tmp"))
    try:
        user = _as_other_user(folder)
        data = folder / "data"
        password = folder / "password"
        password.write_text("secret\n")
        password.chmod(0o644)
        options = ["--auth=scram-sha-256", "--username=prefrl", f"--pwfile={password}", "--encoding=UTF8"]
        command = [*user, initdb, "-D", str(data), "--no-sync", "--no-locale", *options]
        made = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        assert made.returncode == 0, made.stderr
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": port,
            "unix_socket_directories": "",
            "fsync": "off",
            "full_page_writes": "off",
            "shared_buffers": "32MB",
            "max_connections": "200",
        }
        flags = [word for key, value in settings.items() for word in ("-c", f"{key}={value}")]
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                [*user, postgres, "-D", str(data), *flags], cwd=folder, stdout=log, stderr=subprocess.STDOUT
            )
        try:
            server = Server(port, process)
            _wait(server, folder / "log")
            yield server
        finally:
            process.send_signal(signal.SIGINT)  # "fast": ends the sessions too
            process.wait(timeout=30)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _wait(server: Server, log: Path) -> None:
    import psycopg

    deadline = time.monotonic() + 60
    while True:
        try:
            server.sql("SELECT 1")
            return
        except psycopg.OperationalError:
            if server.process.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"PostgreSQL did not start: {log.read_text()}")
            time.sleep(0.05)


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """Where an SQLite database can be made; nothing is there yet."""
    return f"sqlite:///{tmp_path}/runs/test.db"


@pytest.fixture
def postgres_url(postgres: Server) -> Iterator[str]:
    """A fresh and empty PostgreSQL database."""
    name = f"test_{uuid.uuid4().hex}"
    postgres.sql(f"CREATE DATABASE {name}")
    yield postgres.url(name)
    postgres.sql(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest) -> str:
    """An empty database on each engine in turn: the contract of the store holds on both."""
    fixture = "sqlite_url" if request.param == "sqlite" else "postgres_url"
    url: str = request.getfixturevalue(fixture)
    return url


@pytest.fixture
def db(database_url: str) -> Iterator[Database]:
    """A database with tables on each engine in turn."""
    with Database.create(database_url) as database:
        yield database
