"""A line chart drawn with characters, for `srl plot` in the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from rich.text import Text

from srl.base.tree import Array
from srl.terminal.drawing import Canvas
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
