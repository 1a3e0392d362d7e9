"""Questions asked again: to whom, how often, and what becomes of those that nobody answers."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import sqlalchemy as sa

from prefrl.errors import DataError
from prefrl.store import again, clips, comparisons, gold, queue
from prefrl.store.again import Mix, ask_again
from prefrl.store.browse import expected_answers
from prefrl.store.engine import Database
from prefrl.store.schema import comparison, query
from prefrl.types import Answer, Comparison, Lease, Preference

uuids = itertools.count()


@pytest.fixture
def pairs(db: Database, run_id: int, ids: list[int]) -> list[tuple[int, int]]:
    """Thirty pairs whose clips are drawn, all waiting; the higher id comes first in every other one."""
    for id_ in ids:
        with db.write() as connection:
            row = {"segment_id": id_, "state": "ready", "video": b"v", "detail": {}}
            connection.execute(sa.insert(clips.clip).values(row))
    some = [pair if i % 2 else pair[::-1] for i, pair in enumerate(itertools.combinations(ids, 2))][:30]
    queue.propose(db, run_id, some)
    return some


def say(db: Database, lease: Lease, who: str, preference: str = "left") -> Comparison:
    answer = Answer(lease.query_id, lease.token, Preference(preference), who, f"uuid-{next(uuids)}")
    return queue.answer(db, [answer])[0]


def work(db: Database, run_id: int, who: str, n: int, mix: Mix = Mix()) -> list[tuple[Lease, bool]]:  # noqa: B008
    """Answers n questions, as the page hands them out; which of them were asked again."""
    done = []
    for _ in range(n):
        special = ask_again(db, run_id, who, mix)
        new = queue.lease(db, run_id, who, n=1 - len(special), clips=True) if not special else []
        for lease in special + new:
            say(db, lease, who)
            done.append((lease, bool(special)))
    return done


def pair(lease: Lease) -> set[int]:
    return {lease.segment_1, lease.segment_2}


def purposes(db: Database) -> list[str]:
    with db.read() as connection:
        return list(connection.execute(sa.select(query.c.purpose).order_by(query.c.id)).scalars())


def test_nothing_is_asked_again_by_default(db: Database, run_id: int, pairs: list[tuple[int, int]]) -> None:
    work(db, run_id, "ann", 25)
    assert ask_again(db, run_id, "bob", Mix(), n=5) == []
    assert set(purposes(db)) == {"train"}


def test_what_is_held_out_never_makes_room_for_what_is_asked_again(
    db: Database, run_id: int, pairs: list[tuple[int, int]]
) -> None:
    work(db, run_id, "ann", 2)
    with db.write() as connection:
        waiting = query.c.state == "proposed"
        connection.execute(sa.update(query).where(waiting, query.c.id < 29).values(purpose="held_out"))
    again_of_ann = ask_again(db, run_id, "bob", Mix(overlap=2), n=2)
    assert len(again_of_ann) == 2
    with db.read() as connection:
        gone = sa.select(query.c.purpose).where(query.c.state == "expired")
        assert list(connection.execute(gone).scalars()) == ["train", "train"]


def test_overlap_asks_the_next_person_the_newest_pair_first(
    db: Database, run_id: int, pairs: list[tuple[int, int]]
) -> None:
    anns = [lease for lease, _ in work(db, run_id, "ann", 4)]
    bobs = work(db, run_id, "bob", 6, Mix(overlap=2))
    assert [pair(lease) for lease, _ in bobs[:4]] == [pair(lease) for lease in anns[::-1]]
    assert [special for _, special in bobs] == [True] * 4 + [False] * 2
    assert purposes(db)[30:] == ["overlap"] * 4
    # both have answered these four, and so nobody is asked a third time; bob's two are new to ann
    assert ask_again(db, run_id, "cid", Mix(overlap=2), n=9) != []
    assert {tuple(sorted(pair(lease))) for lease, _ in bobs[4:]} == {
        tuple(sorted(pair(lease))) for lease, special in work(db, run_id, "ann", 2, Mix(overlap=2)) if special
    } | {tuple(sorted(pair(lease))) for lease in queue.resume_leases(db, run_id, "cid")}


def test_a_pair_in_the_hands_of_the_second_is_not_given_to_a_third(
    db: Database, run_id: int, pairs: list[tuple[int, int]]
) -> None:
    work(db, run_id, "ann", 1)
    (held,) = ask_again(db, run_id, "bob", Mix(overlap=2))
    assert ask_again(db, run_id, "cid", Mix(overlap=2)) == []
    assert len(ask_again(db, run_id, "cid", Mix(overlap=3))) == 1
    assert say(db, held, "bob").late is False  # it counts
    assert comparisons.n_counted(db, run_id) == 2


def test_an_answer_that_was_taken_back_leaves_room_for_somebody_else(
    db: Database, run_id: int, pairs: list[tuple[int, int]]
) -> None:
    work(db, run_id, "ann", 1)
    (held,) = ask_again(db, run_id, "bob", Mix(overlap=2))
    given = say(db, held, "bob")
    assert ask_again(db, run_id, "cid", Mix(overlap=2)) == []
    edited = comparisons.supersede(db, run_id, given.seq, Preference.TIE, "owner", "edited")
    assert ask_again(db, run_id, "cid", Mix(overlap=2)) == [], "it was corrected, and stands"
    gone = comparisons.supersede(db, run_id, edited.seq, Preference.WITHDRAWN, "bob", "undone")
    assert ask_again(db, run_id, "cid", Mix(overlap=2)) == [], "bob's page shows it, for him to answer anew"
    with db.write() as connection:
        earlier = sa.update(comparison).where(comparison.c.seq == gone.seq)
        connection.execute(earlier.values(created_ms=comparison.c.created_ms - again.UNDO_MS))
    assert [pair(lease) for lease in ask_again(db, run_id, "cid", Mix(overlap=2))] == [pair(held)]
    assert ask_again(db, run_id, "bob", Mix(overlap=2)) == [], "he has seen it"


def test_what_the_owner_takes_back_is_somebody_elses_at_once(
    db: Database, run_id: int, pairs: list[tuple[int, int]]
) -> None:
    work(db, run_id, "ann", 1)
    (held,) = ask_again(db, run_id, "bob", Mix(overlap=2))
    comparisons.supersede(db, run_id, say(db, held, "bob").seq, Preference.WITHDRAWN, "owner", "gone")
    assert [pair(lease) for lease in ask_again(db, run_id, "cid", Mix(overlap=2))] == [pair(held)]


def test_clips_of_gold_questions_stay(db: Database, run_id: int, pairs: list[tuple[int, int]]) -> None:
    kept, gone = (say(db, lease, "ann") for lease in queue.lease(db, run_id, "ann", n=2, clips=True))
    gold.mark_gold(db, run_id, kept, "boss")
    queue.expire(db, run_id, before_env_steps=10**9)
    clips.prune_clips(db, run_id, 0)
    assert clips.load_clip(db, kept.segment_1) == clips.load_clip(db, kept.segment_2) == b"v"
    assert {clips.load_clip(db, id_) for id_ in set(gone.pair) - set(kept.pair)} == {None}


def test_nobody_is_asked_his_own_pair_as_overlap(db: Database, run_id: int, pairs: list[tuple[int, int]]) -> None:
    work(db, run_id, "ann", 3)
    assert ask_again(db, run_id, "ann", Mix(overlap=5), n=3) == []


def test_a_question_again_takes_the_place_of_a_new_one(db: Database, run_id: int, pairs: list[tuple[int, int]]) -> None:
    work(db, run_id, "ann", 29)
    assert len(ask_again(db, run_id, "bob", Mix(overlap=2), n=5)) == 1  # one new question waits
    queue.lease(db, run_id, "ann", clips=True)
    assert ask_again(db, run_id, "bob", Mix(overlap=2), n=5) == []  # none does


def test_repeats_come_after_a_while_and_once(db: Database, run_id: int, pairs: list[tuple[int, int]]) -> None:
    always = Mix(repeat_share=1.0)
    first = [lease for lease, _ in work(db, run_id, "ann", again.REPEAT_AFTER)]
    assert ask_again(db, run_id, "ann", always) == []
    first += [lease for lease, _ in work(db, run_id, "ann", 2, always)]  # the first of them makes one old enough
    repeated = ask_again(db, run_id, "ann", always, n=9, rng=np.random.default_rng(0))
    old = [pair(lease) for lease in first]
    assert [pair(lease) in old[:2] for lease in repeated] == [True] * len(repeated)
    assert 1 <= len(repeated) <= 2
    assert len({tuple(sorted(pair(lease))) for lease in repeated}) == len(repeated)
    assert ask_again(db, run_id, "bob", always, n=9) == []  # bob has answered nothing
    for lease in repeated:
        row = say(db, lease, "ann", "right")
        assert row.late is False
    assert set(purposes(db)[30:]) == {"repeat"}


def test_the_share_of_repeats(db: Database, run_id: int, ids: list[int], pairs: list[tuple[int, int]]) -> None:
    """Of many questions a tenth is asked again, whatever the page's batches are."""
    work(db, run_id, "ann", 29)
    queue.propose(db, run_id, pairs * 20)
    rng, n_again, n = np.random.default_rng(1), 0, 300
    for _ in range(n // 3):
        leases = ask_again(db, run_id, "ann", Mix(repeat_share=0.1), n=3, rng=rng)
        n_again += len(leases)
        with db.write() as connection:  # as if never asked, so that there are always some to repeat
            connection.execute(
                sa.delete(again.lease_table).where(again.lease_table.c.token.in_([x.token for x in leases]))
            )
    assert 15 <= n_again <= 45  # three standard deviations around 30


def test_gold_questions_are_asked_once_each(db: Database, run_id: int, pairs: list[tuple[int, int]]) -> None:
    (lease, _), *_ = work(db, run_id, "owner", 3)
    (row, *_) = comparisons.tail(db, run_id)
    known = gold.mark_gold(db, run_id, row, "owner")
    assert gold.gold_questions(db, run_id) == [known]
    assert (known.segment_1, known.segment_2) == row.pair
    assert known.mu == (row.mu if row.segment_1 < row.segment_2 else 1 - row.mu)
    (asked,) = ask_again(db, run_id, "ann", Mix(gold_share=1.0), n=3)
    assert pair(asked) == pair(lease)
    assert expected_answers(db, run_id) == {asked.query_id: known.mu}
    assert ask_again(db, run_id, "ann", Mix(gold_share=1.0), n=3) == []
    assert ask_again(db, run_id, "owner", Mix(gold_share=1.0), n=3) == []  # he knows it
    winner = "left" if (asked.shown_left == 1) == (known.mu == 1.0) else "right"
    assert say(db, asked, "ann", winner).mu == expected_answers(db, run_id)[asked.query_id]
    assert gold.unmark_gold(db, run_id, row.pair[::-1])
    assert not gold.unmark_gold(db, run_id, row.pair)
    assert ask_again(db, run_id, "bob", Mix(gold_share=1.0), n=3) == []


def test_gold_can_be_marked_anew_but_not_by_a_withdrawal(
    db: Database, run_id: int, pairs: list[tuple[int, int]]
) -> None:
    work(db, run_id, "owner", 1)
    (row,) = comparisons.tail(db, run_id)
    gold.mark_gold(db, run_id, row, "owner")
    tie = comparisons.supersede(db, run_id, row.seq, Preference.TIE, "owner", "edit-0001")
    gold.mark_gold(db, run_id, tie, "owner")
    assert [one.mu for one in gold.gold_questions(db, run_id)] == [0.5]
    undone = comparisons.supersede(db, run_id, tie.seq, Preference.WITHDRAWN, "owner", "edit-0002")
    with pytest.raises(DataError, match="comparison 3 is 'withdrawn'"):
        gold.mark_gold(db, run_id, undone, "owner")


@pytest.mark.parametrize("leave", ["skip", "run out"])
def test_what_was_asked_again_is_for_nobody_else(
    db: Database, run_id: int, pairs: list[tuple[int, int]], leave: str
) -> None:
    work(db, run_id, "ann", 1)
    (held,) = ask_again(db, run_id, "bob", Mix(overlap=2))
    if leave == "skip":
        assert queue.skip(db, held.token, "bob")
    else:
        with db.write() as connection:
            connection.execute(sa.update(query).where(query.c.id == held.query_id).values(lease_expires_ms=1))
    assert queue.counts(db, run_id) == {"proposed": 28, "leased": 0, "answered": 1, "skipped": 0, "expired": 2}
    assert held.query_id not in {lease.query_id for lease in queue.lease(db, run_id, "cid", n=99)}
    assert queue.why_empty(db, run_id, "bob").n_skipped_by_you == 0
    (other,) = ask_again(db, run_id, "dan", Mix(overlap=2)) or [None]
    assert other is None  # nothing new waits: cid holds it all
    queue.propose(db, run_id, pairs[:1])
    (other,) = ask_again(db, run_id, "dan", Mix(overlap=2), lease_ms=1000)
    assert pair(other) == pair(held)  # the pair itself still wants a second answer
    assert ask_again(db, run_id, "bob", Mix(overlap=2)) == []  # but not bob's: he had his chance
    with db.read() as connection:
        state = connection.execute(sa.select(query.c.state).where(query.c.id == held.query_id)).scalar()
    assert state == "expired"


def test_an_answer_after_the_lease_ran_out_is_kept(db: Database, run_id: int, pairs: list[tuple[int, int]]) -> None:
    work(db, run_id, "ann", 1)
    (held,) = ask_again(db, run_id, "bob", Mix(overlap=2))
    with db.write() as connection:
        connection.execute(sa.update(query).where(query.c.id == held.query_id).values(lease_expires_ms=1))
    queue.expire(db, run_id, before_env_steps=0)
    row = say(db, held, "bob", "tie")
    assert (row.mu, row.late, row.annotator) == (0.5, False, "bob")


def test_pairs_without_clips_are_not_asked_again(db: Database, run_id: int, pairs: list[tuple[int, int]]) -> None:
    (lease, _), *_ = work(db, run_id, "ann", 1)
    with db.write() as connection:
        connection.execute(sa.delete(clips.clip).where(clips.clip.c.segment_id == lease.segment_1))
    assert ask_again(db, run_id, "bob", Mix(overlap=2)) == []


def test_what_is_asked_in_all_stays_what_the_schedule_says(
    db: Database, run_id: int, pairs: list[tuple[int, int]]
) -> None:
    """Answers that count, and questions that are open: as many as were proposed, however many people ask."""
    work(db, run_id, "ann", 10)
    for who in ("bob", "cid", "dan"):
        work(db, run_id, who, 4, Mix(overlap=3, repeat_share=0.2))
    state = queue.counts(db, run_id)
    assert comparisons.n_counted(db, run_id) + state["proposed"] + state["leased"] == 30
    assert comparisons.n_counted(db, run_id) == 22


def test_tokens_do_not_tell_what_a_question_is_for(db: Database, run_id: int, pairs: list[tuple[int, int]]) -> None:
    work(db, run_id, "ann", 1)
    (special,) = ask_again(db, run_id, "bob", Mix(overlap=2))
    (new,) = queue.lease(db, run_id, "bob")
    for lease in (special, new):
        prefix, _, number = lease.token.partition("-")
        assert (len(prefix), number) == (32, str(lease.query_id))


def test_many_ask_at_once(db: Database, run_id: int, pairs: list[tuple[int, int]]) -> None:
    """Each pair goes to one more person only, and nobody takes more than there is."""
    work(db, run_id, "ann", 3)
    with ThreadPoolExecutor(6) as pool:
        asked = list(pool.map(lambda i: ask_again(db, run_id, f"bob-{i}", Mix(overlap=2)), range(6)))
    given = [tuple(sorted(pair(lease))) for leases in asked for lease in leases]
    assert len(given) == len(set(given)) == 3


def test_where_there_is_no_repeat_yet_the_overlap_comes_first(
    db: Database, run_id: int, pairs: list[tuple[int, int]]
) -> None:
    work(db, run_id, "ann", 5)
    assert len(ask_again(db, run_id, "bob", Mix(overlap=2, repeat_share=0.5, gold_share=0.5), n=3)) == 3
