"""Every mistake in a URL is one line that names the URL, what was found and how to mend it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from prefrl.errors import PrefrlError, StoreError
from prefrl.store import urls
from prefrl.store.engine import Database


@pytest.mark.parametrize("opener", [Database.open, Database.create])
@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("sqlite://", "in memory"),
        ("sqlite:///:memory:", "in memory"),
        ("sqlite:///file::memory:?uri=true", "in memory"),
        ("sqlite:///file:a.db?mode=memory&uri=true", "in memory"),
        ("sqlite:///file:a.db?uri=true", "without '\\?'"),
        ("sqlite://runs/hopper.db", "write three"),
        ("runs/hopper.db", "is not a database URL"),
        ("", "is not a database URL"),
        ("mysql://me:secret@host/runs", "unknown kind of database 'mysql'"),
        ("postgresql+psycopg2://me:secret@host/runs", "unknown kind of database"),
        ("postgresql://me:secret@host", "names no database"),
        ("postgresql://me:secret@host:port/runs", "is not a database URL"),
        ("postgresql://me:secret@127.0.0.1:1/runs", "no server listens there"),
        ("postgresql://me:secret@host.invalid/runs", "host name is unknown"),
    ],
)
def test_mistakes(opener, url: str, message: str) -> None:
    with pytest.raises(StoreError, match=message) as caught:
        opener(url)
    text = str(caught.value)
    assert urls.mask(url) in text
    assert "secret" not in text
    assert "\n" not in text


def test_password_never_shows(postgres_url: str) -> None:
    with Database.create(postgres_url) as db:
        assert "***" in db.url
        assert "secret" not in repr(db) + db.url
    with pytest.raises(StoreError, match="refuses this user or password") as caught:
        Database.open(postgres_url.replace("secret", "sesame"))
    assert "sesame" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "masked"),
    [
        ("postgresql://me:p@ss/w:rd@host:5432/db", "postgresql://me:***@host:5432/db"),
        (
            "postgresql://me@host/db?password=hush&sslmode=require",
            "postgresql://me@host/db?password=***&sslmode=require",
        ),
        ("sqlite:///a.db", "sqlite:///a.db"),
    ],
)
def test_mask(url: str, masked: str) -> None:
    assert urls.mask(url) == masked


def test_no_such_database_on_the_server(postgres_url: str) -> None:
    with pytest.raises(StoreError, match="createdb"):
        Database.open(postgres_url + "_missing")


def test_missing_driver_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(StoreError, match=r"pip install 'prefrl\[postgres\]'"):
        Database.open("postgresql://me@127.0.0.1:1/runs")


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    path = tmp_path / "notes.db"
    path.write_text("dear diary, " * 1000)
    for opener in (Database.open, Database.create):
        with pytest.raises(StoreError, match="not an SQLite database"):
            opener(f"sqlite:///{path}")
    assert path.read_text().startswith("dear diary")


def test_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StoreError, match="is a folder"):
        Database.open(f"sqlite:///{tmp_path}")
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="cannot make the folder"):
        Database.create(f"sqlite:///{tmp_path}/file/x.db")
    monkeypatch.chdir(tmp_path)
    with Database.create("sqlite:///deep/er/x.db") as db:
        monkeypatch.chdir("/")
        with db.read():  # relative to where it was opened, for ever
            assert (tmp_path / "deep/er/x.db").exists()


def test_rights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"sqlite:///{tmp_path}/x.db"
    Database.create(url).close()
    denied: tuple[Path, int] = (tmp_path / "x.db", os.W_OK)
    monkeypatch.setattr(os, "access", lambda path, mode: not (Path(path) == denied[0] and mode & denied[1]))
    with pytest.raises(StoreError, match=r"x\.db is not writable"):
        Database.open(url)
    denied = (tmp_path / "x.db", os.R_OK)
    with pytest.raises(StoreError, match=r"x\.db is not readable"):
        Database.open(url, readonly=True)
    denied = (tmp_path, os.W_OK)
    for opener in (Database.open, Database.create):
        with pytest.raises(StoreError, match=r"folder .* is not writable"):
            opener(url)


@pytest.mark.parametrize("kind", ["nfs4", "cifs", "fuse.sshfs"])
def test_network_file_systems_are_refused(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"sqlite:///{tmp_path}/runs/x.db"
    monkeypatch.setattr(urls, "file_system", lambda _path: kind)
    with pytest.raises(StoreError, match=rf"network file system \({kind}\).*postgresql://"):
        Database.create(url)
    assert list(tmp_path.iterdir()) == []
    monkeypatch.undo()
    Database.create(url).close()
    before = (tmp_path / "runs/x.db").read_bytes()
    monkeypatch.setattr(urls, "file_system", lambda _path: kind)
    with pytest.raises(StoreError, match="network file system"):
        Database.open(url)
    assert (tmp_path / "runs/x.db").read_bytes() == before
    Database.open(url, readonly=True).close()


def test_file_system_reads_the_mounts(monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = (
        "/dev/sda / ext4 rw 0 0\n"
        "host:/home /home nfs4 rw 0 0\n"
        "/dev/sdb /home/my\\040disk xfs rw 0 0\n"
        "/dev/sdc /mnt ext4 rw 0 0\n"
        "you@host: /mnt fuse.sshfs rw 0 0\n"
    )
    monkeypatch.setattr(Path, "read_text", lambda _self, **_kw: mounts)
    assert urls.file_system(Path("/var/x.db")) == "ext4"
    assert urls.file_system(Path("/home/you/not/made/yet.db")) == "nfs4"
    assert urls.file_system(Path("/home/my disk/x.db")) == "xfs"
    assert urls.file_system(Path("/homes/x.db")) == "ext4"
    assert urls.file_system(Path("/mnt/x.db")) == "fuse.sshfs"


def test_no_shared_memory_for_wal_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x.db-shm").mkdir()  # -shm cannot be made
    with pytest.raises(StoreError, match=r"x\.db: "):
        Database.create(f"sqlite:///{tmp_path}/x.db")


def test_a_full_disk_is_one_line(tmp_path: Path) -> None:
    with Database.create(f"sqlite:///{tmp_path}/x.db") as db:
        with db.write() as connection:
            pages = connection.exec_driver_sql("PRAGMA page_count").scalar()
            connection.exec_driver_sql(f"PRAGMA max_page_count={pages}")
        with pytest.raises(StoreError, match=r"x\.db: the disk is full"), db.write() as connection:
            connection.exec_driver_sql("CREATE TABLE big AS SELECT randomblob(1000000) AS x")


def test_a_server_that_goes_away_is_one_line_and_comes_back(postgres, postgres_url: str) -> None:
    with Database.create(postgres_url) as db:
        with pytest.raises(StoreError, match="the server") as caught, db.write() as connection:  # noqa: PT012
            pid = connection.exec_driver_sql("SELECT pg_backend_pid()").scalar()
            postgres.sql(f"SELECT pg_terminate_backend({pid})")
            connection.exec_driver_sql("SELECT 1")
        assert "\n" not in str(caught.value)
        with db.write() as connection:
            assert connection.exec_driver_sql("SELECT 1").scalar() == 1


def test_readers_cannot_write(db: Database) -> None:
    with pytest.raises(PrefrlError, match=r"read-only|only reads"), db.read() as connection:
        connection.exec_driver_sql("DELETE FROM run")


def test_a_closed_handle_says_so(db: Database) -> None:
    db.close()
    with pytest.raises(StoreError, match="was closed"), db.read():
        pass
