"""Bars and curves drawn with characters."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

SPARKS = "▁▂▃▄▅▆▇█"
EIGHTHS = " ▏▎▍▌▋▊▉█"
LEFT_DOTS, RIGHT_DOTS = (0x40, 0x04, 0x02, 0x01), (0x80, 0x20, 0x10, 0x08)
"""The dots of a braille character, from bottom to top."""


def resample(values: Sequence[float], num_points: int) -> list[float]:
    """Return `num_points` values evenly spread over the sequence, interpolated linearly; NaN is skipped."""
    known = [value for value in values if math.isfinite(value)]
    if not known or num_points <= 0:
        return []
    if len(known) == 1 or num_points == 1:
        return [known[-1]] * num_points
    scale = (len(known) - 1) / (num_points - 1)
    points = []
    for index in range(num_points):
        position = index * scale
        left = min(int(position), len(known) - 2)
        part = position - left
        points.append(known[left] * (1 - part) + known[left + 1] * part)
    return points


def sparkline(values: Sequence[float], width: int) -> str:
    """Return a curve one row high; a constant one is at the bottom."""
    points = resample(values, width)
    if not points:
        return ""
    low, span = min(points), max(points) - min(points)
    return "".join(SPARKS[round((point - low) / span * 7) if span > 0 else 0] for point in points)


def braille(values: Sequence[float], width: int, height: int) -> list[str]:
    """Return a curve of 2 x 4 dots per character as `height` rows, top first; neighboring dots are connected."""
    points = resample(values, 2 * width)
    if not points or height <= 0:
        return [" " * max(0, width)] * max(0, height)
    low, span = min(points), max(points) - min(points)
    top = 4 * height - 1
    levels = [round((point - low) / span * top) if span > 0 else 0 for point in points]
    cells = [[0] * width for _ in range(height)]
    previous = levels[0]
    for x, level in enumerate(levels):
        step = 1 if level >= previous else -1
        dots = LEFT_DOTS if x % 2 == 0 else RIGHT_DOTS
        for y in range(previous + step if level != previous else level, level + step, step):
            cells[height - 1 - y // 4][x // 2] |= dots[y % 4]
        previous = level
    return ["".join(chr(0x2800 + cell) if cell else " " for cell in row) for row in cells]


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
