"""Runs: a name, and the resolved configuration that every process of the run reads."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from prefrl.errors import StoreError
from prefrl.settings import from_dict
from prefrl.store.engine import Database
from prefrl.store.records import insert_or_ignore
from prefrl.store.rewards import NewReward, add_version
from prefrl.store.schema import RUN_STATES, counter, run


@dataclass(frozen=True)
class Run:
    """One experiment of the database.

    Attributes:
        config: The resolved configuration.
        versions: Packages and their versions at creation.
        state: ``created``, ``running``, ``stopped``, ``done`` or ``failed``.
    """

    id: int
    name: str
    config: dict[str, Any]
    versions: dict[str, Any]
    state: str
    created_ms: int


def create_run(
    db: Database, name: str, config: dict[str, Any], versions: dict[str, Any], reward: NewReward | None = None
) -> Run:
    """Adds a run, and in the same transaction the reward that it begins with, if any.

    Raises:
        StoreError: The name is taken, or none that a folder can have.
    """
    check_name(name)
    with db.write() as connection:
        new = connection.execute(
            insert_or_ignore(connection, run)
            .values(name=name, config=config, versions=versions, state="created")
            .returning(*run.c)
        ).one_or_none()
        if new is not None:
            series = [{"run_id": new.id, "name": series, "value": 0} for series in ("comparison", "reward")]
            connection.execute(sa.insert(counter), series)
            if reward is not None:
                add_version(connection, new.id, reward, env_steps=0)
    if new is None:
        raise _taken(db, name)
    return _run(new)


def check_free(db: Database, name: str) -> None:
    """Refuse a name that a new run cannot have, before work is done for it.

    Raises:
        StoreError: The name is taken, or none that a folder can have.
    """
    check_name(name)
    if any(one.name == name for one in list_runs(db)):
        raise _taken(db, name)


def _taken(db: Database, name: str) -> StoreError:
    return StoreError(
        f"{db.url}: there is a run named {name!r} already: `prefrl resume {name}` goes on with it, "
        "--name gives the new one another name"
    )


def check_name(name: str) -> None:
    """Refuse a name that would lead out of the folder of its run, or confuse people.

    Raises:
        StoreError: It is empty, or holds something else than letters, digits, spaces and ``. _ -``.
    """
    if not name.strip():
        raise StoreError("a run needs a name: give one with --name")
    if ".." in name or not all(c.isalnum() or c in " ._-" for c in name) or name != name.strip() or name[0] in ".-":
        raise StoreError(
            f"{name!r} cannot be the name of a run: use letters, digits, spaces, '.', '_' and '-' "
            "(no '..', and no '.', '-' or space in front): --name gives another"
        )


def get_run(db: Database, name: str) -> Run:
    """Finds a run by its name.

    Raises:
        StoreError: There is none; the message lists the names that come near.
    """
    with db.read() as connection:
        row = connection.execute(sa.select(run).where(run.c.name == name)).one_or_none()
        names = [] if row else list(connection.execute(sa.select(run.c.name).order_by(run.c.id)).scalars())
    if row is not None:
        return _run(row)
    if not names:
        raise StoreError(f"{db.url}: no run named {name!r}, nor any other: `prefrl run … --db {db.url}` makes one")
    near = difflib.get_close_matches(name, names, n=3)
    hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
    more = " …" if len(names) > 20 else ""
    raise StoreError(f"{db.url}: no run named {name!r}.{hint} There are: {', '.join(names[-20:])}{more}")


def list_runs(db: Database) -> list[Run]:
    """All runs, oldest first."""
    with db.read() as connection:
        return [_run(row) for row in connection.execute(sa.select(run).order_by(run.c.id))]


def set_run_state(db: Database, run_id: int, state: str) -> None:
    """Notes whether a run is going on.

    Raises:
        StoreError: There is no such state or run.
    """
    if state not in RUN_STATES:
        raise StoreError(f"{state!r} is no state of a run: use one of {', '.join(RUN_STATES)}")
    with db.write() as connection:
        found = connection.execute(sa.update(run).where(run.c.id == run_id).values(state=state)).rowcount
    if not found:
        raise StoreError(f"{db.url}: there is no run number {run_id}: `prefrl status` lists the runs")


def interrupt_run(db: Database, run_id: int) -> bool:
    """Notes that a run which was going on has been stopped; False where it was not going on, and nothing changes."""
    going = sa.update(run).where(run.c.id == run_id, run.c.state == "running")
    with db.write() as connection:
        return bool(connection.execute(going.values(state="stopped")).rowcount)


def _run(row: sa.Row[Any]) -> Run:
    return Run(row.id, row.name, row.config, row.versions, row.state, row.created_ms)


def update_config(db: Database, run_id: int, config: dict[str, Any]) -> Run:
    """Replaces the configuration of a run, so that it can go on beyond its first end."""
    with db.write() as connection:
        statement = sa.update(run).where(run.c.id == run_id).values(config=config).returning(*run.c)
        return _run(connection.execute(statement).one())


def update_label(db: Database, run_id: int, values: dict[str, Any]) -> Run:
    """Changes some of the settings under ``label``, and leaves the rest of the configuration as it is now.

    Raises:
        ConfigError: There is no such setting, or it cannot have that value.
    """
    from_dict({"label": values})  # what else a run holds may be another prefrl's
    this = run.c.id == run_id
    with db.write() as connection:
        config = connection.execute(sa.select(run.c.config).where(this).with_for_update()).scalar_one()
        changed = {**config, "label": {**config.get("label", {}), **values}}
        return _run(connection.execute(sa.update(run).where(this).values(config=changed).returning(*run.c)).one())


def free_name(db: Database, wanted: str) -> str:
    """``wanted``, or ``wanted-2``, ``wanted-3``, … whichever no run has yet."""
    taken = {r.name for r in list_runs(db)}
    names = (wanted if n == 1 else f"{wanted}-{n}" for n in range(1, len(taken) + 2))
    return next(name for name in names if name not in taken)
