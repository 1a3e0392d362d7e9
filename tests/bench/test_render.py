"""How fast clips are drawn and encoded: ``make bench``.

Alternating runs; the fastest of each is compared, because whatever else the machine does only makes them slower.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prefrl import doctor
from prefrl.envs.make import make_env
from prefrl.errors import EnvError
from prefrl.segments import scene
from prefrl.segments.render import ClipRenderer, fps_of
from prefrl.segments.video import encode_clip, probe_video
from tests.bench.test_speed import ENVIRONMENT, plain

pytestmark = pytest.mark.bench
pytest.importorskip("av", reason="needs the extra `app`")

N_FRAMES = 45
SIZE = 256


@pytest.fixture(autouse=True)
def _gl(monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        backend = scene.choose_gl()
    except EnvError as error:
        pytest.skip(str(error))
    trial = doctor.try_out(doctor.RENDER, backend, 60)
    if trial.error:
        pytest.skip(f"OpenGL does not work on this machine: {trial.error}")
    monkeypatch.setenv("MUJOCO_GL", backend)  # Gymnasium would try a screen first


def walk(name: str) -> np.ndarray:
    """States of a random walk, shape (N_FRAMES, n_state)."""
    env = make_env(name)
    env.action_space.seed(0)
    env.reset(seed=0)
    states = [env.step(env.action_space.sample())[4]["state"] for _ in range(N_FRAMES)]
    env.close()
    return np.array(states)


def fastest(calls: list[Callable[[], object]], repeats: int) -> list[float]:
    """Seconds of the fastest run of each call, taken in turns."""
    seconds: list[list[float]] = [[] for _ in calls]
    for _ in range(repeats):
        for call, taken in zip(calls, seconds, strict=True):
            started = time.perf_counter()
            call()
            taken.append(time.perf_counter() - started)
    return [min(taken) for taken in seconds]


@pytest.mark.parametrize("name", ["hopper", "cheetah"])
def test_frames_a_second(name: str) -> None:
    states = walk(name)
    few = states[::9]
    env = make_env(name, render_mode="rgb_array", kwargs={"width": SIZE, "height": SIZE})
    env.reset(seed=0)
    env.render()
    simulator: Any = env.unwrapped
    n_qpos = simulator.model.nq

    def gymnasium() -> None:
        simulator.mujoco_renderer.viewer.make_context_current()  # ours was drawn with before
        for state in few:
            simulator.set_state(state[:n_qpos], state[n_qpos:])
            env.render()

    with ClipRenderer(name, {}, size=(SIZE, SIZE)) as renderer:
        renderer.frames(few)
        ours, theirs = fastest([lambda: renderer.frames(few), gymnasium], repeats=5)
    env.close()
    print(f"{name}, {SIZE} x {SIZE}: {len(few) / ours:.0f} frames/s, Gymnasium {len(few) / theirs:.1f} frames/s")
    assert theirs > 3 * ours


@pytest.mark.parametrize("name", ["hopper", "cheetah"])
def test_a_clip(name: str) -> None:
    states, fps = walk(name), fps_of(name)
    with ClipRenderer(name, {}, size=(SIZE, SIZE)) as renderer:
        frames = renderer.frames(states)
        drawn, encoded = fastest([lambda: renderer.frames(states), lambda: encode_clip(frames, fps)], repeats=5)
    data = encode_clip(frames, fps)
    (probed,) = fastest([lambda: probe_video(data)], repeats=5)
    print(
        f"{name}, a clip of {N_FRAMES} frames: drawn in {1000 * drawn:.0f} ms, encoded in {1000 * encoded:.0f} ms, "
        f"looked at in {1000 * probed:.0f} ms, {len(data) / 1024:.0f} KiB"
    )
    assert drawn + encoded < 3.0


BUSY = "while True: pass"  # the reward model, fitting all the time
DRAW = """
import numpy as np, sys
from prefrl.segments.render import ClipRenderer, fps_of
from prefrl.segments.role import be_polite
from prefrl.segments.video import encode_clip
be_polite()
states = np.load(sys.argv[1])
renderer = ClipRenderer("cheetah", {})
while True:
    encode_clip(renderer.frames(states), fps_of("cheetah"))
    print(flush=True)
"""


def test_drawing_leaves_the_policy_its_speed(tmp_path: Path) -> None:
    """A renderer that never stops, and a reward model that never stops, beside the policy: with against without."""
    np.save(tmp_path / "states.npy", walk("cheetah"))
    ratios, n_clips = [], 0
    for _ in range(3):
        busy = subprocess.Popen([sys.executable, "-c", BUSY], start_new_session=True)
        try:
            without, _ = plain("cheetah", "trpo", 2, 512, 20_000)
            command = [sys.executable, "-c", DRAW, str(tmp_path / "states.npy")]
            drawing = subprocess.Popen(command, stdout=subprocess.PIPE, env=ENVIRONMENT, start_new_session=True)
            try:
                beside, seconds = plain("cheetah", "trpo", 2, 512, 20_000)
            finally:
                drawing.kill()
                n_clips = len(drawing.communicate()[0])
        finally:
            busy.kill()
            busy.wait()
        ratios.append(beside / without)
        print(f"{beside:.0f} steps/s beside {n_clips / seconds:.1f} clips/s, {without:.0f} without: {ratios[-1]:.2f}")
    print(f"median ratio {statistics.median(ratios):.2f} (target 0.9)")
    assert n_clips > 0
    assert statistics.median(ratios) >= 0.9
