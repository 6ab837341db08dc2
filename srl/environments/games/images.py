"""Pictures of boards, for videos."""

from __future__ import annotations

from typing import Any

import numpy as np

from srl.api.simulator import SimulatorSpec
from srl.base.tree import Array

SIDE = 48  # pixels of a cell
BOARD, COLORS = (38, 70, 120), ((235, 90, 70), (245, 205, 80))
FREE = (225, 230, 235)


def board_image(spec: SimulatorSpec, observation: Any, to_play: int) -> Array:
    """Return a frame [height, width, 3] of planes [1, 2, rows, columns]. Raises ValueError for other observations."""
    shape = np.shape(observation)
    if len(shape) != 4 or shape[1] != 2:
        raise ValueError(f"{spec.name} cannot be recorded: only boards with a plane for each player can be drawn")
    rows, columns = shape[2:]
    y, x = np.mgrid[:SIDE, :SIDE] - (SIDE - 1) / 2
    disc = (x**2 + y**2 <= (0.4 * SIDE) ** 2)[None, :, None, :, None]
    stones = np.full((rows, columns, 3), FREE, np.uint8)
    for plane in range(2):
        stones[observation[0, plane] > 0] = COLORS[plane if to_play == 0 else 1 - plane]
    frame = np.where(disc, stones[:, None, :, None, :], np.array(BOARD, np.uint8))
    return np.ascontiguousarray(frame.reshape(rows * SIDE, columns * SIDE, 3))
