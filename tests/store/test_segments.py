"""Segments: one row for one content, and true rewards that nobody meets by accident."""

from __future__ import annotations

import io
import tracemalloc

import numpy as np
import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from prefrl.errors import DataError
from prefrl.segments.codec import decode_arrays, encode_arrays
from prefrl.segments.frames import to_stacks
from prefrl.store import comparisons, queue, runs, segments
from prefrl.store.engine import Database
from prefrl.store.schema import segment_data, segment_truth
from prefrl.types import Preference, Segment

ARRAYS = hnp.arrays(
    dtype=st.sampled_from([np.uint8, np.int64, np.float32, np.float64, np.bool_]).map(np.dtype),
    shape=hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4),
)


@given(st.dictionaries(st.text("abcdef_", min_size=1), ARRAYS, max_size=3))
def test_codec_round_trip(arrays: dict) -> None:
    data = encode_arrays(arrays)
    found = decode_arrays(data)
    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)
    assert encode_arrays(found) == data


def test_codec_keeps_frames_small() -> None:
    frames = np.zeros((25, 84, 84), np.uint8)
    frames[:, 20:60, 30] = np.arange(25)[:, None]
    assert len(encode_arrays({"obs": frames})) < 15_000


def test_codec_refuses_pickles_and_damage() -> None:
    with pytest.raises(DataError, match="dtype object"):
        encode_arrays({"x": np.array([{}], dtype=object)})
    pickled = io.BytesIO()
    np.savez(pickled, x=np.array([{}], dtype=object))
    single = io.BytesIO()
    np.save(single, np.eye(3))
    good = encode_arrays({"x": np.arange(100)})
    middle = len(good) // 2
    flipped = good[:middle] + bytes([good[middle] ^ 255]) + good[middle + 1 :]
    for data in (pickled.getvalue(), single.getvalue(), b"", b"\x00" * 99, good[:middle], flipped):
        with pytest.raises(DataError, match="not a readable npz"):
            decode_arrays(data)


def stacked(seed: int, size: int = 84, k: int = 4, n_steps: int = 25) -> Segment:
    """A segment of an Atari game: something small moves over a screen that is mostly empty."""
    rng = np.random.default_rng(seed)
    frames = np.zeros((n_steps + k - 1, size, size), np.uint8)
    for t, frame in enumerate(frames):
        frame[10 : 10 + 3, t : t + 3] = rng.integers(1, 256)
    state = rng.integers(0, 256, (1, 14_400), dtype=np.uint8)
    return Segment(to_stacks(frames, k), rng.integers(0, 6, n_steps), state)


def test_stacked_frames_come_back_as_views_over_single_ones(db: Database, run_id: int) -> None:
    one = stacked(0)
    copied = Segment(one.obs.copy(), one.act, one.states)
    assert copied.digest == one.digest
    ids = segments.add_segments(db, run_id, [one, copied], None)
    assert ids[0] == ids[1]
    found = segments.load_segments(db, ids, with_states=True)[ids[0]]
    assert found.obs.shape == (25, 4, 84, 84)
    assert found.obs.dtype == np.uint8
    assert not found.obs.flags.writeable
    assert found.digest == one.digest
    for name in ("obs", "act", "states"):
        np.testing.assert_array_equal(getattr(found, name), getattr(one, name))
    with db.read() as connection:
        (size,) = connection.execute(sa.select(sa.func.length(segment_data.c.arrays))).scalars()
    assert size < 15_000


def test_many_loaded_segments_take_hardly_more_memory_than_their_frames(db: Database, run_id: int) -> None:
    n, size = 1000, 36
    ids = segments.add_segments(db, run_id, [stacked(i, size) for i in range(n)], None)
    segments.load_segments(db, ids[:1])
    tracemalloc.start()
    try:
        found = segments.load_segments(db, ids)
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    frames = n * (28 * size * size + 25 * 8)
    assert len(found) == n
    assert held < 1.3 * frames
    assert sum(one.obs.size for one in found.values()) > 3 * frames, "as stacks they would not fit"


def test_an_emulator_has_one_state_and_what_is_no_stack_is_stored_as_it_is(db: Database, run_id: int) -> None:
    one = stacked(0)
    backwards = Segment(np.ascontiguousarray(one.obs[::-1]), one.act)
    (id_,) = segments.add_segments(db, run_id, [backwards], None)
    np.testing.assert_array_equal(segments.load_segments(db, [id_])[id_].obs, backwards.obs)
    with pytest.raises(DataError, match=r"arrays of \[1, 25\] steps"):  # one state is an emulator's bytes only
        segments.add_segments(db, run_id, [Segment(one.obs, one.act, np.zeros((1, 9)))], None)
    with pytest.raises(DataError, match=r"arrays of \[2, 25\] steps"):
        segments.add_segments(db, run_id, [Segment(one.obs, one.act, np.zeros((2, 9), np.uint8))], None)


@pytest.mark.parametrize("n", [0, 3, 30])
def test_frames_that_do_not_fit_the_actions_are_named(db: Database, run_id: int, n: int) -> None:
    (id_,) = segments.add_segments(db, run_id, [stacked(0)], None)
    arrays = encode_arrays({"frames": np.zeros((28, 3, 3), np.uint8), "act": np.zeros(n, np.int64)})
    with db.write() as connection:
        connection.execute(sa.update(segment_data).values(arrays=arrays))
    if n == 3:  # stacks of 26 are possible, too: what they mean is for the run's spaces to say
        assert segments.load_segments(db, [id_])[id_].obs.shape == (3, 26, 3, 3)
        return
    with pytest.raises(
        DataError, match=rf"segment {id_}: \(28, 3, 3\) frames do not belong to actions of shape \({n},\)"
    ):
        segments.load_segments(db, [id_])


def test_segments_come_back_equal(db: Database, run_id: int, new_segment) -> None:
    some = [new_segment(1), Segment(np.ones((3, 4), np.uint8), np.ones(3, np.int64))]
    one, two = segments.add_segments(db, run_id, some, None)
    found = segments.load_segments(db, [two, one, one, 999_999])
    assert sorted(found) == [one, two]
    assert found[one].digest == some[0].digest
    assert found[one].states is None
    for name in ("env_index", "episode", "start", "env_steps", "source"):
        assert getattr(found[one], name) == getattr(some[0], name)
    with_states = segments.load_segments(db, np.array([one, two]), with_states=True)
    np.testing.assert_array_equal(with_states[one].states, some[0].states)
    assert with_states[two].states is None
    assert segments.load_segments(db, []) == {}


def test_equal_content_is_one_row(db: Database, run_id: int, ids: list[int], new_segment) -> None:
    again = segments.add_segments(db, run_id, [new_segment(3), new_segment(99), new_segment(3)], None)
    assert again[0] == again[2] == ids[3]
    assert again[1] not in ids
    assert len(segments.recent_segment_ids(db, run_id, 99)) == 11
    assert segments.true_returns(db, [ids[3]]) == {ids[3]: 15.0}
    other = runs.create_run(db, "other", {}, {}).id
    assert segments.add_segments(db, other, [new_segment(3)], None)[0] not in ids
    # equal bytes in another shape are another segment
    flat = Segment(np.zeros((4, 2)), np.zeros((4, 1)))
    deep = Segment(np.zeros((4, 2, 1)), np.zeros((4, 1)))
    assert len(set(segments.add_segments(db, run_id, [flat, deep], None))) == 2


def test_processes_add_the_same_segments(database_url: str, db: Database, run_id: int, start, finish) -> None:
    script = """
        import sys
        import numpy as np
        from prefrl.store import Database, segments
        from prefrl.types import Segment
        some = [Segment(np.full((5, 2), i), np.zeros((5, 1))) for i in range(30)]
        if sys.argv[2] == "1":
            some.reverse()
        with Database.open(sys.argv[1]) as db:
            print(sorted(segments.add_segments(db, int(sys.argv[3]), some, None)))
    """
    first, second = finish([start(script, database_url, number, run_id) for number in range(2)])
    assert first == second
    assert len(segments.recent_segment_ids(db, run_id, 99)) == 30


def test_recent_ones_first(db: Database, run_id: int, ids: list[int], new_segment) -> None:
    assert segments.recent_segment_ids(db, run_id, 3) == ids[:-4:-1]
    initial = segments.add_segments(db, run_id, [new_segment(50, source="initial")], None)
    assert segments.recent_segment_ids(db, run_id, 3, source="initial") == initial
    assert segments.recent_segment_ids(db, run_id, 2) == [initial[0], ids[-1]]


def test_true_rewards(db: Database, run_id: int, ids: list[int], new_segment) -> None:
    found = segments.true_rewards(db, ids[:3])
    np.testing.assert_array_equal(found[ids[2]], np.full(5, 2.0))
    assert segments.true_returns(db, ids) == {key: 5.0 * number for number, key in enumerate(ids)}
    without = segments.add_segments(db, run_id, [new_segment(70)], None)
    assert segments.true_returns(db, without) == {}


def test_invalid_segments_are_refused_together(db: Database, run_id: int, new_segment) -> None:
    good = new_segment(1)
    for bad, truth in (
        (Segment(np.zeros((3, 1)), np.zeros((2, 1))), np.zeros(3)),
        (Segment(np.zeros((0, 1)), np.zeros((0, 1))), np.zeros(0)),
        (new_segment(2), np.zeros(4)),
        (new_segment(2), np.full(5, np.nan)),
    ):
        with pytest.raises(DataError, match="steps"):
            segments.add_segments(db, run_id, [good, bad], [np.zeros(5), truth])
    with pytest.raises(DataError, match="one for each"):
        segments.add_segments(db, run_id, [good], [])
    with pytest.raises(DataError, match="refuses this record"):
        segments.add_segments(db, run_id + 99, [good], None)
    assert segments.recent_segment_ids(db, run_id, 9) == []


def test_damaged_bytes_name_the_segment(db: Database, ids: list[int]) -> None:
    with db.write() as connection:
        connection.execute(sa.update(segment_data).where(segment_data.c.segment_id == ids[4]).values(arrays=b"PK"))
    with pytest.raises(DataError, match=f"segment {ids[4]}: "):
        segments.load_segments(db, ids)


def test_readers_of_segments_never_name_the_truth(db: Database, run_id: int, ids: list[int]) -> None:
    seen: list[str] = []

    def note(_connection, _cursor, statement: str, *_rest: object) -> None:
        seen.append(statement)

    sa.event.listen(sa.Engine, "before_cursor_execute", note)
    try:
        segments.load_segments(db, ids, with_states=True)
        segments.recent_segment_ids(db, run_id, 5)
        comparisons.tail(db, run_id)
        queue.propose(db, run_id, [(ids[0], ids[1])])
        harmless = len(seen)
        segments.true_returns(db, ids)
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", note)
    assert harmless >= 4
    assert not [statement for statement in seen[:harmless] if "segment_truth" in statement]
    assert [statement for statement in seen[harmless:] if "segment_truth" in statement]  # the listener works


def test_pruning_spares_what_is_named(db: Database, run_id: int, ids: list[int], new_segment) -> None:
    queue.propose(db, run_id, [(ids[0], ids[1])])
    new = comparisons.NewComparison(ids[2], ids[3], Preference.LEFT, "me", "u1")
    comparisons.add_comparisons(db, run_id, [new])
    assert segments.prune_segments(db, run_id, keep=2) == 4
    left = [*ids[:4], *ids[-2:]]
    assert segments.recent_segment_ids(db, run_id, 99) == left[::-1]
    assert sorted(segments.load_segments(db, ids)) == left
    assert sorted(segments.true_returns(db, ids)) == left
    with db.read() as connection:
        for table in (segment_data, segment_truth):
            assert connection.execute(sa.select(sa.func.count()).select_from(table)).scalar() == 6
    assert segments.prune_segments(db, run_id, keep=0) == 2
    assert segments.prune_segments(db, run_id, keep=0) == 0
    assert segments.add_segments(db, run_id, [new_segment(77)], None)[0] > max(ids)  # ids never come back
    with pytest.raises(DataError, match="refuses this record"):
        queue.propose(db, run_id, [(ids[0], ids[9])])
