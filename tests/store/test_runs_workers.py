"""Runs and the processes that play their roles."""

from __future__ import annotations

import os
import time

import pytest

from prefrl.config import RunConfig
from prefrl.errors import ConfigError, DataError, FencedError, StoreError
from prefrl.settings import to_dict
from prefrl.store import rewards, runs, workers
from prefrl.store.engine import Database


def test_a_run_comes_back_as_it_was_stored(db: Database) -> None:
    made = runs.create_run(db, "hopper", {"env": {"id": "Hopper-v5"}, "seeds": [1, 2]}, {"torch": "2.6"})
    found = runs.get_run(db, "hopper")
    assert found == made
    assert (found.config["env"], found.state) == ({"id": "Hopper-v5"}, "created")
    assert abs(found.created_ms - time.time() * 1000) < 60_000
    assert runs.list_runs(db) == [made]


def test_a_name_is_taken_once(db: Database) -> None:
    runs.create_run(db, "hopper", {"seed": 1}, {})
    with pytest.raises(StoreError, match=r"'hopper' already: `prefrl resume hopper`.*--name"):
        runs.create_run(db, "hopper", {"seed": 2}, {})
    assert runs.get_run(db, "hopper").config == {"seed": 1}
    with pytest.raises(StoreError, match="needs a name"):
        runs.create_run(db, " ", {}, {})


def test_a_run_and_the_reward_that_it_begins_with_are_there_together_or_not_at_all(db: Database) -> None:
    with pytest.raises(TypeError):
        runs.create_run(db, "half", {}, {}, rewards.NewReward(b"weights", 0, {"loss": None}))  # type: ignore[dict-item]
    assert runs.list_runs(db) == []
    run = runs.create_run(db, "whole", {}, {}, rewards.NewReward(b"weights", 7, {"loss": 0.5}))
    record, weights = rewards.load_reward(db, run.id)
    assert (record.version, record.last_seq, record.env_steps, record.metrics) == (1, 7, 0, {"loss": 0.5})
    assert weights == b"weights"
    assert rewards.publish(db, run.id, b"more", last_seq=8, env_steps=1, metrics={}) == 2, "numbers go on"


def test_an_unknown_run_names_the_near_ones(db: Database) -> None:
    with pytest.raises(StoreError, match=r"nor any other: `prefrl run"):
        runs.get_run(db, "hoper")
    for name in ("hopper", "walker"):
        runs.create_run(db, name, {}, {})
    with pytest.raises(StoreError, match=r"Did you mean 'hopper'\? There are: hopper, walker"):
        runs.get_run(db, "hoper")


def test_states_of_a_run(db: Database, run_id: int) -> None:
    for state in ("running", "stopped", "done", "failed"):
        runs.set_run_state(db, run_id, state)
        assert runs.get_run(db, "hopper").state == state
    with pytest.raises(StoreError, match="no state of a run"):
        runs.set_run_state(db, run_id, "sleeping")
    with pytest.raises(StoreError, match="no run number"):
        runs.set_run_state(db, run_id + 1, "done")


def test_a_config_that_json_cannot_hold_is_refused(db: Database) -> None:
    with pytest.raises(DataError, match="cannot be stored"):
        runs.create_run(db, "odd", {"path": object()}, {})
    with pytest.raises(DataError, match="cannot be stored"):
        runs.create_run(db, "odd", {"rate": float("nan")}, {})
    assert runs.list_runs(db) == []


def test_the_later_claim_fences_the_earlier(db: Database, run_id: int) -> None:
    first = workers.claim(db, run_id, "rollout")
    workers.beat(db, first, env_steps=10, state="acting", detail={"fps": 3})
    second = workers.claim(db, run_id, "rollout")
    with pytest.raises(FencedError, match=f"'rollout' now belongs to process {os.getpid()} on "):
        workers.beat(db, first, env_steps=11)
    workers.release(db, first)
    (found,) = workers.workers(db, run_id)
    assert (found.role, found.pid, found.env_steps, found.released) == ("rollout", os.getpid(), 10, False)
    workers.beat(db, second, state="learning")
    (found,) = workers.workers(db, run_id)
    assert (found.state, found.env_steps, found.detail) == ("learning", 10, {})
    assert 0 <= found.age_ms < 10_000
    workers.release(db, second)
    assert workers.workers(db, run_id)[0].released
    with pytest.raises(FencedError, match="belongs to nobody"):
        workers.beat(db, "nonsense")


def test_age_is_by_the_clock_of_the_database(db: Database, run_id: int) -> None:
    token = workers.claim(db, run_id, "reward")
    with db.write() as connection:
        connection.exec_driver_sql("UPDATE worker SET heartbeat_ms = heartbeat_ms - 5000")
    assert 5000 <= workers.workers(db, run_id)[0].age_ms < 15_000
    workers.beat(db, token)
    assert workers.workers(db, run_id)[0].age_ms < 5000


def test_roles_are_apart(db: Database, run_id: int) -> None:
    tokens = {role: workers.claim(db, run_id, role) for role in ("reward", "label", "rollout")}
    for token in tokens.values():
        workers.beat(db, token)
    assert [one.role for one in workers.workers(db, run_id)] == ["label", "reward", "rollout"]


def test_settings_that_cannot_be_are_refused_and_change_nothing(db: Database) -> None:
    run = runs.create_run(db, "r", to_dict(RunConfig()), {})
    assert runs.update_label(db, run.id, {"overlap": 2}).config["label"]["overlap"] == 2
    before = runs.get_run(db, "r").config
    for bad, match in (
        ({"overlap": 0}, "overlap"),
        ({"overlapp": 2}, "overlapp"),
        ({"gold_share": "all"}, "gold_share"),
    ):
        with pytest.raises(ConfigError, match=match):
            runs.update_label(db, run.id, bad)
    assert runs.get_run(db, "r").config == before
