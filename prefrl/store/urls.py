"""From the URL a person typed to a place that can be opened, or one line that says why not."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa

from prefrl.errors import StoreError

# WAL needs shared memory on one host and locks that work; none of these promises both.
NETWORK_FILE_SYSTEMS = {
    *("nfs", "nfs3", "nfs4", "cifs", "smb", "smb2", "smb3", "smbfs", "afs", "ncpfs", "davfs"),
    *("ceph", "lustre", "gpfs", "beegfs", "glusterfs"),
    *("fuse.sshfs", "fuse.glusterfs", "fuse.ceph", "fuse.s3fs", "fuse.gcsfuse", "fuse.rclone"),
    *("fuse.davfs", "fuse.smbnetfs", "fuse.beegfs", "fuse.juicefs"),
}
FORMS = "sqlite:///runs/hopper.db or postgresql://user@host/database"


@dataclass(frozen=True)
class Place:
    """Where the database is.

    Attributes:
        url: For SQLAlchemy; holds the password, so never print it.
        masked: The same for people, without the password.
        path: The file (SQLite only), absolute.
    """

    url: sa.URL
    masked: str
    path: Path | None

    @property
    def dialect(self) -> str:
        """``sqlite`` or ``postgresql``."""
        return "postgresql" if self.path is None else "sqlite"

    def named(self, message: str) -> StoreError:
        """An error about this place, its URL in front."""
        return StoreError(f"{self.masked}: {message}")


def mask(url: str) -> str:
    """The URL without its password, also where it is too malformed to parse."""
    url = re.sub(r"(?<=[?&])(password|passfile)=[^&]*", r"\1=***", url, flags=re.IGNORECASE)
    return re.sub(r"(://[^/@:]*):.*@", r"\1:***@", url)


def parse(url: str) -> Place:
    """Understands a database URL.

    Raises:
        StoreError: It is malformed, names another dialect, or a database in memory.
    """
    masked = mask(url)
    try:
        parsed = sa.make_url(url)
    except (sa.exc.ArgumentError, ValueError):
        # from None: the cause quotes the URL with its password
        raise StoreError(f"{masked!r} is not a database URL: write {FORMS}") from None
    backend = parsed.get_backend_name()
    if parsed.drivername in ("sqlite", "sqlite+pysqlite"):
        return _sqlite(url, parsed, masked)
    if parsed.drivername in ("postgresql", "postgres", "postgresql+psycopg"):
        if not parsed.database:
            raise StoreError(f"{masked}: names no database: write postgresql://user@host/database")
        return Place(parsed.set(drivername="postgresql+psycopg"), masked, None)
    known = "prefrl speaks sqlite and postgresql (through psycopg 3)"
    raise StoreError(f"{masked}: unknown kind of database {parsed.drivername or backend!r}: {known}; write {FORMS}")


def _sqlite(url: str, parsed: sa.URL, masked: str) -> Place:
    # as typed: SQLAlchemy 2.1 takes %20 in a path for a space, 2.0 does not
    database = url.partition("://")[2].partition("?")[0].partition("/")[2]
    if parsed.host and not database:
        raise StoreError(f"{masked}: two slashes make {parsed.host!r} a host: write three, sqlite:///{parsed.host}")
    if not database or ":memory:" in database or parsed.query.get("mode") == "memory":
        raise StoreError(
            f"{masked}: a database in memory is seen by one connection only, and every process of a run "
            "needs it: name a file, for example sqlite:///runs/hopper.db"
        )
    if parsed.host or parsed.username:
        raise StoreError(f"{masked}: two slashes make {parsed.host!r} a host: write three, sqlite:///{database}")
    if database.startswith("file:") or parsed.query:
        raise StoreError(f"{masked}: prefrl sets the options of SQLite itself: write sqlite:///PATH without '?'")
    path = Path(os.path.abspath(os.path.expanduser(database)))
    return Place(sa.URL.create("sqlite", database=str(path)), masked, path)


def file_system(path: Path) -> str:
    """The kind of file system that holds a path (``ext4``, ``nfs4`` …), or "" where nobody can tell."""
    try:
        mounts = Path("/proc/mounts").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:  # not Linux
        return ""
    real, best, kind = Path(os.path.realpath(path)), -1, ""
    for line in mounts.splitlines():
        fields = line.split()
        point = Path(re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), fields[1]))
        if real.is_relative_to(point) and len(point.parts) >= best:  # >=: the last mount hides the others
            best, kind = len(point.parts), fields[2]
    return kind


def check_local_disk(place: Place) -> None:
    """Refuses SQLite on a network file system, before anything there is touched.

    Raises:
        StoreError: The file would lie on one.
    """
    assert place.path is not None
    kind = file_system(place.path)
    if kind in NETWORK_FILE_SYSTEMS:
        raise place.named(
            f"this path is on a network file system ({kind}), where SQLite damages databases: "
            "use a local disk, or PostgreSQL (--db postgresql://user@host/database)"
        )


def check_file(place: Place, *, readonly: bool) -> None:
    """Looks at an SQLite file before it is opened.

    Raises:
        StoreError: It is missing, or not readable or writable as asked.
    """
    path = place.path
    assert path is not None
    if path.is_dir():
        raise place.named(f"{path} is a folder: name a file in it, sqlite:///{path}/run.db")
    if not path.exists():
        hint = "name the database with --db or $PREFRL_DB; `prefrl run TASK` makes one"
        raise place.named(f"there is no file {path}: {hint}")
    if not os.access(path, os.R_OK):
        raise place.named(f"the file {path} is not readable for this user: chmod u+r it, or change user")
    if readonly:
        return
    if not os.access(path, os.W_OK):
        raise place.named(f"the file {path} is not writable for this user: chmod u+w it, or only view it")
    if not os.access(path.parent, os.W_OK):
        raise place.named(
            f"the folder {path.parent} is not writable for this user, and SQLite keeps its journal there: "
            "chmod u+w it, or name another folder"
        )


def make_folder(place: Place) -> None:
    """Makes the folder of an SQLite file.

    Raises:
        StoreError: It cannot be made or written.
    """
    path = place.path
    assert path is not None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = error.strerror or str(error)
        raise place.named(f"cannot make the folder {path.parent} ({reason}): name a folder you may write") from error
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise place.named(f"the folder {path.parent} is not writable for this user: chmod u+w it, or name another")
