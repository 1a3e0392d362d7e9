"""The true reward is seen by the oracle, the evaluator and the plots, and by nobody else."""

from __future__ import annotations

import dataclasses
import functools
import sys
import types

import gymnasium as gym
import numpy as np
import pytest
import sqlalchemy as sa
import torch

import prefrl.rollout.role
import prefrl.run.frozen
from prefrl.oracle.role import OracleRole
from prefrl.reward_model.ensemble import tensors_from_bytes, tensors_to_bytes
from prefrl.reward_model.role import RewardRole
from prefrl.rollout.role import RolloutRole
from prefrl.run.create import new_run, prepare
from prefrl.run.lockstep import run_lockstep
from prefrl.settings import from_dict
from prefrl.store.checkpoints import list_checkpoints
from prefrl.store.comparisons import tail
from prefrl.store.engine import Database
from prefrl.store.metrics import read_metrics
from prefrl.store.rewards import NewReward, load_reward
from prefrl.store.schema import segment_truth
from prefrl.store.segments import load_segments, recent_segment_ids, true_rewards
from prefrl.types import Preference


class Altered(gym.Wrapper):
    """The pendulum task with another true reward; what happens in it is the same."""

    def __init__(self, env, factor, noise):
        super().__init__(env)
        self.factor, self.noise = factor, noise and np.random.default_rng(noise)

    def step(self, action):
        obs, reward, terminated, truncated, info = self.env.step(action)
        reward = self.noise.normal() if self.noise else reward * self.factor
        return obs, float(reward), terminated, truncated, info


@pytest.fixture(autouse=True, scope="module")
def _altered():
    import prefrl.envs  # noqa: F401  # registers the tasks

    gym.register(
        "Altered-v0",
        lambda factor=1.0, noise=0: Altered(gym.make("prefrl/Pendulum-v0", max_episode_steps=-1), factor, noise),
        max_episode_steps=100,
    )
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)
    del gym.registry["Altered-v0"]


@pytest.fixture(autouse=True)
def _blind_oracle(monkeypatch):
    """An oracle whose answers are fixed by the run's seed: it does not look at the rewards."""
    module = types.ModuleType("blind_oracle")

    def teach(left, right, stats, rng):
        return Preference.LEFT if rng.random() < 0.5 else Preference.RIGHT

    module.make = lambda: teach
    monkeypatch.setitem(sys.modules, "blind_oracle", module)


def settings(learner, oracle="true-return", **kwargs):
    small = {"policy_kwargs": {"net_arch": [8]}}
    sizes = {"trpo": {"batch_size": 64, "n_critic_updates": 2}, "ppo": {"batch_size": 64, "n_epochs": 2}, "a2c": {}}
    return from_dict(
        {
            "env": {"id": "Altered-v0", "segment_steps": 15, "kwargs": kwargs},
            "policy": {
                "learner": learner,
                "steps": 512,
                "n_envs": 2,
                "n_steps": 8 if learner == "a2c" else 64,
                "sync_every": 128,
                "checkpoint_every": 128,
                "kwargs": {**small, **sizes[learner]},
            },
            "reward": {"pretrain_steps": 20, "fit_steps": 5, "batch_size": 16},
            "query": {"segments_per_rollout": 12, "pool": 24},
            "label": {"budget": 20, "oracle": oracle},
        }
    )


def go(tmp_path, config, name):
    """A whole run: what depends on the true reward, and what must not."""
    with Database.create(f"sqlite:///{tmp_path}/{name}.db") as db:
        run = new_run(db, name, *prepare(config))
        assert run_lockstep(db, run)
        metrics = read_metrics(db, run.id)
        ids = recent_segment_ids(db, run.id, 10_000)
        blind = {
            "policies": [(c.env_steps, c.sha256) for c in list_checkpoints(db, run.id)],
            "reward": load_reward(db, run.id)[1],
            "comparisons": [
                (c.seq, c.segment_1, c.segment_2, c.preference, c.shown_left, c.env_steps) for c in tail(db, run.id)
            ],
            "segments": [(id_, s.digest, s.env_steps) for id_, s in load_segments(db, ids).items()],
            "metrics": [(m.role, m.env_steps, m.name, repr(m.value)) for m in metrics if m.name != "true_return"],
        }
        true = [m.value for m in metrics if m.name == "true_return"]
        rewards = true_rewards(db, ids)
    return blind, true, rewards


@pytest.fixture(scope="module")
def as_it_is(tmp_path_factory):
    """Runs on the task's own reward, each made once."""
    folder = tmp_path_factory.mktemp("as_it_is")
    return functools.cache(lambda learner: go(folder, settings(learner), learner))


@pytest.mark.parametrize("learner", ["trpo", "ppo", "a2c"])
def test_the_scale_of_the_true_reward_changes_nothing(tmp_path, as_it_is, learner):
    """Only the oracle sees it, and the oracle asks which of two returns is larger."""
    one, true_one, rewards_one = as_it_is(learner)
    many, true_many, rewards_many = go(tmp_path, settings(learner, factor=1000.0), "many")
    for what, expected in one.items():
        assert many[what] == expected, what
    assert len(one["comparisons"]) == 20
    assert true_one
    assert true_many == pytest.approx([1000 * r for r in true_one], rel=1e-5)
    for id_, rewards in rewards_one.items():
        assert rewards_many[id_] == pytest.approx(1000 * rewards, rel=1e-5)


def test_the_sign_of_the_true_reward_changes_the_answers_and_so_the_policy(tmp_path, as_it_is):
    """The control: through the oracle's answers it must matter."""
    one, _, _ = as_it_is("ppo")
    other, _, _ = go(tmp_path, settings("ppo", factor=-1.0), "other")
    n = sum(a[3] != b[3] for a, b in zip(one["comparisons"], other["comparisons"], strict=True))
    assert n >= 5, "the pairs about the untrained policy at least"
    assert one["policies"][0] == other["policies"][0], "before it has learned, it is the same"
    assert one["policies"][-1] != other["policies"][-1]
    assert one["reward"] != other["reward"]


@pytest.mark.parametrize("learner", ["trpo", "a2c"])
def test_with_fixed_answers_any_true_reward_gives_the_same_policy(tmp_path, learner):
    one, true_one, _ = go(tmp_path, settings(learner, "blind_oracle:make"), "one")
    random, true_random, rewards = go(tmp_path, settings(learner, "blind_oracle:make", noise=3), "random")
    for what, expected in one.items():
        assert random[what] == expected, what
    assert not np.allclose(true_one, true_random, rtol=0.1), "the control: the true returns are quite others"
    assert np.std(np.concatenate(list(rewards.values()))) > 0.5


def test_with_an_oracle_that_looks_random_rewards_do_matter(tmp_path, as_it_is):
    """The control of the test above."""
    one, _, _ = as_it_is("ppo")
    random, _, _ = go(tmp_path, settings("ppo", noise=3), "random")
    assert one["policies"][-1] != random["policies"][-1]


def on_frozen(db, name, weights, **kwargs):
    """A whole run on a reward that is there: its policies and what it was told, and its true returns."""
    config, versions = prepare(settings("ppo", **kwargs))
    reward = dataclasses.replace(config.reward, source="frozen", origin="taught@1")
    run = new_run(db, name, dataclasses.replace(config, reward=reward), versions, NewReward(weights, 0, {}))
    assert run_lockstep(db, run)
    metrics = read_metrics(db, run.id)
    blind = {
        "policies": [(c.env_steps, c.sha256) for c in list_checkpoints(db, run.id)],
        "metrics": [(m.env_steps, m.name, m.value) for m in metrics if m.name != "true_return"],
    }
    return blind, [m.value for m in metrics if m.name == "true_return"]


def test_on_a_frozen_reward_any_true_reward_gives_the_same_policy(tmp_path, as_it_is):
    weights = as_it_is("ppo")[0]["reward"]
    with Database.create(f"sqlite:///{tmp_path}/frozen.db") as db:
        one, true_one = on_frozen(db, "one", weights)
        random, true_random = on_frozen(db, "random", weights, noise=3)
        negated = {k: -t if k == "ensemble.scale" else t for k, t in tensors_from_bytes(weights).items()}
        other, _ = on_frozen(db, "other", tensors_to_bytes(negated))
    assert one == random
    assert {name for _, name, _ in one["metrics"]} >= {"learned_return"}
    assert not np.allclose(true_one, true_random, rtol=0.1), "the control: the true returns are quite others"
    assert one["policies"][0] == other["policies"][0]
    assert one["policies"][-1] != other["policies"][-1], "the control: what it learns from is the frozen reward"


class Watch:
    """Which statements each role executes."""

    def __init__(self, monkeypatch):
        self.inside, self.statements = ["nobody"], []
        for cls, method, name in (
            (RewardRole, "__init__", "reward"),
            (RewardRole, "step", "reward"),
            (OracleRole, "step", "oracle"),
            (RolloutRole, "__init__", "rollout"),
            (RolloutRole, "run_to_end", "rollout"),
        ):
            self.wrap(monkeypatch, cls, method, name)
        for function in ("add_segments", "prune_segments"):
            self.wrap(monkeypatch, prefrl.rollout.role, function, "recording")

    def wrap(self, monkeypatch, owner, attribute, name):
        original = getattr(owner, attribute)

        def watched(*args, **kwargs):
            self.inside.append(name)
            try:
                return original(*args, **kwargs)
            finally:
                self.inside.pop()

        monkeypatch.setattr(owner, attribute, watched)

    def note(self, connection, cursor, statement, parameters, context, many):
        self.statements.append((self.inside[-1], statement))


def statements(watch, what):
    """All statements of ``what``, by who executed them."""
    sa.event.listen(sa.Engine, "before_cursor_execute", watch.note)
    try:
        what()
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", watch.note)
    return {role: [text for who, text in watch.statements if who == role] for role, _ in watch.statements}


def test_no_statement_of_a_fit_or_of_a_policy_on_it_names_the_true_reward(tmp_path, monkeypatch):
    watch = Watch(monkeypatch)
    watch.wrap(monkeypatch, prefrl.run.frozen, "fit_run", "fit")
    with Database.create(f"sqlite:///{tmp_path}/run.db") as db:
        assert run_lockstep(db, new_run(db, "run", *prepare(settings("ppo"))))
        by_role = statements(watch, lambda: run_lockstep(db, prefrl.run.frozen.fit_run(db, "run", "fit")[0]))
    assert by_role.keys() == {"nobody", "fit", "rollout", "recording"}, "no reward role, no oracle"
    truth = segment_truth.name
    for role in ("fit", "rollout"):
        assert len(by_role[role]) > 10
        assert [text for text in by_role[role] if truth in text or "true_return" in text] == []
    assert any(text.startswith(f"INSERT INTO {truth}") for text in by_role["recording"]), "the control"


def test_no_statement_of_the_reward_or_the_policy_names_the_true_reward(tmp_path, monkeypatch):
    def run_twice():
        with Database.create(f"sqlite:///{tmp_path}/run.db") as db:
            run = new_run(db, "run", *prepare(settings("ppo")))
            assert not run_lockstep(db, run, iter([False] * 150 + [True] * 10**6).__next__)
            assert run_lockstep(db, run), "a process that resumes reads more than one that begins"

    by_role = statements(Watch(monkeypatch), run_twice)
    assert min(len(by_role[role]) for role in ("reward", "oracle", "rollout", "recording")) > 10
    truth = segment_truth.name
    for role in ("reward", "rollout"):
        assert [text for text in by_role[role] if truth in text or "true_return" in text] == []
    assert any(f"FROM {truth}" in text for text in by_role["oracle"]), "the control: the oracle reads it"
    written = [text for text in by_role["recording"] if truth in text]
    assert any(text.startswith(f"INSERT INTO {truth}") for text in written)
    assert not any(text.startswith("SELECT") for text in written), "nor does the recording read it"
