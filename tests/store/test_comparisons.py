"""Evidence: append-only, in order, edited only by later rows."""

from __future__ import annotations

import pytest

from prefrl.errors import DataError
from prefrl.store import comparisons, runs
from prefrl.store.comparisons import NewComparison
from prefrl.store.engine import Database
from prefrl.types import Preference


def imports(ids: list[int], n: int = 4) -> list[NewComparison]:
    return [
        NewComparison(ids[i], ids[i + 1], Preference.LEFT, "file", f"uuid-{i}", detail={"line": i}) for i in range(n)
    ]


def test_tail_goes_on_where_it_was(db: Database, run_id: int, ids: list[int]) -> None:
    made = comparisons.add_comparisons(db, run_id, imports(ids))
    assert [row.seq for row in made] == [1, 2, 3, 4]
    assert comparisons.tail(db, run_id) == made
    assert comparisons.tail(db, run_id, 2) == made[2:]
    assert comparisons.tail(db, run_id, 1, limit=2) == made[1:3]
    assert comparisons.tail(db, run_id, 4) == []
    assert made[2].detail == {"line": 2}
    other = runs.create_run(db, "other", {}, {}).id
    assert comparisons.tail(db, other) == []


def test_undo_and_edit_are_later_rows(db: Database, run_id: int, ids: list[int]) -> None:
    made = comparisons.add_comparisons(db, run_id, imports(ids))
    edit = comparisons.supersede(db, run_id, 2, Preference.RIGHT, "me", "e1")
    undo = comparisons.supersede(db, run_id, 3, Preference.WITHDRAWN, "me", "e2")
    assert (edit.seq, edit.supersedes, edit.mu, edit.annotator) == (5, 2, 0.0, "me")
    assert (undo.seq, undo.supersedes, undo.mu) == (6, 3, None)
    assert (edit.segment_1, edit.segment_2) == (made[1].segment_1, made[1].segment_2)
    everything = comparisons.tail(db, run_id)
    assert everything == [*made, edit, undo]
    assert comparisons.active(everything) == [made[0], made[3], edit]
    assert comparisons.n_counted(db, run_id) == 3
    assert comparisons.supersede(db, run_id, 2, Preference.TIE, "me", "e1") == edit  # sent again
    with pytest.raises(DataError, match="2 was superseded already: change number 5"):
        comparisons.supersede(db, run_id, 2, Preference.TIE, "me", "e3")
    with pytest.raises(DataError, match="no comparison 99: it has 1 to 6"):
        comparisons.supersede(db, run_id, 99, Preference.TIE, "me", "e3")
    redo = comparisons.supersede(db, run_id, undo.seq, Preference.LEFT, "me", "e4")
    assert redo.seq == 7  # what failed took no number
    assert redo in comparisons.active(comparisons.tail(db, run_id))
    assert comparisons.n_counted(db, run_id) == 4


def test_incomparable_is_stored_and_not_counted(db: Database, run_id: int, ids: list[int]) -> None:
    rows = [
        NewComparison(ids[0], ids[1], Preference.INCOMPARABLE, "file", "u1"),
        NewComparison(ids[0], ids[1], Preference.TIE, "file", "u2"),
        NewComparison(ids[0], ids[1], Preference.LEFT, "file", "u3", shown_left=2, created_ms=1234),
    ]
    made = comparisons.add_comparisons(db, run_id, rows)
    assert [row.mu for row in made] == [None, 0.5, 0.0]
    assert made[2].created_ms == 1234
    assert made[0].created_ms > 1_600_000_000_000
    assert comparisons.active(made) == made
    assert comparisons.n_counted(db, run_id) == 2


def test_import_is_all_or_nothing_and_repeatable(db: Database, run_id: int, ids: list[int]) -> None:
    good = imports(ids)
    for bad, message in (
        (NewComparison(ids[0], ids[0], Preference.LEFT, "file", "bad"), "row 5: compares segment"),
        (NewComparison(ids[0], 999_999, Preference.LEFT, "file", "bad"), "no segments .999999."),
        (NewComparison(ids[0], ids[1], Preference.WITHDRAWN, "file", "bad"), "row 5: 'withdrawn'"),
        (NewComparison(ids[0], ids[1], Preference.LEFT, "file", "bad", shown_left=3), "row 5: shown_left is 3"),
        (NewComparison(ids[0], ids[1], Preference.RIGHT, "file", "uuid-0"), "row 5: uuid uuid-0 is stored"),
    ):
        with pytest.raises(DataError, match=message):
            comparisons.add_comparisons(db, run_id, [*good, bad])
        assert comparisons.tail(db, run_id) == []
    made = comparisons.add_comparisons(db, run_id, good)
    more = [*good, NewComparison(ids[8], ids[9], Preference.TIE, "file", "new")]
    again = comparisons.add_comparisons(db, run_id, more)
    assert again[:4] == made
    assert again[4].seq == 5


def test_segments_of_another_run_are_refused(db: Database, run_id: int, ids: list[int]) -> None:
    other = runs.create_run(db, "other", {}, {}).id
    with pytest.raises(DataError, match="no segments"):
        comparisons.add_comparisons(db, other, imports(ids))
