"""A world through MuJoCo's own camera, where the machine can draw off screen."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from srl.base.tree import Array
from srl.environments.hide_and_seek.drawing import BOX, HIDER, LOCKED, PILLAR, RAMP, SEEKER
from srl.environments.hide_and_seek.game import Game


class NoCamera(RuntimeError):
    """This machine cannot draw off screen."""


class Camera:
    """Looks down at a slant. Renderers are kept, one for each model."""

    def __init__(self, size: int) -> None:
        os.environ.setdefault("MUJOCO_GL", "egl")  # Of MuJoCo's ways the one that needs no screen; read at import.
        self._size = size
        self._renderer: tuple[Any, Any] | None = None  # of which model

    def picture(self, game: Game, world: int) -> Array:
        """[size, size, 3] uint8."""
        import mujoco

        model, data = game.worlds.simulation(world)
        _paint(game, world, model)
        mujoco.mj_forward(model, copy := _copied(model, data))
        if self._renderer is None or self._renderer[0] is not model:
            self.close()
            try:
                self._renderer = (model, mujoco.Renderer(model, self._size, self._size))
            except Exception as error:  # Whatever a driver's absence looks like here.
                raise NoCamera(f"MuJoCo cannot draw off screen on this machine: {error}") from error
        renderer = self._renderer[1]
        renderer.update_scene(copy, _view(game.options.floor))
        return np.asarray(renderer.render(), np.uint8).copy()

    def close(self) -> None:
        if self._renderer is not None:
            self._renderer[1].close()
            self._renderer = None


def _copied(model: Any, data: Any) -> Any:
    """The state in a simulation of its own: looking must not change what happens next."""
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


def _paint(game: Game, world: int, model: Any) -> None:
    """Teams and kinds in the colours of the map; what is locked is darker."""
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
            if game.hands.locked[world, thing]:
                dark = 0.55
        model.geom_rgba[rows, :3] = (np.array(color) * (1 - dark) + np.array(LOCKED) * dark) / 255
    if game.options.task == "shelter":
        model.geom_rgba[model.geom("cylinder").id, :3] = np.array(PILLAR) / 255
