"""A labeling session over the store: nothing is lost, nothing lands on the wrong pair."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest
import sqlalchemy as sa

from labeling_app.outbox import Sent, read_sent
from labeling_app.session import Labeler, Pair, Taken
from labeling_app.states import PageState, situation
from prefrl.errors import StoreError
from prefrl.store import clips, history, queue, runs, workers
from prefrl.store.again import UNDO_MS
from prefrl.store.comparisons import n_counted, supersede
from prefrl.store.schema import comparison, query, query_skip
from prefrl.store.schema import lease as lease_table
from prefrl.types import Comparison, Preference

Make = Callable[..., dict[str, object]]
ONE, TWO = "0123456789abcdef", "fedcba9876543210"  # tabs of a browser


def outcomes(taken: Taken) -> list[str]:
    assert taken.reachable
    return [ack.outcome for ack in taken.acks]


def check(desk, row: Comparison, pair: Pair, kind: str) -> None:
    """The row says of the pair what was said when it was on the screen."""
    left, right = desk.shown(pair.token)
    assert row.query_id == pair.query_id
    assert row.preference.value == kind
    assert desk.preferred(row) == {"left": left, "right": right}.get(kind)


def end_leases(desk) -> None:
    with desk.db.write() as connection:
        connection.execute(sa.update(query).where(query.c.state == "leased").values(lease_expires_ms=0))


def test_pairs_are_held_and_answered(desk, entry: Make) -> None:
    made = desk.propose(6)
    ann = desk.labeler()
    held = ann.refill()
    assert [pair.query_id for pair in held.pairs] == made[:3]
    assert (held.past, held.done, held.budget) == ((), 0, 200)
    assert ann.refill().pairs == held.pairs  # the same leases again, as after a reload
    kinds = ["left", "right", "tie"]
    sent = [entry(pair, kind) for pair, kind in zip(held.pairs, kinds, strict=True)]
    taken = ann.take(sent)
    assert [(ack.id, ack.kind, ack.outcome) for ack in taken.acks] == [
        (one["id"], kind, "saved") for one, kind in zip(sent, kinds, strict=True)
    ]
    for row, pair, kind in zip(desk.rows(), held.pairs, kinds, strict=True):
        check(desk, row, pair, kind)
        assert (row.annotator, row.response_ms) == ("ann", 1234)
        assert row.detail == {"authenticated": False, "loops": 2, "replays": 0, "speed": 1, "wait_ms": 31}
    after = ann.refill()
    assert [pair.query_id for pair in after.pairs] == made[3:]
    assert after.done == 3
    assert [one.id for one in after.past] == [one["id"] for one in reversed(sent)]


def test_sent_again_is_stored_once(desk, entry: Make) -> None:
    desk.propose(3)
    ann = desk.labeler()
    one, two, _ = ann.refill().pairs
    sent = [entry(one, "left"), entry(two, "incomparable")]
    assert outcomes(ann.take(sent)) == ["saved", "saved"]
    for again in (sent, sent[1:], [*sent, *sent]):  # a dead server, another session, a copied tab
        assert set(outcomes(desk.labeler().take(again))) == {"saved"}
    assert len(desk.rows()) == 2
    assert ann.refill().done == 1  # can't tell is no comparison


def test_two_annotators(desk, entry: Make) -> None:
    desk.propose(5)
    ann, bob = desk.labeler(), desk.labeler("bob")
    hers, his = ann.refill().pairs, bob.refill().pairs
    assert len({pair.query_id for pair in hers + his}) == len({pair.token for pair in hers + his}) == 5
    assert bob.refill().pairs == his
    ann.take([entry(hers[0], "left")])
    bob.take([entry(his[0], "right")])
    for row, pair, name, kind in zip(desk.rows(), (hers[0], his[0]), ("ann", "bob"), ("left", "right"), strict=True):
        check(desk, row, pair, kind)
        assert row.annotator == name


def test_an_answer_belongs_to_whom_its_pair_was_given(desk, entry: Make) -> None:
    """The name was changed while answers waited in the browser."""
    desk.propose(3)
    ann = desk.labeler()
    pair = ann.refill().pairs[0]
    assert outcomes(desk.labeler("bob").take([entry(pair, "right")])) == ["saved"]
    (row,) = desk.rows()
    assert row.annotator == "ann"
    check(desk, row, pair, "right")


def test_a_lost_lease_is_answered_all_the_same(desk, entry: Make) -> None:
    """The page slept; meanwhile somebody else has the pair, and has answered one of them."""
    desk.propose(2)
    ann, bob = desk.labeler(), desk.labeler("bob")
    first, second = ann.refill().pairs
    end_leases(desk)
    other, same = bob.refill().pairs
    assert (other.query_id, same.query_id) == (first.query_id, second.query_id)
    bob.take([entry(other, "left")])
    assert outcomes(ann.take([entry(first, "right"), entry(second, "left")])) == ["late", "saved"]
    rows = desk.rows()
    check(desk, rows[1], first, "right")
    check(desk, rows[2], second, "left")
    assert [row.late for row in rows] == [False, True, False]
    assert n_counted(desk.db, desk.run.id) == 2
    assert bob.refill().pairs == ()  # the second was answered over his head
    assert outcomes(bob.take([entry(same, "tie")])) == ["late"]


def test_two_tabs_hold_pairs_of_their_own(desk, entry: Make) -> None:
    made = desk.propose(8)
    one, two = desk.labeler(tab=ONE), desk.labeler(tab=TWO)
    here, there = one.refill().pairs, two.refill().pairs
    assert [pair.query_id for pair in here + there] == made[:6]
    assert desk.labeler(tab=ONE).refill().pairs == here, "as after a reload"
    assert desk.labeler("bob", ONE).refill().pairs != here, "a tab's name opens nothing of somebody else"
    assert outcomes(two.take([entry(here[0], "left")])) == ["saved"], "an answer may come through any tab"
    assert [row.annotator for row in desk.rows()] == ["ann"]
    end_leases(desk)  # the first tab is gone
    assert [pair.query_id for pair in desk.labeler(tab=TWO, prefetch=2).refill().pairs] == made[1:3]


def test_what_another_tab_holds_is_told(desk, entry: Make) -> None:
    workers.claim(desk.db, desk.run.id, "rollout")
    desk.propose(2)
    one, two = desk.labeler(tab=ONE), desk.labeler(tab=TWO)
    assert len(one.refill().pairs) == 2
    state, now = state_of(desk, tab=TWO)
    assert (state, now.n) == (PageState.HELD_ELSEWHERE, 2)
    assert 60_000 < now.wait_ms <= 120_000
    assert state_of(desk, "bob")[0] is PageState.LEASED_BY_OTHERS
    one.take([entry(pair, "left") for pair in one.refill().pairs])
    assert state_of(desk, tab=TWO)[0] is PageState.ALL_ANSWERED
    assert [past.pair.query_id for past in two.refill().past] == [row.query_id for row in reversed(desk.rows())]


def test_an_undo_shows_its_pair_in_its_own_tab(desk, entry: Make) -> None:
    """And in any tab, once it can be thought to be forgotten there."""
    desk.propose(4)
    one, two = desk.labeler(tab=ONE, prefetch=1), desk.labeler(tab=TWO, prefetch=1)
    (pair,), (other,) = one.refill().pairs, two.refill().pairs
    answer = entry(pair, "left")
    undo = undo_of(entry, answer, pair, id=f"{TWO}-taken-back-in-the-second-tab")
    assert outcomes(two.take([answer, undo])) == ["saved", "undone"]
    assert two.refill().pairs == (Pair(pair.token, pair.query_id, undo["id"]), other)
    assert pair.query_id not in {held.query_id for held in one.refill().pairs}
    with desk.db.write() as connection:
        earlier = comparison.c.created_ms - UNDO_MS
        connection.execute(sa.update(comparison).values(created_ms=earlier))
    assert one.refill().pairs[0].query_id == pair.query_id


def test_one_pair_in_two_tabs(desk, entry: Make) -> None:
    """The lease ran out in one of them; both answers are kept."""
    desk.propose(1)
    ann = desk.labeler()
    (pair,) = ann.refill().pairs
    assert desk.labeler().refill().pairs == (pair,)
    assert outcomes(ann.take([entry(pair, "left")])) == ["saved"]
    assert outcomes(desk.labeler().take([entry(pair, "right")])) == ["late"]
    for row, kind in zip(desk.rows(), ("left", "right"), strict=True):
        check(desk, row, pair, kind)
    assert ann.refill().done == 1


def undo_of(entry: Make, answer: dict[str, object], pair: Pair, **more: object) -> dict[str, object]:
    return entry(pair, "undo", target=answer["id"], **more)


def test_undo_and_answer_anew(desk, entry: Make) -> None:
    desk.propose(3)
    ann = desk.labeler()
    pair, other, _ = ann.refill().pairs
    wrong = entry(pair, "left")
    ann.take([wrong, entry(other, "tie")])
    undo = undo_of(entry, wrong, pair)
    assert outcomes(ann.take([undo])) == ["undone"]
    held = ann.refill()
    assert held.done == 1
    assert held.pairs[0] == Pair(pair.token, pair.query_id, undo["id"])  # the same lease: the same sides
    assert wrong["id"] not in {one.id for one in held.past}
    assert desk.labeler().refill().pairs[0] == held.pairs[0]  # also after a reload
    right = entry(held.pairs[0], "right")
    assert outcomes(ann.take([right])) == ["saved"]
    last = desk.rows()[-1]
    check(desk, last, pair, "right")
    assert not last.late
    assert (last.response_ms, last.detail["loops"]) == (1234, 2)
    assert [row.preference.value for row in desk.standing()] == ["tie", "right"]
    assert ann.refill().done == 2
    # everything once more, as after a dead server
    assert outcomes(ann.take([wrong, undo, right])) == ["saved", "undone", "saved"]
    assert len(desk.rows()) == 4
    # and the new answer can be taken back in turn
    again = undo_of(entry, right, pair)
    assert outcomes(ann.take([again])) == ["undone"]
    assert ann.refill().pairs[0].replaces == again["id"]


def test_undo_of_what_was_never_sent(desk, entry: Make) -> None:
    """Answer, undo and new answer wait in one outbox while the server is away."""
    desk.propose(3)
    ann = desk.labeler()
    pair = ann.refill().pairs[0]
    wrong = entry(pair, "left")
    undo = undo_of(entry, wrong, pair)
    new = entry(pair, "right", replaces=undo["id"])
    assert outcomes(ann.take([wrong, undo, new])) == ["saved", "undone", "saved"]
    (row,) = desk.standing()
    check(desk, row, pair, "right")
    assert len(desk.rows()) == 3


def test_undo_reaches_ten_answers(desk, entry: Make) -> None:
    desk.propose(12)
    ann = desk.labeler(prefetch=12)
    pairs = ann.refill().pairs
    sent = [entry(pair, "left") for pair in pairs]
    ann.take(sent)
    assert [one.id for one in ann.refill().past] == [one["id"] for one in sent[:1:-1]]
    assert outcomes(ann.take([undo_of(entry, sent[1], pairs[1])])) == ["too_long_ago"]
    assert outcomes(ann.take([undo_of(entry, sent[2], pairs[2])])) == ["undone"]
    assert len(desk.standing()) == 11


def test_undo_touches_nobody_elses_answer(desk, entry: Make) -> None:
    desk.propose(2)
    ann, bob = desk.labeler(prefetch=1), desk.labeler("bob", prefetch=1)
    (hers,), (his,) = ann.refill().pairs, bob.refill().pairs
    answer = entry(hers, "left")
    ann.take([answer])
    assert outcomes(bob.take([undo_of(entry, answer, his)])) == ["nothing_to_undo"]
    (row,) = desk.rows()
    supersede(desk.db, desk.run.id, row.seq, Preference.TIE, "owner", "owner-changed-it")
    assert outcomes(ann.take([undo_of(entry, answer, hers)])) == ["changed"]
    assert ann.refill().past == ()
    missing = entry(hers, "undo", target="never-was-there")
    assert outcomes(ann.take([missing])) == ["nothing_to_undo"]


def one_answer(desk, entry: Make):
    """A page, a pair, and the answer that was given to it."""
    desk.propose(1)
    ann = desk.labeler()
    (pair,) = ann.refill().pairs
    answer = entry(pair, "left")
    ann.take([answer])
    return ann, pair, answer


def test_what_the_owner_took_back_stays_between_him_and_its_annotator(desk, entry: Make) -> None:
    """Else he would answer the pair under her lease, and the row would be hers."""
    ann, pair, answer = one_answer(desk, entry)
    gone = supersede(desk.db, desk.run.id, 1, Preference.WITHDRAWN, "boss", "owner-took-it-back")
    for name in ("boss", "ann"):
        assert desk.labeler(name).refill().pairs == desk.labeler(name).refill().past == ()
    before = desk.rows()
    for replaces in (gone.uuid, answer["id"], "an-undo-never-stored"):
        assert outcomes(ann.take([entry(pair, "right", replaces=replaces)])) == ["changed"]
    assert desk.rows() == before


def test_an_answer_anew_never_stands_beside_the_owners(desk, entry: Make) -> None:
    ann, pair, answer = one_answer(desk, entry)
    edit = supersede(desk.db, desk.run.id, 1, Preference.RIGHT, "boss", "owner-changed-it")
    undo = undo_of(entry, answer, pair)
    assert outcomes(ann.take([undo, entry(pair, "tie", replaces=undo["id"])])) == ["changed", "changed"]
    assert desk.standing() == [edit]


def test_a_first_answer_may_follow_an_undo_that_found_nothing(desk, entry: Make) -> None:
    desk.propose(1)
    ann = desk.labeler()
    (pair,) = ann.refill().pairs
    undo = entry(pair, "undo", target="never-was-there")
    assert outcomes(ann.take([undo, entry(pair, "tie", replaces=undo["id"])])) == ["nothing_to_undo", "saved"]
    (row,) = desk.standing()
    check(desk, row, pair, "tie")


def test_undo_in_two_tabs(desk, entry: Make) -> None:
    """Both take the same answer back, and both answer anew: the last word counts, on the same pair."""
    desk.propose(1)
    ann = desk.labeler()
    (pair,) = ann.refill().pairs
    answer = entry(pair, "left")
    here, there = undo_of(entry, answer, pair), undo_of(entry, answer, pair)
    assert outcomes(ann.take([answer, here, there])) == ["saved", "undone", "undone"]
    first = entry(pair, "tie", replaces=here["id"])
    second = entry(pair, "right", replaces=there["id"])  # of an undo that found nothing left to do
    assert outcomes(ann.take([first, second])) == ["saved", "saved"]
    (row,) = desk.standing()
    check(desk, row, pair, "right")


def test_a_refused_undo_and_the_answer_after_it(desk, entry: Make) -> None:
    """The browser showed the pair again at once; what was said then still replaces the old answer."""
    desk.propose(12)
    ann = desk.labeler(prefetch=12)
    pairs = ann.refill().pairs
    sent = [entry(pair, "left") for pair in pairs]
    ann.take(sent)
    undo = undo_of(entry, sent[0], pairs[0])
    new = entry(pairs[0], "right", replaces=undo["id"])
    assert outcomes(ann.take([undo, new])) == ["too_long_ago", "saved"]
    assert len(desk.standing()) == 12
    check(desk, desk.standing()[-1], pairs[0], "right")


def test_skip(desk, entry: Make) -> None:
    made = desk.propose(2)
    ann = desk.labeler()
    one, two = ann.refill().pairs
    skip = entry(one, "skip")
    assert outcomes(ann.take([skip, skip])) == ["skipped", "skipped"]
    assert ann.refill().pairs == (two,)
    assert desk.labeler("bob").refill().pairs[0].query_id == made[0]
    answer = entry(two, "left")
    undo = undo_of(entry, answer, two)
    ann.take([answer, undo])
    (again,) = ann.refill().pairs
    assert outcomes(ann.take([entry(again, "skip")])) == ["skipped"]
    assert ann.refill().pairs == ()  # taken back, and not wanted again
    assert desk.standing() == []
    with desk.db.read() as connection:
        count = sa.select(sa.func.count()).select_from(query_skip).where(query_skip.c.query_id == again.query_id)
        n_skips = connection.execute(count).scalar_one()
    assert outcomes(ann.take([entry(again, "skip", id="sent-many-times")] * 3)) == ["skipped"] * 3
    with desk.db.read() as connection:
        assert connection.execute(count).scalar_one() == n_skips == 1


def test_a_pair_without_clips_is_not_shown_again(desk, entry: Make) -> None:
    desk.propose(1)
    ann = desk.labeler()
    (pair,) = ann.refill().pairs
    answer = entry(pair, "left")
    ann.take([answer, undo_of(entry, answer, pair)])
    assert len(ann.refill().pairs) == 1
    clips.prune_clips(desk.db, desk.run.id, 0)
    assert ann.refill().pairs == ()


@pytest.mark.parametrize(
    "bad",
    [
        None,
        7,
        "left",
        [],
        {},
        {"id": "x"},
        {"id": 12345678},
        {"id": "a-fine-identifier"},
        {"id": "a-fine-identifier", "kind": "withdrawn", "token": "0" * 32, "query_id": 1},
        {"id": "a-fine-identifier", "kind": ["left"], "token": "0" * 32, "query_id": 1},
        {"id": "a-fine-identifier", "kind": "left", "token": "'; DROP TABLE query", "query_id": 1},
        {"id": "a-fine-identifier", "kind": "left", "token": "0" * 32, "query_id": True},
        {"id": "a-fine-identifier", "kind": "left", "token": "0" * 32, "query_id": "1"},
        {"id": "a-fine-identifier", "kind": "undo", "token": "0" * 32, "query_id": 1},
        {"id": "a-fine-identifier", "kind": "left", "token": "0" * 32, "query_id": 1, "replaces": 5},
        {"id": "a" * 65, "kind": "left", "token": "0" * 32, "query_id": 1},
    ],
)
def test_a_bad_entry_stops_nothing(desk, entry: Make, bad: object) -> None:
    desk.propose(2)
    ann = desk.labeler()
    one, two = ann.refill().pairs
    taken = ann.take([entry(one, "left"), bad, entry(two, "right")])
    assert outcomes(taken) == ["saved", "malformed", "saved"]
    assert not taken.acks[1].stored
    if isinstance(bad, dict) and bad.get("id") == "a-fine-identifier":
        assert taken.acks[1].id == bad["id"]  # or the browser would send it for ever


def test_entries_that_name_no_pair(desk, entry: Make) -> None:
    desk.propose(2)
    ann = desk.labeler()
    one, two = ann.refill().pairs
    stranger = Pair("0" * 32 + "-1", one.query_id)
    mixed = Pair(one.token, two.query_id)
    first = entry(one, "left")
    taken = ann.take([entry(stranger), entry(mixed), first, {**entry(two, "right"), "id": first["id"]}])
    assert outcomes(taken) == ["unknown", "unknown", "saved", "unknown"]
    assert len(desk.rows()) == 1
    for nothing in (None, "x", {}, 5, {"tab": 7, "entries": "x"}):
        assert read_sent(nothing) == Sent()
    assert ann.take([]) == Taken()


def test_numbers_about_the_view_are_only_numbers(desk, entry: Make) -> None:
    desk.propose(1)
    ann = desk.labeler()
    (pair,) = ann.refill().pairs
    view = {"loops": float("nan"), "speed": "<b>", "wait_ms": 1e300, "replays": 3, "authenticated": True}
    ann.take([entry(pair, "left", view=view, response_ms=-5)])
    (row,) = desk.rows()
    assert row.detail == {"authenticated": False, "replays": 3}
    assert row.response_ms is None


def test_a_number_that_is_too_large_stops_nothing(desk, entry: Make) -> None:
    desk.propose(1)
    ann = desk.labeler()
    (pair,) = ann.refill().pairs
    huge = 10**400  # JSON holds whole numbers of any length; no float does
    sent = entry(pair, "left", view={"loops": huge, "speed": -huge}, response_ms=huge)
    assert outcomes(ann.take([sent])) == ["saved"]
    (row,) = desk.rows()
    assert (row.detail, row.response_ms) == ({"authenticated": False}, None)
    far = Pair(pair.token, huge)  # nor is it a row of any table
    assert outcomes(ann.take([entry(far, "left")])) == ["unknown"]


def test_entries_of_another_database_stay_in_the_browser(desk, entry: Make) -> None:
    desk.propose(2)
    ann = desk.labeler()
    one, two = ann.refill().pairs
    stranger = Pair("0" * 32 + "-1", 1)
    other = "0123456789abcdef"
    taken = ann.take(
        [entry(stranger, "left", run=other), entry(stranger, "left", run=ann.key), entry(one, run=ann.key)]
    )
    assert [(ack.id, ack.outcome) for ack in taken.acks] == [
        ("client-made-0001", "unknown"),
        ("client-made-0002", "saved"),
    ]
    # another run of the same database is shown meanwhile: its lease is known, so nothing waits
    elsewhere = Labeler(desk.db, runs.create_run(desk.db, "other", {}, {}), "ann")
    assert elsewhere.key != ann.key
    assert outcomes(elsewhere.take([entry(two, "right", run=ann.key)])) == ["saved"]
    check(desk, desk.rows()[1], two, "right")


def test_the_budget(desk, entry: Make) -> None:
    desk.propose(4)
    runs.update_config(desk.db, desk.run.id, {"label": {"budget": 2}})
    ann = desk.labeler()
    pairs = ann.refill().pairs
    assert len(pairs) == 2
    sent = [entry(pair, "left") for pair in pairs]
    ann.take(sent)
    held = ann.refill()
    assert (held.pairs, held.complete) == ((), True)
    assert situation(desk.db, desk.run, "ann", held).state is PageState.BUDGET_REACHED
    ann.take([undo_of(entry, sent[0], pairs[0])])
    held = ann.refill()
    assert held.pairs[0].token == pairs[0].token
    assert len(held.pairs) == 2  # one more is wanted now


def test_a_locked_database_is_a_delay(desk, entry: Make) -> None:
    desk.propose(2)
    ann = desk.labeler()
    pair = ann.refill().pairs[0]
    locked, waited = threading.Event(), 5.0

    def hold() -> None:
        with desk.db.write() as connection:
            connection.execute(sa.update(query).values(purpose=query.c.purpose))
            locked.set()
            time.sleep(waited)

    thread = threading.Thread(target=hold)
    thread.start()
    assert locked.wait(10)
    begun = time.monotonic()
    assert outcomes(ann.take([entry(pair, "left")])) == ["saved"]
    assert time.monotonic() - begun > waited - 1
    thread.join()
    check(desk, desk.rows()[0], pair, "left")


def test_a_database_out_of_reach_acknowledges_nothing(desk, entry: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.propose(3)
    ann = desk.labeler()
    one, two, _ = ann.refill().pairs
    sent = [entry(one, "left"), entry(two, "right")]
    real, calls = queue.answer, []

    def answer(*arguments: object) -> object:
        calls.append(arguments)
        if len(calls) == 2:
            raise StoreError("gone")
        return real(*arguments)

    monkeypatch.setattr(queue, "answer", answer)
    taken = ann.take([*sent, undo_of(entry, sent[0], one)])
    assert [ack.outcome for ack in taken.acks] == ["saved"]  # in order: nothing behind the one that failed
    assert not taken.reachable
    assert outcomes(ann.take(sent)) == ["saved", "saved"]
    for row, pair, kind in zip(desk.rows(), (one, two), ("left", "right"), strict=True):
        check(desk, row, pair, kind)


def test_sides_are_drawn_once(desk, entry: Make) -> None:
    """Whichever side a segment was on: the answer says what was seen."""
    desk.propose(12)
    ann = desk.labeler(prefetch=12)
    pairs = ann.refill().pairs
    with desk.db.write() as connection:
        for i, pair in enumerate(pairs):
            where = lease_table.c.token == pair.token
            connection.execute(sa.update(lease_table).where(where).values(shown_left=1 + i % 2))
    kinds = [("left", "right")[i // 2 % 2] for i in range(12)]
    sent = [entry(pair, kind) for pair, kind in zip(pairs, kinds, strict=True)]
    ann.take(sent)
    undos = [undo_of(entry, one, pair) for one, pair in zip(sent[8:], pairs[8:], strict=True)]
    ann.take(undos)
    anew = [entry(pair, "left", replaces=undo["id"]) for pair, undo in zip(pairs[8:], undos, strict=True)]
    ann.take(anew)
    rows = {row.query_id: row for row in desk.standing()}
    for i, pair in enumerate(pairs):
        check(desk, rows[pair.query_id], pair, kinds[i] if i < 8 else "left")


def state_of(desk, annotator: str = "ann", tab: str = "") -> tuple[PageState, object]:
    ann = desk.labeler(annotator, tab)
    now = situation(desk.db, ann.run, annotator, ann.refill(), tab)
    return now.state, now


def test_states(desk, entry: Make) -> None:
    assert state_of(desk)[0] is PageState.NO_TRAINER
    assert state_of(desk)[1].age_ms is None
    token = workers.claim(desk.db, desk.run.id, "rollout")
    state, now = state_of(desk)
    assert state is PageState.NO_QUERY_YET
    assert 0 <= now.age_ms < 5000
    made = queue.propose(desk.db, desk.run.id, [(desk.ids[0], desk.ids[1])])
    assert state_of(desk)[0] is PageState.CLIPS_COMING
    for id_ in clips.claim_clips(desk.db, desk.run.id, 9):
        clips.fail_clip(desk.db, id_, "no <b>GPU</b>")
    state, now = state_of(desk)
    assert (state, now.reason, now.n) == (PageState.CLIPS_FAILED, "no <b>GPU</b>", 1)
    clips.retry_clips(desk.db, desk.run.id)
    desk.draw()
    (pair,) = desk.labeler("bob").refill().pairs
    assert pair.query_id == made[0]
    state, now = state_of(desk)
    assert (state, now.n) == (PageState.LEASED_BY_OTHERS, 1)
    assert 60_000 < now.wait_ms <= 120_000
    workers.beat(desk.db, token, state="paused: 30 answers behind the schedule")
    state, now = state_of(desk, "bob")
    assert (state, now.waits_for_you) == (PageState.READY, True)
    desk.labeler("bob").take([entry(pair, "skip")])
    state, now = state_of(desk, "bob")
    assert (state, now.n) == (PageState.ALL_SKIPPED, 1)
    (mine,) = desk.labeler().refill().pairs
    desk.labeler().take([entry(mine, "left")])
    assert state_of(desk)[0] is PageState.ALL_ANSWERED
    workers.release(desk.db, token)
    assert state_of(desk)[0] is PageState.NO_TRAINER
    for run_state in ("stopped", "failed", "done"):
        runs.set_run_state(desk.db, desk.run.id, run_state)
        assert state_of(desk)[0].value == f"run_{run_state}"


def test_the_last_comparisons_are_still_asked_when_the_policy_has_all_its_steps(desk) -> None:
    desk.propose(3)
    before = desk.labeler().refill().pairs
    runs.set_run_state(desk.db, desk.run.id, "done")
    assert desk.labeler().refill().pairs == before, "what is on the screen stays there"
    assert state_of(desk)[0] is PageState.READY


def test_an_unknown_pair_cannot_be_set_aside(desk) -> None:
    with pytest.raises(Exception, match="no lease has the token"):
        history.set_aside(desk.db, "never", "ann")
    assert history.holder_of(desk.db, "never") is None
    assert history.newest_of(desk.db, desk.run.id, "never") is None
