"""Answers: from a lease to a comparison, once, however often it is sent and however late it comes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from prefrl.errors import DataError
from prefrl.store.clock import now_ms
from prefrl.store.comparisons import SERIES, append, stored
from prefrl.store.engine import Database
from prefrl.store.records import chunks, lock_counter, set_counter, whole
from prefrl.store.schema import comparison, lease, query
from prefrl.store.states import UNLEASED
from prefrl.types import Answer, Comparison, Preference


def answer(db: Database, answers: Sequence[Answer]) -> list[Comparison]:
    """Stores answers, all or none; sending one again returns the row that it made before.

    An answer whose lease was lost is kept as well, with the side that was shown to this annotator;
    it is ``late`` where another comparison had answered the query.

    Args:
        db: The database of the runs.
        answers: What the annotators sent.

    Returns:
        One comparison for each answer, in their order.

    Raises:
        DataError: A token was never given out or belongs to another query, or the answer is a withdrawal.
    """
    for one in answers:
        if Preference(one.preference) is Preference.WITHDRAWN:
            raise DataError(f"query {one.query_id}: to take an answer back, supersede its comparison")
    with db.write() as connection:
        leases = _leases(connection, db, answers)
        # The counter first: its lock puts the answers of all processes in one order (fault: two
        # annotators answer at once, and both are on time).
        last = {run: lock_counter(connection, run, SERIES) for run in sorted({x.run_id for x in leases.values()})}
        known = stored(connection, [one.uuid for one in answers])
        _lock_queries(connection, [one.query_id for one in answers if one.uuid not in known])
        rows = []
        for one in answers:
            row = known.get(one.uuid)
            if row is None:
                held = leases[one.token]
                last[held.run_id] += 1
                row = known[one.uuid] = _append(connection, one, held, last[held.run_id])
            rows.append(row)
        for run, seq in last.items():
            set_counter(connection, run, SERIES, seq)
    return rows


def _leases(connection: sa.Connection, db: Database, answers: Sequence[Answer]) -> dict[str, sa.Row[Any]]:
    columns = [query.c[name] for name in ("run_id", "segment_1", "segment_2", "env_steps")]
    statement = sa.select(lease.c.token, lease.c.query_id, lease.c.shown_left, *columns).join_from(lease, query)
    found: dict[str, sa.Row[Any]] = {}
    for some in chunks(sorted({one.token for one in answers})):
        rows = connection.execute(statement.where(lease.c.token.in_(some)))
        found.update((row.token, row) for row in rows)
    for one in answers:
        if one.token not in found:
            raise DataError(f"{db.url}: no lease has the token {one.token!r}: lease a query before answering it")
        if found[one.token].query_id != one.query_id:
            held = found[one.token].query_id
            raise DataError(f"{db.url}: token {one.token!r} is for query {held}, not for {one.query_id}")
    return found


def _lock_queries(connection: sa.Connection, ids: Sequence[int]) -> None:
    """In the order of all other writers, so that two batches never wait for each other in a circle."""
    for some in chunks(sorted(whole(ids))):
        lock = sa.select(query.c.id).where(query.c.id.in_(some)).order_by(query.c.id).with_for_update()
        connection.execute(lock).all()


def _append(connection: sa.Connection, one: Answer, held: sa.Row[Any], seq: int) -> Comparison:
    answered = {"state": "answered", "closed_ms": now_ms(), **UNLEASED}
    this = sa.update(query).where(query.c.id == held.query_id).values(answered)
    on_time = connection.execute(this.where(query.c.state == "leased", query.c.lease_token == one.token)).rowcount
    if not on_time:
        # Evidence is evidence: whoever has the query now need not answer it any more.
        connection.execute(this.where(query.c.state.in_(("proposed", "leased", "skipped"))))
    earlier = sa.select(sa.exists().where(comparison.c.query_id == held.query_id))
    preference = Preference(one.preference)
    return append(
        connection,
        {
            "run_id": held.run_id,
            "seq": seq,
            "uuid": one.uuid,
            "query_id": held.query_id,
            "lease_token": one.token,
            "segment_1": held.segment_1,
            "segment_2": held.segment_2,
            "preference": preference.value,
            "mu": preference.mu(held.shown_left),
            "shown_left": held.shown_left,
            "annotator": one.annotator,
            "late": bool(connection.execute(earlier).scalar_one()),
            "response_ms": None if one.response_ms is None else int(one.response_ms),
            "env_steps": held.env_steps,
            "detail": one.detail,
        },
    )
