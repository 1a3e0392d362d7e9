"""The segment recorder: what belongs together, where it may cut, and what it lets through."""

from __future__ import annotations

import copy
import time
from collections import Counter
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv

from prefrl.envs.ends import FixedHorizon
from prefrl.errors import EnvError
from prefrl.segments.recorder import SegmentRecorder

K = 5


class Barcode(gym.Env[Any, Any]):
    """Shows (environment, life, time step of that life); nothing in it depends on the action.

    The buffers are overwritten in place at every step of a life, so that whoever keeps a reference instead of
    a copy is found out.
    """

    observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float64)
    action_space = spaces.Box(-1e9, 1e9, (3,), np.float64)

    def __init__(self, number: int, lengths: list[int], fault: str = "", at: int = 3):
        self.number, self.lengths, self.fault, self.at = number, lengths, fault, at
        self.life, self.seeds = -1, []

    def _show(self):
        self.obs[:] = (self.number, self.life, self.t)
        self.state[:] = -self.obs
        return self.obs

    def reset(self, *, seed=None, options=None):
        self.seeds.append(seed)
        self.life += 1
        self.t = 0
        self.obs, self.state = np.zeros(3), np.zeros(3)
        return self._show(), {"state": self.state}

    def step(self, action):
        assert np.array_equal(action, action_for(self.obs)), "the action is the one for this observation"
        reward = reward_for(self.obs)
        self.t += 1
        obs = self._show()
        if self.life == 1 and self.t == self.at and self.fault:
            where, value = self.fault.split()
            if where == "reward":
                reward = float(value)
            else:
                obs[1] = float(value)
        return obs, reward, False, self.t >= self.lengths[self.life % len(self.lengths)], {"state": self.state}


def action_for(obs):
    return 2.0 * np.asarray(obs) + 1.0


def reward_for(obs):
    return float(obs[..., 0] * 1e4 + obs[..., 1] * 100 + obs[..., 2])  # exact in float32


def make(lengths, n_envs=2, k=K, n_steps=60, wrap=Monitor, **kwargs):
    makers = [lambda i=i: wrap(Barcode(i, lengths, **kwargs)) for i in range(n_envs)]
    return SegmentRecorder(DummyVecEnv(makers), k, n_steps)


def run(recorder, n_steps, obs=None):
    obs = recorder.reset() if obs is None else obs
    for _ in range(n_steps):
        obs, *_ = recorder.step(action_for(obs))
    return obs


def cut(recorder, n=10**9, seed=0):
    segments, rewards = recorder.cut(n, np.random.default_rng(seed), env_steps=7, source="policy")
    assert len(segments) == len(rewards)
    return segments, rewards


def barcode(segment):
    """Where a segment says in its own observations that it comes from: (environment, life, first step)."""
    return tuple(int(x) for x in segment.obs[0])


def possible(lengths, n_envs, n_steps, k):
    """All starts that exist in ``n_steps`` steps of each environment, by plain counting."""
    steps, life, t = [], 0, 0
    for _ in range(n_steps):
        steps.append((life, t))
        t += 1
        if t >= lengths[life % len(lengths)]:
            life, t = life + 1, 0
    runs = [steps[i] for i in range(n_steps - k + 1) if steps[i][0] == steps[i + k - 1][0]]
    return {(env, life, t) for env in range(n_envs) for life, t in runs}


def assert_coherent(segment, rewards, k=K):
    assert len(segment) == k
    assert (np.diff(segment.obs[:, 2]) == 1).all(), "consecutive steps, none twice"
    assert len(np.unique(segment.obs[:, :2], axis=0)) == 1, "one environment, one life"
    assert np.array_equal(segment.act, action_for(segment.obs)), "the observation before each action"
    assert np.array_equal(rewards, [reward_for(o) for o in segment.obs])
    assert np.array_equal(segment.states, -segment.obs)
    assert segment.env_index == segment.obs[0, 0]


def test_what_is_cut_belongs_together():
    recorder = make([7, 5, 12, 4], n_envs=3)
    run(recorder, 60)
    segments, rewards = cut(recorder, 50)
    assert len(segments) == 50
    for segment, reward in zip(segments, rewards, strict=True):
        assert_coherent(segment, reward)
        assert (segment.episode, segment.start) == barcode(segment)[1:]
        assert (segment.env_steps, segment.source) == (7, "policy")
    assert len({s.digest for s in segments}) == 50, "no segment twice"


@settings(deadline=None, max_examples=60)
@given(
    lengths=st.lists(st.integers(1, 13), min_size=1, max_size=5),
    n_envs=st.integers(1, 3),
    k=st.integers(1, 7),
    rollouts=st.lists(st.integers(1, 40), min_size=1, max_size=4),
)
def test_every_possible_segment_is_drawn_once_over_all_rollouts(lengths, n_envs, k, rollouts):
    """Also the one with the last step of an episode, and those that lie across the boundary of two rollouts."""
    recorder = make(lengths, n_envs, k, n_steps=max(rollouts))
    obs, found = None, Counter()
    for n_steps in rollouts:
        obs = run(recorder, n_steps, obs)
        segments, rewards = cut(recorder)
        for segment, reward in zip(segments, rewards, strict=True):
            assert_coherent(segment, reward, k)
        found.update(map(barcode, segments))
    assert set(found) == possible(lengths, n_envs, sum(rollouts), k)
    assert set(found.values()) <= {1}


def test_segments_lie_across_the_boundary_of_two_rollouts():
    recorder = make([1000], n_envs=1, n_steps=20)
    obs = run(recorder, 20)
    first = {barcode(s)[2] for s in cut(recorder)[0]}
    run(recorder, 20, obs)
    second = {barcode(s)[2] for s in cut(recorder)[0]}
    assert first == set(range(16))
    assert second == set(range(16, 36)), "starts 16 to 19 end in the second rollout"


def test_only_so_much_is_kept_when_nobody_cuts():
    recorder = make([1000], n_envs=1, n_steps=20)
    run(recorder, 500)
    starts = sorted(barcode(s)[2] for s in cut(recorder)[0])
    assert starts == list(range(476, 496)), "the newest 20 starts"


def chi_square_p(counts):
    expected = counts.sum() / len(counts)
    chi2 = ((counts - expected) ** 2 / expected).sum()
    half = torch.tensor([(len(counts) - 1) / 2, chi2 / 2], dtype=torch.float64)
    return float(torch.special.gammaincc(half[0], half[1]))


def twin(recorder):
    """One that has recorded the same steps, so that cutting it leaves the other as it was."""
    other = SegmentRecorder.__new__(SegmentRecorder)
    vars(other).update({name: copy.copy(value) for name, value in vars(recorder).items()})
    other._obs = copy.deepcopy(recorder._obs)
    return other


def test_every_start_is_as_likely_as_any_other():
    lengths = [K - 1, K, K + 1, 5 * K]
    n_steps = 2 * sum(lengths)
    recorder = make(lengths, n_envs=3, n_steps=n_steps)
    run(recorder, n_steps)
    starts = sorted(possible(lengths, 3, n_steps, K))
    hits: Counter[tuple[int, ...]] = Counter()
    for seed in range(500):
        segments, _ = cut(twin(recorder), 10, seed)
        hits.update(map(barcode, segments))
    assert set(hits) <= set(starts)
    counts = np.array([hits[s] for s in starts])
    assert counts.sum() == 5000
    assert chi_square_p(counts) > 0.001
    by_env = [sum(n for start, n in hits.items() if start[0] == env) for env in range(3)]
    assert min(by_env) > 0.05 * 5000
    # the test can tell: an off-by-one that loses the last start of the long episodes would be seen
    last = [i for i, s in enumerate(starts) if s[2] == 4 * K]
    assert len(last) == 6, "two long episodes in each of three environments"
    counts[last] = 0
    assert chi_square_p(counts) < 0.001


@pytest.mark.parametrize(("length", "n_lives"), [(K, 12), (K + 1, 10)])
def test_an_episode_as_long_as_a_segment_is_used(length, n_lives):
    recorder = make([length], n_envs=1)
    run(recorder, 60)
    found = sorted(barcode(s)[1:] for s in cut(recorder)[0])
    assert found == [(life, t) for life in range(n_lives) for t in range(length - K + 1)]


def test_shorter_episodes_give_nothing_and_do_not_hang():
    recorder = make([K - 1])
    started = time.monotonic()
    run(recorder, 60)
    assert cut(recorder) == ([], [])
    assert recorder.n_short == recorder.num_envs * (60 // (K - 1)), "and are counted"
    assert time.monotonic() - started < 5


def test_episodes_long_enough_are_not_counted_as_short():
    recorder = make([K, K - 1, K + 3])
    run(recorder, 2 * (3 * K + 2))
    assert recorder.n_short == 2 * recorder.num_envs


def test_nothing_to_cut_before_k_steps():
    recorder = make([100], n_envs=2)
    assert cut(recorder) == ([], [])
    obs = run(recorder, K - 1)
    assert cut(recorder) == ([], [])
    run(recorder, 1, obs)
    assert len(cut(recorder)[0]) == 2, "and what was there is not forgotten"


def test_an_environment_that_never_ends_gives_segments():
    recorder = make([10**9], n_envs=2, n_steps=50)
    run(recorder, 50)
    assert len(cut(recorder, 20)[0]) == 20
    assert recorder.n_env_steps == 100


def test_a_reset_from_outside_is_not_crossed():
    recorder = make([1000], n_envs=2)
    run(recorder, 12)
    run(recorder, 12)  # resets again
    segments, _ = cut(recorder)
    assert {barcode(s) for s in segments} == {(e, life, t) for e in (0, 1) for life in (0, 1) for t in range(8)}
    assert recorder.episode_returns == [], "an episode that was not played to its end has no return"


def hidden(env):
    """Lives of 1 to 13 steps inside a horizon of 30, whose ends the learner does not see."""
    return Monitor(gym.wrappers.TimeLimit(FixedHorizon(env, 30, "reset", "barcode"), 30))


def test_no_segment_crosses_a_hidden_reset():
    lengths = [13, 6, 1, 4, 9]
    recorder = make(lengths, n_envs=2, n_steps=90, wrap=hidden)
    obs, n_hidden, n_done = recorder.reset(), 0, 0
    for _ in range(90):
        obs, _, dones, infos = recorder.step(action_for(obs))
        n_hidden += sum(bool(info.get("hidden_reset")) for info in infos)
        n_done += sum(dones)
    assert n_done == 6
    assert n_hidden > 10
    segments, rewards = cut(recorder)
    for segment, reward in zip(segments, rewards, strict=True):
        assert_coherent(segment, reward)
    crossing = 2 * (90 - K + 1) - len(segments)
    assert crossing > 50, "the control: many windows of K steps do cross a reset"
    by_life = Counter((s.env_index, s.episode) for s in segments)
    assert by_life[(0, 0)] == 13 - K + 1
    assert by_life[(0, 1)] == 6 - K + 1


def test_the_arrays_are_copies():
    recorder = make([12], n_envs=2)
    obs = run(recorder, 10)
    obs[:] = 99.0
    for env in recorder.unwrapped.envs:
        env.unwrapped.obs[:] = 99.0
        env.unwrapped.state[:] = 99.0
    segments, rewards = cut(recorder)
    assert len(segments) == 12
    for segment, reward in zip(segments, rewards, strict=True):
        assert_coherent(segment, reward)
    segments[0].obs[:] = 5.0
    assert_coherent(segments[1], rewards[1])


def test_actions_that_the_caller_reuses_are_copied():
    recorder = make([100], n_envs=1)
    obs, act = recorder.reset(), np.zeros((1, 3))
    for _ in range(8):
        act[:] = action_for(obs)
        obs, *_ = recorder.step(act)
    act[:] = 0.0
    assert all(np.array_equal(s.act, action_for(s.obs)) for s in cut(recorder)[0])


def test_the_true_reward_does_not_pass_the_recorder():
    recorder = make([7, 10], n_envs=2)
    below = recorder.venv
    obs, n_done = recorder.reset(), 0
    for _ in range(40):
        obs, rewards, dones, infos = recorder.step(action_for(obs))
        assert np.array_equal(rewards, [0.0, 0.0])
        assert not any("episode" in info for info in infos)
        n_done += sum(dones)
    assert n_done > 0
    assert len(recorder.episode_returns) == n_done
    assert recorder.episode_returns[0] == sum(reward_for(np.array([0, 0, t])) for t in range(7))
    assert below.buf_rews.any(), "the control: below it there are true rewards"


def test_terminal_observations_are_untouched():
    recorder = make([7], n_envs=2)
    obs = recorder.reset()
    for t in range(1, 22):
        obs, _, dones, infos = recorder.step(action_for(obs))
        for env, info in enumerate(infos):
            assert dones[env] == (t % 7 == 0)
            if dones[env]:
                assert np.array_equal(info["terminal_observation"], [env, t // 7 - 1, 7])
                assert info["TimeLimit.truncated"]
                assert np.array_equal(obs[env], [env, t // 7, 0]), "the next life has begun"


@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
@pytest.mark.parametrize("what", ["reward", "observation"])
def test_a_value_that_is_not_finite_is_named_with_environment_and_step(what, value):
    makers = [lambda: Barcode(0, [10]), lambda: Barcode(1, [10], f"{what} {value}")]
    recorder = SegmentRecorder(DummyVecEnv(makers), K, 60)
    obs = run(recorder, 12)
    with pytest.raises(EnvError, match=rf"environment 1 .*{what} .*{value}.* at step 2 of its episode 1"):
        recorder.step(action_for(obs))
    segments, _ = cut(recorder)
    assert all(np.isfinite(s.obs).all() for s in segments), "what was recorded before stays usable"


def test_each_environment_is_seeded_once():
    makers = [lambda i=i: Barcode(i, [7]) for i in range(2)]
    recorder = SegmentRecorder(DummyVecEnv(makers), K, 60)
    recorder.seed(11)
    run(recorder, 40)
    run(recorder, 10)
    for env in recorder.unwrapped.envs:
        assert env.seeds[0] is not None
        assert set(env.seeds[1:]) == {None}, "no later reset is seeded, or all episodes would be the same"
    assert recorder.unwrapped.envs[0].seeds[0] != recorder.unwrapped.envs[1].seeds[0]


def test_discrete_actions_keep_their_type():
    recorder = SegmentRecorder(DummyVecEnv([lambda: gym.make("CartPole-v1")]), 4, 10)
    recorder.reset()
    for _ in range(8):
        recorder.step(np.array([1]))
    segment = cut(recorder)[0][0]
    assert segment.act.dtype == np.int64
    assert segment.act.shape == (4,)
    assert segment.obs.dtype == np.float32
    assert segment.states is None
