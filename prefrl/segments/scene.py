"""Draws a MuJoCo model fast, on machines without a screen or a graphics card too.

In software OpenGL most of the time of Gymnasium's ``render()`` goes into shadows, mirror images and multisampling.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Mapping
from ctypes.util import find_library
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prefrl.doctor import GL_PACKAGES
from prefrl.errors import EnvError

BACKENDS = ("egl", "osmesa", "glfw", "cgl")
UNSET = ("", "enable", "enabled", "on", "true", "1")
MIN_FLOOR = 10.0  # half the length, m: a plane from this size on is a floor without end
FLOOR_MESH = 1.0  # m: floors are drawn in squares of at least this size; some models ask for 100,000 of them


def choose_gl() -> str:
    """The OpenGL backend to draw with: MUJOCO_GL, or else the first that can be there.

    Without MUJOCO_GL that is EGL, else OSMesa, which need no screen, else GLFW, which does.

    Raises:
        EnvError: MUJOCO_GL names no backend, or there is neither a library nor a screen.
    """
    wanted = os.environ.get("MUJOCO_GL", "").strip().lower()
    if wanted in BACKENDS:
        return wanted
    if wanted not in UNSET:
        raise EnvError(f"clips cannot be drawn with MUJOCO_GL={wanted}: unset it, or make it egl, osmesa or glfw")
    if not sys.platform.startswith("linux"):
        return "cgl" if sys.platform == "darwin" else "glfw"
    for backend, library in (("egl", "EGL"), ("osmesa", "OSMesa")):
        if find_library(library):
            return backend
    if os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        return "glfw"
    raise EnvError(f"clips cannot be drawn: neither EGL nor OSMesa is installed, and there is no screen: {GL_PACKAGES}")


class Camera:
    """Where a model is looked at from.

    In this order: what was asked for by keyword argument (Gymnasium's ``camera_id``, ``camera_name`` or
    ``default_camera_config``), the model's own camera ``track``, which follows the body, the environment's default.
    A ``trackbodyid`` moves the camera along with that body, but not up and down; Gymnasium's stays behind.

    Args:
        simulator: An unwrapped MuJoCo environment that was made to draw.
        asked: The keyword arguments that it was made with.

    Raises:
        EnvError: The model has no such camera or body, or a setting of the camera has no such value.
    """

    def __init__(self, simulator: Any, asked: Mapping[str, Any]) -> None:
        import mujoco

        self._model = simulator.model
        self.view = mujoco.MjvCamera()
        self._body = 0  # the world, which never moves
        fixed = self._find_fixed(simulator, asked)
        if fixed != -1:
            self.view.type, self.view.fixedcamid = mujoco.mjtCamera.mjCAMERA_FIXED, fixed
            return
        config = dict(getattr(getattr(simulator, "mujoco_renderer", None), "default_cam_config", None) or {})
        start = mujoco.MjData(self._model)
        mujoco.mj_forward(self._model, start)
        self.view.lookat[:] = np.median(start.geom_xpos, axis=0)
        self.view.distance = self._model.stat.extent
        body = config.pop("trackbodyid", -1)
        if body not in range(-1, self._model.nbody):
            raise EnvError(f"the camera's trackbodyid is {body}, but the model has {self._model.nbody} bodies")
        self._body = max(int(body), 0)
        for key in config.keys() - {"type", "fixedcamid"}:  # set by Gymnasium itself
            try:
                setattr(self.view, key, config[key])
            except (AttributeError, TypeError, ValueError) as error:
                raise EnvError(f"the camera's {key} cannot be {config[key]!r}: {error}") from error
        self._offset = np.array(self.view.lookat[:2]) - start.xpos[self._body, :2]

    def follow(self, data: Any) -> None:
        """Moves along with the body."""
        if self._body:
            self.view.lookat[:2] = data.xpos[self._body, :2] + self._offset

    def _find_fixed(self, simulator: Any, asked: Mapping[str, Any]) -> int:
        """Number of the model's camera to look through, or -1 for one of our own."""
        names = [self._model.camera(i).name for i in range(self._model.ncam)]
        name, number = getattr(simulator, "camera_name", None), getattr(simulator, "camera_id", None)
        if name is None and number is None and "track" in names and "default_camera_config" not in asked:
            name = "track"
        if name is not None:
            if name not in names:
                raise EnvError(f"the model has no camera {name!r}; it has {', '.join(names) or 'none'}")
            return names.index(name)
        if number is not None and number not in range(-1, len(names)):
            raise EnvError(f"the model has no camera {number}; it has {len(names)}")
        return -1 if number is None else int(number)


class Scene:
    """A model's geometry and an OpenGL context of its own to draw it with; one thread only.

    The context is made here, not by ``mujoco.Renderer``, whose backend is fixed when mujoco is first imported.
    Floors, which end after 20 or 40 m in Gymnasium's models, go along with the camera in whole repeats of their
    pattern, so that a body that ran off their edge is still seen to move.

    Args:
        model: A model that nobody else draws; its picture size and quality are set.
        size: Height and width of the pictures, pixels.

    Raises:
        EnvError: OpenGL does not work here.
    """

    def __init__(self, model: Any, size: tuple[int, int]) -> None:
        import mujoco

        height, width = model.vis.global_.offheight, model.vis.global_.offwidth = size
        model.vis.quality.offsamples = 0
        self._floors = _find_floors(model)
        self._model, self._options = model, mujoco.MjvOption()
        self._viewport = mujoco.MjrRect(0, 0, width, height)
        self._geometry = mujoco.MjvScene(model, 10_000)
        for flag in ("SHADOW", "REFLECTION", "SKYBOX", "FOG", "HAZE"):
            self._geometry.flags[getattr(mujoco.mjtRndFlag, f"mjRND_{flag}")] = False
        self._gl: Any = None
        backend = choose_gl()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # GLFW warns of what it then fails at
                self._gl = import_module(f"mujoco.{backend}").GLContext(width, height)
                self._gl.make_current()
                self._context = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_100)
                mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, self._context)
        except Exception as error:  # what a missing library raises depends on where it is missed
            if self._gl is not None:
                self._gl.free()
            raise EnvError(
                f"clips cannot be drawn with MUJOCO_GL={backend} ({type(error).__name__}: {error}): {GL_PACKAGES}; "
                "`prefrl doctor` says which MUJOCO_GL works"
            ) from error

    def draw(self, data: Any, camera: Camera) -> NDArray[np.uint8]:
        """One picture, shape (height, width, 3), of a simulator's data after ``mj_forward``."""
        import mujoco

        self._gl.make_current()  # others may draw in this process
        camera.follow(data)
        all_of_it = mujoco.mjtCatBit.mjCAT_ALL
        mujoco.mjv_updateScene(self._model, data, self._options, None, camera.view, all_of_it, self._geometry)
        self._move_floors()
        mujoco.mjr_render(self._viewport, self._geometry, self._context)
        picture = np.empty((self._viewport.height, self._viewport.width, 3), np.uint8)
        mujoco.mjr_readPixels(picture, None, self._viewport, self._context)
        return picture[::-1].copy()  # OpenGL's first row is the lowest

    def close(self) -> None:
        """Frees the context."""
        self._gl.make_current()
        self._context.free()
        self._gl.free()

    def _move_floors(self) -> None:
        eye = self._geometry.camera[0].pos
        for geom in self._geometry.geoms[: self._geometry.ngeom]:
            period = self._floors.get((geom.objtype, geom.objid))
            if period is not None:
                axes = geom.mat[:, :2]
                geom.pos += axes @ (np.round((eye - geom.pos) @ axes / period) * period)


def _find_floors(model: Any) -> dict[tuple[int, int], NDArray[np.float64]]:
    """The planes that are floors -> after how many metres, in x and y, their pattern is the same again."""
    import mujoco

    floors = {}
    for i in range(model.ngeom):
        half = np.array(model.geom_size[i, :2])
        if model.geom_type[i] != mujoco.mjtGeom.mjGEOM_PLANE or model.geom_bodyid[i] != 0 or half.min() < MIN_FLOOR:
            continue
        material = model.geom_matid[i]
        period = np.ones(2)  # without a pattern any will do
        if material >= 0 and (model.mat_texrepeat[material] > 0).all():
            period = 2 / model.mat_texrepeat[material] * (1 if model.mat_texuniform[material] else half)
        floors[int(mujoco.mjtObj.mjOBJ_GEOM), i] = period
        model.geom_size[i, 2] = max(model.geom_size[i, 2], FLOOR_MESH)
    return floors
