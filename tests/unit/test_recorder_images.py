"""The segment recorder on stacks of frames: single frames once, one endless episode, scores of games set aside."""

from __future__ import annotations

import itertools
import tracemalloc
from collections import Counter
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from stable_baselines3.common.vec_env import DummyVecEnv

from prefrl.envs.atari import AtariEnv
from prefrl.envs.make import make_env
from prefrl.errors import EnvError
from prefrl.games import GAMES
from prefrl.rollout.learned_reward import LearnedReward
from prefrl.segments.recorder import SegmentRecorder

K, T = 4, 5


class Film(gym.Env[Any, Any]):
    """Frame ``t`` shows (environment, game, t); games of some lengths follow each other within one episode."""

    action_space = spaces.Discrete(3)

    def __init__(self, number: int, lengths: list[int], size: int = 6, fault: str = "") -> None:
        self.observation_space = spaces.Box(0, 255, (K, size, size + 1), np.uint8)
        self.number, self.lengths, self.fault = number, lengths, fault
        self.t, self.game, self.n_resets = 0, 0, 0
        self.stack = np.zeros(self.observation_space.shape, np.uint8)  # overwritten in place

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.begun, self.n_resets = self.t, self.n_resets + 1
        self.stack[:] = self._frame()
        return self.stack, {"state": self._state()}

    def step(self, action):
        self.t += 1
        info = {}
        if self.t - self.begun >= self.lengths[self.game % len(self.lengths)]:
            score = {"r": 1000.0 + self.game, "l": self.t - self.begun, "t": 0.0}
            info = {"hidden_reset": True, "game_over": True, "episode": score}
            self.game, self.begun = self.game + 1, self.t
        if not (self.fault and self.t == 7):
            self.stack[:-1] = self.stack[1:].copy()
        self.stack[-1] = self._frame()
        return self.stack, 1.0, False, False, info | {"state": self._state()}

    def _frame(self):
        frame = np.zeros(self.observation_space.shape[1:], np.uint8)
        frame[0, :4] = self.number, self.game, self.t % 256, self.n_resets
        return frame

    def _state(self):
        return np.array([self.number, self.t % 256, 7], np.uint8)


def make(lengths: list[int], n_envs: int = 2, n_steps: int = 60, **kwargs: Any) -> SegmentRecorder:
    venv = DummyVecEnv([lambda i=i: Film(i, lengths, **kwargs) for i in range(n_envs)])
    return SegmentRecorder(venv, T, n_steps)


def run(recorder: SegmentRecorder, n: int, *, reset: bool = True) -> list[Any]:
    """The stacks of ``n`` steps, (n, E, K, H, W), as the policy saw them."""
    obs = recorder.reset() if reset else recorder._last_obs
    seen = []
    for t in range(n):
        seen.append(obs.copy())
        obs, *_ = recorder.step(np.full(recorder.num_envs, t % 3))
    return seen


def cut(recorder: SegmentRecorder, n: int = 10**9, seed: int = 0) -> list[Any]:
    return recorder.cut(n, np.random.default_rng(seed), env_steps=0, source="policy")[0]


def test_a_segment_is_what_the_policy_saw_and_holds_single_frames_only():
    recorder = make([1000], n_envs=3)
    seen = np.array(run(recorder, 30))
    for env in recorder.unwrapped.envs:
        env.unwrapped.stack[:] = 99
    segments = cut(recorder)
    assert len(segments) == 3 * (30 - T + 1)
    for one in segments:
        assert np.array_equal(one.obs, seen[one.start : one.start + T, one.env_index])
        assert one.obs.shape == (T, K, 6, 7)
        assert not one.obs.flags.writeable
        base = one.obs
        while base.base is not None:
            base = base.base
        assert base.nbytes == (T + K - 1) * 6 * 7, "each frame once, and no rollout kept alive by it"
        # the emulator's state before the first action, from which the others follow
        assert one.states.tolist() == [[one.env_index, one.start, 7]]
        assert one.act.tolist() == [t % 3 for t in range(one.start, one.start + T)]


def test_frames_are_kept_across_rollouts_and_forgotten_in_time():
    recorder = make([1000], n_envs=1, n_steps=20)
    seen = run(recorder, 20)
    first = cut(recorder)
    seen += run(recorder, 20, reset=False)
    second = cut(recorder)
    assert sorted(s.start for s in first + second) == list(range(36))
    for one in first + second:
        assert np.array_equal(one.obs, np.array(seen[one.start : one.start + T])[:, 0])


def test_no_segment_crosses_the_end_of_a_game_whose_frames_slide_on():
    recorder = make([3, 9, 14], n_envs=2, n_steps=90)
    run(recorder, 90)
    segments = cut(recorder)
    assert Counter(len(np.unique(s.obs[:, -1, 0, 1])) for s in segments) == {1: len(segments)}
    assert any(len(np.unique(s.obs[0, :, 0, 1])) > 1 for s in segments), "the first stack may show the game before"
    assert 0 < len(segments) < 2 * (90 - T + 1) - 50
    assert recorder.n_short > 0


def test_a_reset_from_outside_begins_a_new_stack_and_is_not_crossed():
    recorder = make([1000], n_envs=2)
    seen = run(recorder, 12) + run(recorder, 12)
    segments = cut(recorder)
    assert len(segments) == 2 * 2 * (12 - T + 1)
    frames = {(t, env): seen[t][env] for t in range(24) for env in range(2)}
    for one in segments:
        begun = 12 * (int(one.obs[0, -1, 0, 3]) - 1) + one.start
        assert np.array_equal(one.obs, [frames[begun + t, one.env_index] for t in range(T)])


def test_stacks_that_do_not_slide_are_refused():
    recorder = make([1000], fault="stands still")
    with pytest.raises(EnvError, match="stacks of the newest frames, of shape"):
        run(recorder, 12)


def test_every_environment_and_start_is_as_likely():
    """Also where games end, and over rollouts: a tenth of what is possible is drawn, again and again."""
    recorder = make([40, 7], n_envs=8, n_steps=80)
    run(recorder, 80)
    hits: Counter[tuple[int, int]] = Counter()
    n_possible = len(cut_again(recorder, 10**9, 0))
    for seed in range(300):
        hits.update((s.env_index, s.start) for s in cut_again(recorder, 40, seed))
    assert len(hits) == n_possible
    by_env = np.array([sum(n for (env, _), n in hits.items() if env == e) for e in range(8)])
    expected = by_env.sum() / 8
    assert (np.abs(by_env - expected) < 5 * np.sqrt(expected)).all()
    counts = np.array(list(hits.values()))
    mean = counts.sum() / n_possible
    chi2 = ((counts - mean) ** 2 / mean).sum()
    assert abs(chi2 - n_possible) < 5 * np.sqrt(2 * n_possible)


def cut_again(recorder: SegmentRecorder, n: int, seed: int) -> list[Any]:
    """Cut without forgetting."""
    drop, recorder._drop = recorder._drop, lambda n: None
    try:
        return cut(recorder, n, seed)
    finally:
        recorder._drop = drop


def test_memory_holds_one_rollout_of_single_frames():
    size, n_envs, n_steps = 84, 4, 50
    recorder = make([10**9], n_envs=n_envs, n_steps=n_steps, size=size)
    tracemalloc.start()
    try:
        run(recorder, 10)
        before = tracemalloc.get_traced_memory()[0]
        run(recorder, 4 * n_steps, reset=False)
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    frames = (n_steps + T - 1 - 10) * n_envs * size * (size + 1)
    assert grown < 1.3 * frames + 200_000


def test_scores_of_games_are_set_aside_and_the_learner_is_told_its_own_return():
    recorder = make([6, 9], n_envs=2)

    class Source:
        def newest(self):
            return 1

        def load(self):
            return 1, lambda obs, act: obs[:, -1, 0, 2] * np.float32(0.5)  # half of t

    venv = LearnedReward(recorder, Source())
    venv.pin()
    venv.reset()
    told: list[Any] = []
    for t in range(1, 31):
        _, rewards, dones, infos = venv.step(np.zeros(2, np.int64))
        assert not dones.any()
        assert rewards.tolist() == [(t - 1) / 2] * 2
        told += [(t, info["episode"]["r"], info["episode"]["l"]) for info in infos if "episode" in info]
    assert recorder.episode_returns == [1000.0 + game for game in range(4) for _ in range(2)]
    ends = [0, 6, 15, 21, 30]
    expected = [(end, sum(range(begun, end)) / 2, end - begun) for begun, end in itertools.pairwise(ends)]
    assert told == [one for one in expected for _ in range(2)]


def test_frames_of_a_real_game_are_replayed_from_its_segments():
    """Segments of 50 in Breakout: hardly any twice, and each is what a second emulator shows from its state."""
    recorder = SegmentRecorder(DummyVecEnv([lambda: make_env("breakout") for _ in range(2)]), 25, 150)
    recorder.seed(3)
    recorder.reset()
    rng = np.random.default_rng(0)
    for _ in range(150):
        recorder.step(rng.integers(4, size=2))
    segments = cut(recorder, 50)
    assert len({s.digest for s in segments}) == len(segments) == 50
    other = AtariEnv(GAMES["breakout"])
    other.reset(seed=9)
    for one in segments[:5]:
        other.restore_state(one.states[0])
        shown = [other.step(action)[0][-1] for action in one.act[:-1]]
        assert np.array_equal(shown, one.obs[1:, -1])
