"""Policy checkpoints: everything that learning on needs, exactly, and nothing that runs code."""

from __future__ import annotations

import json
import pickle
import struct

import gymnasium as gym
import numpy as np
import pytest
import torch
from stable_baselines3.common.utils import set_random_seed
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from prefrl.config import PolicyConfig
from prefrl.errors import PrefrlError, StoreError
from prefrl.rollout.checkpoint import pack, unpack
from prefrl.rollout.learners import make_learner

LEARNERS = {"trpo": {"batch_size": 32, "n_critic_updates": 2}, "ppo": {"batch_size": 32, "n_epochs": 2}, "a2c": {}}


def build(learner="ppo", seed=0, hidden=8, env_id="Pendulum-v1", norm_obs=True):
    venv = DummyVecEnv([lambda: gym.make(env_id) for _ in range(2)])
    normaliser = VecNormalize(venv, norm_obs=norm_obs)
    kwargs = {**LEARNERS[learner], "policy_kwargs": {"net_arch": [hidden]}}
    return make_learner(PolicyConfig(learner=learner, n_steps=16, kwargs=kwargs), normaliser, seed), normaliser


def flat(model, normaliser):
    """All tensors that matter, by name."""
    tensors = dict(model.policy.state_dict())
    for i, state in model.policy.optimizer.state_dict()["state"].items():
        tensors |= {f"moment.{i}.{name}": torch.as_tensor(value) for name, value in state.items()}
    statistics = {
        f"{kind}.{name}": getattr(rms, name)
        for kind, rms in (("obs", normaliser.obs_rms), ("reward", normaliser.ret_rms))
        for name in ("mean", "var", "count")
    }
    return {k: v.detach().numpy() for k, v in tensors.items()} | statistics


def assert_equal(one, two):
    assert one.keys() == two.keys()
    for name in one:
        assert np.array_equal(one[name], two[name]), name


@pytest.mark.parametrize("learner", LEARNERS)
def test_round_trip_is_exact(learner):
    model, normaliser = build(learner)
    model.learn(96)
    payload = pack(model, normaliser)
    other, statistics = build(learner, seed=9)
    assert not np.array_equal(flat(model, normaliser)["log_std"], flat(other, statistics)["log_std"])
    unpack(payload, other, statistics)
    assert_equal(flat(model, normaliser), flat(other, statistics))
    assert any(name.startswith("moment.") for name in flat(other, statistics)), "optimiser moments are in it"
    assert statistics.obs_rms.count > 96
    assert pack(other, statistics) == payload, "equal policies have equal bytes, so a hash says which one it is"


@pytest.mark.parametrize("learner", LEARNERS)
def test_learning_goes_on_as_if_nothing_had_happened(learner):
    def learn_on(model, normaliser):
        set_random_seed(21)
        normaliser.seed(21)
        model._last_obs = None  # both begin with a new episode
        model.learn(96, reset_num_timesteps=False)
        return flat(model, normaliser)

    model, normaliser = build(learner)
    model.learn(96)
    payload = pack(model, normaliser)
    other, statistics = build(learner, seed=9)
    unpack(payload, other, statistics)
    other.num_timesteps = model.num_timesteps
    fresh_moments, same_statistics = build(learner, seed=9)
    unpack(payload, fresh_moments, same_statistics)
    fresh_moments.num_timesteps = model.num_timesteps
    fresh_moments.policy.optimizer.state.clear()
    as_before = learn_on(model, normaliser)
    assert_equal(learn_on(other, statistics), as_before)
    without = learn_on(fresh_moments, same_statistics)
    assert not np.array_equal(without["value_net.weight"], as_before["value_net.weight"]), "moments make a difference"


def test_a_policy_that_never_learned_can_be_stored():
    model, normaliser = build()
    other, statistics = build(seed=9)
    other.learn(32)
    unpack(pack(model, normaliser), other, statistics)
    assert_equal(flat(model, normaliser), flat(other, statistics))


def test_without_normalised_observations():
    model, normaliser = build(norm_obs=False)
    model.learn(32)
    payload = pack(model, normaliser)
    other, statistics = build(seed=9, norm_obs=False)
    unpack(payload, other, statistics)
    assert torch.equal(other.policy.value_net.weight, model.policy.value_net.weight)
    assert statistics.ret_rms.var == normaliser.ret_rms.var != 1.0


@pytest.mark.parametrize(
    ("target", "named"),
    [
        ({"hidden": 16}, r"action_net\.weight is \(1, 8\), expected \(1, 16\)"),
        ({"env_id": "CartPole-v1"}, r"action_net\.bias is \(1,\), expected \(2,\)"),
    ],
)
def test_weights_of_another_shape_are_named_and_change_nothing(target, named):
    model, normaliser = build()
    model.learn(32)
    other, statistics = build(**target)
    before = flat(other, statistics)
    with pytest.raises(StoreError, match=named):
        unpack(pack(model, normaliser), other, statistics)
    assert_equal(flat(other, statistics), before)


def test_bytes_that_are_no_checkpoint_are_refused():
    model, normaliser = build()
    for payload in (b"", b"not a checkpoint", pack(model, normaliser)[:-10], pickle.dumps({"policy": 1})):
        with pytest.raises(PrefrlError):
            unpack(payload, model, normaliser)


def test_nothing_is_pickled(monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("pickle is used")

    for name in ("dumps", "loads", "Pickler", "Unpickler"):
        monkeypatch.setattr(pickle, name, refuse)
    monkeypatch.setattr(torch, "save", refuse)
    monkeypatch.setattr(torch, "load", refuse)
    model, normaliser = build()
    payload = pack(model, normaliser)
    unpack(payload, model, normaliser)
    size = struct.unpack("<Q", payload[:8])[0]
    header = json.loads(payload[8 : 8 + size])
    described = {name: entry["dtype"] for name, entry in header.items() if name != "__metadata__"}
    assert {name.split(".")[0] for name in described} == {"policy", "normaliser"}
    assert set(described.values()) <= {"F32", "F64", "I64"}
