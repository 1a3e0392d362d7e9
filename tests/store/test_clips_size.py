"""Videos are large: they are read one at a time, and do not pile up."""

from __future__ import annotations

import sqlalchemy as sa

from prefrl.store import clips, queue, segments
from prefrl.store.engine import Database
from prefrl.store.schema import clip
from prefrl.types import Answer, Preference


def test_only_load_clip_reads_a_video(db: Database, run_id: int, ids: list[int]) -> None:
    queue.propose(db, run_id, [(ids[0], ids[1])])
    seen: list[str] = []

    def note(_connection, _cursor, statement: str, *_rest: object) -> None:
        seen.append(statement)

    sa.event.listen(sa.Engine, "before_cursor_execute", note)
    try:
        clips.claim_clips(db, run_id, 9)
        clips.clip_states(db, ids)
        clips.clip_counts(db, run_id)
        clips.retry_clips(db, run_id)
        clips.prune_clips(db, run_id, 0)
        queue.lease(db, run_id, "ann", clips=True)
        queue.why_empty(db, run_id, "ann", clips=True)
        harmless = len(seen)
        clips.load_clip(db, ids[0])
        loading = len(seen)
        queue.lease(db, run_id, "oracle")
        queue.why_empty(db, run_id, "oracle")
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", note)
    assert harmless >= 9
    assert not [statement for statement in seen[:harmless] if "video" in statement]
    assert [statement for statement in seen[harmless:loading] if "video" in statement]  # the listener works
    assert len(seen) > loading
    assert not [statement for statement in seen[loading:] if "clip" in statement]  # an oracle pays for no clips


def test_pruning_spares_open_queries_and_the_newest(db: Database, run_id: int, ids: list[int]) -> None:
    queue.propose(db, run_id, [(ids[0], ids[1]), (ids[2], ids[3]), (ids[4], ids[5])])
    leases = queue.lease(db, run_id, "ann", n=3)
    assert len(clips.claim_clips(db, run_id, 9)) == 6
    for at, number in enumerate([1, 4, 3, 0]):  # in this order; 2 fails, 5 stays pending
        assert clips.store_clip(db, ids[number], b"video", {})
        with db.write() as connection:
            connection.execute(sa.update(clip).where(clip.c.segment_id == ids[number]).values(updated_ms=1000 + at))
    assert clips.fail_clip(db, ids[2], "no OpenGL")
    assert clips.prune_clips(db, run_id, 0) == 0  # all are needed
    queue.answer(db, [Answer(one.query_id, one.token, Preference.TIE, "ann", one.token) for one in leases[:2]])
    queue.propose(db, run_id, [(ids[9], ids[3])])  # 3 is needed again; 0 and 1 are not
    assert clips.prune_clips(db, run_id + 1, 0) == 0
    assert clips.prune_clips(db, run_id, 2) == 0
    assert clips.prune_clips(db, run_id, 1) == 1
    left = {ids[0]: "ready", ids[2]: "failed", ids[3]: "ready", ids[4]: "ready", ids[5]: "pending"}
    assert {key: one.state for key, one in clips.clip_states(db, ids).items()} == left
    assert clips.prune_clips(db, run_id, -1) == 1
    assert sorted(clips.clip_states(db, ids)) == ids[2:6]
    assert clips.load_clip(db, ids[1]) is None
    queue.propose(db, run_id, [(ids[0], ids[1])])  # and what went can be drawn again
    assert clips.claim_clips(db, run_id, 9) == [ids[9], ids[0], ids[1]]


def test_a_clip_goes_with_its_segment(db: Database, run_id: int, ids: list[int]) -> None:
    with db.write() as connection:
        connection.execute(sa.insert(clip).values(segment_id=ids[0], state="ready", video=b"video", detail={}))
    assert segments.prune_segments(db, run_id, keep=0) == 10
    assert clips.clip_states(db, ids) == {}
