"""Frames of a world, as a map or from the camera."""

from __future__ import annotations

from srl.base.errors import nearest
from srl.base.tree import Array
from srl.environments.hide_and_seek.rendering.camera import Camera
from srl.environments.hide_and_seek.rendering.top_view import draw_map
from srl.environments.hide_and_seek.rules.game import Game

VIEWS = ("map", "camera")
SIZE, LARGEST = 640, 1280


class Renderer:
    """Renders a map from above, which works everywhere, or the view of MuJoCo's camera."""

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
