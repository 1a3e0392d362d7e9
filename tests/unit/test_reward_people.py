"""What the reward role asks where people answer: a stock ahead, never beyond the budget, never what cannot be drawn."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from prefrl.resolve import resolve
from prefrl.reward_model.role import RewardRole
from prefrl.reward_model.spaces import Spaces
from prefrl.rollout.pace import learning_starts
from prefrl.settings import from_dict, to_dict
from prefrl.store import clips, queue
from prefrl.store.engine import Database
from prefrl.store.held_out import n_held_out_asked
from prefrl.store.runs import Run, create_run
from prefrl.store.segments import add_segments
from prefrl.store.workers import beat, claim
from prefrl.types import Answer, Preference, Segment

T, BUDGET = 5, 12


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with Database.create(f"sqlite:///{tmp_path}/people.db") as database:
        yield database


class Case:
    """A run with segments; the test is its rollout, renderer and annotator."""

    def __init__(self, db: Database, oracle: str, n_segments: int = 10, **label: object) -> None:
        values = {
            "env": {"segment_steps": T},
            "policy": {"steps": 4000, "n_steps": 100, "sync_every": 200},
            "query": {"max_age": 10**6},
            "label": {"oracle": oracle, "budget": BUDGET, "schedule": "constant", **label},
        }
        self.config = resolve(from_dict(values))
        self.db, self.run = db, self._create(db)
        self.start = learning_starts(self.config)
        rng = np.random.default_rng(0)
        segments = [
            Segment(rng.normal(size=(T, 4)).astype("f4"), rng.normal(size=(T, 1)).astype("f4"), source="initial")
            for _ in range(n_segments)
        ]
        self.ids = add_segments(db, self.run.id, segments, None)
        self.token = claim(db, self.run.id, "rollout")
        self.role = RewardRole(db, self.run)

    def _create(self, db: Database) -> Run:
        return create_run(db, "r", to_dict(self.config), {"spaces": Spaces((4,), (1,)).to_dict()})

    def at(self, env_steps: int) -> dict[str, int]:
        """The queries after the rollout got so far and the reward role asked what it wanted."""
        beat(self.db, self.token, env_steps=env_steps)
        while self.role._propose(env_steps):
            pass
        return queue.counts(self.db, self.run.id)

    def answer(self, n: int) -> None:
        for one in queue.lease(self.db, self.run.id, "ann", n=n):
            queue.answer(self.db, [Answer(one.query_id, one.token, Preference.LEFT, "ann", one.token)])


def test_a_stock_is_kept_ahead_of_the_schedule_but_not_beyond_the_budget(db: Database) -> None:
    case = Case(db, "none", ahead=4)
    assert case.at(case.start - 1)["proposed"] == 0
    assert case.at(case.start)["proposed"] == 3 + 4
    case.answer(2)
    assert case.at(case.start)["proposed"] == 5, "an answer is no reason to ask more before the schedule goes on"
    assert case.at(4000)["proposed"] == BUDGET - 2
    case.answer(BUDGET)
    assert case.at(4000) == queue.counts(db, case.run.id) | {"proposed": 0, "answered": BUDGET}


@pytest.mark.parametrize("schedule", ["upfront", "constant", "paper"])
def test_what_is_held_out_keeps_its_place_whatever_is_asked_ahead(db: Database, schedule: str) -> None:
    case = Case(db, "none", 60, budget=40, schedule=schedule, ahead=8, held_out_share=0.2)
    rng = np.random.default_rng(1)
    now = [Segment(rng.normal(size=(T, 4)).astype("f4"), rng.normal(size=(T, 1)).astype("f4")) for _ in range(20)]
    add_segments(db, case.run.id, now, None)
    found = []
    for env_steps in range(case.start, 4001, 100):
        case.at(env_steps)
        case.answer(99)
        case.role.version = 1  # from the first exchange on
        found.append(n_held_out_asked(db, case.run.id))
    assert found[0] == 0
    half = found[len(found) // 2]
    assert half in (3, 4), "spread over the run"
    assert found[-1] == 8
    assert queue.counts(db, case.run.id)["answered"] == 40


def test_an_oracle_gets_what_is_due_and_no_more(db: Database) -> None:
    case = Case(db, "true-return")
    assert case.at(case.start)["proposed"] == 3


def test_what_cannot_be_drawn_is_withdrawn_and_never_asked_again(db: Database) -> None:
    case = Case(db, "none", n_segments=6, ahead=0)
    assert case.at(case.start)["proposed"] == 3
    drawn = set(clips.claim_clips(db, case.run.id, 99))
    failed = sorted(drawn)[:2]
    for segment_id in failed:
        clips.fail_clip(db, segment_id, "no state")
    found = case.at(case.start)
    assert found["expired"] >= 1
    assert found["proposed"] == 3, "others are asked instead"
    for one in queue.lease(db, case.run.id, "ann", n=9):
        assert not {one.segment_1, one.segment_2} & set(failed)


def test_where_nothing_can_be_drawn_nothing_is_asked_for_ever(db: Database) -> None:
    case = Case(db, "none", n_segments=6, ahead=0)
    case.at(case.start)
    for _ in range(9):
        for segment_id in clips.claim_clips(db, case.run.id, 99):
            clips.fail_clip(db, segment_id, "no state")
        case.at(case.start)
    found = queue.counts(db, case.run.id)
    assert found["proposed"] == 0
    assert found["expired"] < 9
    told = f"the first comparisons: 0 of 3; clips of {found['expired']} pairs could not be drawn: no state"
    assert case.role.waiting_for() == told
    clips.retry_clips(db, case.run.id)
    assert case.role.waiting_for() == "the first comparisons: 0 of 3"
    assert case.at(case.start)["proposed"] == 3, "they are tried again"


def test_who_skips_gets_others_and_the_budget_holds(db: Database) -> None:
    case = Case(db, "none", ahead=0)
    case.at(case.start)
    first, second, _ = queue.lease(db, case.run.id, "ann", n=3)
    for one in (first, second):
        assert queue.skip(db, one.token, "ann")
    found = case.at(case.start)
    assert (found["proposed"], found["skipped"], found["leased"]) == (2, 2, 1), "he may come back to those he skipped"
    found = case.at(4000)
    assert (found["proposed"], found["skipped"], found["leased"]) == (BUDGET - 1, 0, 1)
    assert found["expired"] == 2, "answered, they would have been more than the budget"
