"""Reward versions, policy checkpoints, metrics and events."""

from __future__ import annotations

import math

import pytest
import sqlalchemy as sa

from prefrl.errors import DataError, StoreError
from prefrl.store import checkpoints, metrics, rewards, runs
from prefrl.store.engine import Database
from prefrl.store.schema import policy_weights, reward_weights


def test_each_version_is_a_new_row(db: Database, run_id: int) -> None:
    assert rewards.newest_version(db, run_id) == 0
    with pytest.raises(StoreError, match="no reward version yet"):
        rewards.load_reward(db, run_id)
    for number in (1, 2, 3):
        values = {"loss": 1 / number, "ratio": math.nan, "worst": math.inf}
        made = rewards.publish(db, run_id, b"w%d" % number, last_seq=number * 10, env_steps=number, metrics=values)
        assert made == number == rewards.newest_version(db, run_id)
    version, weights = rewards.load_reward(db, run_id)
    assert (version.version, version.last_seq, version.env_steps, weights) == (3, 30, 3, b"w3")
    assert version.metrics["loss"] == 1 / 3
    assert math.isnan(version.metrics["ratio"])
    assert rewards.load_reward(db, run_id, 1)[1] == b"w1"
    assert [one.version for one in rewards.reward_versions(db, run_id)] == [1, 2, 3]
    other = runs.create_run(db, "other", {}, {}).id
    assert rewards.publish(db, other, b"o", last_seq=0, env_steps=0, metrics={}) == 1
    assert rewards.prune_rewards(db, run_id, {2}) == 1
    with pytest.raises(StoreError, match="version 1 were pruned"):
        rewards.load_reward(db, run_id, 1)
    with pytest.raises(StoreError, match="no reward version 9"):
        rewards.load_reward(db, run_id, 9)
    assert [rewards.load_reward(db, run_id, version)[1] for version in (2, None)] == [b"w2", b"w3"]
    assert len(rewards.reward_versions(db, run_id)) == 3
    assert rewards.prune_rewards(db, run_id, set()) == 1  # the newest stays
    assert rewards.load_reward(db, other)[1] == b"o"


def test_a_failed_publication_takes_no_number(db: Database, run_id: int) -> None:
    with pytest.raises(DataError):
        rewards.publish(db, run_id, None, last_seq=0, env_steps=0, metrics={})  # type: ignore[arg-type]
    assert rewards.reward_versions(db, run_id) == []
    assert rewards.publish(db, run_id, b"w", last_seq=0, env_steps=0, metrics={}) == 1


def test_checkpoints(db: Database, run_id: int) -> None:
    with pytest.raises(StoreError, match="no checkpoint yet"):
        checkpoints.load_checkpoint(db, run_id)
    made = [
        checkpoints.save_checkpoint(db, run_id, b"p" * n, env_steps=n * 100, meta={"learner": "ppo", "n": n})
        for n in (1, 2, 3)
    ]
    assert checkpoints.list_checkpoints(db, run_id) == made
    assert checkpoints.load_checkpoint(db, run_id) == (made[2], b"ppp")
    assert checkpoints.load_checkpoint(db, run_id, made[0].id) == (made[0], b"p")
    assert made[0].meta == {"learner": "ppo", "n": 1}
    with db.write() as connection:
        here = policy_weights.c.checkpoint_id == made[1].id
        connection.execute(sa.update(policy_weights).where(here).values(weights=b"pq"))
    with pytest.raises(StoreError, match=f"checkpoint {made[1].id} is damaged"):
        checkpoints.load_checkpoint(db, run_id, made[1].id)
    assert checkpoints.prune_checkpoints(db, run_id, [made[2].id]) == 2
    assert checkpoints.list_checkpoints(db, run_id) == [made[2]]
    with pytest.raises(StoreError, match="no checkpoint "):
        checkpoints.load_checkpoint(db, run_id, made[0].id)
    with db.read() as connection:
        assert connection.execute(sa.select(sa.func.count()).select_from(policy_weights)).scalar() == 1


def test_weights_come_back_byte_for_byte(db: Database, run_id: int) -> None:
    blob = bytes(range(256)) * 4096
    checkpoints.save_checkpoint(db, run_id, blob, env_steps=0, meta={})
    assert checkpoints.load_checkpoint(db, run_id)[1] == blob
    rewards.publish(db, run_id, blob, last_seq=0, env_steps=0, metrics={})
    with db.read() as connection:
        assert connection.execute(sa.select(reward_weights.c.weights)).scalar_one() == blob


def test_metrics(db: Database, run_id: int) -> None:
    metrics.add_metrics(db, run_id, "rollout", 10, {"return": 1.5, "kl": math.nan, "peak": math.inf})
    metrics.add_metrics(db, run_id, "rollout", 20, {"return": 2.5})
    metrics.add_metrics(db, run_id, "reward", 20, {})
    rows = metrics.read_metrics(db, run_id)
    assert [(row.role, row.env_steps, row.name) for row in rows] == [
        ("rollout", 10, "return"),
        ("rollout", 10, "kl"),
        ("rollout", 10, "peak"),
        ("rollout", 20, "return"),
    ]
    assert math.isnan(rows[1].value)
    assert rows[2].value == math.inf
    assert metrics.read_metrics(db, run_id, ["return"], after_id=rows[0].id) == rows[3:]
    assert metrics.read_metrics(db, run_id, []) == []
    latest = metrics.latest_metrics(db, run_id)
    assert {name: row.env_steps for name, row in latest.items()} == {"kl": 10, "peak": 10, "return": 20}


def test_events(db: Database, run_id: int) -> None:
    for number in range(5):
        metrics.add_event(db, run_id, "label", "note", f"event {number}")
    found = metrics.events(db, run_id, limit=2)
    assert [one.message for one in found] == ["event 4", "event 3"]
    assert (found[0].role, found[0].kind) == ("label", "note")
    assert len(metrics.events(db, run_id)) == 5
