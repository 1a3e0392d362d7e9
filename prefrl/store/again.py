"""Questions that are asked again, to learn how far answers can be trusted: of others, of oneself, of who knows.

Each is a query of its own about a pair that was asked before, made at the moment at which it is handed out, and in
the place of a new one: it takes the annotator's time like any other, so its answer trains and counts like any other.
It is for one annotator only: where he skips it or lets it run out, it is closed.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np
import sqlalchemy as sa

from prefrl.store.clock import now_ms
from prefrl.store.engine import Database
from prefrl.store.leases import draw_side, new_token, record
from prefrl.store.schema import comparison, gold, query, run
from prefrl.store.schema import lease as lease_table
from prefrl.store.states import AGAIN, GONE, RAN_OUT, UNLEASED, claimable, clips_drawn, move
from prefrl.types import Lease, Preference

UNDO_MS = 120_000  # for so long an answer that was undone is still its annotator's to give
REPEAT_AFTER = 20  # answers of the same annotator in between, so that he does not merely remember


@dataclass(frozen=True)
class Mix:
    """What is asked again.

    Attributes:
        overlap: Annotators who are to answer each pair; such pairs go before new ones.
        repeat_share: Chance that a question is one that the annotator has answered before.
        gold_share: Chance that it is one whose right answer is known.
    """

    overlap: int = 1
    repeat_share: float = 0.0
    gold_share: float = 0.0


@dataclass(frozen=True)
class _Question:
    segment_1: int
    segment_2: int
    purpose: str
    score: float | None = None  # of a gold question: the mass on segment 1 that is right


def ask_again(
    db: Database,
    run_id: int,
    annotator: str,
    mix: Mix,
    *,
    n: int = 1,
    lease_ms: int = 120_000,
    skip_cooldown_ms: int = 600_000,
    rng: np.random.Generator | None = None,
    tab: str = "",
) -> list[Lease]:
    """Of the next ``n`` questions of an annotator, hands out those that are asked again; the others are for `lease`.

    Each withdraws one new question that waits for him, and where none does nothing is asked again: the schedule says
    how many are asked in all.

    Args:
        db: The database of the run.
        run_id: The run.
        annotator: Who asks.
        mix: How much of what.
        n: Questions that he is to get.
        lease_ms: How long they are his.
        skip_cooldown_ms: The same as for `lease`.
        rng: Draws the purposes, the pairs and the sides; None uses the system's randomness.
        tab: Which of his browser tabs asks.

    Returns:
        At most ``n``; none with the default mix.
    """
    if mix == Mix() or n <= 0:
        return []
    draw = random.SystemRandom() if rng is None else random.Random(int(rng.integers(2**63)))
    waiting = claimable(run_id, annotator, skip_cooldown_ms, clips=True)
    with db.read() as connection:  # a page that waits asks every few seconds: then nobody is kept from writing
        anything = sa.or_(sa.exists().where(waiting), sa.exists().where(_run_out(run_id)))
        if not connection.execute(sa.select(anything)).scalar():
            return []
    leases = []
    with db.write() as connection:
        # one at a time: of two who ask at once, the second sees what the first was given
        connection.execute(sa.select(run.c.id).where(run.c.id == run_id).with_for_update(key_share=True))
        close_run_out(connection, run_id)
        for _ in range(int(n)):
            question = _draw(connection, run_id, annotator, mix, draw)
            if question is None:
                continue
            if not move(connection, sa.and_(waiting, query.c.purpose == "train"), {**GONE, **UNLEASED}, limit=1):
                break
            leases.append(_hand_out(connection, run_id, annotator, question, lease_ms, rng, tab))
    return leases


def close_run_out(connection: sa.Connection, run_id: int) -> None:
    """Closes what was asked again and is no longer held by whom it was for."""
    move(connection, _run_out(run_id), {**GONE, **UNLEASED})


def _run_out(run_id: int) -> sa.ColumnElement[bool]:
    return sa.and_(query.c.run_id == run_id, RAN_OUT, query.c.purpose.in_(AGAIN))


def _draw(connection: sa.Connection, run_id: int, who: str, mix: Mix, draw: random.Random) -> _Question | None:
    """What the next question is; None is a new one."""
    chance, found = draw.random(), None
    if chance < mix.gold_share:
        found = _some(draw, _golden(connection, run_id, who))
    elif chance < mix.gold_share + mix.repeat_share:
        found = _some(draw, _repeatable(connection, run_id, who))
    if found is None and mix.overlap > 1:
        found = _unshared(connection, run_id, who, mix.overlap)
    return found


def _some(draw: random.Random, questions: list[_Question]) -> _Question | None:
    return draw.choice(questions) if questions else None


def _golden(connection: sa.Connection, run_id: int, who: str) -> list[_Question]:
    """Gold questions that he has never had in his hands."""
    columns = sa.select(gold.c.segment_1, gold.c.segment_2, gold.c.mu).where(
        gold.c.run_id == run_id, ~_had(who, gold), *clips_drawn(gold)
    )
    return [_Question(one, two, "gold", mu) for one, two, mu in connection.execute(columns)]


def _repeatable(connection: sa.Connection, run_id: int, who: str) -> list[_Question]:
    """Pairs that he answered once, and a while ago."""
    mine = sa.and_(comparison.c.run_id == run_id, comparison.c.annotator == who)
    his = sa.and_(mine, comparison.c.mu.is_not(None), _newest())
    recent = sa.select(comparison.c.seq).where(his).order_by(comparison.c.seq.desc()).limit(1).offset(REPEAT_AFTER)
    latest = connection.execute(recent).scalar()
    if latest is None:
        return []
    asked = query.alias("asked")
    times = (
        sa.select(sa.func.count())
        .select_from(lease_table.join(asked, asked.c.id == lease_table.c.query_id))
        .where(asked.c.run_id == run_id, _same_pair(asked, comparison), lease_table.c.annotator == who)
        .scalar_subquery()
    )
    pairs = sa.select(comparison.c.segment_1, comparison.c.segment_2).where(
        his, comparison.c.seq <= latest, times == 1, *clips_drawn(comparison)
    )
    return [_Question(one, two, "repeat") for one, two in connection.execute(pairs)]


def _unshared(connection: sa.Connection, run_id: int, who: str, overlap: int) -> _Question | None:
    """The newest pair that others have answered, he has not had in his hands, and too few have."""
    asked = query.alias("asked")
    people = (
        sa.select(sa.func.count(lease_table.c.annotator.distinct()))
        .select_from(lease_table.join(asked, asked.c.id == lease_table.c.query_id))
        .where(asked.c.run_id == run_id, _same_pair(asked, query))
        .where(
            sa.or_(
                sa.exists().where(
                    comparison.c.query_id == asked.c.id,
                    comparison.c.lease_token == lease_table.c.token,
                    _newest(),
                    sa.or_(comparison.c.preference != Preference.WITHDRAWN.value, _undone_just_now()),
                ),
                sa.and_(asked.c.lease_token == lease_table.c.token, asked.c.lease_expires_ms > now_ms()),
            )
        )
        .scalar_subquery()
    )
    pairs = (
        sa.select(query.c.segment_1, query.c.segment_2)
        .where(query.c.run_id == run_id, query.c.state == "answered", query.c.purpose == "train")
        .where(~_had(who, query), people < overlap, *clips_drawn(query))
        .order_by(query.c.id.desc())
        .limit(1)
    )
    row = connection.execute(pairs).one_or_none()
    return None if row is None else _Question(row.segment_1, row.segment_2, "overlap")


def _newest() -> sa.ColumnElement[bool]:
    """Whether no other row has replaced a comparison."""
    newer = comparison.alias("newer")
    return ~sa.exists().where(newer.c.run_id == comparison.c.run_id, newer.c.supersedes == comparison.c.seq)


def _undone_just_now() -> sa.ColumnElement[bool]:
    """Whether who answered has taken it back a moment ago: his page shows him the pair, to be answered anew."""
    own = comparison.c.annotator == lease_table.c.annotator
    return sa.and_(own, comparison.c.created_ms > now_ms() - UNDO_MS)


def _had(who: str, pair: sa.FromClause) -> sa.ColumnElement[bool]:
    """Whether an annotator was ever shown this pair, whichever query asked."""
    shown, to = query.alias("shown"), lease_table.alias("to")
    return sa.exists().where(
        shown.c.run_id == pair.c.run_id, _same_pair(shown, pair), to.c.query_id == shown.c.id, to.c.annotator == who
    )


def _same_pair(one: sa.FromClause, two: sa.FromClause) -> sa.ColumnElement[bool]:
    return sa.or_(
        sa.and_(one.c.segment_1 == two.c.segment_1, one.c.segment_2 == two.c.segment_2),
        sa.and_(one.c.segment_1 == two.c.segment_2, one.c.segment_2 == two.c.segment_1),
    )


def _hand_out(
    connection: sa.Connection,
    run_id: int,
    annotator: str,
    question: _Question,
    lease_ms: int,
    rng: np.random.Generator | None,
    tab: str,
) -> Lease:
    steps = sa.select(sa.func.max(query.c.env_steps)).where(query.c.run_id == run_id).scalar_subquery()
    values = {
        "run_id": run_id,
        "segment_1": question.segment_1,
        "segment_2": question.segment_2,
        "state": "proposed",
        "purpose": question.purpose,
        "reward_version": 0,  # no ensemble chose it
        "env_steps": sa.func.coalesce(steps, 0),
        "score": question.score,
    }
    id_ = connection.execute(sa.insert(query).values(values).returning(query.c.id)).scalar_one()
    token = f"{new_token(tab)}-{id_}"  # of the same form as of every lease: it tells nobody what the question is for
    held = {"state": "leased", "lease_token": token, "lease_expires_ms": now_ms() + int(lease_ms)}
    take = sa.update(query).where(query.c.id == id_).values(held)
    until = connection.execute(take.returning(query.c.lease_expires_ms)).scalar_one()
    one = Lease(id_, token, question.segment_1, question.segment_2, draw_side(rng), until)
    record(connection, annotator, [one])
    return one
