"""Compiled intersections of a ray with the game's shapes: sphere, box, ramp, cylinder.

A ray has an origin o and a direction d of any length. Distances along it are multiples of d: a function returns the
smallest s >= 0 such that o + s * d is on the shape's surface, or `MISS`. As in MuJoCo, a ray that starts inside a shape
hits it where it leaves.
"""

from __future__ import annotations

import math

from numba import njit

MISS = 1e30
RAMP = 0.25  # half-size of its bounding box

compiled = njit(cache=True, fastmath=True, nogil=True, error_model="numpy")


@compiled
def _entry(enter: float, leave: float) -> float:
    """Return the distance of the first hit on a shape that a ray enters and leaves at the given distances, or MISS."""
    if enter > leave or leave < 0.0:
        return MISS
    return enter if enter >= 0.0 else leave


@compiled
def sphere(ox: float, oy: float, oz: float, dx: float, dy: float, dz: float, radius: float) -> float:
    """Return the distance at which a ray hits a sphere centered at (0, 0, 0), or MISS."""
    a = dx * dx + dy * dy + dz * dz
    b = ox * dx + oy * dy + oz * dz
    root = b * b - a * (ox * ox + oy * oy + oz * oz - radius * radius)
    if root < 0.0 or a == 0.0:
        return MISS
    root = math.sqrt(root)
    return _entry((-b - root) / a, (-b + root) / a)


@compiled
def _slab(o: float, d: float, low: float, high: float, enter: float, leave: float) -> tuple[float, float]:
    """Clip the interval (enter, leave) of a ray to where its coordinate o + s * d is between `low` and `high`."""
    if abs(d) < 1e-14:
        return (enter, leave) if low <= o <= high else (MISS, -MISS)
    one, other = (low - o) / d, (high - o) / d
    if one > other:
        one, other = other, one
    return max(enter, one), min(leave, other)


@compiled
def box(ox: float, oy: float, oz: float, dx: float, dy: float, dz: float, hx: float, hy: float, hz: float) -> float:
    """Return the distance at which a ray hits an axis-aligned box centered at (0, 0, 0), or MISS."""
    enter, leave = _slab(ox, dx, -hx, hx, -MISS, MISS)
    enter, leave = _slab(oy, dy, -hy, hy, enter, leave)
    enter, leave = _slab(oz, dz, -hz, hz, enter, leave)
    return _entry(enter, leave)


@compiled
def ramp(ox: float, oy: float, oz: float, dx: float, dy: float, dz: float) -> float:
    """Return the distance at which a ray hits a ramp, or MISS. The ramp's bounding box is centered at (0, 0, 0); it is
    tall at -y, and its slope is the plane y + z = 0."""
    enter, leave = _slab(ox, dx, -RAMP, RAMP, -MISS, MISS)
    enter, leave = _slab(oy, dy, -RAMP, RAMP, enter, leave)
    enter, leave = _slab(oz, dz, -RAMP, RAMP, enter, leave)
    enter, leave = _slab(oy + oz, dy + dz, -4 * RAMP, 0.0, enter, leave)
    return _entry(enter, leave)


@compiled
def cylinder(ox: float, oy: float, oz: float, dx: float, dy: float, dz: float, radius: float, hz: float) -> float:
    """Return the distance at which a ray hits an upright cylinder centered at (0, 0, 0), or MISS."""
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
