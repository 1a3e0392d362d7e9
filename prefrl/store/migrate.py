"""The history of the schema: which revision a database has, and how it gets to the newest one."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

import sqlalchemy as sa

from prefrl.store import urls

if TYPE_CHECKING:
    from alembic.config import Config

# Repeats the newest file in migrations/versions, so that opening a database imports no alembic.
REVISION = "0002"
_CREATION_LOCK = 0x70726566726C  # "prefrl": one process at a time makes the tables on PostgreSQL
_alembic_is_global = threading.Lock()


def head_revision() -> str:
    """The schema that this version of prefrl reads and writes."""
    return REVISION


def database_revision(connection: sa.Connection) -> str | None:
    """The schema of a database, or None where it holds no prefrl tables."""
    inspector = sa.inspect(connection)
    if not (inspector.has_table("alembic_version") and inspector.has_table("comparison")):
        return None  # other programs keep their history with alembic, too
    found = connection.execute(sa.text("SELECT version_num FROM alembic_version")).scalar()
    return None if found is None else str(found)


def is_empty(connection: sa.Connection, *, lock: bool = False) -> bool:
    """Whether there is no table at all.

    Args:
        connection: In a transaction.
        lock: Lets no other process make tables until that transaction ends (SQLite's already does).
    """
    if lock and connection.dialect.name == "postgresql":
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_CREATION_LOCK)))
    return not sa.inspect(connection).get_table_names()


def check(connection: sa.Connection, place: urls.Place) -> None:
    """Makes sure that this version of prefrl and the database fit together.

    Raises:
        StoreError: They do not; the message says what to do.
    """
    found = database_revision(connection)
    if found == REVISION:
        return
    if found is None:
        tables = sa.inspect(connection).get_table_names()
        if not tables:
            raise place.named(f"there is no prefrl database there: `prefrl run … --db {place.masked}` makes one")
        names = ", ".join(sorted(tables)[:3])
        raise place.named(f"holds the tables of something else ({names} …): give prefrl a database of its own")
    if found in known_revisions():
        raise place.named(
            f"made by an older prefrl (schema {found}, this one needs {REVISION}): "
            f"run `prefrl db upgrade --db {place.masked}`"
        )
    raise place.named(
        f"made by a newer prefrl (schema {found}, this one knows up to {REVISION}): upgrade prefrl with "
        "`pip install --upgrade prefrl`"
    )


def known_revisions() -> list[str]:
    """All revisions that this version of prefrl has a migration for, oldest first."""
    from alembic.script import ScriptDirectory

    return [script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions()][::-1]


def migrate(connection: sa.Connection) -> None:
    """Brings a database to the newest schema, inside the caller's transaction."""
    from alembic import command

    config = _config()
    config.attributes["connection"] = connection
    with _alembic_is_global:
        command.upgrade(config, "head")


def upgrade(url: str) -> str:
    """Brings an older prefrl database to the newest schema: all of it or nothing.

    Returns:
        The revision that it had before.

    Raises:
        StoreError: There is none, or it is newer than this prefrl.
    """
    from prefrl.store.engine import Database

    place = urls.parse(url)
    if place.path is not None:
        urls.check_local_disk(place)
        urls.check_file(place, readonly=False)
    with Database(place) as database, database.write() as connection:
        if is_empty(connection, lock=True):
            check(connection, place)
        found = database_revision(connection)
        if found is not None and found != REVISION and found in known_revisions():
            migrate(connection)
        check(connection, place)
        return found or REVISION


def _config() -> Config:
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config
