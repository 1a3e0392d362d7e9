"""The comparisons as arrays: what trains, what leaves, what is refused."""

from __future__ import annotations

from itertools import count

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from prefrl.errors import RewardError
from prefrl.reward_model.dataset import PreferenceDataset, stack_steps
from prefrl.reward_model.spaces import Spaces
from prefrl.types import Comparison, Preference, Segment

STEPS = 4
SPACES = Spaces((2,), (1,))


def _segment(value: float, steps: int = STEPS) -> Segment:
    return Segment(np.full((steps, 2), value, np.float32), np.full((steps, 1), -value, np.float32))


SEGMENTS = {i: _segment(i) for i in range(10, 20)}


def _row(
    seq: int, pair: tuple[int, int] = (10, 11), answer: str = "left", supersedes: int | None = None, shown_left: int = 1
) -> Comparison:
    preference = Preference(answer)
    mu = preference.mu(shown_left)
    return Comparison(seq, *pair, preference, mu, shown_left, "me", f"uuid-{seq}", supersedes=supersedes)


def _data(*rows: Comparison) -> PreferenceDataset:
    data = PreferenceDataset(SPACES, STEPS)
    data.extend(list(rows), SEGMENTS)
    return data


def test_an_empty_data_set() -> None:
    data = PreferenceDataset(SPACES, STEPS)
    data.extend([], {})
    assert len(data) == data.last_seq == 0
    assert data.obs.shape == (0, 4, 2)
    assert data.pairs.shape == (0, 2)


def test_pairs_that_are_held_out_train_never_whoever_compares_them() -> None:
    data = PreferenceDataset(SPACES, STEPS)
    data.held_out = {(10, 11)}
    rows = [_row(1, (11, 10)), _row(2, (12, 13)), _row(3, (10, 11), "right", supersedes=1), _row(4, (10, 12))]
    assert data.missing(rows) == [10, 12, 13], "nor are segments of theirs part of what the reward is normalised over"
    data.extend(rows, SEGMENTS)
    assert data.seqs.tolist() == [2, 4]
    assert (data.last_seq, len(data.obs)) == (4, 3)


def test_of_a_held_out_pair_the_first_answer_that_stands_is_new_once() -> None:
    data = PreferenceDataset(SPACES, STEPS)
    data.held_out = {(10, 11), (12, 13), (14, 15), (16, 17)}
    data.extend([_row(1, (10, 11)), _row(2, (18, 19))], SEGMENTS)
    assert [row.seq for row in data.held_out_since(0)] == [1]
    later = [
        _row(3, (10, 11), "right", supersedes=1),  # an edit of what was new before
        _row(4, (13, 12), "left"),
        _row(5, (13, 12), "right", supersedes=4),  # of what is new now
        _row(6, (12, 13)),  # asked again
        _row(7, (14, 15)),
        _row(8, (14, 15), "withdrawn", supersedes=7),
        _row(9, (16, 17), "incomparable"),
    ]
    data.extend(later, SEGMENTS)
    assert [row.seq for row in data.held_out_since(2)] == [5]
    assert data.held_out_since(9) == []


def test_rows_become_arrays_in_order_of_seq() -> None:
    data = _data(_row(1, (12, 10)), _row(2, (10, 13), "right"), _row(3, (13, 12), "tie"))
    assert len(data) == 3
    assert data.mu.tolist() == [1.0, 0.0, 0.5]
    assert data.seqs.tolist() == [1, 2, 3]
    assert data.last_seq == 3
    assert data.obs.shape == (3, STEPS, 2)
    assert data.obs[data.pairs][:, :, 0, 0].tolist() == [[12, 10], [10, 13], [13, 12]]
    assert data.act[data.pairs][:, :, -1, 0].tolist() == [[-12, -10], [-10, -13], [-13, -12]]


def test_each_segment_is_kept_once() -> None:
    data = _data(*[_row(seq, (10, 11)) for seq in range(1, 6)])
    assert data.obs.shape[0] == 2
    assert data.pairs.tolist() == [[0, 1]] * 5


def test_the_ids_of_missing_segments() -> None:
    data = _data(_row(1, (10, 11)))
    rows = [_row(2, (11, 15)), _row(3, (14, 12)), _row(4, (16, 17), "incomparable")]
    assert data.missing(rows) == [12, 14, 15]
    assert data.missing([_row(2, (11, 10))]) == []


def test_incomparable_rows_never_enter_but_move_last_seq() -> None:
    data = _data(_row(1), _row(2, (12, 13), "incomparable"))
    assert data.seqs.tolist() == [1]
    assert data.last_seq == 2
    assert data.obs.shape[0] == 2  # their segments are not loaded either


def test_a_data_set_of_incomparable_rows_alone() -> None:
    data = _data(_row(1, (12, 13), "incomparable"))
    assert len(data) == 0
    assert data.last_seq == 1
    data.extend([_row(2)], SEGMENTS)
    assert data.seqs.tolist() == [2]


def test_an_edit_replaces_the_answer() -> None:
    data = _data(_row(1), _row(2, (12, 13)))
    data.extend([_row(3, (10, 11), "right", supersedes=1)], SEGMENTS)
    assert data.seqs.tolist() == [2, 3]
    assert data.mu.tolist() == [1.0, 0.0]
    assert data.last_seq == 3


def test_an_undo_takes_the_answer_back() -> None:
    data = _data(_row(1), _row(2, (12, 13)), _row(3, (10, 11), "withdrawn", supersedes=1))
    assert data.seqs.tolist() == [2]
    assert data.last_seq == 3


def test_a_chain_of_edits_leaves_the_last_one() -> None:
    rows = [
        _row(1),
        _row(2, answer="right", supersedes=1),
        _row(3, answer="withdrawn", supersedes=2),
        _row(4, answer="tie", supersedes=3),
    ]
    assert [len(_data(*rows[:n])) for n in (1, 2, 3, 4)] == [1, 1, 0, 1]
    assert _data(*rows).mu.tolist() == [0.5]


def test_an_edit_to_incomparable_removes_the_pair() -> None:
    data = _data(_row(1), _row(2, answer="incomparable", supersedes=1))
    assert len(data) == 0
    assert data.pairs.shape == (0, 2)
    assert data.last_seq == 2


def test_the_side_shown_left_is_undone() -> None:
    assert _data(_row(1, answer="left", shown_left=2)).mu.tolist() == [0.0]
    assert _data(_row(1, answer="right", shown_left=2)).mu.tolist() == [1.0]


@pytest.mark.parametrize("steps", [STEPS - 1, STEPS + 1])
def test_another_segment_length_is_refused_by_name(steps: int) -> None:
    data = PreferenceDataset(SPACES, STEPS)
    message = f"segment 11 has {steps} steps, but this run compares segments of {STEPS}"
    with pytest.raises(RewardError, match=message):
        data.extend([_row(1)], {**SEGMENTS, 11: _segment(11, steps)})
    assert len(data) == data.last_seq == 0
    data.extend([_row(1)], SEGMENTS)  # nothing half done is left behind
    assert data.obs[data.pairs][:, :, 0, 0].tolist() == [[10, 11]]


def test_another_shape_is_refused() -> None:
    wrong = Segment(np.zeros((STEPS, 3), np.float32), np.zeros((STEPS, 1), np.float32))
    with pytest.raises(RewardError, match=r"takes observations of shape \(2,\), but was given \(3,\)"):
        PreferenceDataset(SPACES, STEPS).extend([_row(1)], {**SEGMENTS, 11: wrong})


_ANSWERS = st.sampled_from(["left", "right", "tie", "incomparable"])


@given(st.lists(st.tuples(_ANSWERS, st.permutations(range(10, 20))), min_size=1, max_size=30), st.data())
def test_growing_in_parts_equals_growing_at_once(answers: list[tuple[str, list[int]]], draw: st.DataObject) -> None:
    seqs = count(1)
    rows = [_row(next(seqs), (order[0], order[1]), answer) for answer, order in answers]
    old = draw.draw(st.sampled_from(rows))
    rows.append(_row(next(seqs), (old.segment_1, old.segment_2), "withdrawn", supersedes=old.seq))
    cut = draw.draw(st.integers(0, len(rows)))
    whole, parts = _data(*rows), PreferenceDataset(SPACES, STEPS)
    for part in (rows[:cut], rows[cut:]):
        ids = parts.missing(part)
        parts.extend(part, {i: SEGMENTS[i] for i in ids})  # exactly what it asked for
    assert parts.last_seq == whole.last_seq == len(rows)
    np.testing.assert_array_equal(parts.mu, whole.mu)
    np.testing.assert_array_equal(parts.seqs, whole.seqs)
    assert torch.equal(parts.obs[parts.pairs], whole.obs[whole.pairs])
    assert torch.equal(parts.act[parts.pairs], whole.act[whole.pairs])
    expected = [r for r in rows if r.mu is not None and r.seq != old.seq]
    assert whole.seqs.tolist() == [r.seq for r in expected]


def test_steps_of_segments_one_after_the_other() -> None:
    obs, act = stack_steps(_segment(v) for v in (1.0, 2.0))
    assert obs[:, 0].tolist() == [1.0] * 4 + [2.0] * 4
    assert act[:, 0].tolist() == [-1.0] * 4 + [-2.0] * 4


# the newest comparisons alone


def _windowed(window: int, *rows: Comparison) -> PreferenceDataset:
    data = PreferenceDataset(SPACES, STEPS, window)
    data.extend(list(rows), SEGMENTS)
    return data


def _shown(data: PreferenceDataset) -> list[list[float]]:
    return data.obs[data.pairs][:, :, 0, 0].tolist()


def test_the_newest_that_stand_train_and_segments_of_older_ones_alone_are_forgotten() -> None:
    data = _windowed(2, _row(1, (10, 11)), _row(2, (11, 12)), _row(3, (13, 14)))
    assert data.seqs.tolist() == [2, 3]
    assert _shown(data) == [[11, 12], [13, 14]]
    assert len(data.obs) == 4, "11 is in a comparison that stays"
    data.extend([_row(4, (15, 16)), _row(5, (17, 18), "incomparable")], SEGMENTS)
    assert (data.seqs.tolist(), data.last_seq) == ([3, 4], 5)
    assert _shown(data) == [[13, 14], [15, 16]]
    assert data.act[data.pairs][:, :, -1, 0].tolist() == [[-13, -14], [-15, -16]]
    assert sorted(data.obs[:, 0, 0].tolist()) == [13, 14, 15, 16]


def test_one_that_is_taken_back_makes_place_for_an_older_one_whose_segments_are_asked_for() -> None:
    data = _windowed(1, _row(1, (10, 11)), _row(2, (12, 13)))
    undo = [_row(3, (12, 13), "withdrawn", supersedes=2)]
    assert data.missing(undo) == [10, 11]
    data.extend(undo, {i: SEGMENTS[i] for i in (10, 11)})
    assert data.seqs.tolist() == [1]
    assert _shown(data) == [[10, 11]]


def test_reading_all_at_once_loads_no_more_than_the_window() -> None:
    """A process that starts again, after thousands of comparisons."""
    rows = [_row(seq, (10 + seq % 9, 11 + seq % 9)) for seq in range(1, 40)]
    assert PreferenceDataset(SPACES, STEPS, 2).missing(rows) == [12, 13, 14]
    assert len(PreferenceDataset(SPACES, STEPS).missing(rows)) == 10


def test_the_bags_of_those_that_stay_do_not_change() -> None:
    rows = [_row(1, (10, 11)), _row(2, (12, 13)), _row(3, (14, 15)), _row(4, (11, 10), "right")]
    whole, newest = _data(*rows), _windowed(2, *rows)
    assert newest.bags.tolist() == whole.bags[2:].tolist() == [3, 1], "what was said of the pair before counts"


@given(st.lists(st.permutations(range(10, 20)), min_size=1, max_size=25), st.integers(1, 6), st.data())
def test_a_window_equals_the_tail_of_everything_however_it_grows(
    orders: list[list[int]], window: int, draw: st.DataObject
) -> None:
    rows = [_row(seq, (order[0], order[1])) for seq, order in enumerate(orders, 1)]
    cuts = sorted(draw.draw(st.lists(st.integers(0, len(rows)), max_size=4)))
    data, whole = PreferenceDataset(SPACES, STEPS, window), _data(*rows)
    for start, end in zip([0, *cuts], [*cuts, len(rows)], strict=True):
        data.extend(rows[start:end], {i: SEGMENTS[i] for i in data.missing(rows[start:end])})
    assert data.seqs.tolist() == whole.seqs[-window:].tolist()
    assert data.bags.tolist() == whole.bags[-window:].tolist()
    assert _shown(data) == _shown(whole)[-window:]
    assert len(data.obs) == len({i for r in rows[-window:] for i in r.pair})


def test_the_arrays_grow_and_keep_what_is_in_them() -> None:
    many = {i: _segment(i) for i in range(1, 700)}
    rows = [_row(i, (i, i + 1)) for i in range(1, 690)]
    data = PreferenceDataset(SPACES, STEPS)
    data.extend(rows, many)
    assert _shown(data) == [[i, i + 1] for i in range(1, 690)]
