"""Compiled intersections of a ray with the shapes of the game: sphere, box, ramp, cylinder.

A ray is an origin o and a direction d of any length. A hit is a multiple s >= 0 of d, `MISS` if there is none. As in
MuJoCo, a ray that starts inside a shape hits it where it leaves.
"""

from __future__ import annotations

import math

from numba import njit

MISS = 1e30
RAMP = 0.25  # half of its bounding box

compiled = njit(cache=True, fastmath=True, nogil=True, error_model="numpy")


@compiled
def _entry(enter: float, leave: float) -> float:
    """Return the first point of an interval of a ray that is not behind the origin."""
    if enter > leave or leave < 0.0:
        return MISS
    return enter if enter >= 0.0 else leave


@compiled
def sphere(ox: float, oy: float, oz: float, dx: float, dy: float, dz: float, radius: float) -> float:
    """Intersect with a sphere around the origin of coordinates."""
    a = dx * dx + dy * dy + dz * dz
    b = ox * dx + oy * dy + oz * dz
    root = b * b - a * (ox * ox + oy * oy + oz * oz - radius * radius)
    if root < 0.0 or a == 0.0:
        return MISS
    root = math.sqrt(root)
    return _entry((-b - root) / a, (-b + root) / a)


@compiled
def _slab(o: float, d: float, low: float, high: float, enter: float, leave: float) -> tuple[float, float]:
    """Return the part of an interval between two planes."""
    if abs(d) < 1e-14:
        return (enter, leave) if low <= o <= high else (MISS, -MISS)
    one, other = (low - o) / d, (high - o) / d
    if one > other:
        one, other = other, one
    return max(enter, one), min(leave, other)


@compiled
def box(ox: float, oy: float, oz: float, dx: float, dy: float, dz: float, hx: float, hy: float, hz: float) -> float:
    """Intersect with an axis-aligned box around the origin of coordinates."""
    enter, leave = _slab(ox, dx, -hx, hx, -MISS, MISS)
    enter, leave = _slab(oy, dy, -hy, hy, enter, leave)
    enter, leave = _slab(oz, dz, -hz, hz, enter, leave)
    return _entry(enter, leave)


@compiled
def ramp(ox: float, oy: float, oz: float, dx: float, dy: float, dz: float) -> float:
    """Intersect with a ramp whose bounding box is centered at the origin: tall at -y, its slope the plane y + z = 0."""
    enter, leave = _slab(ox, dx, -RAMP, RAMP, -MISS, MISS)
    enter, leave = _slab(oy, dy, -RAMP, RAMP, enter, leave)
    enter, leave = _slab(oz, dz, -RAMP, RAMP, enter, leave)
    enter, leave = _slab(oy + oz, dy + dz, -4 * RAMP, 0.0, enter, leave)
    return _entry(enter, leave)


@compiled
def cylinder(ox: float, oy: float, oz: float, dx: float, dy: float, dz: float, radius: float, hz: float) -> float:
    """Intersect with an upright cylinder around the origin of coordinates."""
    a = dx * dx + dy * dy
    enter, leave = _slab(oz, dz, -hz, hz, -MISS, MISS)
    c = ox * ox + oy * oy - radius * radius
    if a < 1e-28:
        return _entry(enter, leave) if c <= 0.0 else MISS
    b = ox * dx + oy * dy
    root = b * b - a * c
    if root < 0.0:
        return MISS
    root = math.sqrt(root)
    return _entry(max(enter, (-b - root) / a), min(leave, (-b + root) / a))
