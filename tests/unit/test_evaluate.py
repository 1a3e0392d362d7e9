"""The true return of a stored policy: of that one, and of no other."""

from __future__ import annotations

import hashlib
import json
import sqlite3

import gymnasium as gym
import numpy as np
import pytest
import torch

import prefrl.envs  # noqa: F401  # registers the tasks
from prefrl.errors import ConfigError, StoreError
from prefrl.evaluate import describe, evaluate
from prefrl.reward_model.ensemble import tensors_from_bytes, tensors_to_bytes
from prefrl.run.create import new_run, prepare
from prefrl.seeding import Stream, seed_for
from prefrl.settings import from_dict
from prefrl.store.checkpoints import load_checkpoint, save_checkpoint
from prefrl.store.engine import Database
from prefrl.store.runs import get_run

SETTINGS = {
    "env": {"id": "pendulum", "horizon": 40},
    "policy": {
        "learner": "ppo",
        "n_steps": 32,
        "steps": 256,
        "kwargs": {"batch_size": 64, "policy_kwargs": {"net_arch": [8]}},
    },
    "seed": 4,
}


def weights(gain, seed=0):
    """A checkpoint of a policy (tanh, 8 hidden units) that pushes by ``gain`` times something random."""
    rng = np.random.default_rng(seed)
    shapes = {
        "log_std": (1,),
        "mlp_extractor.policy_net.0.weight": (8, 4),
        "mlp_extractor.policy_net.0.bias": (8,),
        "mlp_extractor.value_net.0.weight": (8, 4),
        "mlp_extractor.value_net.0.bias": (8,),
        "action_net.weight": (1, 8),
        "action_net.bias": (1,),
        "value_net.weight": (1, 8),
        "value_net.bias": (1,),
    }
    tensors = {f"policy.{k}": torch.tensor(gain * rng.normal(size=s), dtype=torch.float32) for k, s in shapes.items()}
    tensors["policy.log_std"].fill_(-1.0)
    for name, value in (("mean", 0.0), ("var", 4.0), ("count", 9.0)):
        tensors[f"normaliser.reward.{name}"] = torch.tensor([value], dtype=torch.float64)
    tensors["normaliser.obs.mean"] = torch.tensor([0.1, -0.02, 0.3, 0.0], dtype=torch.float64)
    tensors["normaliser.obs.var"] = torch.tensor([0.5, 0.1, 2.0, 3.0], dtype=torch.float64)
    tensors["normaliser.obs.count"] = torch.tensor([123.0], dtype=torch.float64)
    return tensors_to_bytes(tensors)


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    """A run with checkpoints 1 (step 0), 2 and 3, and one without any."""
    url = f"sqlite:///{tmp_path_factory.mktemp('evaluate')}/runs.db"
    config, versions = prepare(from_dict(SETTINGS))
    with Database.create(url) as db:
        new_run(db, "empty", config, versions)
        run = new_run(db, "pole", config, versions)
        for step, gain in ((0, 0.01), (128, 0.5), (256, 2.0)):
            save_checkpoint(db, run.id, weights(gain, seed=step), env_steps=step, meta={"n_updates": 0})
    return url


@pytest.fixture
def db(url):
    with Database.open(url, readonly=True) as database:
        yield database


def by_hand(payload, episodes):
    """The same episodes with nothing but Gymnasium and NumPy."""
    tensors = {k: v.numpy().astype(np.float64) for k, v in tensors_from_bytes(payload).items()}
    env = gym.make("prefrl/Pendulum-v0", max_episode_steps=40)
    returns = []
    obs, _ = env.reset(seed=seed_for(SETTINGS["seed"], Stream.EVALUATION, 0))
    for _ in range(episodes):
        total, truncated = 0.0, False
        while not truncated:
            x = (obs - tensors["normaliser.obs.mean"]) / np.sqrt(tensors["normaliser.obs.var"] + 1e-8)
            prefix = "policy.mlp_extractor.policy_net.0."
            hidden = np.tanh(tensors[prefix + "weight"] @ np.clip(x, -10, 10) + tensors[prefix + "bias"])
            act = tensors["policy.action_net.weight"] @ hidden + tensors["policy.action_net.bias"]
            obs, reward, _, truncated, _ = env.step(np.clip(act, -3, 3).astype(np.float32))
            total += reward
        returns.append(total)
        obs, _ = env.reset()
    env.close()
    return returns


@pytest.mark.parametrize("checkpoint_id", [1, 2, 3])
def test_it_is_the_true_return_of_that_policy(db, checkpoint_id):
    _, payload = load_checkpoint(db, get_run(db, "pole").id, checkpoint_id)
    result = evaluate(db, "pole", checkpoint_id, episodes=3)
    assert result.true_returns == pytest.approx(by_hand(payload, 3), rel=1e-3, abs=1e-3)
    assert result.mean == pytest.approx(np.mean(result.true_returns))
    assert result.std == pytest.approx(np.std(result.true_returns))
    assert len(set(result.true_returns)) == 3, "the episodes differ"


def test_settings_that_fit_many_environments_fit_here_too(tmp_path):
    """Eight environments of one step: alone, one step would be no rollout for this learner."""
    many = {**SETTINGS, "policy": {**SETTINGS["policy"], "n_envs": 8, "n_steps": 1}}
    many["policy"]["kwargs"] = {**many["policy"]["kwargs"], "batch_size": 8}
    with Database.create(f"sqlite:///{tmp_path}/runs.db") as db:
        run = new_run(db, "pole", *prepare(from_dict(many)))
        save_checkpoint(db, run.id, weights(0.5), env_steps=8, meta={})
        assert len(evaluate(db, "pole", episodes=1).true_returns) == 1


def test_it_names_the_checkpoint_its_steps_and_its_hash(db):
    results = [evaluate(db, "pole", checkpoint_id, episodes=2) for checkpoint_id in (1, 2, None)]
    assert [(r.checkpoint, r.env_steps) for r in results] == [(1, 0), (2, 128), (3, 256)]
    for result, (step, gain) in zip(results, ((0, 0.01), (128, 0.5), (256, 2.0)), strict=True):
        assert result.sha256 == hashlib.sha256(weights(gain, seed=step)).hexdigest()
        text = describe(result)
        assert f"checkpoint {result.checkpoint} of run pole: {step:,} steps, sha256 {result.sha256[:16]}" in text
        assert json.loads(json.dumps(result.to_dict()))["sha256"] == result.sha256
    assert len({r.true_returns for r in results}) == 3


def test_a_newer_checkpoint_changes_the_answer(tmp_path):
    url = f"sqlite:///{tmp_path}/runs.db"
    config, versions = prepare(from_dict(SETTINGS))
    with Database.create(url) as db:
        run = new_run(db, "pole", config, versions)
        save_checkpoint(db, run.id, weights(0.01), env_steps=128, meta={})
        before = evaluate(db, "pole", episodes=2)
        save_checkpoint(db, run.id, weights(2.0, seed=1), env_steps=128, meta={})
        after = evaluate(db, "pole", episodes=2)
        assert (before.checkpoint, after.checkpoint) == (1, 2)
        assert before.sha256 != after.sha256
        assert before.true_returns != after.true_returns
        assert evaluate(db, "pole", 1, episodes=2) == before, "the older one can still be asked for"


def test_weights_changed_behind_its_back_are_refused(tmp_path):
    url = f"sqlite:///{tmp_path}/runs.db"
    config, versions = prepare(from_dict(SETTINGS))
    with Database.create(url) as db:
        run = new_run(db, "pole", config, versions)
        save_checkpoint(db, run.id, weights(0.01), env_steps=128, meta={})
    with sqlite3.connect(tmp_path / "runs.db") as connection:
        connection.execute("UPDATE policy_weights SET weights = ?", (weights(2.0),))
    connection.close()
    with Database.open(url, readonly=True) as db, pytest.raises(StoreError, match="checkpoint 1 is damaged"):
        evaluate(db, "pole", episodes=1)


def test_the_same_question_has_the_same_answer(db):
    assert evaluate(db, "pole", episodes=2) == evaluate(db, "pole", episodes=2)
    sampled = evaluate(db, "pole", episodes=2, deterministic=False)
    assert sampled == evaluate(db, "pole", episodes=2, deterministic=False)
    assert sampled.true_returns != evaluate(db, "pole", episodes=2).true_returns
    assert (sampled.deterministic, "stochastic" in describe(sampled)) == (False, True)


def test_the_database_is_left_as_it_was(url, tmp_path):
    def dump():
        with sqlite3.connect(url.removeprefix("sqlite:///")) as connection:
            content = list(connection.iterdump())
        connection.close()
        return content

    before = dump()
    with Database.open(url) as db:  # not even one that may be written to is
        evaluate(db, "pole", episodes=1)
    assert dump() == before
    assert any("policy_weights" in line for line in before)


@pytest.mark.parametrize(
    ("arguments", "error", "named"),
    [
        ({"run_name": "pool"}, StoreError, r"no run named 'pool'.*Did you mean 'pole'"),
        ({"run_name": "pole", "checkpoint_id": 99}, StoreError, "no checkpoint 99"),
        ({"run_name": "empty"}, StoreError, "'empty' has no checkpoint yet"),
        ({"run_name": "pole", "episodes": 0}, ConfigError, "episodes must be at least 1, not 0"),
    ],
)
def test_what_is_not_there_is_named(db, arguments, error, named):
    with pytest.raises(error, match=named):
        evaluate(db, **arguments)
