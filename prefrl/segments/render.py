"""Clips drawn from stored simulator states, by one context that is kept from clip to clip."""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from prefrl.envs.atari import AtariEnv
from prefrl.envs.make import AnyEnv, make_env
from prefrl.envs.states import is_mujoco, set_state
from prefrl.envs.tasks import Task, find_task
from prefrl.errors import EnvError
from prefrl.segments.scene import Camera, Scene

DEFAULT_FPS = 30.0
ENLARGED = 2  # a game's pixel is 2 x 2 of the picture, so that the coding of colours, which halves sizes, blurs none
# pygame, which draws Gymnasium's classic tasks, looks for a screen and a loudspeaker and complains
_NO_SCREEN = {"SDL_VIDEODRIVER": "dummy", "SDL_AUDIODRIVER": "dummy", "PYGAME_HIDE_SUPPORT_PROMPT": "1"}
MAX_SIZE = 4096


class ClipRenderer:
    """Draws the pictures of clips; one for each environment, kept for all of its clips.

    An Atari game is played again from the state before the clip, with the clip's actions: the same frames come, and
    people see them in colour, enlarged, with the score.

    MuJoCo environments are drawn without shadow, reflection, sky, fog, haze and multisampling; a task of the
    paper through its own camera (see :class:`prefrl.segments.scene.Camera`). Other environments draw themselves.
    A picture depends on its state (or the state and the actions since) only, never on what was drawn before.

    Args:
        env_id: A task name or Gymnasium id, as for :func:`prefrl.envs.make.make_env`.
        kwargs: Keyword arguments for the environment; its cameras' too.
        size: Height and width of the pictures in pixels, each at most 4096. Environments without MuJoCo draw in a
            size of their own.

    Raises:
        EnvError: The environment cannot be made or drawn, keeps no state that can be put back, or OpenGL does not
            work here.
    """

    def __init__(self, env_id: str, kwargs: Mapping[str, Any] | None, *, size: tuple[int, int] = (256, 256)) -> None:
        if len(size) != 2 or not all(isinstance(n, int) and 1 <= n <= MAX_SIZE for n in size):
            raise EnvError(f"the size of a picture is {size}; it must be height and width, 1 to {MAX_SIZE} pixels")
        asked = dict(kwargs or {})
        self._env_id = env_id
        self._env: AnyEnv | None = _make(env_id, asked)
        self._scene: Scene | None = None
        try:
            # whatever an environment keeps outside its state is at least the same each time
            _, info = self._env.reset(seed=0)
            if "state" not in info:
                raise EnvError(f"{env_id} keeps no state that could be put back, so its clips cannot be drawn")
            self._n_state = len(info["state"])
            simulator: Any = self._env.unwrapped
            if is_mujoco(simulator):
                task = _find_task(env_id)
                self._camera = Camera(simulator, (task.camera if task else {}) | asked)
                self._scene = Scene(simulator.model, size)
        except BaseException:
            self.close()
            raise

    def frames(self, states: ArrayLike, actions: ArrayLike = ()) -> list[NDArray[np.uint8]]:
        """Draws one picture for each state, or of a game one after each action.

        Args:
            states: What ``info["state"]`` held at the steps of the clip, shape (T, n_state); of a game the one before
                the first action only, (1, n_bytes), uint8.
            actions: What was done at the steps of the clip, shape (T,); only a game needs them.

        Returns:
            T pictures of shape (height, width, 3), RGB.

        Raises:
            EnvError: The states have another shape or are not finite, the environment fails at drawing one, or
                this was closed.
        """
        if self._env is None:
            raise EnvError(f"the renderer of {self._env_id} is closed")
        if isinstance(self._env.unwrapped, AtariEnv):
            return _replay(self._env_id, self._env, np.asarray(states), np.asarray(actions))
        try:
            found = np.asarray(states, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise EnvError(f"the states to draw {self._env_id} from are no numbers: {error}") from error
        if found.ndim != 2 or found.shape[1] != self._n_state:
            raise EnvError(f"{self._env_id} has states of shape (T, {self._n_state}), but these have {found.shape}")
        finite = np.isfinite(found).all(axis=1)
        if not finite.all():
            raise EnvError(f"the state of {self._env_id} at step {int(np.argmin(finite))} of a clip is not finite")
        return [self._draw(self._env, state) for state in found]

    def close(self) -> None:
        """Frees the drawing context; closing again does nothing."""
        scene, env = self._scene, self._env
        self._scene = self._env = None
        if scene is not None:
            scene.close()
        if env is not None:
            env.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _draw(self, env: AnyEnv, state: NDArray[np.float64]) -> NDArray[np.uint8]:
        set_state(env, state)
        if self._scene is not None:
            simulator: Any = env.unwrapped
            return self._scene.draw(simulator.data, self._camera)
        try:
            picture = np.array(env.render())
        except Exception as error:  # a library that is missing, or a state that its code cannot draw
            raise EnvError(f"{self._env_id} cannot draw a state: {type(error).__name__}: {error}") from error
        if picture.dtype != np.uint8 or picture.ndim != 3 or picture.shape[2] != 3:
            raise EnvError(
                f"{self._env_id} draws {picture.dtype} of shape {picture.shape}, not uint8 of shape (height, width, 3)"
            )
        return picture


def _replay(env_id: str, env: AnyEnv, states: NDArray[Any], actions: NDArray[Any]) -> list[NDArray[np.uint8]]:
    if states.ndim != 2 or len(states) != 1 or states.dtype != np.uint8:
        raise EnvError(
            f"clips of {env_id} are played again from one state, uint8 of shape (1, n), but this is {states.dtype} of "
            f"shape {states.shape}"
        )
    if actions.ndim != 1 or not all(env.action_space.contains(action) for action in actions):
        raise EnvError(f"the actions of a clip of {env_id} are not all in {env.action_space}")
    set_state(env, states[0])
    pictures = []
    for action in actions:
        env.step(action)
        picture: Any = env.render()
        pictures.append(picture.repeat(ENLARGED, axis=0).repeat(ENLARGED, axis=1))
    return pictures


def fps_of(env_id: str, kwargs: Mapping[str, Any] | None = None) -> float:
    """Frames a second at which clips are shown: one frame for each step of the agent.

    A task of the paper has a speed of its own; other environments go at their simulator's speed
    (``metadata["render_fps"]``, or 1 / ``dt``), or at 30 where they do not say.

    Raises:
        EnvError: The environment cannot be made, or its speed is no number above 0.
    """
    task = _find_task(env_id)
    if task is not None:
        return float(task.fps)
    env = make_env(env_id, kwargs=dict(kwargs or {}), record_states=False)
    try:
        fps = env.metadata.get("render_fps")
        if fps is None:
            dt = getattr(env.unwrapped, "dt", None)
            fps = 1 / dt if dt else DEFAULT_FPS
        if not (isinstance(fps, int | float | np.number) and np.isfinite(fps) and fps > 0):
            raise EnvError(f"{env_id} is shown at {fps!r} frames a second; its render_fps must be a number above 0")
        return float(fps)
    finally:
        env.close()


def _make(env_id: str, kwargs: dict[str, Any]) -> AnyEnv:
    if not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        for name, value in _NO_SCREEN.items():
            os.environ.setdefault(name, value)
    try:
        return make_env(env_id, kwargs=kwargs, render_mode="rgb_array")
    except (AssertionError, AttributeError, ValueError) as error:  # what Gymnasium says to wrong keyword arguments
        raise EnvError(f"{env_id} cannot be made to draw with {kwargs}: {error}") from error


def _find_task(env_id: str) -> Task | None:
    return find_task(env_id.rpartition(":")[2])
