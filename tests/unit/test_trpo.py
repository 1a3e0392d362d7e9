"""TRPO with the entropy bonus: contrib's algorithm where the bonus is zero, and safe where numbers are not."""

from __future__ import annotations

import math
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from sb3_contrib import TRPO
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import DummyVecEnv

import prefrl.rollout.trpo
from prefrl.rollout.trpo import EntropyTRPO

COMMON: dict[str, Any] = {
    "n_steps": 64,
    "batch_size": 64,
    "n_critic_updates": 2,
    "device": "cpu",
    "policy_kwargs": {"net_arch": [16]},
}


def venv(env_id="Pendulum-v1", n_envs=2):
    made = DummyVecEnv([lambda: gym.make(env_id) for _ in range(n_envs)])
    made.seed(5)
    return made


def vector(model):
    return torch.nn.utils.parameters_to_vector(model.policy.parameters()).detach().clone()


def trained(cls=EntropyTRPO, env_id="Pendulum-v1", n_updates=3, seed=0, **kwargs):
    model = cls("MlpPolicy", venv(env_id), seed=seed, **COMMON, **kwargs)
    model.learn(n_updates * 128)
    return model


@pytest.mark.parametrize("env_id", ["Pendulum-v1", "CartPole-v1"])
@pytest.mark.parametrize("more", [{}, {"sub_sampling_factor": 2}, {"normalize_advantage": False}])
def test_without_a_bonus_it_is_contrib_s_trpo(env_id, more):
    """Up to rounding: contrib takes the root of the step length in double precision, this one in single."""
    ours = vector(trained(env_id=env_id, ent_coef=0.0, **more))
    contrib = vector(trained(TRPO, env_id, **more))
    start = vector(EntropyTRPO("MlpPolicy", venv(env_id), seed=0, **COMMON))
    assert torch.allclose(ours, contrib, atol=1e-5, rtol=1e-4)
    assert (ours - start).abs().max() > 1e-2, "the control: three updates moved the parameters much further"


def test_the_bonus_changes_the_update():
    assert not torch.allclose(vector(trained(ent_coef=0.1)), vector(trained(ent_coef=0.0)), atol=1e-4)


@pytest.mark.parametrize("env_id", ["Pendulum-v1", "CartPole-v1"])
def test_two_runs_of_one_seed_are_equal_bit_for_bit(env_id):
    assert torch.equal(vector(trained(env_id=env_id)), vector(trained(env_id=env_id)))
    assert not torch.equal(vector(trained(env_id=env_id)), vector(trained(env_id=env_id, seed=1)))


def entropy(model):
    obs = torch.as_tensor(model.env.reset(), dtype=torch.float32)
    with torch.no_grad():
        return float(model.policy.get_distribution(obs).entropy().mean())


class FlatTRPO(EntropyTRPO):
    """All advantages are zero: only the bonus is left."""

    def train(self):
        self.rollout_buffer.advantages[:] = 0.0
        super().train()


@pytest.mark.parametrize("env_id", ["Pendulum-v1", "CartPole-v1"])
def test_the_bonus_raises_the_entropy_where_no_action_is_better(env_id):
    def ends(coef):
        model = FlatTRPO("MlpPolicy", venv(env_id), seed=0, ent_coef=coef, **COMMON)
        if env_id == "CartPole-v1":  # a new policy is uniform already: give it an opinion
            with torch.no_grad():
                model.policy.action_net.bias.copy_(torch.tensor([0.0, 1.5]))
        first = entropy(model)
        model.learn(4 * 128)
        return first, entropy(model)

    first, without = ends(0.0)
    assert without == pytest.approx(first, abs=1e-3)
    assert ends(0.1)[1] > without + 0.05


class Shared(BaseFeaturesExtractor):
    """Weights in front of both the policy and the values."""

    def __init__(self, observation_space):
        super().__init__(observation_space, 5)
        self.layer = torch.nn.Linear(observation_space.shape[0], 5)

    def forward(self, obs):
        return torch.tanh(self.layer(obs))


def test_fitting_the_values_does_not_move_the_policy():
    more = COMMON | {"policy_kwargs": {"features_extractor_class": Shared, "net_arch": [16]}}
    model = FlatTRPO("MlpPolicy", venv(), seed=0, ent_coef=0.0, **more)
    before, values = actor(model), model.policy.value_net.weight.detach().clone()
    model.learn(128)
    assert all(torch.equal(before[k], v) for k, v in actor(model).items())
    assert any("features_extractor" in k for k in before)
    assert not torch.equal(model.policy.value_net.weight, values)


def test_entropy_of_one_step_is_as_computed_by_hand():
    """A diagonal normal's entropy is the sum of log std + log(2 pi e) / 2 over the actions."""
    model = trained(n_updates=1)
    dimensions = model.action_space.shape[0]
    std = model.policy.log_std.detach()
    by_hand = float(std.sum()) + dimensions * 0.5 * math.log(2 * math.pi * math.e)
    assert entropy(model) == pytest.approx(by_hand, abs=1e-5)


def actor(model):
    return {k: v.clone() for k, v in model.policy.state_dict().items() if "value" not in k and "vf" not in k}


def spoil_rewards(model, monkeypatch):
    model.rollout_buffer.advantages[3, 0] = np.nan


def spoil_direction(model, monkeypatch):
    bad = torch.full((sum(p.numel() for p in model.policy.parameters()),), torch.nan)
    monkeypatch.setattr(
        prefrl.rollout.trpo, "conjugate_gradient_solver", lambda product, gradient, **_: bad[: len(gradient)]
    )


def spoil_curvature(model, monkeypatch):
    """A Fisher product that is not positive: the step length is the root of a negative number."""
    monkeypatch.setattr(prefrl.rollout.trpo, "conjugate_gradient_solver", lambda product, gradient, **_: gradient)
    monkeypatch.setattr(model, "hessian_vector_product", lambda params, kl, vector, retain_graph=True: -vector)


@pytest.mark.parametrize("spoil", [spoil_rewards, spoil_direction, spoil_curvature])
def test_an_update_that_is_not_finite_leaves_the_policy_as_it_was(spoil, monkeypatch):
    model = trained(n_updates=1)
    before = actor(model)
    spoil(model, monkeypatch)
    model.train()
    after = actor(model)
    assert all(torch.equal(before[k], after[k]) for k in before)
    assert torch.isfinite(vector(model)).all(), "the values are still fitted to the returns, which are finite"
    assert model.logger.name_to_value["train/is_line_search_success"] == 0.0
    monkeypatch.undo()
    model.learn(128, reset_num_timesteps=False)
    assert any(not torch.equal(before[k], v) for k, v in actor(model).items()), "and it learns on afterwards"


def test_a_step_that_is_too_long_is_shortened(monkeypatch):
    """With a quarter of the true curvature the first try goes twice too far, and its divergence is four times."""
    model = trained(n_updates=1, target_kl=0.003)
    before, product = actor(model), model.hessian_vector_product

    def quarter(params, kl, vector, retain_graph=True):
        return product(params, kl, vector, retain_graph) / 4

    monkeypatch.setattr(model, "hessian_vector_product", quarter)
    model.train()
    logged = model.logger.name_to_value
    assert logged["train/is_line_search_success"] == 1.0
    assert 0.0 < logged["train/kl_divergence_loss"] < 0.003
    assert any(not torch.equal(before[k], v) for k, v in actor(model).items())
    assert {"train/entropy", "train/policy_objective", "train/value_loss", "train/std"} <= set(logged)
