"""Workers: which process plays a role of a run now, fenced by a token."""

from __future__ import annotations

import os
import secrets
import socket
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from prefrl.errors import FencedError
from prefrl.store.clock import now_ms
from prefrl.store.engine import Database
from prefrl.store.records import dialect_insert
from prefrl.store.schema import worker

STALE_MS = 15_000  # without a sign of life for so long a process counts as dead


@dataclass(frozen=True)
class Worker:
    """Who plays a role, and when he was last heard of.

    Attributes:
        age_ms: Milliseconds since the last heartbeat, by the clock of the database.
        released: True after an orderly end.
    """

    role: str
    host: str
    pid: int
    state: str
    env_steps: int
    detail: dict[str, Any]
    age_ms: int
    started_ms: int
    released: bool


def claim(db: Database, run_id: int, role: str) -> str:
    """Takes over a role for this process, whoever had it before.

    Returns:
        The token that `beat` and `release` want; the one of the former holder is worth nothing now.
    """
    token = f"{run_id}/{role}/{secrets.token_hex(12)}"
    holder: dict[str, Any] = {
        "token": token,
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "state": "",
        "detail": {},
        "released": False,
        "started_ms": now_ms(),
        "heartbeat_ms": now_ms(),
    }
    with db.write() as connection:
        insert = dialect_insert(connection, worker).values(run_id=run_id, role=role, env_steps=0, **holder)
        # env_steps stays: it belongs to the role, not to the process
        connection.execute(insert.on_conflict_do_update(index_elements=["run_id", "role"], set_=holder))
    return token


def beat(
    db: Database,
    token: str,
    *,
    env_steps: int | None = None,
    state: str = "",
    detail: dict[str, Any] | None = None,
) -> None:
    """Says that this process is alive.

    Args:
        db: The database of the run.
        token: From `claim`.
        env_steps: Agent steps so far; None leaves the last number.
        state: What it is doing, for people.
        detail: More for people, as JSON; None leaves the last one.

    Raises:
        FencedError: Another process has the role now; this one must end.
    """
    values: dict[str, Any] = {"heartbeat_ms": now_ms(), "state": state}
    if env_steps is not None:
        values["env_steps"] = int(env_steps)
    if detail is not None:
        values["detail"] = detail
    with db.write() as connection:
        kept = connection.execute(sa.update(worker).where(worker.c.token == token).values(values)).rowcount
        holder = None if kept else _holder(connection, token)
    if not kept:
        role = token.split("/")[1] if token.count("/") == 2 else "worker"
        who = f"process {holder.pid} on {holder.host}" if holder else "nobody"
        raise FencedError(f"{db.url}: the role {role!r} now belongs to {who}: this process must end")


def release(db: Database, token: str) -> None:
    """Notes an orderly end; does nothing where another process has taken over."""
    with db.write() as connection:
        gone = {"released": True, "heartbeat_ms": now_ms()}
        connection.execute(sa.update(worker).where(worker.c.token == token).values(gone))


def workers(db: Database, run_id: int) -> list[Worker]:
    """The last holder of each role of a run, by role."""
    columns = [worker.c[name] for name in ("role", "host", "pid", "state", "env_steps", "detail")]
    age = (now_ms() - worker.c.heartbeat_ms).label("age_ms")
    statement = sa.select(*columns, age, worker.c.started_ms, worker.c.released)
    with db.read() as connection:
        rows = connection.execute(statement.where(worker.c.run_id == run_id).order_by(worker.c.role))
        return [Worker(**row._mapping) for row in rows]


def _holder(connection: sa.Connection, token: str) -> Any:
    run_id, _, role = token.rpartition("/")[0].partition("/")
    if not run_id.isdecimal():
        return None
    place = (worker.c.run_id == int(run_id)) & (worker.c.role == role)
    return connection.execute(sa.select(worker.c.pid, worker.c.host).where(place)).one_or_none()


def present_roles(db: Database, run_id: int) -> set[str]:
    """Roles whose newest process has not left in good order, and gave a sign of life a short while ago."""
    return {w.role for w in workers(db, run_id) if not w.released and w.age_ms < STALE_MS}
