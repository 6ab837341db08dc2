"""Bars and curves drawn with characters."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from srl.base.tree import Array

SPARKS = "▁▂▃▄▅▆▇█"
EIGHTHS = " ▏▎▍▌▋▊▉█"
# The dots of a braille character, from bottom to top.
LEFT_DOTS, RIGHT_DOTS = (0x40, 0x04, 0x02, 0x01), (0x80, 0x20, 0x10, 0x08)


def resample(values: Sequence[float], num_points: int) -> list[float]:
    """Return `num_points` values evenly spread over the sequence, interpolated linearly; NaN is skipped."""
    known = [value for value in values if math.isfinite(value)]
    if not known or num_points <= 0:
        return []
    found: list[float] = np.interp(np.linspace(0, len(known) - 1, num_points), range(len(known)), known).tolist()
    return found


def sparkline(values: Sequence[float], width: int) -> str:
    """Return a curve one row high; a constant one is at the bottom."""
    levels = _scaled(np.array(resample(values, width)))
    return "".join(SPARKS[round(level * 7)] for level in levels.tolist())


def _scaled(values: Array) -> Array:
    """Return the values scaled to [0, 1]; 0 if they are all equal."""
    return values if not len(values) else (values - values.min()) / (np.ptp(values) or 1.0)


def braille(values: Sequence[float], width: int, height: int) -> list[str]:
    """Return a curve as `height` rows of braille characters, top first."""
    points = np.array(resample(values, 2 * width))
    canvas = Canvas(max(0, width), max(0, height))
    if len(points) and height > 0:
        canvas.draw(np.linspace(0, 1, 2 * width), _scaled(points), 0)
    return ["".join(char for char, _ in row) for row in canvas.rows()]


class Canvas:
    """Characters of 2 x 4 dots. Each belongs to the line that was drawn last."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self._dots = np.zeros((height, width), np.int64)
        self._owner = np.full((height, width), -1)

    def draw(self, positions: Array, levels: Array, number: int) -> None:
        """Draw a line through points in [0, 1] x [0, 1]; neighboring dots are connected."""
        columns, top = 2 * self.width, 4 * self.height - 1
        first, last = int(positions[0] * (columns - 1)), int(positions[-1] * (columns - 1))
        grid = np.arange(first, last + 1)
        heights = np.rint(np.interp(grid / max(1, columns - 1), positions, levels) * top).astype(int).tolist()
        previous = heights[0]
        for x, level in zip(grid.tolist(), heights, strict=True):
            step = 1 if level >= previous else -1
            for y in range(previous + step if level != previous else level, level + step, step):
                row, column = self.height - 1 - y // 4, x // 2
                self._dots[row, column] |= (LEFT_DOTS if x % 2 == 0 else RIGHT_DOTS)[y % 4]
                self._owner[row, column] = number
            previous = level

    def rows(self) -> list[list[tuple[str, int]]]:
        """Return the characters of each row, each with the number of its line; -1 for none."""
        chars = [[chr(0x2800 + cell) if cell else " " for cell in row] for row in self._dots.tolist()]
        return [list(zip(row, owners, strict=True)) for row, owners in zip(chars, self._owner.tolist(), strict=True)]


def bar(share: float, width: int) -> str:
    """Return a bar of `width` characters, filled in steps of an eighth of a character."""
    share = min(1.0, max(0.0, share)) if math.isfinite(share) else 0.0
    whole, eighth = divmod(round(share * width * 8), 8)
    return ("█" * whole + (EIGHTHS[eighth] if eighth else "")).ljust(width)


def split(shares: Mapping[str, float], width: int) -> dict[str, int]:
    """Return the number of characters for each share; together they fill the sum of the shares, at most `width`."""
    clean = {key: max(0.0, share) if math.isfinite(share) else 0.0 for key, share in shares.items()}
    total = sum(clean.values())
    scale = width / max(1.0, total)
    exact = {key: share * scale for key, share in clean.items()}
    cells = {key: int(size) for key, size in exact.items()}
    rest = min(width, round(total * scale)) - sum(cells.values())
    for key in sorted(exact, key=lambda key: cells[key] - exact[key])[: max(0, rest)]:
        cells[key] += 1
    return cells
