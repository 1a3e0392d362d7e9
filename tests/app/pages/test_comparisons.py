"""The page of comparisons: filters, pages, replay, and changes that only ever append."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from streamlit.testing.v1 import AppTest

from prefrl.store.answers import answer
from prefrl.store.clips import prune_clips
from prefrl.store.comparisons import active, n_counted, supersede, tail
from prefrl.store.engine import Database
from prefrl.store.queue import lease, resume_leases
from prefrl.types import Answer, Preference
from tests.app.pages import made
from tests.app.pages.made import HOSTILE, fine, full, initial, make_run, show, texts

STATES = {"nothing": make_run, "initial": initial, "full": full}


def say(key: str, **values: object) -> str:
    return made.say(f"comparisons.{key}", **values)


def numbers(at: AppTest) -> list[int]:
    """The numbers in the table."""
    return [int(n) for n in at.dataframe[0].value[say("col_seq")]]


def choose(at: AppTest, key: str, value: object) -> AppTest:
    return fine(at.selectbox(key=f"comparisons-{key}").set_value(value).run())


@pytest.mark.parametrize("language", ["en", "ko"])
@pytest.mark.parametrize("readonly", [False, True])
@pytest.mark.parametrize("state", list(STATES))
def test_every_state_is_shown_and_nothing_is_written(
    db: Database, url: str, content: Callable[[], str], state: str, readonly: bool, language: str
) -> None:
    STATES[state](db)
    before = content()
    at = show("comparisons", url, readonly=readonly, language=language, annotator="ann")
    assert at.title[0].value == made.catalogue(language)["comparisons"]["title"]
    assert bool(at.dataframe) == (state != "nothing")
    assert content() == before


def test_filters(db: Database, url: str) -> None:
    run = full(db)
    rows = tail(db, run.id)
    at = show("comparisons", url)
    assert numbers(at) == [r.seq for r in reversed(rows)]
    assert say("total", n=len(rows)) in texts(at)
    choose(at, "who", HOSTILE)
    assert numbers(at) == [r.seq for r in reversed(rows) if r.annotator == HOSTILE]
    choose(at, "what", Preference.TIE)
    assert numbers(at) == [r.seq for r in reversed(rows) if r.annotator == HOSTILE and r.preference == "tie"]
    choose(at, "who", None)
    choose(at, "what", None)
    choose(at, "superseded", True)
    assert numbers(at) == [1]
    choose(at, "late", True)
    assert say("empty") in texts(at)


def test_pages_and_order(db: Database, url: str) -> None:
    run = full(db)
    seqs = [r.seq for r in tail(db, run.id)]
    at = choose(show("comparisons", url), "size", 10)
    assert numbers(at) == seqs[::-1][:10]
    fine(at.number_input(key="comparisons-page").set_value(3).run())
    assert numbers(at) == seqs[::-1][20:]
    fine(at.toggle(key="comparisons-descending").set_value(False).run())
    assert numbers(at) == seqs[20:]
    choose(at, "who", HOSTILE)  # fewer pages than the one that is open
    assert len(numbers(at)) == 8
    choose(at, "sort", "response_ms")
    assert [int(t) for t in at.dataframe[0].value[say("col_response_ms")]] == [1000 * n for n in range(1, 9)]


def test_clips_are_shown_as_they_were_and_missing_ones_are_explained(db: Database, url: str) -> None:
    run = full(db)
    (held,) = resume_leases(db, run.id, "eve")  # both clips are drawn
    (failed,) = lease(db, run.id, "eve")  # one of its clips failed
    for one in (failed, held):
        answer(db, [Answer(one.query_id, one.token, Preference.LEFT, "eve", one.token)])
    newest = tail(db, run.id)[-1].seq
    at = show("comparisons", url, annotator="ann")
    assert at.selectbox(key="comparisons-open").value == newest
    assert len(at.get("video")) == 2
    choose(at, "open", newest - 1)
    assert len(at.get("video")) == 1
    assert [i.value for i in at.info] == [say("clip_failed")]
    assert [t.value for t in at.text] == ["*no* context"]
    choose(at, "open", 2)
    assert [i.value for i in at.info] == [say("clip_pruned")] * 2
    prune_clips(db, run.id, 0)
    choose(at, "open", newest)
    assert [i.value for i in at.info] == [say("clip_pruned")] * 2


def test_an_edit_appends_once_and_shows_its_history(db: Database, url: str) -> None:
    run = full(db)
    before = tail(db, run.id)
    at = choose(show("comparisons", url, annotator="editor"), "open", 3)
    old = before[2]
    assert at.radio[0].value == old.preference
    fine(at.button(key="comparisons-save").click().run())
    assert say("unchanged") in texts(at)
    fine(at.radio[0].set_value(Preference.TIE).run())
    fine(at.button(key="comparisons-save").click().run())
    rows = tail(db, run.id)
    assert rows[:-1] == before
    assert (rows[-1].supersedes, rows[-1].preference, rows[-1].annotator) == (3, Preference.TIE, "editor")
    assert rows[-1].detail == {"authenticated": False, "page": "comparisons"}
    assert say("saved", n=rows[-1].seq, old=3) in texts(at)
    choose(at, "open", 3)
    assert say("replaced", n=rows[-1].seq) in texts(at)
    assert not at.button
    assert at.dataframe[1].value[say("col_seq")].tolist() == [3, rows[-1].seq]


def test_withdrawing_takes_the_answer_out_and_can_be_undone(db: Database, url: str) -> None:
    run = full(db)
    counted = n_counted(db, run.id)
    at = choose(show("comparisons", url, annotator="ann"), "open", 3)
    fine(at.button(key="comparisons-withdraw").click().run())
    last = tail(db, run.id)[-1]
    assert (last.supersedes, last.preference) == (3, Preference.WITHDRAWN)
    assert n_counted(db, run.id) == counted - 1
    choose(at, "open", last.seq)
    assert at.button(key="comparisons-withdraw").disabled
    fine(at.radio[0].set_value(Preference.LEFT).run())
    fine(at.button(key="comparisons-save").click().run())
    assert n_counted(db, run.id) == counted
    assert len(active(tail(db, run.id))) == 21


def test_someone_else_was_faster(db: Database, url: str) -> None:
    run = full(db)
    at = choose(show("comparisons", url, annotator="ann"), "open", 3)
    fine(at.radio[0].set_value(Preference.TIE).run())
    supersede(db, run.id, 3, Preference.RIGHT, "eve", "first")
    n = len(tail(db, run.id))
    fine(at.button(key="comparisons-save").click().run())
    assert len(tail(db, run.id)) == n  # the page reads before it writes, and offers nothing to replace


def test_a_change_needs_a_name_and_the_right(db: Database, url: str) -> None:
    initial(db)
    at = show("comparisons", url)
    assert say("name_needed") in texts(at)
    assert at.button(key="comparisons-save").disabled
    for bad in ("oracle", " Import ", "<b>"):
        fine(at.text_input(key="comparisons-name").set_value(bad).run())
        assert say("name_bad") in texts(at)
        assert at.button(key="comparisons-save").disabled
    fine(at.text_input(key="comparisons-name").set_value("ann").run())
    assert not at.button(key="comparisons-save").disabled
    for readonly, editable, word in ((True, True, "read_only"), (False, False, "not_allowed")):
        at = show("comparisons", url, readonly=readonly, editable=editable, annotator="ann")
        assert say(word) in texts(at)
        assert not at.button
