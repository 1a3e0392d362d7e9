"""Clips of Atari games: played again from one state, frame for frame what the policy saw."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from stable_baselines3.common.vec_env import DummyVecEnv

from prefrl.envs.make import make_env
from prefrl.envs.states import set_state
from prefrl.errors import EnvError
from prefrl.games import GAMES
from prefrl.segments.codec import decode_steps
from prefrl.segments.recorder import SegmentRecorder
from prefrl.segments.render import ClipRenderer, fps_of
from prefrl.segments.video import encode_clip, probe_video
from prefrl.store.segments import pack_segment
from prefrl.types import Segment

T = 25


def record(name: str, n_before: int, n: int, seed: int = 0, **kwargs: Any) -> list[Segment]:
    """All segments of the last ``n`` of the random steps of one game."""
    recorder = SegmentRecorder(DummyVecEnv([lambda: make_env(name, kwargs=kwargs)]), T, n)
    recorder.seed(seed)
    recorder.reset()
    n_actions, rng = recorder.action_space.n, np.random.default_rng(seed)
    for _ in range(n_before + n):
        recorder.step(rng.integers(n_actions, size=1))
    return recorder.cut(10**9, rng, env_steps=0, source="policy")[0]


@pytest.mark.parametrize("name", GAMES)
def test_a_segment_is_replayed_bit_for_bit_in_a_second_emulator(name: str) -> None:
    """From the middle of play, as it comes out of the database."""
    segments = sorted(record(name, 250, 40), key=lambda s: s.start)
    other = make_env(name, record_states=False)
    other.reset(seed=99)
    chosen = segments[:: max(1, len(segments) // 3)]
    assert len(chosen) >= 3
    for one in reversed(chosen):  # whatever was played before
        obs, act = decode_steps(pack_segment(one)["arrays"])
        assert one.states is not None
        set_state(other, one.states[0])
        shown = [other.step(action)[0][-1] for action in act[:-1]]
        assert np.array_equal(shown, obs[1:, -1])
        assert len(np.unique(obs[:, -1], axis=0)) > 1, "something moves"


def test_the_clip_shows_what_was_played_in_colour_with_the_score() -> None:
    live = make_env("space-invaders", render_mode="rgb_array")
    _, info = live.reset(seed=1)
    live.action_space.seed(1)
    pictures, states, actions = [], [], []
    for _ in range(120):
        states.append(info["state"])
        actions.append(live.action_space.sample())
        *_, info = live.step(actions[-1])
        pictures.append(live.render())
    with ClipRenderer("space-invaders", {}) as renderer:
        drawn = renderer.frames(states[60][None], actions[60:85])
        again = renderer.frames(states[60][None], actions[60:85])
    assert len(drawn) == T
    assert {picture.shape for picture in drawn} == {(420, 320, 3)}
    for ours, theirs in zip(drawn, pictures[60:85], strict=True):
        for corner in (ours[::2, ::2], ours[1::2, 1::2]):
            assert np.array_equal(corner, theirs)
    assert np.array_equal(drawn, again)
    assert drawn[0][20:40].any(), "the score"
    video = probe_video(encode_clip(drawn, fps_of("space-invaders")))
    assert (video.width, video.height, video.fps) == (320, 420, 15)


def test_what_cannot_be_played_again_is_refused() -> None:
    one = record("pong", 30, T)[0]
    assert one.states is not None
    with ClipRenderer("pong", {"size": 42}) as renderer:
        drawn = renderer.frames(one.states, one.act)
        for states in (one.states[0], one.states.astype(float), np.repeat(one.states, 2, 0)):
            with pytest.raises(EnvError, match=r"pong are played again from one state, uint8 of shape \(1, n\)"):
                renderer.frames(states, one.act)
        for actions in (one.act + 100, one.act.astype(float), one.act[:, None]):
            with pytest.raises(EnvError, match=r"actions of a clip of pong are not all in Discrete\(6\)"):
                renderer.frames(one.states, actions)
        with pytest.raises(EnvError, match="7000 bytes are not a state of pong"):
            renderer.frames(one.states[:, :7000], one.act)
        assert np.array_equal(renderer.frames(one.states, one.act), drawn), "and the next clip is as good"
    with pytest.raises(EnvError, match="closed"):
        renderer.frames(one.states, one.act)
