"""Looking through comparisons, on both engines."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import sqlalchemy as sa

from prefrl.errors import DataError
from prefrl.store import browse, clips, queue, runs
from prefrl.store.browse import Filter, comparisons_page
from prefrl.store.comparisons import NewComparison, active, add_comparisons, supersede, tail
from prefrl.store.engine import Database
from prefrl.store.schema import query
from prefrl.types import Answer, Comparison, Preference

LEFT, RIGHT, TIE, WITHDRAWN = Preference.LEFT, Preference.RIGHT, Preference.TIE, Preference.WITHDRAWN
HOSTILE = "x' OR '1'='1'; DROP TABLE comparison; --"


@pytest.fixture
def rows(db: Database, run_id: int, ids: list[int]) -> list[Comparison]:
    """Eight imported answers of three annotators, an edit, an undo, and a late answer; another run has one too."""
    said = [LEFT, RIGHT, TIE, LEFT, RIGHT, TIE, LEFT, LEFT]
    names = ["ann", "bob", HOSTILE, "ann", "bob", "ann", "ann", "bob"]
    new = [
        NewComparison(ids[i], ids[i + 1], s, who, f"u{i}", created_ms=1000 - i)
        for i, (s, who) in enumerate(zip(said, names, strict=True))
    ]
    add_comparisons(db, run_id, new)
    supersede(db, run_id, 2, LEFT, "bob", "edit")  # seq 9
    supersede(db, run_id, 3, WITHDRAWN, HOSTILE, "undo")  # seq 10
    (query,) = queue.propose(db, run_id, [(ids[0], ids[9])])
    (one,) = queue.lease(db, run_id, "ann", lease_ms=-1, rng=np.random.default_rng(0))
    (two,) = queue.lease(db, run_id, "bob", rng=np.random.default_rng(0))
    sent = [Answer(query, x.token, RIGHT, who, f"q-{who}", ms) for x, who, ms in ((two, "bob", 700), (one, "ann", 900))]
    queue.answer(db, sent)  # seq 11 on time, 12 late
    other = runs.create_run(db, "other", {}, {}).id
    add_comparisons(db, other, [])
    return tail(db, run_id)


def test_pages_cover_everything_once(db: Database, run_id: int, rows: list[Comparison]) -> None:
    newest_first = [r.seq for r in reversed(rows)]
    seen: list[int] = []
    for offset in itertools.count(0, 5):
        page = comparisons_page(db, run_id, limit=5, offset=offset)
        assert page.total == 12
        if not page.entries:
            break
        seen += [e.comparison.seq for e in page.entries]
    assert seen == newest_first
    (entry,) = comparisons_page(db, run_id, limit=1, offset=11).entries
    assert entry.comparison == rows[0]
    assert comparisons_page(db, run_id + 1).total == 0


def test_filters_agree_with_a_scan(db: Database, run_id: int, rows: list[Comparison]) -> None:
    by = {r.supersedes: r.seq for r in rows if r.supersedes is not None}
    choices = itertools.product(
        [None, "ann", "bob", HOSTILE, "nobody"],
        [None, LEFT, RIGHT, TIE, WITHDRAWN],
        [None, True, False],
        [None, True, False],
    )
    for annotator, preference, late, superseded in choices:
        expected = [
            r.seq
            for r in rows
            if annotator in (None, r.annotator)
            and preference in (None, r.preference)
            and late in (None, r.late)
            and superseded in (None, r.seq in by)
        ]
        wanted = Filter(annotator, preference, late, superseded)
        page = comparisons_page(db, run_id, wanted, descending=False)
        assert [e.comparison.seq for e in page.entries] == expected, wanted
        assert page.total == len(expected)
        assert all(e.superseded_by == by.get(e.comparison.seq) for e in page.entries)


@pytest.mark.parametrize("sort", list(browse.SORTS))
@pytest.mark.parametrize("descending", [False, True])
def test_every_order_is_total_and_puts_the_unknown_last(
    db: Database, run_id: int, rows: list[Comparison], sort: str, descending: bool
) -> None:
    found = [e.comparison for e in comparisons_page(db, run_id, sort=sort, descending=descending).entries]
    known = [(getattr(r, sort), r.seq) for r in found if getattr(r, sort) is not None]
    if sort not in ("annotator", "preference"):  # the engines' alphabets differ
        assert known == sorted(known, reverse=descending)
    assert all(getattr(r, sort) is None for r in found[len(known) :])
    assert {r.seq for r in found} == {r.seq for r in rows}


def test_columns_and_sizes_are_from_a_list(db: Database, run_id: int) -> None:
    for sort in ("uuid", "seq; DROP TABLE run", "", "SEQ"):
        with pytest.raises(DataError, match="cannot be sorted by"):
            comparisons_page(db, run_id, sort=sort)
    for limit, offset in ((0, 0), (1001, 0), (5, -1)):
        with pytest.raises(DataError, match="a page has"):
            comparisons_page(db, run_id, limit=limit, offset=offset)
    with pytest.raises(ValueError, match="not a valid Preference"):
        comparisons_page(db, run_id, Filter(preference="' OR 1=1"))  # type: ignore[arg-type]  # from a web page


def test_history_is_the_chain_from_any_of_its_rows(db: Database, run_id: int, rows: list[Comparison]) -> None:
    supersede(db, run_id, 9, TIE, "cia", "edit 2")  # seq 13
    for seq in (2, 9, 13):
        assert [r.seq for r in browse.history(db, run_id, seq)] == [2, 9, 13]
    assert browse.history(db, run_id, 1) == [rows[0]]
    with pytest.raises(DataError, match="no comparison 99"):
        browse.history(db, run_id, 99)
    assert len(active(tail(db, run_id))) == 9  # 13 without the replaced 2, 3, 9 and the undo itself


def test_names(db: Database, run_id: int, rows: list[Comparison]) -> None:
    assert browse.annotators(db, run_id) == sorted(["ann", "bob", HOSTILE])
    assert browse.annotators(db, run_id + 1) == []


def test_waiting_queries(db: Database, run_id: int, ids: list[int], rows: list[Comparison]) -> None:
    assert browse.waiting(db, run_id) is None  # the only query is answered
    queue.propose(db, run_id, [(ids[1], ids[3]), (ids[1], ids[4]), (ids[1], ids[5])])
    queue.lease(db, run_id, "ann")
    found = browse.waiting(db, run_id)
    assert found is not None
    assert found.n == 3
    assert 0 <= found.median_ms <= found.oldest_ms < 60_000
    assert abs(browse.database_now_ms(db) - rows[-1].created_ms) < 60_000


def test_gold_questions_bring_their_answers(db: Database, run_id: int, ids: list[int]) -> None:
    queue.propose(db, run_id, [(ids[0], ids[1])], scores=[1.0])
    gold = queue.propose(db, run_id, [(ids[0], ids[2]), (ids[3], ids[0])], scores=[1.0, 0.0])
    with db.write() as connection:
        connection.execute(sa.update(query).where(query.c.id.in_(gold)).values(purpose="gold"))
    assert browse.expected_answers(db, run_id) == {gold[0]: 1.0, gold[1]: 0.0}
    assert browse.expected_answers(db, run_id + 1) == {}


def test_clips_over_the_run(db: Database, run_id: int, ids: list[int]) -> None:
    assert browse.clips_over_the_run(db, run_id) == ([], [])
    queue.propose(db, run_id, [(ids[i], ids[i + 1]) for i in range(0, 6, 2)])
    claimed = clips.claim_clips(db, run_id, 9)
    for number, id_ in enumerate(claimed):
        if number == 0:
            clips.fail_clip(db, id_, "it broke")
        else:
            clips.store_clip(db, id_, b"video", {})
    assert browse.clips_over_the_run(db, run_id) == (ids[1:3], ids[4:6])
    assert browse.clips_over_the_run(db, run_id, 3) == (ids[1:4], ids[4:6])
    assert browse.segment_steps(db, ids[:2]) == {ids[0]: 100, ids[1]: 100}
