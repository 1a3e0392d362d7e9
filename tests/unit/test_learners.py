"""Learners by name: what they are built with, and what is refused."""

from __future__ import annotations

import dataclasses
import sys
import types

import gymnasium as gym
import numpy as np
import pytest
import torch
from sb3_contrib import TRPO
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.sb2_compat.rmsprop_tf_like import RMSpropTFLike
from stable_baselines3.common.torch_layers import NatureCNN
from stable_baselines3.common.vec_env import DummyVecEnv

from prefrl.config import PolicyConfig
from prefrl.errors import ConfigError
from prefrl.rollout.learners import LEARNERS, make_learner, make_normaliser
from prefrl.rollout.trpo import EntropyTRPO
from prefrl.settings import from_dict

BATCH = {"trpo": {"batch_size": 32}, "ppo": {"batch_size": 32}, "a2c": {}}


def build(learner, env_id="Pendulum-v1", n_steps=16, seed=0, **kwargs):
    venv = DummyVecEnv([lambda: gym.make(env_id) for _ in range(2)])
    config = PolicyConfig(learner=learner, n_steps=n_steps, kwargs={**BATCH.get(learner, {}), **kwargs})
    return make_learner(config, venv, seed)


@pytest.mark.parametrize(("name", "cls"), [("trpo", EntropyTRPO), ("a2c", A2C), ("ppo", PPO)])
@pytest.mark.parametrize("env_id", ["Pendulum-v1", "CartPole-v1"])
def test_every_name_makes_a_learner_that_learns(name, cls, env_id):
    model = build(name, env_id)
    assert type(model) is cls
    assert (model.n_steps, model.seed) == (16, 0)
    before = torch.nn.utils.parameters_to_vector(model.policy.parameters()).detach().clone()
    model.learn(64)
    assert not torch.equal(torch.nn.utils.parameters_to_vector(model.policy.parameters()), before)


def test_all_names_are_tested():
    assert set(LEARNERS) == set(BATCH)


def test_a_class_of_another_library_by_module_and_name():
    model = build("sb3_contrib:TRPO", batch_size=32)
    assert type(model) is TRPO
    assert model.n_steps == 16


def test_a_learner_made_by_a_function(monkeypatch):
    module = types.ModuleType("my_learners")
    module.small = lambda policy, env, **kwargs: PPO(policy, env, policy_kwargs={"net_arch": [8]}, **kwargs)
    monkeypatch.setitem(sys.modules, "my_learners", module)
    model = build("my_learners:small", batch_size=32)
    assert model.policy.mlp_extractor.policy_net[0].out_features == 8


@pytest.mark.parametrize(
    ("learner", "env_id", "cls"),
    [("stable_baselines3:SAC", "Pendulum-v1", "SAC"), ("stable_baselines3:DQN", "CartPole-v1", "DQN")],
)
def test_a_learner_with_a_replay_buffer_is_refused_by_name(learner, env_id, cls):
    with pytest.raises(ConfigError, match=rf"{cls}.* not an on-policy .* old versions"):
        build(learner, env_id, buffer_size=100)


@pytest.mark.parametrize(
    ("learner", "kwargs", "named"),
    [
        ("ppo", {"bach_size": 64}, "bach_size"),
        ("trpo", {"clip_range": 0.2}, "clip_range"),
        ("a2c", {"policy_kwargs": 5}, "policy.kwargs"),
        ("ppo", {"policy": "NoSuchPolicy"}, "NoSuchPolicy"),
        ("ppo", {"batch_size": 1}, "batch_size"),
        ("stable_baselines3:DQN", {"buffer_size": 10}, "DQN"),  # which refuses a continuous action
    ],
)
def test_settings_that_a_learner_refuses_are_named(learner, kwargs, named):
    with pytest.raises(ConfigError, match=named):
        build(learner, **kwargs)


@pytest.mark.parametrize("learner", ["no_such_module:Class", "stable_baselines3:NoSuchClass"])
def test_a_learner_that_cannot_be_imported_is_named(learner):
    with pytest.raises(ConfigError, match=learner):
        build(learner)


@pytest.mark.parametrize("make", [build, lambda name: from_dict({"policy": {"learner": name}})])
def test_a_name_that_does_not_exist_gets_the_nearest(make):
    with pytest.raises(ConfigError, match=r"'trop'.*did you mean trpo\?"):
        make("trop")


@pytest.mark.parametrize("more", [{}, {"policy_kwargs": {"net_arch": [8]}}])
def test_a2c_has_the_optimiser_of_its_reference_also_with_another_net(more):
    model = build("a2c", n_steps=5, **more)
    optimizer = model.policy.optimizer
    assert type(optimizer) is RMSpropTFLike
    assert {k: optimizer.defaults[k] for k in ("lr", "alpha", "eps")} == {"lr": 7e-4, "alpha": 0.99, "eps": 1e-5}
    assert model.max_grad_norm == 0.5
    if more:
        assert model.policy.mlp_extractor.policy_net[0].out_features == 8


def test_a2c_clips_the_gradient(monkeypatch):
    norms = []

    def watched(optimizer, closure=None):
        grads = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        norms.append(float(torch.linalg.vector_norm(torch.cat([g.flatten() for g in grads]))))

    monkeypatch.setattr(RMSpropTFLike, "step", watched)
    build("a2c", n_steps=5).learn(50)  # Pendulum's rewards of down to -16 make gradients far above 0.5
    assert len(norms) == 5
    assert max(norms) <= 0.5 + 1e-4
    assert max(norms) > 0.49, "the control: the clip was needed"


def test_a_user_s_own_optimiser_wins():
    model = build("a2c", policy_kwargs={"optimizer_class": torch.optim.Adam, "optimizer_kwargs": {"eps": 1e-8}})
    assert type(model.policy.optimizer) is torch.optim.Adam


def test_one_seed_makes_one_policy():
    def weights(seed):
        return torch.nn.utils.parameters_to_vector(build("ppo", seed=seed).policy.parameters())

    assert torch.equal(weights(3), weights(3))
    assert not torch.equal(weights(3), weights(4))


class Pictures(gym.Env):
    observation_space = gym.spaces.Box(0, 255, (4, 42, 42), np.uint8)
    action_space = gym.spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 0.0, False, False, {}


def pictures(**settings):
    config = PolicyConfig(
        **{"learner": "a2c", "n_steps": 5, "normalize_obs": False, "normalize_reward": False} | settings
    )
    return make_normaliser(DummyVecEnv([Pictures, Pictures]), config), config


def test_images_get_the_convolutional_policy_and_reach_it_as_they_are():
    venv, config = pictures()
    model = make_learner(config, venv, 0)
    assert isinstance(model.policy.features_extractor, NatureCNN)
    assert model.observation_space.shape == (4, 42, 42), "frames first: nothing is transposed"
    model.learn(20)
    assert venv.reset().dtype == np.uint8


def test_images_are_not_standardised():
    with pytest.raises(ConfigError, match=r"policy\.normalize_obs is on, but the observations are images"):
        pictures(normalize_obs=True)


def rates(model, total):
    seen = []

    class See(BaseCallback):
        def _on_step(self):
            return True

        def _on_rollout_end(self):
            self.model._update_current_progress_remaining(self.num_timesteps, self.model._total_timesteps)
            seen.append(self.model.lr_schedule(self.model._current_progress_remaining))

    model.learn(total - model.num_timesteps, callback=See(), reset_num_timesteps=False)
    return seen


def test_the_learning_rate_falls_over_its_own_steps_not_over_the_runs():
    """Paper, appendix A.2: 0.0007, to 0 at 80M steps, in a run of 50M."""
    config = PolicyConfig(learner="a2c", n_steps=5, steps=50, decay_steps=80)
    model = make_learner(config, DummyVecEnv([lambda: gym.make("CartPole-v1") for _ in range(2)]), 0)
    assert rates(model, 50) == pytest.approx([7e-4 * (1 - t / 80) for t in (10, 20, 30, 40, 50)])
    longer = make_learner(dataclasses.replace(config, steps=100), model.get_env(), 0)
    longer.num_timesteps = 50
    assert rates(longer, 100) == pytest.approx([7e-4 * (1 - t / 80) for t in (60, 70)] + [0.0] * 3)


def test_a_rate_that_falls_starts_where_the_learner_does_or_is_told_to():
    venv = DummyVecEnv([lambda: gym.make("CartPole-v1")])
    for learner, kwargs, first in (("ppo", {}, 3e-4), ("trpo", {}, 1e-3), ("ppo", {"learning_rate": 0.5}, 0.5)):
        config = PolicyConfig(learner=learner, n_steps=64, steps=100, decay_steps=100, kwargs=kwargs)
        model = make_learner(config, venv, 0)
        assert [model.lr_schedule(left) for left in (1.0, 0.25)] == pytest.approx([first, first / 4])


def test_a_rate_that_is_no_number_cannot_fall():
    config = PolicyConfig(learner="ppo", n_steps=64, decay_steps=100, kwargs={"learning_rate": "fast"})
    with pytest.raises(ConfigError, match="needs a learning_rate that is a number, but it is 'fast'"):
        make_learner(config, DummyVecEnv([lambda: gym.make("CartPole-v1")]), 0)
