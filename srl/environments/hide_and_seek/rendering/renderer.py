"""Frames of a world, as a map or from MuJoCo's camera."""

from __future__ import annotations

import os
import platform
from typing import Any

import numpy as np

from srl.base.errors import nearest
from srl.base.tree import Array
from srl.environments.hide_and_seek.rendering.top_view import BOX, HIDER, LOCKED, PILLAR, RAMP, SEEKER, draw_map
from srl.environments.hide_and_seek.rules.game import Game

VIEWS = ("map", "camera")
SIZE, LARGEST = 640, 1280


class NoCamera(RuntimeError):
    """This machine cannot render off screen."""


class Camera:
    """A camera that looks down at an angle, for machines that can render off screen. Model data stays on the graphics
    card until the model changes."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._display: Any = None
        self._loaded: tuple[Any, Any, Any] | None = None  # model, its scene, its data on the graphics card

    def render(self, game: Game, world: int) -> Array:
        """Return the frame [size, size, 3] uint8."""
        import mujoco

        model, data = game.worlds.simulation(world)
        _color_bodies(game, world, model)
        mujoco.mj_forward(model, copy := _copied(model, data))
        scene, context = self._load(model)
        rectangle = mujoco.MjrRect(0, 0, self._size, self._size)
        mujoco.mjv_updateScene(
            model, copy, mujoco.MjvOption(), None, _view(game.options.floor), mujoco.mjtCatBit.mjCAT_ALL, scene
        )
        mujoco.mjr_render(rectangle, scene, context)
        frame = np.empty((self._size, self._size, 3), np.uint8)
        mujoco.mjr_readPixels(frame, None, rectangle, context)
        return np.ascontiguousarray(frame[::-1])

    def _load(self, model: Any) -> tuple[Any, Any]:
        import mujoco

        if self._display is None:
            self._display = _open_display(self._size)
        self._display.make_current()
        if self._loaded is None or self._loaded[0] is not model:
            context = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_100)
            mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, context)
            self._loaded = (model, mujoco.MjvScene(model, maxgeom=1000), context)
        return self._loaded[1:]

    def close(self) -> None:
        if self._display is not None:
            if self._loaded is not None:
                self._loaded[2].free()
            self._display.free()
        self._display = self._loaded = None


def _open_display(size: int) -> Any:
    """Return an off-screen OpenGL context. The one that MuJoCo chooses when it is imported may need a display."""
    try:
        if os.environ.get("MUJOCO_GL", "egl") != "egl" or platform.system() != "Linux":
            from mujoco import GLContext
        else:
            from mujoco.egl import GLContext
        return GLContext(size, size)
    except Exception as error:  # A missing driver can raise anything.
        raise NoCamera(f"MuJoCo cannot render off screen on this machine ({error}): use the view 'map'") from error


def _copied(model: Any, data: Any) -> Any:
    """Return a copy of the simulation, so that rendering does not change it."""
    import mujoco

    copy = mujoco.MjData(model)
    copy.qpos[:], copy.qvel[:] = data.qpos, data.qvel
    return copy


def _view(floor: float) -> Any:
    import mujoco

    view = mujoco.MjvCamera()
    view.lookat[:] = floor / 2, floor / 2, 0
    view.distance, view.azimuth, view.elevation = 1.55 * floor, 90, -58
    return view


def _color_bodies(game: Game, world: int, model: Any) -> None:
    """Color agents and objects as on the map; locked objects are darker."""
    worlds = game.worlds
    for body in range(1, model.nbody):
        name = model.body(body).name
        kind, index = name.rstrip("0123456789"), int(name[len(name.rstrip("0123456789")) :])
        dark = 0.0
        rows = slice(model.body_geomadr[body], model.body_geomadr[body] + model.body_geomnum[body])
        if kind == "agent":
            layout = worlds.layouts[world]
            color = HIDER if layout is not None and index < layout.num_hiders else SEEKER
        else:
            thing = index if kind == "ramp" else worlds.num_ramps + index
            color = RAMP if kind == "ramp" else BOX
            if game.manipulation.locked[world, thing]:
                dark = 0.55
        model.geom_rgba[rows, :3] = (np.array(color) * (1 - dark) + np.array(LOCKED) * dark) / 255
    if game.options.task == "shelter":
        model.geom_rgba[model.geom("cylinder").id, :3] = np.array(PILLAR) / 255


class Renderer:
    """A renderer of maps from above, which work everywhere, or of MuJoCo camera views."""

    def __init__(self, view: str = "map", image_size: int = SIZE) -> None:
        if view not in VIEWS:
            raise ValueError(f"no view {view!r}{nearest(view, VIEWS)}")
        if not 64 <= image_size <= LARGEST:
            raise ValueError(f"image_size must be from 64 to {LARGEST} pixels along a side, not {image_size}")
        self._size = image_size
        self._camera = Camera(image_size) if view == "camera" else None

    def render(self, game: Game, world: int) -> Array:
        """Return the frame [size, size, 3] uint8."""
        if self._camera is not None:
            return self._camera.render(game, world)
        return draw_map(game, world, self._size)

    def close(self) -> None:
        if self._camera is not None:
            self._camera.close()
