"""What is held out, and how much of it was asked: on both engines."""

from __future__ import annotations

from prefrl.store import comparisons, queue
from prefrl.store.engine import Database
from prefrl.store.held_out import HELD_OUT, held_out_pairs, n_held_out_asked
from prefrl.types import Answer, Preference


def test_only_its_own_purpose_counts_from_the_question_to_the_answer(db: Database, run_id: int, ids: list[int]) -> None:
    queue.propose(db, run_id, [(ids[0], ids[1])])
    queue.propose(db, run_id, [(ids[5], ids[2]), (ids[6], ids[3])], purpose=HELD_OUT)
    assert held_out_pairs(db, run_id) == {(ids[2], ids[5]), (ids[3], ids[6])}
    assert n_held_out_asked(db, run_id) == 2
    train, one, two = queue.lease(db, run_id, "ann", n=3)
    assert n_held_out_asked(db, run_id) == 2
    left = [Answer(q.query_id, q.token, Preference.LEFT, "ann", f"u{q.query_id}") for q in (train, one)]
    stored = queue.answer(db, left)
    assert n_held_out_asked(db, run_id) == 2
    queue.answer(db, [Answer(two.query_id, two.token, Preference.INCOMPARABLE, "ann", "cannot")])
    assert n_held_out_asked(db, run_id) == 1, "who cannot tell has told nothing: another is asked"
    comparisons.supersede(db, run_id, stored[1].seq, Preference.RIGHT, "ann", "edit")
    assert n_held_out_asked(db, run_id) == 1
    comparisons.supersede(db, run_id, stored[1].seq + 2, Preference.WITHDRAWN, "ann", "undo")
    assert n_held_out_asked(db, run_id) == 0
    assert len(held_out_pairs(db, run_id)) == 2, "and yet it is never trained on"


def test_expired_ones_are_asked_anew_in_other_pairs(db: Database, run_id: int, ids: list[int]) -> None:
    queue.propose(db, run_id, [(ids[5], ids[2])], purpose=HELD_OUT, env_steps=10)
    queue.expire(db, run_id, before_env_steps=11)
    assert n_held_out_asked(db, run_id) == 0
    assert held_out_pairs(db, run_id) == {(ids[2], ids[5])}
