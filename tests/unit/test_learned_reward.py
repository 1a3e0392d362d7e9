"""The learned reward under a learner: which observation, which version, and what it refuses."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from prefrl.config import EnvConfig, PolicyConfig, RewardConfig
from prefrl.errors import RewardError
from prefrl.reward_model.ensemble import RewardEnsemble
from prefrl.reward_model.spaces import Spaces
from prefrl.rollout.learned_reward import LearnedReward, PinNewest
from prefrl.rollout.learners import make_learner
from prefrl.rollout.role import make_venv
from prefrl.segments.recorder import SegmentRecorder

HORIZON = 7


class Walk(gym.Env[Any, Any]):
    """Moves by its action; its own reward is 1000 a step, which no learner above may ever see."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        self.at = self.np_random.uniform(-5, 5, 2).astype(np.float32)
        return self.at.copy(), {}

    def step(self, action):
        self.t += 1
        self.at = (self.at + action).astype(np.float32)
        return self.at.copy(), 1000.0, False, self.t >= HORIZON, {}


class Linear:
    """An ensemble in one line, so that a reward says which observation, action and version it is of."""

    def __init__(self, version):
        self.version = version

    def reward(self, obs, act):
        return (self.version * (obs[:, 0] + 10 * obs[:, 1]) + 100 * act[:, 0]).astype(np.float32)


class Broken:
    """Gives one value for all steps, from a certain call on."""

    def __init__(self, value, after=0):
        self.value, self.n_left = value, after

    def reward(self, obs, act):
        self.n_left -= 1
        return np.full(len(obs), self.value if self.n_left < 0 else 0.5, np.float32)


class Source:
    """Publishes what it is told to."""

    def __init__(self, ensemble=None):
        self.version = 0
        if ensemble is not None:
            self.publish(ensemble)

    def publish(self, ensemble):
        self.version, self.ensemble = self.version + 1, ensemble

    def newest(self):
        return self.version

    def load(self):
        return self.version, self.ensemble.reward


def make(source, n_envs=2, k=3):
    venv = DummyVecEnv([Walk for _ in range(n_envs)])
    venv.seed(3)
    return LearnedReward(SegmentRecorder(venv, k, 100), source)


def steps(venv, n, seed=0):
    """(observation acted upon, action, reward, dones, infos) of n steps."""
    rng, obs = np.random.default_rng(seed), venv.reset()
    for _ in range(n):
        act = rng.uniform(-1, 1, (venv.num_envs, 2)).astype(np.float32)
        new, rewards, dones, infos = venv.step(act)
        yield obs, act, rewards, dones, infos
        obs = new


def test_the_reward_is_of_the_observation_acted_upon_also_at_the_end_of_an_episode():
    venv = make(Source(Linear(1)))
    venv.pin()
    n_done = 0
    for obs, act, rewards, dones, infos in steps(venv, 4 * HORIZON):
        assert np.array_equal(rewards, Linear(1).reward(obs, act))
        for i in np.flatnonzero(dones):
            n_done += 1
            last = infos[i]["terminal_observation"]
            assert np.allclose(last, obs[i] + act[i]), "the terminal observation follows the one rewarded"
            assert not np.allclose(Linear(1).reward(last[None], act[i][None]), rewards[i], atol=1e-3)
    assert n_done == 8


def test_the_reward_is_what_the_ensemble_says_of_the_same_steps_later():
    ensemble = RewardEnsemble(Spaces((2,), (2,)), RewardConfig(), seed=5)
    source = Source(ensemble)
    venv = make(source)
    venv.pin()
    seen = list(steps(venv, 40))
    obs, act, rewards = (np.concatenate([step[i] for step in seen]) for i in range(3))
    assert np.allclose(ensemble.reward(obs, act), rewards, atol=1e-6)
    assert np.std(rewards) > 1e-3, "an ensemble that says the same everywhere would show nothing"
    segments, _ = venv.venv.cut(1000, np.random.default_rng(0), env_steps=80, source="policy")
    by_obs = {tuple(o): r for o, r in zip(obs.tolist(), rewards, strict=True)}
    for segment in segments:  # and of the segments that the comparisons are about
        expected = [by_obs[tuple(o)] for o in segment.obs.tolist()]
        assert np.allclose(ensemble.reward(segment.obs, segment.act), expected, atol=1e-6)


def test_the_version_changes_only_where_it_is_pinned():
    source = Source(Linear(1))
    venv = make(source)
    assert venv.pin() == 1
    for t, (obs, act, rewards, _, _) in enumerate(steps(venv, 20)):
        if t == 5:
            source.publish(Linear(2))
        if t == 10:
            assert venv.pin() == 2
        expected = Linear(1 if t <= 10 else 2)  # the step of t = 10 was made before it was yielded
        assert np.array_equal(rewards, expected.reward(obs, act)), t


def test_without_a_version_there_is_no_reward():
    venv = make(Source())
    assert venv.pin() == 0
    with pytest.raises(RewardError, match=r"no version .* pin\(\)"):
        next(steps(venv, 1))


def test_episode_statistics_are_of_the_learned_reward():
    venv = make(Source(Linear(1)))
    venv.pin()
    total, n_done = np.zeros(2), 0
    for _, _, rewards, dones, infos in steps(venv, 3 * HORIZON):
        total += rewards
        for i in np.flatnonzero(dones):
            assert infos[i]["episode"]["r"] == pytest.approx(total[i], abs=1e-4)
            assert infos[i]["episode"]["l"] == HORIZON
            assert abs(infos[i]["episode"]["r"] - 1000 * HORIZON) > 100
            total[i], n_done = 0.0, n_done + 1
        assert all("episode" not in info for i, info in enumerate(infos) if not dones[i])
    assert n_done == 6


def test_a_reset_in_the_middle_begins_new_statistics():
    venv = make(Source(Linear(1)))
    venv.pin()
    list(steps(venv, 3))
    for _, _, _, dones, infos in steps(venv, HORIZON):
        assert all(infos[i]["episode"]["l"] == HORIZON for i in np.flatnonzero(dones))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_reward_that_is_not_finite_is_named_before_the_learner_sees_it(value):
    class OneBad:
        def reward(self, obs, act):
            self.n = getattr(self, "n", 0) + 1
            return np.array([0.0, value if self.n == 10 else 0.0], np.float32)

    venv = make(Source(OneBad()))
    venv.pin()
    seen = []
    with pytest.raises(RewardError, match=rf"version 1 .* {value} in environment 1 at step 2 of its episode"):
        seen.extend(rewards for _, _, rewards, _, _ in steps(venv, 20))
    assert len(seen) == 9
    assert np.isfinite(seen).all()


LEARNERS = {
    "trpo": {"batch_size": 32, "n_critic_updates": 2},
    "ppo": {"batch_size": 32, "n_epochs": 2},
    "a2c": {},
}


def learner(name, source):
    reward = make(source)
    venv = VecNormalize(reward, norm_reward=False)
    small = {"net_arch": [16]}
    policy = PolicyConfig(learner=name, n_steps=32, kwargs={**LEARNERS[name], "policy_kwargs": small})
    return make_learner(policy, venv, seed=1), reward


def parameters(model):
    return torch.nn.utils.parameters_to_vector(model.policy.parameters()).detach().clone()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # SB3's explained variance of 1e30, which is only logged
@pytest.mark.parametrize("name", LEARNERS)
@pytest.mark.parametrize("value", [0.7, 0.0, 1e30])
def test_flat_and_huge_rewards_leave_a_finite_policy(name, value):
    model, reward = learner(name, Source(Broken(value)))
    before = parameters(model)
    model.learn(192, callback=PinNewest(reward))
    assert torch.isfinite(parameters(model)).all()
    if value < 1:
        assert not torch.equal(parameters(model), before), "it did train"
    action, _ = model.predict(np.zeros((1, 2), np.float32))
    assert np.isfinite(action).all()


@pytest.mark.parametrize("name", LEARNERS)
def test_a_nan_reward_ends_learning_by_name_and_the_policy_stays_finite(name):
    model, reward = learner(name, Source(Broken(np.nan, after=70)))
    with pytest.raises(RewardError, match=r"version 1 .* nan in environment 0 at step"):
        model.learn(1000, callback=PinNewest(reward))
    assert model.num_timesteps == 140, "two rollouts of 64 were learned from, the third is incomplete"
    assert torch.isfinite(parameters(model)).all()
    assert np.isfinite(model.rollout_buffer.rewards).all()


def test_terminal_observations_are_transformed_like_all_others():
    """In the order in which the rollout role builds it: monitor, recorder, learned reward, normaliser."""

    class FirstObs:
        def reward(self, obs, act):
            return obs[:, 0].astype(np.float32)

    env = EnvConfig(id="Pendulum-v1", horizon=20)  # the last observation differs from the first of the next episode
    below = make_venv(env, 2, seed=4)
    reward = LearnedReward(SegmentRecorder(below, 5, 100), Source(FirstObs()))
    reward.pin()
    venv = VecNormalize(reward, norm_reward=False)
    venv.reset()
    rng, n_done = np.random.default_rng(0), 0
    for _ in range(60):
        _, _, dones, infos = venv.step(rng.uniform(-2, 2, (2, 1)).astype(np.float32))
        for i in np.flatnonzero(dones):
            n_done += 1
            given = infos[i]["terminal_observation"]
            state = below.buf_infos[i]["state"]  # (angle, speed) after the last step, before the reset
            true = np.array([np.cos(state[0]), np.sin(state[0]), state[1]], np.float32)
            assert np.allclose(given, venv.normalize_obs(true), atol=1e-4)
            assert not np.allclose(given, true, atol=1e-2), "the control: it is not the raw one"
            assert infos[i]["TimeLimit.truncated"]
    assert n_done == 6


class Versions(BaseCallback):
    """Publishes a new version in the middle of each rollout and notes what each rollout was rewarded with."""

    def __init__(self, source, reward):
        super().__init__()
        self.source, self.reward, self.pinned = source, reward, []

    def _on_step(self):
        if self.n_calls % 16 == 5:
            self.source.publish(Linear(self.source.version + 1))
        return True

    def _on_rollout_end(self):
        buffer = self.model.rollout_buffer
        self.pinned.append(self.reward.version)
        expected = Linear(self.reward.version).reward(
            buffer.observations.reshape(-1, 2), np.clip(buffer.actions.reshape(-1, 2), -1, 1)
        )
        ends = np.zeros(buffer.rewards.shape, bool)  # a time limit adds the bootstrapped value to the last reward
        ends[:-1] = buffer.episode_starts[1:].astype(bool)
        ends[-1] = self.locals["dones"]
        same = np.isclose(buffer.rewards, expected.reshape(buffer.rewards.shape), atol=1e-3)
        assert same[~ends].all(), "one version for the whole rollout"


def test_it_works_in_a_script_under_plain_ppo():
    source = Source(Linear(1))
    reward = LearnedReward(DummyVecEnv([Walk, Walk]), source)
    versions = Versions(source, reward)
    model = PPO("MlpPolicy", reward, n_steps=16, batch_size=32, n_epochs=1, seed=0, device="cpu")
    model.learn(96, callback=[PinNewest(reward), versions])
    assert versions.pinned == [1, 2, 3]
    assert source.version == 4
    assert model.ep_info_buffer
    assert all(abs(e["r"] - 1000 * HORIZON) > 100 for e in model.ep_info_buffer)
