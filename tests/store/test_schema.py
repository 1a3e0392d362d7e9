"""Tables and migrations say the same; every other state of a database is refused in words."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from prefrl.errors import StoreError
from prefrl.store import migrate, runs
from prefrl.store.engine import Database
from prefrl.store.schema import metadata


def test_migrations_make_what_the_tables_say(db: Database) -> None:
    with db.read() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, metadata) == []
        found = sa.inspect(connection)
        for table in metadata.tables.values():  # alembic does not compare CHECK constraints and predicates
            wanted = {str(one.name) for one in table.constraints if isinstance(one, sa.CheckConstraint)}
            assert {one["name"] for one in found.get_check_constraints(table.name)} == wanted
            for index in found.get_indexes(table.name):
                kept = [one for one in table.indexes if one.name == index["name"]]
                partial = index.get("dialect_options", {}).get(f"{db.dialect}_where")
                assert (partial is not None) == any(
                    one.dialect_options[db.dialect]["where"] is not None for one in kept
                )


def test_the_revision_in_the_code_is_the_newest_migration(db: Database) -> None:
    assert migrate.known_revisions()[-1] == migrate.head_revision()
    with db.read() as connection:
        assert migrate.database_revision(connection) == migrate.head_revision()


def test_create_twice_keeps_everything(database_url: str) -> None:
    with Database.create(database_url) as first:
        runs.create_run(first, "hopper", {}, {})
    with Database.create(database_url) as second:
        assert [run.name for run in runs.list_runs(second)] == ["hopper"]


def test_processes_create_the_same_database_at_once(database_url: str, start, finish) -> None:
    script = """
        import sys
        from prefrl.store import Database, runs
        with Database.create(sys.argv[1]) as db:
            runs.create_run(db, sys.argv[2], {}, {})
    """
    finish([start(script, database_url, f"run-{number}") for number in range(4)])
    with Database.open(database_url) as db:
        assert len(runs.list_runs(db)) == 4


def test_open_wants_a_database_that_exists(database_url: str) -> None:
    if database_url.startswith("sqlite"):
        path = Path(database_url.removeprefix("sqlite:///"))
        path.parent.mkdir()
        with pytest.raises(StoreError, match=r"there is no file .*: name the database with --db or"):
            Database.open(database_url)
        path.touch()
    for open_it in (Database.open, migrate.upgrade):
        with pytest.raises(StoreError, match=r"no prefrl database there: `prefrl run … --db .*makes one"):
            open_it(database_url)


@pytest.mark.parametrize(
    ("revision", "message"),
    [("9999", "made by a newer prefrl .*upgrade prefrl"), ("0000", "made by an older .*`prefrl db upgrade")],
)
def test_other_schemas_are_refused(
    database_url: str, revision: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Database.create(database_url) as db, db.write() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = :it"), {"it": revision})
    known = migrate.known_revisions()
    monkeypatch.setattr(migrate, "known_revisions", lambda: ["0000", *known])
    for open_it in (Database.open, Database.create):
        with pytest.raises(StoreError, match=message) as caught:
            open_it(database_url)
        assert revision in str(caught.value)
        assert "secret" not in str(caught.value)


def test_upgrade_of_the_newest_schema_changes_nothing(database_url: str) -> None:
    with Database.create(database_url):
        pass
    assert migrate.upgrade(database_url) == migrate.head_revision()


def test_an_older_database_is_brought_up_to_date_with_all_it_holds(database_url: str) -> None:
    with Database.create(database_url) as db:
        runs.create_run(db, "hopper", {}, {})
        with db.write() as connection:  # as schema 0001 left it
            metadata.tables["gold"].drop(connection)
            connection.execute(sa.text("UPDATE alembic_version SET version_num = '0001'"))
    with pytest.raises(StoreError, match=r"made by an older prefrl \(schema 0001.*`prefrl db upgrade"):
        Database.open(database_url)
    assert migrate.upgrade(database_url) == "0001"
    with Database.open(database_url) as db, db.read() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []
        assert [run.name for run in runs.list_runs(db)] == ["hopper"]


def test_upgrade_refuses_a_newer_schema(database_url: str) -> None:
    with Database.create(database_url) as db, db.write() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(StoreError, match="made by a newer prefrl"):
        migrate.upgrade(database_url)


@pytest.mark.parametrize("history", [False, True])
def test_tables_of_something_else_are_left_alone(sqlite_url: str, *, history: bool) -> None:
    path = Path(sqlite_url.removeprefix("sqlite:///"))
    path.parent.mkdir()
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE recipes (name TEXT)")
    if history:
        other.execute("CREATE TABLE alembic_version (version_num TEXT)")
        other.execute("INSERT INTO alembic_version VALUES ('ae1027a6acf')")
        other.commit()
    other.close()
    before = path.read_bytes()
    for open_it in (Database.open, Database.create, migrate.upgrade):
        with pytest.raises(StoreError, match=r"tables of something else \(.*recipes"):
            open_it(sqlite_url)
    assert path.read_bytes() == before


def test_a_failed_migration_leaves_nothing(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(connection: sa.Connection) -> None:
        metadata.tables["run"].create(connection)
        raise RuntimeError("power cut")

    with monkeypatch.context() as patch:
        patch.setattr(migrate, "migrate", fail)
        with pytest.raises(RuntimeError, match="power cut"):
            Database.create(database_url)
    with Database.create(database_url) as db:
        assert runs.list_runs(db) == []


def test_sqlite_is_set_up_as_the_design_says(sqlite_url: str) -> None:
    with Database.create(sqlite_url) as db:
        for transaction, only_reads in ((db.write, 0), (db.read, 1)):
            with transaction() as connection:
                found = {
                    name: connection.exec_driver_sql(f"PRAGMA {name}").scalar()
                    for name in ("journal_mode", "busy_timeout", "foreign_keys", "synchronous", "query_only")
                }
            assert found == {
                "journal_mode": "wal",
                "busy_timeout": 30_000,
                "foreign_keys": 1,
                "synchronous": 2,  # FULL
                "query_only": only_reads,
            }
