"""A folder of videos in the store, on both engines."""

from __future__ import annotations

import sqlalchemy as sa

from prefrl.config import EnvConfig, LabelConfig, RunConfig
from prefrl.settings import to_dict
from prefrl.store import queue
from prefrl.store.again import Mix, ask_again
from prefrl.store.clips import clip_counts, load_clip
from prefrl.store.engine import Database
from prefrl.store.folder import Pair, add_clip, ask, clip_names, is_clips, rename_clip, stored_clips
from prefrl.store.runs import Run, create_run
from prefrl.store.schema import query
from prefrl.types import Answer, Lease, Preference


def make(db: Database, n: int = 5, name: str = "cats") -> tuple[Run, list[int]]:
    env, label = EnvConfig(id="clips", kwargs={"folder": "/cats"}), LabelConfig(budget=4, oracle="none")
    run = create_run(db, name, to_dict(RunConfig(env=env, label=label)), {})
    for i in range(n):
        assert add_clip(db, run.id, f"{i}.mp4", f"digest-{i}", 7, b"video %d" % i, {"fps": 20})
    return run, [one.id for one in stored_clips(db, run.id)]


def in_order(ids: list[int]):
    """Draws the pairs in alphabetical order, and notes what it was given."""
    calls: list[tuple[set[Pair], int]] = []

    def draw(known: set[Pair], wanted: int) -> list[Pair]:
        calls.append((known, wanted))
        every = [(a, b) for a in ids for b in ids if a < b]
        return [pair for pair in every if pair not in known][:wanted]

    return draw, calls


def answered(db: Database, one: Lease, said: Preference = Preference.LEFT) -> None:
    queue.answer(db, [Answer(one.query_id, one.token, said, "ann", f"{one.token}-uuid", 900)])


def states(db: Database) -> dict[Pair, str]:
    """Of the newest query of each pair."""
    with db.read() as connection:
        rows = connection.execute(sa.select(query).order_by(query.c.id)).all()
    return {(row.segment_1, row.segment_2): row.state for row in rows}


def test_what_was_asked_again_and_nobody_answered_leaves_room_for_another(db: Database) -> None:
    run, ids = make(db)
    draw, _ = in_order(ids)
    assert ask(db, run.id, ids, 3, draw, anew=False) == 3
    for one in queue.lease(db, run.id, "ann", n=2, clips=True):
        answered(db, one)
    (again,) = ask_again(db, run.id, "bob", Mix(overlap=2))  # in the place of the third
    with db.write() as connection:
        connection.execute(sa.update(query).where(query.c.id == again.query_id).values(lease_expires_ms=0))
    assert ask(db, run.id, ids, 3, draw, anew=False) == 1
    assert list(states(db).values()).count("proposed") == 1


def test_a_video_is_a_segment_with_its_clip_ready(db: Database) -> None:
    run, ids = make(db, 2)
    assert is_clips(run)
    assert clip_counts(db, run.id) == {"pending": 0, "ready": 2, "failed": 0, "missing": 0}
    assert [load_clip(db, id_) for id_ in ids] == [b"video 0", b"video 1"]
    assert not add_clip(db, run.id, "other.mp4", "digest-0", 9, b"other", {})
    assert load_clip(db, ids[0]) == b"video 0"
    assert clip_names(db, run.id) == {ids[0]: "0.mp4", ids[1]: "1.mp4"}
    other, theirs = make(db, 2, "dogs")  # the same content in another run is another clip
    assert not set(ids) & set(theirs)
    assert len(stored_clips(db, other.id)) == 2


def test_files_of_one_name_are_told_apart_and_a_renamed_one_keeps_its_row(db: Database) -> None:
    run, ids = make(db, 2)
    add_clip(db, run.id, "0.mp4", "abcdef99", 7, b"changed", {})
    rename_clip(db, ids[1], "one.mp4")
    names = clip_names(db, run.id)
    assert names[ids[0]] == "0.mp4 (digest)"
    assert names[ids[1]] == "one.mp4"
    assert sorted(names.values()) == ["0.mp4 (abcdef)", "0.mp4 (digest)", "one.mp4"]


def test_what_the_budget_lacks_is_asked_and_no_pair_twice(db: Database) -> None:
    run, ids = make(db)
    a, b, c, d, e = ids
    draw, calls = in_order(ids)
    assert ask(db, run.id, ids, 3, draw, anew=False) == 3
    assert ask(db, run.id, ids, 3, draw, anew=False) == 0
    first, second = queue.lease(db, run.id, "ann", n=2, clips=True)
    answered(db, first)
    answered(db, second, Preference.INCOMPARABLE)  # counts for no budget
    assert ask(db, run.id, ids, 3, draw, anew=False) == 1
    assert calls[-1] == ({(a, b), (a, c), (a, d)}, 1)
    assert states(db) == {(a, b): "answered", (a, c): "answered", (a, d): "proposed", (a, e): "proposed"}


def test_pairs_in_hands_stay_and_others_are_drawn_anew(db: Database) -> None:
    run, ids = make(db)
    a, b, c, d, e = ids
    draw, _ = in_order(ids)
    ask(db, run.id, ids, 4, draw, anew=False)
    one, two = queue.lease(db, run.id, "ann", n=2)
    queue.skip(db, two.token, "ann")
    backwards, calls = in_order(ids[::-1])
    backwards_ids = ids[::-1]

    def last_first(known: set[Pair], wanted: int) -> list[Pair]:
        backwards(known, wanted)
        every = [(y, x) for x in backwards_ids for y in backwards_ids if y < x]
        return [pair for pair in every if pair not in known][:wanted]

    assert ask(db, run.id, ids, 3, last_first, anew=True) == 2
    assert calls == [({(a, b)}, 2)]
    found = states(db)
    assert found[a, b] == "leased"
    assert [found[pair] for pair in ((a, c), (a, d))] == ["expired", "expired"]
    assert found[d, e] == found[c, e] == "proposed"
    answered(db, one)  # nothing was taken from him
    assert states(db)[a, b] == "answered"


def test_pairs_of_a_video_that_is_gone_are_withdrawn(db: Database) -> None:
    run, ids = make(db, 3)
    a, b, c = ids
    draw, _ = in_order(ids)
    ask(db, run.id, ids, 3, draw, anew=False)
    left, calls = in_order([b, c])
    assert ask(db, run.id, [b, c], 3, left, anew=False) == 0
    assert calls == [({(b, c)}, 2)]
    assert states(db) == {(a, b): "expired", (a, c): "expired", (b, c): "proposed"}
    again, _ = in_order(ids)
    assert ask(db, run.id, ids, 3, again, anew=False) == 2  # it is back, and was never answered
    assert states(db) == {(a, b): "proposed", (a, c): "proposed", (b, c): "proposed"}


def test_a_lease_that_ran_out_is_in_nobodys_hands(db: Database) -> None:
    run, ids = make(db, 3)
    a, b, c = ids
    draw, _ = in_order(ids)
    ask(db, run.id, ids, 1, draw, anew=False)
    queue.lease(db, run.id, "ann", lease_ms=0)
    left, _ = in_order([b, c])
    assert ask(db, run.id, [b, c], 1, left, anew=False) == 1
    assert states(db) == {(a, b): "expired", (b, c): "proposed"}
