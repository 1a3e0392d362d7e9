"""Clips from stored states: a picture for each state, the same one whatever was drawn before, with the body in it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from prefrl import doctor
from prefrl.envs.make import make_env
from prefrl.envs.tasks import TASKS
from prefrl.errors import EnvError
from prefrl.segments import scene
from prefrl.segments.render import ClipRenderer, fps_of

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module", autouse=True)
def _gl() -> None:
    try:
        backend = scene.choose_gl()
    except EnvError as error:
        pytest.skip(str(error))
    trial = doctor.try_out(doctor.RENDER, backend, 60)
    if trial.error:
        pytest.skip(f"OpenGL does not work on this machine: {trial.error}")


def states_of(env_id: str, n_steps: int = 20, every: int = 10) -> np.ndarray:
    """A few states of a random walk, shape (T, n_state)."""
    env = make_env(env_id, ends="reset")
    env.action_space.seed(0)
    states = [env.reset(seed=0)[1]["state"]]
    for _ in range(n_steps):
        states.append(env.step(env.action_space.sample())[4]["state"])
    env.close()
    return np.array(states[::every])


def at(x: float, env_id: str = "cheetah", height: float | None = None) -> np.ndarray:
    """One state of the task with its body at x metres, shape (1, n_state)."""
    states = states_of(env_id, 0)
    states[0, 0] = x
    if height is not None:
        states[0, 1] = height
    return states


def body(picture: np.ndarray) -> np.ndarray:
    """Which pixels show the orange body rather than the grey floor or nothing, shape (height, width)."""
    red, _, blue = np.moveaxis(picture.astype(int), -1, 0)
    return red - blue > 25


def floor(picture: np.ndarray) -> np.ndarray:
    """Which pixels show the bright squares of the floor."""
    return (picture.min(axis=2) > 60) & ~body(picture)


@pytest.fixture(scope="module")
def cheetah(_gl: None) -> Iterator[ClipRenderer]:
    with ClipRenderer("cheetah", {}) as renderer:
        yield renderer


@pytest.mark.parametrize("name", [name for name, task in TASKS.items() if task.horizon])
def test_every_task_is_drawn(name: str) -> None:
    states = states_of(name)
    with ClipRenderer(name, {}, size=(120, 160)) as renderer:
        frames = renderer.frames(states)
    assert [frame.shape for frame in frames] == [(120, 160, 3)] * 3
    assert all(frame.dtype == np.uint8 and frame.std() > 5 for frame in frames)
    assert not np.array_equal(frames[0], frames[1])
    assert not np.array_equal(frames[1], frames[2])


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1", "MountainCarContinuous-v0", "Acrobot-v1"])
def test_classic_tasks_draw_themselves(env_id: str) -> None:
    pytest.importorskip("pygame", reason="needs the extra `app`")
    states = states_of(env_id)
    with ClipRenderer(env_id, {}) as renderer:
        first, second, third = renderer.frames(states)
        assert not np.array_equal(first, third)
        back = renderer.frames(states[::-1])
    assert first.dtype == np.uint8
    assert first.shape[2] == 3
    assert np.array_equal([third, second, first], back)


def test_a_picture_depends_on_its_state_only(cheetah: ClipRenderer) -> None:
    states = np.concatenate([states_of("cheetah"), at(500.0), at(-30.0)])
    frames = cheetah.frames(states)
    order = [4, 1, 3, 0, 2, 0, 4]
    assert np.array_equal(cheetah.frames(states[order]), [frames[i] for i in order])
    with ClipRenderer("cheetah", None) as other:  # drawing in turns with another one
        for i in order:
            assert np.array_equal(other.frames(states[i : i + 1])[0], frames[i])
            assert np.array_equal(cheetah.frames(states[i : i + 1])[0], frames[i])
    assert np.array_equal(cheetah.frames(states), frames)


def test_frames_are_not_views_of_one_buffer(cheetah: ClipRenderer) -> None:
    first, second = cheetah.frames(np.concatenate([at(0.0), at(0.3)]))
    before = second.copy()
    first[:] = 7
    assert np.array_equal(second, before)
    assert second.flags.c_contiguous


def test_speeds_are_not_drawn(cheetah: ClipRenderer) -> None:
    still = at(0.0)
    fast = still.copy()
    fast[0, 9:] = 3.0
    assert np.array_equal(cheetah.frames(still), cheetah.frames(fast))


@pytest.mark.parametrize("name", ["cheetah", "hopper", "walker", "ant", "swimmer"])
def test_the_camera_follows_and_the_floor_never_ends(name: str) -> None:
    with ClipRenderer(name, {}) as renderer:
        pictures = renderer.frames(np.concatenate([at(x, name) for x in (0.0, 50.0, -400.0)]))
    for picture in pictures:
        columns = np.flatnonzero(body(picture).any(axis=0))
        assert body(picture).sum() > 500
        assert 100 < columns.mean() < 156  # about in the middle of 256
        assert floor(picture).sum() > 3000


def test_movement_is_seen_on_the_floor(cheetah: ClipRenderer) -> None:
    pattern = 2 * 40 / 60  # m: the plane is 80 m long, and its texture is repeated 60 times
    (here,), (near,), (far,) = (cheetah.frames(at(x)) for x in (0.0, pattern / 4, 100 * pattern))
    assert (floor(here) != floor(near)).mean() > 0.05
    assert np.abs(here.astype(int) - far).mean() < 1


@pytest.mark.parametrize("env_id", ["Walker2d-v5", "Hopper-v5", "Ant-v5"])
def test_a_robot_that_is_no_task_does_not_run_away_either(env_id: str) -> None:
    with ClipRenderer(env_id, {}) as renderer:
        (picture,) = renderer.frames(at(50.0, env_id))
    assert body(picture).sum() > 500


LOOK = {"distance": 3.0, "lookat": [0.0, 0.0, 1.15], "elevation": -20.0}


def test_a_camera_that_tracks_a_body_moves_along_but_not_up_and_down() -> None:
    with ClipRenderer("Hopper-v5", {"default_camera_config": {**LOOK, "trackbodyid": 1}}) as renderer:
        (here,), (far,) = (renderer.frames(at(x, "hopper")) for x in (0.0, 50.0))
        (high,) = renderer.frames(at(0.0, "hopper", height=2.0))
    assert body(here).sum() > 500
    assert (body(here) != body(far)).sum() < 0.1 * body(here).sum()
    rows = [np.flatnonzero(body(picture).any(axis=1)).mean() for picture in (here, high)]
    assert rows[1] < rows[0] - 20


def test_a_camera_at_rest_stays() -> None:
    with ClipRenderer("Hopper-v5", {"default_camera_config": LOOK}) as renderer:
        (here,), (far,) = (renderer.frames(at(x, "hopper")) for x in (0.0, 50.0))
    assert body(here).sum() > 500
    assert body(far).sum() == 0


def test_the_distance_is_honoured() -> None:
    sizes = []
    for distance in (3.0, 6.0):
        with ClipRenderer("Hopper-v5", {"default_camera_config": {**LOOK, "distance": distance}}) as renderer:
            sizes.append(body(renderer.frames(at(0.0, "hopper"))[0]).sum())
    assert 3 < sizes[0] / sizes[1] < 5  # twice as far, a quarter of the pixels


@pytest.mark.parametrize("kwargs", [{"camera_id": 0}, {"camera_name": "track"}])
def test_a_camera_of_the_model_can_be_asked_for(kwargs: dict[str, Any]) -> None:
    state = at(50.0, "hopper")
    with ClipRenderer("Hopper-v5", kwargs) as renderer, ClipRenderer("hopper", {}) as task:
        assert np.array_equal(renderer.frames(state), task.frames(state))


@pytest.mark.parametrize(
    ("kwargs", "words"),
    [
        ({"camera_name": "nowhere"}, "no camera 'nowhere'; it has track"),
        ({"camera_id": 7}, "no camera 7; it has 1"),
        ({"camera_id": 0, "camera_name": "track"}, "cannot be made with env.kwargs"),
        ({"default_camera_config": {"distance": "far"}}, "distance cannot be 'far'"),
        ({"default_camera_config": {"zoom": 2}}, "zoom cannot be 2"),
        ({"default_camera_config": {"trackbodyid": 99}}, "trackbodyid is 99"),
        ({"no_such_option": 1}, "no_such_option"),
    ],
)
def test_a_camera_that_is_none_is_refused(kwargs: dict[str, Any], words: str) -> None:
    with pytest.raises(EnvError, match=words):
        ClipRenderer("Hopper-v5", kwargs)


@pytest.mark.parametrize("name", ["hopper", "cheetah"])
def test_the_geometry_is_that_of_gymnasium(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import mujoco

    monkeypatch.setenv("MUJOCO_GL", scene.choose_gl())
    states = states_of(name)
    with ClipRenderer(name, {}) as renderer:
        ours = renderer.frames(states)
    env = make_env(name, render_mode="rgb_array", kwargs={"width": 256, "height": 256})
    env.reset(seed=0)
    simulator: Any = env.unwrapped
    viewer = simulator.mujoco_renderer._get_viewer("rgb_array")
    for flag in (mujoco.mjtRndFlag.mjRND_SHADOW, mujoco.mjtRndFlag.mjRND_REFLECTION, mujoco.mjtRndFlag.mjRND_SKYBOX):
        viewer.scn.flags[flag] = False
    for state, picture in zip(states, ours, strict=True):
        simulator.set_state(state[: simulator.model.nq], state[simulator.model.nq :])
        theirs = env.render()
        both = body(picture) & body(theirs)
        assert both.sum() > 500
        assert both.sum() / (body(picture) | body(theirs)).sum() > 0.8
        assert np.abs(picture.astype(int) - theirs).mean() < 12
    env.close()


def test_memory_does_not_grow() -> None:
    statm = Path("/proc/self/statm")
    if not statm.exists():
        pytest.skip("/proc is not there")
    states = states_of("hopper", 40)
    with ClipRenderer("hopper", {}, size=(64, 64)) as renderer:
        used = []
        for _ in range(200):
            renderer.frames(states)
            used.append(int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20)
    assert used[-1] - used[30] < 4  # MiB


class NoState(gym.Env[np.ndarray, int]):
    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012
    observation_space = gym.spaces.Box(-1.0, 1.0, (1,))
    action_space = gym.spaces.Discrete(2)

    def __init__(self, render_mode: str | None = None, picture: object = None) -> None:
        self.render_mode, self.picture = render_mode, picture

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.goal = self.np_random.integers(256)  # seen, but no part of the state
        return np.zeros(1, np.float32), {}

    def step(self, action):
        return np.zeros(1, np.float32), 0.0, False, False, {}

    def render(self):
        if self.picture is None:
            raise RuntimeError("out of paint")
        return np.full(self.picture, self.goal, np.uint8)


class WithState(NoState):
    metadata = {"render_modes": ["rgb_array"], "render_fps": 12}  # noqa: RUF012
    state = (0.0, 1.0)


class Timed(NoState):
    dt = 0.025


class Wrong(NoState):
    metadata = {"render_modes": ["rgb_array"], "render_fps": 0}  # noqa: RUF012


@pytest.fixture(autouse=True, scope="module")
def _toys() -> Iterator[None]:
    toys = [NoState, WithState, Timed, Wrong]
    for toy in toys:
        gym.register(f"Drawn{toy.__name__}-v0", toy, max_episode_steps=10)
    yield
    for toy in toys:
        del gym.registry[f"Drawn{toy.__name__}-v0"]


def test_an_environment_without_state_cannot_be_drawn() -> None:
    with pytest.raises(EnvError, match=r"DrawnNoState-v0 keeps no state.* clips cannot be drawn"):
        ClipRenderer("DrawnNoState-v0", {})


@pytest.mark.parametrize(
    ("picture", "words"),
    [(None, "cannot draw a state: RuntimeError: out of paint"), ((4, 4), "shape"), ((4, 4, 4), "shape")],
)
def test_an_environment_that_fails_at_drawing(picture: object, words: str) -> None:
    with (
        ClipRenderer("DrawnWithState-v0", {"picture": picture}) as renderer,
        pytest.raises(EnvError, match=f"DrawnWithState-v0 .*{words}"),
    ):
        renderer.frames([[0.0, 1.0]])


def test_what_is_no_part_of_the_state_is_at_least_the_same_in_all_clips() -> None:
    pictures = []
    for _ in range(3):
        with ClipRenderer("DrawnWithState-v0", {"picture": (2, 2, 3)}) as renderer:
            pictures += renderer.frames([[0.0, 1.0]] * 2)
    assert {picture.tobytes() for picture in pictures} == {pictures[0].tobytes()}


def test_an_unknown_environment_is_refused() -> None:
    with pytest.raises(EnvError, match="unknown environment 'hoper'"):
        ClipRenderer("hoper", {})


@pytest.mark.parametrize(
    ("states", "words"),
    [
        (np.zeros((3, 17)), r"states of shape \(T, 18\), but these have \(3, 17\)"),
        (np.zeros(18), r"but these have \(18,\)"),
        (np.full((2, 18), np.nan), "at step 0 of a clip is not finite"),
        ([["x"] * 18], "no numbers"),
        ([[0.0], [0.0, 1.0]], "no numbers"),
    ],
)
def test_wrong_states_are_refused(cheetah: ClipRenderer, states: Any, words: str) -> None:
    with pytest.raises(EnvError, match=words):
        cheetah.frames(states)


def test_no_states_no_pictures(cheetah: ClipRenderer) -> None:
    assert cheetah.frames(np.zeros((0, 18))) == []


@pytest.mark.parametrize("size", [(0, 10), (10, -1), (10, 10**6), (10.5, 10), (10,)])
def test_a_size_that_is_none_is_refused(size: Any) -> None:
    with pytest.raises(EnvError, match="size of a picture"):
        ClipRenderer("hopper", {}, size=size)


def test_sizes_beyond_those_of_the_model_work() -> None:
    with ClipRenderer("hopper", {}, size=(701, 901)) as renderer:
        (picture,) = renderer.frames(at(0.0, "hopper"))
    assert picture.shape == (701, 901, 3)
    assert body(picture[600:]).sum() + body(picture[:600]).sum() > 3000


def test_closing_twice_is_fine_and_drawing_afterwards_is_not(cheetah: ClipRenderer) -> None:
    renderer = ClipRenderer("hopper", {})
    renderer.close()
    renderer.close()
    with pytest.raises(EnvError, match="hopper is closed"):
        renderer.frames(at(0.0, "hopper"))
    assert body(cheetah.frames(at(0.0))[0]).sum() > 500  # another one is not hurt


HEADLESS = """
import mujoco, gymnasium, numpy as np
from prefrl.segments.render import ClipRenderer
with ClipRenderer("hopper", {}) as renderer:
    frame, = renderer.frames(np.zeros((1, 12)) + 0.5)
print(frame.shape, frame.any())
"""


def test_nothing_must_be_set_without_a_screen() -> None:
    """Even where mujoco was imported before, which then looks for a screen."""
    hidden = ("DISPLAY", "WAYLAND_DISPLAY", "MUJOCO_GL", "PYOPENGL_PLATFORM")
    env = {name: value for name, value in os.environ.items() if name not in hidden}
    done = subprocess.run(
        [sys.executable, "-c", HEADLESS], env=env, cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.stdout == "(256, 256, 3) True\n", done.stderr
    assert "Traceback" not in done.stderr


def test_the_choice_of_opengl(monkeypatch: pytest.MonkeyPatch) -> None:
    there: set[str] = set()
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(scene, "find_library", lambda name: name if name in there else None)
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "MUJOCO_GL"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(EnvError, match=r"neither EGL nor OSMesa.*no screen.*apt-get install.*libegl1.*libosmesa6"):
        scene.choose_gl()
    monkeypatch.setenv("DISPLAY", ":0")
    assert scene.choose_gl() == "glfw"
    there.add("OSMesa")
    assert scene.choose_gl() == "osmesa"
    there.add("EGL")
    assert scene.choose_gl() == "egl"
    for wanted, found in (("osmesa", "osmesa"), (" GLFW ", "glfw"), ("", "egl"), ("on", "egl")):
        monkeypatch.setenv("MUJOCO_GL", wanted)
        assert scene.choose_gl() == found
    for wanted in ("disabled", "directx"):
        monkeypatch.setenv("MUJOCO_GL", wanted)
        with pytest.raises(EnvError, match=f"MUJOCO_GL={wanted}: unset it"):
            scene.choose_gl()


def test_a_missing_library_is_one_line_with_what_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUJOCO_GL", "osmesa")
    monkeypatch.setitem(sys.modules, "mujoco.osmesa", None)
    with pytest.raises(EnvError, match=r"MUJOCO_GL=osmesa.*apt-get install.*libosmesa6.*prefrl doctor") as caught:
        ClipRenderer("hopper", {})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("env_id", "fps"),
    [
        *[(task.name, task.fps) for task in TASKS.values()],
        ("prefrl.envs:prefrl/Hopper-v0", 40),
        ("InvertedPendulum-v5", 25),
        ("CartPole-v1", 50),
        ("DrawnWithState-v0", 12),
        ("DrawnTimed-v0", 40),
        ("DrawnNoState-v0", 30),
    ],
)
def test_the_speed_of_clips(env_id: str, fps: float) -> None:
    found = fps_of(env_id, {})
    assert isinstance(found, float)
    assert found == pytest.approx(fps)


def test_the_speed_follows_the_keyword_arguments() -> None:
    assert fps_of("Hopper-v5", {"frame_skip": 10}) == 50


def test_a_speed_of_0_is_refused() -> None:
    with pytest.raises(EnvError, match="DrawnWrong-v0 is shown at 0 frames a second"):
        fps_of("DrawnWrong-v0", None)
