"""Queries: the work of the annotators, as the state machine of `prefrl.store.schema`.

Every arrow is one guarded UPDATE, committed at once: no lock is held while a person looks at clips,
and of two processes that try the same arrow one finds nothing to do.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import sqlalchemy as sa

from prefrl.errors import DataError
from prefrl.store.again import close_run_out
from prefrl.store.answers import answer
from prefrl.store.clock import now_ms
from prefrl.store.comparisons import answered_within
from prefrl.store.engine import Database
from prefrl.store.leases import draw_side, new_token, of_tab, record
from prefrl.store.schema import comparison, query, query_skip
from prefrl.store.schema import lease as lease_table
from prefrl.store.states import AGAIN, GONE, RAN_OUT, UNDRAWABLE, UNLEASED, claimable, counts, move
from prefrl.store.waiting import QueueState, Reason, n_undrawable, why_empty
from prefrl.types import Lease

ANSWERING_MS = 30_000  # who has not answered for so long is not there; the paper's people took 3 to 5 s

__all__ = [
    "QueueState",
    "Reason",
    "answer",
    "asked_pairs",
    "counts",
    "expire",
    "expire_skipped",
    "expire_undrawable",
    "lease",
    "n_undrawable",
    "propose",
    "resume_leases",
    "skip",
    "still_answering",
    "why_empty",
]


def propose(
    db: Database,
    run_id: int,
    pairs: Sequence[tuple[int, int]],
    *,
    reward_version: int = 0,
    env_steps: int = 0,
    scores: Sequence[float] | None = None,
    purpose: str = "train",
) -> list[int]:
    """Offers pairs of segments for comparison.

    Args:
        db: The database of the run.
        run_id: The run.
        pairs: Segment row ids; the order within a pair is kept and says nothing about the screen.
        reward_version: The ensemble that chose them (0: none).
        env_steps: Agent steps of the run now.
        scores: Why each was chosen, for example the variance of the members (section 2.2.4).
        purpose: ``train``, or ``held_out`` for answers that must never be trained on.

    Returns:
        The query ids, in the order of the pairs.

    Raises:
        DataError: A segment does not exist (any more), or a pair compares one with itself.
    """
    if not pairs:
        return []
    if scores is not None and len(scores) != len(pairs):
        raise DataError(f"{len(pairs)} pairs came with {len(scores)} scores: give one for each")
    rows = [
        {
            "run_id": run_id,
            "segment_1": int(first),
            "segment_2": int(second),
            "state": "proposed",
            "purpose": purpose,
            "reward_version": int(reward_version),
            "env_steps": int(env_steps),
            "score": None if scores is None else float(scores[index]),
        }
        for index, (first, second) in enumerate(pairs)
    ]
    returning = sa.insert(query).returning(query.c.id, sort_by_parameter_order=True)
    with db.write() as connection:
        return list(connection.execute(returning, rows).scalars())


def lease(
    db: Database,
    run_id: int,
    annotator: str,
    *,
    n: int = 1,
    lease_ms: int = 120_000,
    skip_cooldown_ms: int = 600_000,
    rng: np.random.Generator | None = None,
    clips: bool = False,
    tab: str = "",
) -> list[Lease]:
    """Hands out the oldest queries that wait, each to one annotator only.

    Args:
        db: The database of the run.
        run_id: The run.
        annotator: Who asks.
        n: At most how many.
        lease_ms: How long they are his; after that anyone gets them.
        skip_cooldown_ms: How long a query that he skipped is not offered to him again.
        rng: Draws the side shown left; None uses the system's randomness.
        clips: Only queries whose two clips are ready; an oracle needs none.
        tab: Which of his browser tabs asks.

    Returns:
        Oldest first; empty where `why_empty` knows the reason.
    """
    prefix = new_token(tab)
    expires = now_ms() + int(lease_ms)
    waiting = (
        sa.select(query.c.id)
        .where(claimable(run_id, annotator, skip_cooldown_ms, clips=clips))
        .order_by(query.c.id)
        .limit(int(n))
        .with_for_update(skip_locked=True)
        .cte("waiting")  # PostgreSQL evaluates a CTE with FOR UPDATE once, a bare subquery maybe more often
    )
    take = (
        sa.update(query)
        .where(query.c.id.in_(sa.select(waiting.c.id)))
        .values(
            state="leased",
            lease_token=sa.literal(f"{prefix}-") + sa.cast(query.c.id, sa.Text),
            lease_expires_ms=expires,
        )
        .returning(query.c.id, query.c.lease_token, query.c.segment_1, query.c.segment_2, query.c.lease_expires_ms)
    )
    with db.write() as connection:
        taken = sorted(connection.execute(take))
        leases = [Lease(id_, token, one, two, draw_side(rng), until) for id_, token, one, two, until in taken]
        record(connection, annotator, leases)
    return leases


def resume_leases(db: Database, run_id: int, annotator: str, lease_ms: int = 120_000, *, tab: str = "") -> list[Lease]:
    """Extends and returns what an annotator holds already, with the same sides, oldest first.

    A page that was reloaded shows the same pair again instead of taking another one. With ``tab`` only what that tab
    of his holds: what another one shows is not asked twice.
    """
    his = sa.select(lease_table.c.token).where(lease_table.c.annotator == annotator)
    held = (
        sa.select(query.c.id)
        .where(query.c.run_id == run_id, query.c.state == "leased", query.c.lease_expires_ms > now_ms())
        .where(query.c.lease_token.in_(his.where(lease_table.c.token == query.c.lease_token)))
        .where(of_tab(query.c.lease_token, tab))
        .order_by(query.c.id)
        .with_for_update(skip_locked=True)
        .cte("held")
    )
    extend = (
        sa.update(query)
        .where(query.c.id.in_(sa.select(held.c.id)))
        .values(lease_expires_ms=now_ms() + int(lease_ms))
        .returning(query.c.id, query.c.lease_token, query.c.segment_1, query.c.segment_2, query.c.lease_expires_ms)
    )
    leases = []
    with db.write() as connection:
        for id_, token, one, two, until in sorted(connection.execute(extend)):
            same = sa.update(lease_table).where(lease_table.c.token == token).values(expires_ms=until)
            left = connection.execute(same.returning(lease_table.c.shown_left)).scalar_one()
            leases.append(Lease(id_, token, one, two, left, until))
    return leases


def skip(db: Database, token: str, annotator: str) -> bool:
    """Gives a leased query back: others get it at once, this annotator only after a while.

    What was asked of this annotator again is closed: it is for nobody else.

    Returns:
        False where the lease was lost already; then nothing changes.

    Raises:
        DataError: No such lease was ever given out.
    """
    again = query.c.purpose.in_(AGAIN)
    give_back = (
        sa.update(query)
        .where(query.c.state == "leased", query.c.lease_token == token)
        .values(
            state=sa.case((again, "expired"), else_="skipped"),
            closed_ms=sa.case((again, now_ms()), else_=None),
            **UNLEASED,
        )
        .returning(query.c.id)
    )
    with db.write() as connection:
        query_id = connection.execute(give_back).scalar()
        if query_id is not None:
            connection.execute(sa.insert(query_skip).values(query_id=query_id, annotator=annotator))
            return True
        known = connection.execute(sa.select(lease_table.c.token).where(lease_table.c.token == token)).scalar()
    if known is None:
        raise DataError(f"{db.url}: no lease has the token {token!r}: lease a query first")
    return False


def expire(db: Database, run_id: int, *, before_env_steps: int, include_skipped: bool = False) -> int:
    """Withdraws queries that were proposed too long ago and that nobody holds.

    Args:
        db: The database of the run.
        run_id: The run.
        before_env_steps: Those proposed at fewer agent steps go.
        include_skipped: Also those that were handed out and skipped.

    Returns:
        How many went; those asked again whose lease ran out go, too, and are not counted.
    """
    old = sa.and_(query.c.run_id == run_id, query.c.env_steps < int(before_env_steps))
    states = ("proposed", "skipped") if include_skipped else ("proposed",)
    with db.write() as connection:
        close_run_out(connection, run_id)
        move(connection, sa.and_(old, RAN_OUT), {"state": "proposed", **UNLEASED})
        return move(connection, sa.and_(old, query.c.state.in_(states)), GONE)


def expire_undrawable(db: Database, run_id: int) -> int:
    """Withdraws queries that nobody holds and nobody can watch, since a clip of theirs failed.

    Returns:
        How many went: as many others can be asked.
    """
    unwatchable = sa.and_(query.c.run_id == run_id, UNDRAWABLE)
    unheld = sa.or_(query.c.state.in_(("proposed", "skipped")), RAN_OUT)
    with db.read() as connection:  # nearly always there is none, and then nobody is kept from writing
        if not connection.execute(sa.select(sa.exists().where(unwatchable, unheld))).scalar():
            return 0
    with db.write() as connection:
        return move(connection, sa.and_(unwatchable, unheld), {**GONE, **UNLEASED})


def expire_skipped(db: Database, run_id: int) -> int:
    """Withdraws queries that were handed out and skipped, so that others can be asked in their place.

    Returns:
        How many went.
    """
    with db.write() as connection:
        return move(connection, sa.and_(query.c.run_id == run_id, query.c.state == "skipped"), GONE)


def still_answering(db: Database, run_id: int, ms: int = ANSWERING_MS) -> bool:
    """Whether queries wait, and somebody has answered others a moment ago: people are there, and will answer these."""
    state = counts(db, run_id)
    return state["proposed"] + state["leased"] > 0 and answered_within(db, run_id, ms)


def asked_pairs(db: Database, run_id: int) -> set[tuple[int, int]]:
    """All pairs that were ever proposed or compared, the smaller segment id first."""
    pairs: set[tuple[int, int]] = set()
    with db.read() as connection:
        for table in (query, comparison):
            rows = sa.select(table.c.segment_1, table.c.segment_2).where(table.c.run_id == run_id)
            pairs.update((min(a, b), max(a, b)) for a, b in connection.execute(rows))
    return pairs
