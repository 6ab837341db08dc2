"""A line chart drawn with characters, for `srl plot` in the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from rich.text import Text

from srl.base.tree import Array
from srl.terminal.drawing import LEFT_DOTS, RIGHT_DOTS
from srl.terminal.formatting import figure, short

COLORS = ("blue", "red", "green", "yellow", "magenta", "cyan", "white")


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
    canvas = _Canvas(max(8, width - margin - 3), max(3, height - 2 - len(lines)))
    for number, line in enumerate(drawn):
        levels = (line.y - low) / (high - low or 1.0)
        positions = (line.x - begin) / (end - begin or 1.0)
        canvas.draw(positions, levels, number)
    text = Text(no_wrap=True)
    rows = canvas.rows()
    for index, row in enumerate(rows):
        label = figure(high) if index == 0 else figure(low) if index == len(rows) - 1 else ""
        text.append(f"{label:>{margin}} {'┤' if label else '│'}", "dim").append_text(row).append("\n")
    left, right = short(begin), f"{short(end)} {x_label}"
    room = max(1, canvas.width - len(left) - len(right))
    text.append(f"{'':>{margin}} └{'─' * canvas.width}\n", "dim")
    text.append(f"{'':>{margin}}  {left}{' ' * room}{right}\n", "dim")
    for number, line in enumerate(drawn):
        text.append(f"{'':>{margin}}  ━━ ", COLORS[number % len(COLORS)])
        text.append(f"{line.label}  {figure(float(line.y[-1]))}\n")
    text.rstrip()
    return text


class _Canvas:
    """Cells of 2 x 4 dots. A cell has one color, that of the line drawn last."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self._dots = np.zeros((height, width), np.int64)
        self._owner = np.full((height, width), -1)

    def draw(self, positions: Array, levels: Array, number: int) -> None:
        """Draw a line through points in [0, 1] x [0, 1]; gaps between dots are filled."""
        columns, top = 2 * self.width, 4 * self.height - 1
        first, last = int(positions[0] * (columns - 1)), int(positions[-1] * (columns - 1))
        grid = np.arange(first, last + 1)
        heights = np.interp(grid / max(1, columns - 1), positions, levels)
        previous: int | None = None
        for x, level in zip(grid.tolist(), np.rint(heights * top).astype(int).tolist(), strict=True):
            start = level if previous is None or previous == level else previous + (1 if level > previous else -1)
            step = 1 if level >= start else -1
            for y in range(start, level + step, step):
                row, column = self.height - 1 - y // 4, x // 2
                self._dots[row, column] |= (LEFT_DOTS if x % 2 == 0 else RIGHT_DOTS)[y % 4]
                self._owner[row, column] = number
            previous = level

    def rows(self) -> list[Text]:
        found = []
        for dots, owners in zip(self._dots.tolist(), self._owner.tolist(), strict=True):
            row = Text()
            for cell, owner in zip(dots, owners, strict=True):
                row.append(chr(0x2800 + cell) if cell else " ", COLORS[owner % len(COLORS)] if owner >= 0 else "")
            found.append(row)
        return found
