"""The query state machine, arrow by arrow."""

from __future__ import annotations

import time

import numpy as np
import pytest
import sqlalchemy as sa

from prefrl.errors import DataError
from prefrl.store import comparisons, queue
from prefrl.store.engine import Database
from prefrl.store.queue import Reason
from prefrl.store.schema import lease as lease_table
from prefrl.types import Answer, Lease, Preference


def reply(lease: Lease, preference: str = "left", uuid: str = "u", annotator: str = "ann") -> Answer:
    return Answer(lease.query_id, lease.token, Preference(preference), annotator, uuid, response_ms=900)


@pytest.fixture
def proposed(db: Database, run_id: int, ids: list[int]) -> list[int]:
    """Three queries."""
    pairs = [(ids[0], ids[1]), (ids[3], ids[2]), (ids[4], ids[5])]
    return queue.propose(db, run_id, pairs, reward_version=2, env_steps=50, scores=[0.1, 0.2, 0.3])


def test_propose(db: Database, run_id: int, ids: list[int], proposed: list[int]) -> None:
    assert len(set(proposed)) == 3
    assert queue.counts(db, run_id) == {
        "proposed": 3,
        "leased": 0,
        "answered": 0,
        "skipped": 0,
        "expired": 0,
    }
    assert queue.propose(db, run_id, []) == []
    with pytest.raises(DataError, match="refuses this record"):
        queue.propose(db, run_id, [(ids[0], ids[1]), (ids[0], ids[0])])
    with pytest.raises(DataError, match="refuses this record"):
        queue.propose(db, run_id, [(ids[0], 999_999)])
    with pytest.raises(DataError, match="one for each"):
        queue.propose(db, run_id, [(ids[0], ids[1])], scores=[])
    many = queue.propose(db, run_id, [(ids[i % 9], ids[9]) for i in range(500)])
    assert many == sorted(many)
    with db.read() as connection:
        stored = connection.execute(sa.text("SELECT segment_1 FROM query WHERE id = :id"), {"id": many[7]})
        assert stored.scalar() == ids[7]  # the ids are in the order of the pairs


def test_oldest_first_each_to_one(db: Database, run_id: int, proposed: list[int]) -> None:
    (first,) = queue.lease(db, run_id, "ann")
    rest = queue.lease(db, run_id, "bob", n=9)
    assert [first.query_id, *(one.query_id for one in rest)] == proposed
    assert len({first.token, *(one.token for one in rest)}) == 3
    assert queue.lease(db, run_id, "cia") == []
    assert queue.counts(db, run_id)["leased"] == 3
    now = time.time() * 1000
    assert now + 60_000 < first.expires_ms < now + 180_000


def test_a_lease_that_ran_out_goes_to_anyone(db: Database, run_id: int, proposed: list[int]) -> None:
    lost = queue.lease(db, run_id, "ann", n=3, lease_ms=0)
    assert queue.counts(db, run_id)["proposed"] == 3
    found = queue.lease(db, run_id, "bob", n=3)
    assert [one.query_id for one in found] == proposed
    assert {one.token for one in found}.isdisjoint(one.token for one in lost)
    assert queue.skip(db, lost[0].token, "ann") is False
    assert queue.counts(db, run_id)["leased"] == 3


def test_the_side_is_drawn_at_lease_time(db: Database, run_id: int, ids: list[int]) -> None:
    queue.propose(db, run_id, [(ids[0], ids[1])] * 200)
    sides = [one.shown_left for one in queue.lease(db, run_id, "ann", n=100, rng=np.random.default_rng(3))]
    with db.write() as connection:
        connection.execute(sa.text("UPDATE query SET lease_expires_ms = 0 WHERE state = 'leased'"))
    again = [one.shown_left for one in queue.lease(db, run_id, "ann", n=100, rng=np.random.default_rng(3))]
    assert again == sides
    assert 20 < sides.count(1) < 80
    by_system = [one.shown_left for one in queue.lease(db, run_id, "ann", n=100)]
    assert 20 < by_system.count(1) < 80


@pytest.mark.parametrize("shown_left", [1, 2])
@pytest.mark.parametrize(("preference", "mu"), [("left", 1.0), ("right", 0.0), ("tie", 0.5), ("incomparable", None)])
def test_mu_follows_the_side(
    db: Database, run_id: int, ids: list[int], proposed: list[int], shown_left: int, preference: str, mu: float
) -> None:
    (lease,) = queue.lease(db, run_id, "ann")
    with db.write() as connection:
        connection.execute(sa.update(lease_table).values(shown_left=shown_left))
    (row,) = queue.answer(db, [reply(lease, preference)])
    mirrored = mu is not None and shown_left == 2
    assert row.mu == (1 - mu if mirrored else mu)
    assert (row.seq, row.segment_1, row.segment_2) == (1, ids[0], ids[1])
    assert (row.shown_left, row.late, row.env_steps, row.response_ms) == (shown_left, False, 50, 900)
    assert queue.counts(db, run_id)["answered"] == 1
    assert comparisons.tail(db, run_id) == [row]


def test_an_answer_sent_twice_is_one_row(db: Database, run_id: int, proposed: list[int]) -> None:
    one, two = queue.lease(db, run_id, "ann", n=2)
    (first,) = queue.answer(db, [reply(one, "left", "u1")])
    batch = queue.answer(db, [reply(one, "right", "u1"), reply(two, "tie", "u2"), reply(two, "tie", "u2")])
    assert batch == [first, batch[1], batch[1]]
    assert [row.seq for row in comparisons.tail(db, run_id)] == [1, 2]
    # another click on the same page is kept, and not counted again
    (double,) = queue.answer(db, [reply(one, "right", "u3")])
    assert double.late
    assert comparisons.n_counted(db, run_id) == 2


def test_a_late_answer_is_kept_and_the_query_closed(db: Database, run_id: int, proposed: list[int]) -> None:
    slow = queue.lease(db, run_id, "ann", lease_ms=0)[0]
    quick = queue.lease(db, run_id, "bob")[0]
    assert slow.query_id == quick.query_id
    with db.write() as connection:
        for lease, side in ((slow, 2), (quick, 1)):
            this = lease_table.c.token == lease.token
            connection.execute(sa.update(lease_table).where(this).values(shown_left=side))
    (first,) = queue.answer(db, [reply(slow, "left", "u1")])
    assert (first.late, first.shown_left, first.mu) == (False, 2, 0.0)  # as it was shown to ann
    assert queue.resume_leases(db, run_id, "bob") == []  # nothing left to do for bob
    (second,) = queue.answer(db, [reply(quick, "left", "u2", "bob")])
    assert (second.late, second.shown_left, second.mu, second.annotator) == (True, 1, 1.0, "bob")
    assert queue.counts(db, run_id)["answered"] == 1
    assert comparisons.n_counted(db, run_id) == 1
    assert [row.seq for row in comparisons.tail(db, run_id)] == [1, 2]


def test_an_answer_to_a_lapsed_or_expired_query(db: Database, run_id: int, proposed: list[int]) -> None:
    lapsed, gone = queue.lease(db, run_id, "ann", n=2, lease_ms=0)
    queue.answer(db, [reply(lapsed, uuid="u1")])
    assert queue.expire(db, run_id, before_env_steps=51) == 2
    assert queue.counts(db, run_id) == {
        "proposed": 0,
        "leased": 0,
        "answered": 1,
        "skipped": 0,
        "expired": 2,
    }
    (row,) = queue.answer(db, [reply(gone, uuid="u2")])
    assert not row.late
    assert queue.counts(db, run_id)["expired"] == 2
    (double,) = queue.answer(db, [reply(gone, uuid="u3")])
    assert double.late
    assert comparisons.n_counted(db, run_id) == 2


def test_wrong_answers_change_nothing(db: Database, run_id: int, proposed: list[int]) -> None:
    one, two = queue.lease(db, run_id, "ann", n=2)
    good = reply(one, uuid="u1")
    for bad, message in (
        (Answer(one.query_id, "nonsense", Preference.LEFT, "ann", "u2"), "no lease has the token 'nonsense'"),
        (Answer(one.query_id, two.token, Preference.LEFT, "ann", "u2"), "is for query"),
        (reply(two, "withdrawn", "u2"), "supersede"),
    ):
        with pytest.raises(DataError, match=message):
            queue.answer(db, [good, bad])
    assert comparisons.tail(db, run_id) == []
    assert queue.counts(db, run_id)["leased"] == 2
    assert queue.answer(db, []) == []


def test_skipped_goes_to_others_at_once(db: Database, run_id: int, proposed: list[int]) -> None:
    (lease,) = queue.lease(db, run_id, "ann")
    assert queue.skip(db, lease.token, "ann") is True
    assert queue.skip(db, lease.token, "ann") is False
    assert queue.counts(db, run_id)["skipped"] == 1
    assert [one.query_id for one in queue.lease(db, run_id, "ann", n=9)] == proposed[1:]
    (bobs,) = queue.lease(db, run_id, "bob")
    assert bobs.query_id == lease.query_id
    assert queue.skip(db, bobs.token, "bob") is True
    assert queue.lease(db, run_id, "ann") == []
    (again,) = queue.lease(db, run_id, "ann", skip_cooldown_ms=0)
    assert again.query_id == lease.query_id
    with pytest.raises(DataError, match="no lease has the token"):
        queue.skip(db, "nonsense", "ann")


def test_expire_takes_old_ones_that_nobody_holds(db: Database, run_id: int, ids: list[int]) -> None:
    old = queue.propose(db, run_id, [(ids[0], ids[1])] * 4, env_steps=10)
    new = queue.propose(db, run_id, [(ids[0], ids[1])], env_steps=20)
    held, skipped = queue.lease(db, run_id, "ann", n=2)
    queue.skip(db, skipped.token, "ann")
    assert queue.expire(db, run_id, before_env_steps=20) == 2
    assert queue.expire(db, run_id, before_env_steps=20) == 0
    assert queue.counts(db, run_id) == {
        "proposed": 1,
        "leased": 1,
        "answered": 0,
        "skipped": 1,
        "expired": 2,
    }
    assert queue.expire(db, run_id, before_env_steps=20, include_skipped=True) == 1
    assert [one.query_id for one in queue.lease(db, run_id, "bob", n=9)] == new
    assert held.query_id == old[0]
    (row,) = queue.answer(db, [reply(skipped)])
    assert not row.late


def test_a_new_page_resumes_the_open_lease(db: Database, run_id: int, proposed: list[int]) -> None:
    held = queue.lease(db, run_id, "ann", n=2, lease_ms=30_000)
    queue.lease(db, run_id, "bob")
    found = queue.resume_leases(db, run_id, "ann", lease_ms=90_000)
    assert [(one.token, one.shown_left) for one in found] == [(one.token, one.shown_left) for one in held]
    assert all(new.expires_ms > old.expires_ms + 30_000 for new, old in zip(found, held, strict=True))
    queue.answer(db, [reply(held[0])])
    assert [one.token for one in queue.resume_leases(db, run_id, "ann", lease_ms=0)] == [held[1].token]
    assert queue.resume_leases(db, run_id, "ann") == []  # it ran out


def test_tabs_of_one_annotator_hold_queries_of_their_own(db: Database, run_id: int, ids: list[int]) -> None:
    queue.propose(db, run_id, [(ids[0], ids[1])] * 4)
    here, there = queue.lease(db, run_id, "ann", n=2, tab="0a"), queue.lease(db, run_id, "ann", tab="0a1")
    queue.lease(db, run_id, "bob", tab="0a")
    for tab, held in (("0a", here), ("0a1", there), ("", here + there), ("0b", [])):
        assert [one.token for one in queue.resume_leases(db, run_id, "ann", tab=tab)] == [one.token for one in held]
    state = queue.why_empty(db, run_id, "ann", tab="0a1")
    assert (state.reason, state.n_held_by_you, state.n_held_elsewhere) == (Reason.HELD_BY_YOU, 1, 2)
    queue.answer(db, [reply(there[0])])
    state = queue.why_empty(db, run_id, "ann", tab="0a1")
    assert (state.reason, state.n_held_elsewhere, state.n_leased_by_others) == (Reason.HELD_ELSEWHERE, 2, 3)
    assert queue.why_empty(db, run_id, "ann").reason is Reason.HELD_BY_YOU


def test_three_reasons_for_an_empty_queue(db: Database, run_id: int, ids: list[int]) -> None:
    def reason(annotator: str) -> Reason:
        assert queue.lease(db, run_id, annotator) == []
        return queue.why_empty(db, run_id, annotator).reason

    assert reason("dan") is Reason.NOTHING_PROPOSED
    queue.propose(db, run_id, [(ids[0], ids[1])] * 3)
    assert queue.why_empty(db, run_id, "dan").reason is Reason.AVAILABLE
    holders = {name: queue.lease(db, run_id, name)[0] for name in ("ann", "bob", "cia")}
    assert reason("dan") is Reason.LEASED_BY_OTHERS
    state = queue.why_empty(db, run_id, "dan")
    assert (state.n_leased_by_others, state.n_available, state.n_held_by_you) == (3, 0, 0)
    assert state.until_ms == min(lease.expires_ms for lease in holders.values())
    assert 60_000 < (state.wait_ms or 0) <= 120_000
    assert reason("ann") is Reason.HELD_BY_YOU
    for name in ("ann", "bob"):  # dan skips what they give back
        queue.skip(db, holders[name].token, name)
    for _ in range(2):
        queue.skip(db, queue.lease(db, run_id, "dan")[0].token, "dan")
    assert reason("dan") is Reason.LEASED_BY_OTHERS
    queue.answer(db, [reply(holders["cia"], annotator="cia")])
    assert reason("dan") is Reason.NOTHING_LEFT_FOR_YOU
    state = queue.why_empty(db, run_id, "dan")
    assert state.n_skipped_by_you == 2
    assert 500_000 < (state.wait_ms or 0) <= 600_000
    assert queue.lease(db, run_id, "eve", n=9)
    assert reason("fay") is Reason.LEASED_BY_OTHERS


def test_everything_answered_is_not_nothing_proposed(db: Database, run_id: int, proposed: list[int]) -> None:
    queue.answer(db, [reply(one, uuid=one.token) for one in queue.lease(db, run_id, "ann", n=9)])
    assert queue.why_empty(db, run_id, "ann").reason is Reason.NOTHING_LEFT_FOR_YOU
    assert queue.why_empty(db, run_id, "ann").until_ms is None
    assert queue.why_empty(db, run_id, "bob").reason is Reason.NOTHING_PROPOSED


def test_asked_pairs(db: Database, run_id: int, ids: list[int], proposed: list[int]) -> None:
    new = comparisons.NewComparison(ids[9], ids[8], Preference.LEFT, "file", "u1")
    comparisons.add_comparisons(db, run_id, [new])
    wanted = [(ids[0], ids[1]), (ids[2], ids[3]), (ids[4], ids[5]), (ids[8], ids[9])]
    assert queue.asked_pairs(db, run_id) == set(wanted)


def test_no_session_waits_inside_a_transaction(postgres, postgres_url: str, new_segment) -> None:
    from prefrl.store import runs, segments

    with Database.create(postgres_url) as db:
        run_id = runs.create_run(db, "hopper", {}, {}).id
        one, two = segments.add_segments(db, run_id, [new_segment(1), new_segment(2)], None)
        queue.propose(db, run_id, [(one, two)] * 10)
        for number in range(5):
            assert queue.lease(db, run_id, f"annotator {number}")
        queue.why_empty(db, run_id, "x")
        states = postgres.sql("SELECT state FROM pg_stat_activity WHERE application_name = 'prefrl'")
        assert states
        assert {state for (state,) in states} == {"idle"}
        locks = "SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE application_name = 'prefrl'"
        assert postgres.sql(locks) == [(0,)]
        waits = []
        for number in range(5):
            begin = time.monotonic()
            assert queue.lease(db, run_id, f"one more {number}")
            waits.append(time.monotonic() - begin)
        assert min(waits) < 0.1  # the least: other programs share these cores


def test_how_long_another_tab_may_hold_a_pair_is_not_how_long_others_do(
    db: Database, run_id: int, ids: list[int]
) -> None:
    queue.propose(db, run_id, [(ids[0], ids[1]), (ids[2], ids[3])])
    assert queue.lease(db, run_id, "bob", lease_ms=5_000)
    assert queue.lease(db, run_id, "ann", lease_ms=100_000, tab="0a")
    here = queue.why_empty(db, run_id, "ann", tab="0b")
    assert (here.reason, here.n_held_elsewhere) == (Reason.HELD_ELSEWHERE, 1)
    assert here.wait_ms is not None
    assert here.wait_ms > 90_000
