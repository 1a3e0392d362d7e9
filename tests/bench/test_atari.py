"""Atari: agent steps a second of our environment against stable-baselines3's wrappers, and what recording costs."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import ale_py  # noqa: F401  # registers the emulator's ids
import gymnasium as gym
import numpy as np
import pytest
from stable_baselines3.common.atari_wrappers import AtariWrapper
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecFrameStack

from prefrl.envs.make import make_env
from prefrl.segments.recorder import SegmentRecorder

pytestmark = pytest.mark.bench

N_ENVS, N_STEPS, N_SEGMENTS, REPEATS = 16, 80, 16, 5  # what is between two exchanges of the paper's runs


def theirs() -> VecEnv:
    def make() -> Any:
        return AtariWrapper(gym.make("SeaquestNoFrameskip-v4"), terminal_on_life_loss=False)

    return VecFrameStack(DummyVecEnv([make] * N_ENVS), 4, channels_order="first")


def ours(*, record_states: bool = False) -> VecEnv:
    return DummyVecEnv([lambda: make_env("seaquest", record_states=record_states)] * N_ENVS)


def recorded() -> VecEnv:
    return SegmentRecorder(ours(record_states=True), 25, N_STEPS)


def steps_per_s(venv: VecEnv) -> float:
    """Of processor time; where segments are recorded, those of an exchange are cut."""
    rng = np.random.default_rng(0)
    started = time.process_time()
    for _ in range(N_STEPS):
        venv.step(rng.integers(18, size=N_ENVS))
    if isinstance(venv, SegmentRecorder):
        assert len(venv.cut(N_SEGMENTS, rng, env_steps=0, source="policy")[0]) == N_SEGMENTS
    return N_ENVS * N_STEPS / (time.process_time() - started)


def test_our_environment_is_faster_than_the_wrappers_and_recording_is_cheap() -> None:
    makers: dict[str, Callable[[], VecEnv]] = {"wrappers": theirs, "ours": ours, "recorded": recorded}
    venvs = {name: make() for name, make in makers.items()}
    for venv in venvs.values():
        venv.seed(0)
        venv.reset()
        steps_per_s(venv)
    found = [{name: steps_per_s(venv) for name, venv in venvs.items()} for _ in range(REPEATS)]
    for name in venvs:
        print(f"seaquest, {name}: {statistics.median(one[name] for one in found):.0f} steps per processor second")
    faster = statistics.median(one["ours"] / one["wrappers"] for one in found)
    share = statistics.median(1 - one["recorded"] / one["ours"] for one in found)
    print(f"ours is {faster:.2f} times as fast (target 1.1); recording takes {share:.1%} of it (target 25%)")
    for venv in venvs.values():
        venv.close()
    assert faster >= 1.1
    assert share <= 0.25
