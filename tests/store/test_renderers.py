"""Several renderers at once, and renderers that die."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import sqlalchemy as sa

from prefrl.store import clips, queue, runs, segments
from prefrl.store.engine import Database
from prefrl.store.schema import clip

CLAIM = """
    import sys, time
    from prefrl.store import Database, clips
    with Database.open(sys.argv[1]) as db:
        print("open", flush=True)
        sys.stdin.readline()
        while claimed := clips.claim_clips(db, int(sys.argv[2]), 3):
            print(*claimed, flush=True)
            time.sleep(0.01)  # drawing takes longer; without any the other one may never get its turn
        sys.stdin.readline()
"""


def go(*renderers) -> None:
    for renderer in renderers:
        assert renderer.stdout.readline() == "open\n"
    for renderer in renderers:
        renderer.stdin.write("go\n")
        renderer.stdin.flush()


def age(db: Database, ms: int) -> None:
    with db.write() as connection:
        connection.execute(sa.update(clip).values(updated_ms=clip.c.updated_ms - ms))


@contextmanager
def before_claiming(action) -> Iterator[None]:
    """Runs something once, between choosing the clips of a claim and taking them."""

    actions = [action]

    def note(_connection, _cursor, statement: str, *_rest: object) -> None:
        if statement.startswith("INSERT INTO clip") and actions:
            actions.pop()()

    sa.event.listen(sa.Engine, "before_cursor_execute", note)
    try:
        yield
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", note)
    assert not actions


def test_a_killed_renderer_loses_its_claim(db: Database, database_url: str, run_id, ids, start) -> None:
    queue.propose(db, run_id, [(ids[3], ids[2]), (ids[2], ids[1]), (ids[4], ids[5])])
    renderer = start(CLAIM, database_url, run_id)
    go(renderer)
    assert renderer.stdout.readline().split() == [str(ids[2]), str(ids[3]), str(ids[1])]
    assert renderer.stdout.readline().split() == [str(ids[4]), str(ids[5])]
    renderer.kill()
    assert renderer.wait() == -signal.SIGKILL
    assert clips.store_clip(db, ids[3], b"video", {})
    age(db, 20_000)
    assert clips.claim_clips(db, run_id, 9, stale_ms=60_000) == []
    age(db, 40_000)
    assert clips.claim_clips(db, run_id, 1) == [ids[2]]
    assert clips.claim_clips(db, run_id, 9) == [ids[1], ids[4], ids[5]]
    assert clips.claim_clips(db, run_id, 9) == []
    assert clips.clip_counts(db, run_id) == {"pending": 4, "ready": 1, "failed": 0, "missing": 0}


@pytest.mark.parametrize("dead", [False, True])
def test_renderers_never_draw_the_same(
    db: Database, database_url: str, run_id, ids, new_segment, start, finish, dead: bool
) -> None:
    more = segments.add_segments(db, run_id, [new_segment(number) for number in range(100, 400)], None)
    queue.propose(db, run_id, [(more[-1 - i], more[i]) for i in range(150)])
    if dead:
        assert len(clips.claim_clips(db, run_id, 999)) == 300
        age(db, 60_000)
    renderers = [start(CLAIM, database_url, run_id) for _ in range(2)]
    go(*renderers)
    outputs = [[int(word) for word in output.split()] for output in finish(renderers)]
    assert all(outputs)  # both had work
    assert sorted(outputs[0] + outputs[1]) == more
    assert clips.clip_counts(db, run_id) == {"pending": 300, "ready": 0, "failed": 0, "missing": 0}


def test_a_claim_waits_for_the_one_before(db: Database, run_id: int, ids: list[int]) -> None:
    queue.propose(db, run_id, [(ids[0], ids[1]), (ids[2], ids[3])])
    second: list[int] = []
    other = threading.Thread(target=lambda: second.extend(clips.claim_clips(db, run_id, 2)))

    def interrupt() -> None:
        other.start()
        time.sleep(0.5)

    with before_claiming(interrupt):
        assert clips.claim_clips(db, run_id, 2) == ids[:2]
        other.join()
    assert second == ids[2:4]


def test_a_video_that_comes_while_it_is_claimed_again(postgres_url: str, new_segment) -> None:
    with Database.create(postgres_url) as db:  # on SQLite nobody writes meanwhile
        run_id = runs.create_run(db, "hopper", {}, {}).id
        one, two = segments.add_segments(db, run_id, [new_segment(1), new_segment(2)], None)
        queue.propose(db, run_id, [(one, two)])
        assert clips.claim_clips(db, run_id, 2) == [one, two]
        age(db, 60_000)
        with before_claiming(lambda: clips.store_clip(db, one, b"video", {})):
            assert clips.claim_clips(db, run_id, 2) == [two]
        assert clips.load_clip(db, one) == b"video"
