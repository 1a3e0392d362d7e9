"""Clips, arrow by arrow; queries that are offered only when both clips are ready."""

from __future__ import annotations

import os

import pytest
import sqlalchemy as sa

from prefrl.errors import DataError
from prefrl.store import clips, queue, runs, segments
from prefrl.store.clips import ClipState
from prefrl.store.engine import Database
from prefrl.store.queue import Reason
from prefrl.store.schema import clip, comparison, query
from prefrl.store.schema import lease as lease_table
from prefrl.types import Answer, Preference


@pytest.fixture
def proposed(db: Database, run_id: int, ids: list[int]) -> list[int]:
    """Three queries: segments 3 and 2, 2 and 1, 4 and 5."""
    return queue.propose(db, run_id, [(ids[3], ids[2]), (ids[2], ids[1]), (ids[4], ids[5])])


def draw(db: Database, run_id: int, *wanted: int) -> None:
    """Claims everything, and draws only what is wanted."""
    clips.claim_clips(db, run_id, 99)
    for segment_id in wanted:
        assert clips.store_clip(db, segment_id, b"video", {})


def age(db: Database, ms: int) -> None:
    with db.write() as connection:
        connection.execute(sa.update(clip).values(updated_ms=clip.c.updated_ms - ms))


def counted(db: Database, run_id: int) -> tuple[int, ...]:
    found = clips.clip_counts(db, run_id)
    return tuple(found.pop(name) for name in ("pending", "ready", "failed", "missing")) + tuple(found)


def test_the_oldest_query_is_drawn_first(db: Database, run_id: int, ids: list[int], proposed: list[int]) -> None:
    assert counted(db, run_id) == (0, 0, 0, 5)
    assert clips.claim_clips(db, run_id, 0) == []
    assert clips.claim_clips(db, run_id, 3) == [ids[2], ids[3], ids[1]]
    assert counted(db, run_id) == (3, 0, 0, 2)
    assert clips.claim_clips(db, run_id, 9) == [ids[4], ids[5]]
    assert clips.claim_clips(db, run_id, 9) == []
    assert counted(db, run_id) == (5, 0, 0, 0)


def test_what_a_dead_renderer_held_for_a_closed_query_is_not_waited_for(db: Database, run_id: int, proposed) -> None:
    clips.claim_clips(db, run_id, 9)
    assert counted(db, run_id) == (5, 0, 0, 0)
    queue.expire(db, run_id, before_env_steps=10**9)
    assert counted(db, run_id) == (0, 0, 0, 0)
    assert clips.claim_clips(db, run_id, 9, stale_ms=0) == []


def test_only_open_queries_of_the_run_need_clips(db: Database, run_id: int, ids: list[int], new_segment) -> None:
    other = runs.create_run(db, "other", {}, {}).id
    theirs = segments.add_segments(db, other, [new_segment(1), new_segment(2)], None)
    queue.propose(db, other, [(theirs[0], theirs[1])])
    assert clips.claim_clips(db, run_id, 9) == []
    queue.propose(db, run_id, [(ids[0], ids[1])])
    queue.propose(db, run_id, [(ids[2], ids[3]), (ids[4], ids[5]), (ids[6], ids[7])], env_steps=5)
    answered, skipped, _leased = queue.lease(db, run_id, "ann", n=3)
    queue.answer(db, [Answer(answered.query_id, answered.token, Preference.TIE, "ann", "u")])
    queue.skip(db, skipped.token, "ann")
    queue.propose(db, run_id, [(ids[8], ids[9])])
    assert queue.expire(db, run_id, before_env_steps=5) == 1
    assert counted(db, run_id) == (0, 0, 0, 6)
    assert clips.claim_clips(db, run_id, 9) == ids[2:8]  # skipped, leased, proposed
    assert counted(db, other) == (0, 0, 0, 2)


def test_ready(db: Database, run_id: int, ids: list[int], proposed: list[int]) -> None:
    video = os.urandom(1_000_000)
    assert clips.store_clip(db, ids[2], video, {}) is False  # nobody claimed it
    assert clips.load_clip(db, ids[2]) is None
    one, two = clips.claim_clips(db, run_id, 2)
    assert clips.load_clip(db, one) is None
    with pytest.raises(DataError, match=f"segment {one}: its video has no bytes"):
        clips.store_clip(db, one, b"", {})
    assert clips.store_clip(db, one, video, {"fps": 30}) is True
    assert clips.load_clip(db, one) == video
    assert type(clips.load_clip(db, one)) is bytes
    # a second renderer comes late, with a video or without
    assert clips.store_clip(db, one, b"other", {}) is False
    assert clips.fail_clip(db, one, "late") is False
    assert clips.load_clip(db, one) == video
    assert clips.clip_states(db, [one, two, ids[5]]) == {one: ClipState("ready", None), two: ClipState("pending", None)}
    assert clips.clip_states(db, []) == {}
    assert counted(db, run_id) == (1, 1, 0, 3)
    with db.read() as connection:
        stored = connection.execute(sa.select(clip.c.detail).where(clip.c.state == "ready")).scalar()
    assert stored == {"fps": 30}


def test_failed(db: Database, run_id: int, ids: list[int], proposed: list[int]) -> None:
    assert clips.fail_clip(db, ids[2], "nobody claimed it") is False
    one, two = clips.claim_clips(db, run_id, 2)
    assert clips.fail_clip(db, one, "no OpenGL\n") is True
    assert clips.fail_clip(db, two, " ") is True
    assert clips.fail_clip(db, one, "again") is False
    assert clips.store_clip(db, one, b"late", {}) is False
    states = {one: ClipState("failed", "no OpenGL"), two: ClipState("failed", "no reason was given")}
    assert clips.clip_states(db, [one, two]) == states
    assert clips.load_clip(db, one) is None
    assert counted(db, run_id) == (0, 0, 2, 3)
    age(db, 10_000_000)
    assert clips.claim_clips(db, run_id, 9) == [ids[1], ids[4], ids[5]]  # a failure is not tried again by itself
    assert clips.retry_clips(db, runs.create_run(db, "other", {}, {}).id) == 0
    assert clips.retry_clips(db, run_id) == 2
    assert clips.retry_clips(db, run_id) == 0
    assert counted(db, run_id) == (3, 0, 0, 2)
    assert clips.claim_clips(db, run_id, 9) == [one, two]


def test_lease_waits_for_both_clips(db: Database, run_id: int, ids: list[int], proposed: list[int]) -> None:
    assert queue.lease(db, run_id, "ann", clips=True) == []
    draw(db, run_id, ids[2])
    assert queue.lease(db, run_id, "ann", clips=True) == []
    assert clips.fail_clip(db, ids[3], "no OpenGL")
    assert clips.store_clip(db, ids[1], b"video", {})
    # the failed clip of the first query does not block the second
    (lease,) = queue.lease(db, run_id, "ann", n=9, clips=True)
    assert (lease.query_id, lease.segment_1, lease.segment_2) == (proposed[1], ids[2], ids[1])
    assert queue.lease(db, run_id, "bob", n=9, clips=True) == []
    assert [one.query_id for one in queue.lease(db, run_id, "oracle", n=9)] == [proposed[0], proposed[2]]


def test_why_nothing_can_be_watched(db: Database, run_id: int, ids: list[int], proposed: list[int]) -> None:
    def why(annotator: str) -> tuple[Reason, int, int, int]:
        state = queue.why_empty(db, run_id, annotator, clips=True)
        return state.reason, state.n_available, state.n_clips_coming, state.n_clips_failed

    assert why("ann") == (Reason.CLIPS_COMING, 0, 3, 0)
    plain = queue.why_empty(db, run_id, "ann")
    assert (plain.reason, plain.n_available, plain.n_clips_coming, plain.n_clips_failed) == (Reason.AVAILABLE, 3, 0, 0)
    draw(db, run_id, ids[1], ids[2])
    assert why("ann") == (Reason.AVAILABLE, 1, 2, 0)
    clips.fail_clip(db, ids[3], "no OpenGL")
    (lease,) = queue.lease(db, run_id, "ann", clips=True)
    assert why("ann") == (Reason.HELD_BY_YOU, 0, 1, 1)
    assert why("bob") == (Reason.CLIPS_COMING, 0, 1, 1)  # sooner than ann's lease ends
    clips.fail_clip(db, ids[5], "no OpenGL")
    assert why("bob") == (Reason.LEASED_BY_OTHERS, 0, 0, 2)
    queue.skip(db, lease.token, "ann")
    assert why("ann") == (Reason.NOTHING_LEFT_FOR_YOU, 0, 0, 2)  # what he skipped comes back to him
    assert why("bob") == (Reason.AVAILABLE, 1, 0, 2)
    (lease,) = queue.lease(db, run_id, "bob", clips=True)
    queue.answer(db, [Answer(lease.query_id, lease.token, Preference.LEFT, "bob", "u")])
    assert why("ann") == why("bob") == (Reason.CLIPS_FAILED, 0, 0, 2)
    assert clips.retry_clips(db, run_id) == 2
    assert why("ann") == (Reason.CLIPS_COMING, 0, 2, 0)
    assert queue.expire(db, run_id, before_env_steps=1) == 2
    assert why("bob") == (Reason.NOTHING_LEFT_FOR_YOU, 0, 0, 0)
    assert why("eve") == (Reason.NOTHING_PROPOSED, 0, 0, 0)


def test_that_nothing_can_be_drawn_is_told_after_the_queries_went(
    db: Database, run_id: int, ids: list[int], proposed: list[int]
) -> None:
    for segment_id in clips.claim_clips(db, run_id, 99):
        clips.fail_clip(db, segment_id, "no OpenGL")
    assert queue.expire_undrawable(db, run_id) == 3
    state = queue.why_empty(db, run_id, "ann", clips=True)
    assert (state.reason, state.n_clips_failed) == (Reason.CLIPS_FAILED, 3)
    assert queue.why_empty(db, run_id, "oracle").reason is Reason.NOTHING_PROPOSED
    clips.retry_clips(db, run_id)
    assert queue.why_empty(db, run_id, "ann", clips=True).reason is Reason.NOTHING_PROPOSED


def test_a_query_that_nobody_can_watch_is_withdrawn(db: Database, run_id: int, ids: list[int]) -> None:
    other = runs.create_run(db, "other", {}, {}).id
    assert queue.expire_undrawable(db, run_id) == 0
    pairs = [(ids[2 * i], ids[2 * i + 1]) for i in range(5)]
    queries = queue.propose(db, run_id, pairs)
    held, ran_out, skipped = queue.lease(db, run_id, "ann", n=3)
    assert queue.skip(db, skipped.token, "ann")
    clips.claim_clips(db, run_id, 99)
    for segment_id in (ids[0], ids[3], ids[5], ids[6]):
        assert clips.fail_clip(db, segment_id, "no state")
    assert queue.expire_undrawable(db, other) == 0
    with db.write() as connection:
        first = query.c.id == ran_out.query_id
        connection.execute(sa.update(query).where(first).values(lease_expires_ms=1))
    assert queue.expire_undrawable(db, run_id) == 3, "skipped, proposed, and one whose lease has run out"
    assert queue.expire_undrawable(db, run_id) == 0
    found = queue.counts(db, run_id)
    assert (found["leased"], found["proposed"], found["expired"]) == (1, 1, 3)
    assert clips.clip_counts(db, run_id)["missing"] == 0
    queue.answer(db, [Answer(held.query_id, held.token, Preference.TIE, "ann", "u1")])
    late = queue.answer(db, [Answer(ran_out.query_id, ran_out.token, Preference.LEFT, "ann", "u2")])
    assert [c.late for c in late] == [False], "what was watched before is evidence all the same"
    assert queue.why_empty(db, run_id, "ann", clips=True).reason is not Reason.CLIPS_FAILED
    assert queue.n_undrawable(db, run_id) == 0, "the newest pair can be watched"
    assert queries[4] not in (held.query_id, ran_out.query_id, skipped.query_id)


def test_skipped_queries_can_be_withdrawn_alone(db: Database, run_id: int, ids: list[int]) -> None:
    queue.propose(db, run_id, [(ids[0], ids[1]), (ids[2], ids[3]), (ids[4], ids[5])])
    first, _second = queue.lease(db, run_id, "ann", n=2)
    assert queue.expire_skipped(db, run_id) == 0
    assert queue.skip(db, first.token, "ann")
    assert queue.expire_skipped(db, run_id) == 1
    found = queue.counts(db, run_id)
    assert (found["leased"], found["proposed"], found["expired"], found["skipped"]) == (1, 1, 1, 0)


def test_people_are_there_while_they_answer_and_something_is_left(db: Database, run_id: int, ids: list[int]) -> None:
    other = runs.create_run(db, "other", {}, {}).id
    assert not queue.still_answering(db, run_id)
    queue.propose(db, run_id, [(ids[0], ids[1]), (ids[2], ids[3])])
    assert not queue.still_answering(db, run_id), "nobody has answered yet"
    first, second = queue.lease(db, run_id, "ann", n=2)
    queue.answer(db, [Answer(first.query_id, first.token, Preference.TIE, "ann", "u1")])
    assert queue.still_answering(db, run_id)
    assert not queue.still_answering(db, run_id, ms=-1)
    assert not queue.still_answering(db, other)
    with db.write() as connection:
        connection.execute(sa.update(comparison).values(created_ms=comparison.c.created_ms - queue.ANSWERING_MS))
    assert not queue.still_answering(db, run_id), "he has gone"
    queue.answer(db, [Answer(second.query_id, second.token, Preference.TIE, "ann", "u2")])
    assert not queue.still_answering(db, run_id), "and now nothing is left"


def test_a_look_for_work_sees_what_nobody_has_begun(db: Database, run_id: int, ids: list[int]) -> None:
    assert not clips.clips_wanted(db, run_id)
    assert clips.last_drawn_ms(db, run_id) == 0
    queue.propose(db, run_id, [(ids[0], ids[1])])
    assert clips.clips_wanted(db, run_id)
    clips.claim_clips(db, run_id, 1)
    assert clips.clips_wanted(db, run_id)
    clips.claim_clips(db, run_id, 1)
    assert not clips.clips_wanted(db, run_id)
    assert clips.last_drawn_ms(db, run_id) == 0, "nothing is finished"
    clips.store_clip(db, ids[0], b"video", {})
    drawn = clips.last_drawn_ms(db, run_id)
    assert drawn > 0
    clips.fail_clip(db, ids[1], "no state")
    assert clips.last_drawn_ms(db, run_id) >= drawn


@pytest.mark.parametrize("shown_left", [1, 2])
def test_the_clip_of_a_lease(db: Database, run_id: int, ids: list[int], proposed: list[int], shown_left: int) -> None:
    clips.claim_clips(db, run_id, 99)
    for number, id_ in enumerate(ids[1:6], start=1):
        clips.store_clip(db, id_, f"video {number}".encode(), {})
    one, _two, three = queue.lease(db, run_id, "ann", n=3, clips=True)
    assert len({lease.token.partition("-")[0] for lease in (one, three)}) == 1
    assert len(one.token.partition("-")[0]) == 32  # 128 bit
    with db.write() as connection:
        connection.execute(sa.update(lease_table).values(shown_left=shown_left))
    sides = ("left", "right") if shown_left == 1 else ("right", "left")
    for lease, numbers in ((one, (3, 2)), (three, (4, 5))):
        for side, number in zip(sides, numbers, strict=True):
            assert clips.clip_of_lease(db, lease.token, side) == f"video {number}".encode()
    queue.answer(db, [Answer(one.query_id, one.token, Preference.TIE, "ann", "u")])
    assert clips.clip_of_lease(db, one.token, "left") is not None  # still, for an undo
    assert clips.clip_of_lease(db, one.token[:-1], "left") is None
    assert clips.clip_of_lease(db, "%", "left") is None
    with pytest.raises(DataError, match="no side"):
        clips.clip_of_lease(db, one.token, "up")
    clips.prune_clips(db, run_id, 0)  # segment 2 is in an open query as well
    assert clips.clip_of_lease(db, one.token, sides[0]) is None
    assert clips.clip_of_lease(db, one.token, sides[1]) == b"video 2"


def test_why_the_last_clip_failed(db: Database, run_id: int, ids: list[int], proposed: list[int]) -> None:
    assert clips.last_failure(db, run_id) is None
    clips.claim_clips(db, run_id, 99)
    clips.fail_clip(db, ids[2], "first")
    age(db, 1000)
    clips.fail_clip(db, ids[3], "second")
    assert clips.last_failure(db, run_id) == "second"
    assert clips.last_failure(db, run_id + 1) is None
