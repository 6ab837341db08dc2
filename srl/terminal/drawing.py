"""Bars, curves and charts drawn with characters."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from rich.text import Text

from srl.base.tree import Array
from srl.terminal.formatting import figure, short

COLORS = ("blue", "red", "green", "yellow", "magenta", "cyan", "white")
SPARKS = "▁▂▃▄▅▆▇█"
EIGHTHS = " ▏▎▍▌▋▊▉█"
# Bits of a braille character's dots, bottom to top.
LEFT_DOTS, RIGHT_DOTS = (0x40, 0x04, 0x02, 0x01), (0x80, 0x20, 0x10, 0x08)


def resample(values: Sequence[float], num_points: int) -> list[float]:
    """Resample the finite values to `num_points` evenly spaced points by linear interpolation."""
    known = [value for value in values if math.isfinite(value)]
    if not known or num_points <= 0:
        return []
    found: list[float] = np.interp(np.linspace(0, len(known) - 1, num_points), range(len(known)), known).tolist()
    return found


def sparkline(values: Sequence[float], width: int) -> str:
    """Return a one-row curve of block characters; a constant curve is at the bottom."""
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
    """Grid of braille characters with 2 x 4 dots each. A character belongs to the last line drawn through it."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self._dots = np.zeros((height, width), np.int64)
        self._owner = np.full((height, width), -1)

    def draw(self, positions: Array, levels: Array, number: int) -> None:
        """Draw line `number` as a connected curve through points in [0, 1] x [0, 1]."""
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
        """Return each row as pairs of a character and the number of its line (-1 for none)."""
        chars = [[chr(0x2800 + cell) if cell else " " for cell in row] for row in self._dots.tolist()]
        return [list(zip(row, owners, strict=True)) for row, owners in zip(chars, self._owner.tolist(), strict=True)]


def bar(share: float, width: int) -> str:
    """Return a bar of `width` characters whose fraction `share` is filled, to an eighth of a character."""
    share = min(1.0, max(0.0, share)) if math.isfinite(share) else 0.0
    whole, eighth = divmod(round(share * width * 8), 8)
    return ("█" * whole + (EIGHTHS[eighth] if eighth else "")).ljust(width)


def split(shares: Mapping[str, float], width: int) -> dict[str, int]:
    """Divide `width` characters among the shares by largest remainder; shares that sum to less than 1 leave the rest
    empty."""
    clean = {key: max(0.0, share) if math.isfinite(share) else 0.0 for key, share in shares.items()}
    total = sum(clean.values())
    scale = width / max(1.0, total)
    exact = {key: share * scale for key, share in clean.items()}
    cells = {key: int(size) for key, size in exact.items()}
    rest = min(width, round(total * scale)) - sum(cells.values())
    for key in sorted(exact, key=lambda key: cells[key] - exact[key])[: max(0, rest)]:
        cells[key] += 1
    return cells


@dataclass(frozen=True)
class Line:
    label: str
    x: Array  # [N]
    y: Array  # [N]


def chart(lines: Sequence[Line], width: int, height: int, x_label: str) -> Text:
    """Return a chart of at most `width` columns and `height` rows, including axes and legend."""
    finite = [np.isfinite(line.x) & np.isfinite(line.y) for line in lines]
    kept = [Line(line.label, line.x[ok], line.y[ok]) for line, ok in zip(lines, finite, strict=True)]
    drawn = [line for line in kept if len(line.x)]
    if not drawn:
        return Text("no values to draw", "dim")
    low, high = min(float(line.y.min()) for line in drawn), max(float(line.y.max()) for line in drawn)
    begin, end = min(float(line.x[0]) for line in drawn), max(float(line.x[-1]) for line in drawn)
    margin = max(len(figure(low)), len(figure(high)))
    canvas = Canvas(max(8, width - margin - 3), max(3, height - 2 - len(lines)))
    for number, line in enumerate(drawn):
        levels = (line.y - low) / (high - low or 1.0)
        positions = (line.x - begin) / (end - begin or 1.0)
        canvas.draw(positions, levels, number)
    text = Text(no_wrap=True)
    rows = canvas.rows()
    for index, row in enumerate(rows):
        label = figure(high) if index == 0 else figure(low) if index == len(rows) - 1 else ""
        text.append(f"{label:>{margin}} {'┤' if label else '│'}", "dim")
        for char, number in row:
            text.append(char, COLORS[number % len(COLORS)] if number >= 0 else "")
        text.append("\n")
    left, right = short(begin), f"{short(end)} {x_label}"
    room = max(1, canvas.width - len(left) - len(right))
    text.append(f"{'':>{margin}} └{'─' * canvas.width}\n", "dim")
    text.append(f"{'':>{margin}}  {left}{' ' * room}{right}\n", "dim")
    for number, line in enumerate(drawn):
        text.append(f"{'':>{margin}}  ━━ ", COLORS[number % len(COLORS)])
        text.append(f"{line.label}  {figure(float(line.y[-1]))}\n")
    text.rstrip()
    return text
