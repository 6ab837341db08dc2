"""Walls on the grid: their cells, their doors, and their boxes in the simulation."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from srl.base.tree import Array
from srl.environments.hide_and_seek.options import CELL, GameOptions
from srl.environments.hide_and_seek.physics.random_draws import RandomDraws

HALF_WIDTH = CELL / 4  # m
OUTER_HEIGHT = 4.0  # m
INNER_HEIGHT = 0.5  # m, like boxes and ramps
TRIES = 10

Room: TypeAlias = tuple[int, int, int, int]
"""Cells from (x0, y0) to (x1, y1), both inclusive."""


class LayoutFailed(Exception):
    """A layout does not fit; another one is drawn."""


@dataclass
class Wall:
    """The cells from `low` to `high`, both inclusive, in column (if `vertical`) or row `line`."""

    vertical: bool
    line: int
    low: int
    high: int
    # Positions at which other walls meet this one, by side. The ends count on both sides.
    above: list[int] = field(default_factory=list)  # or to the right
    below: list[int] = field(default_factory=list)  # or to the left

    def __post_init__(self) -> None:
        self.above += [self.low, self.high]
        self.below += [self.low, self.high]

    @property
    def length(self) -> int:
        return self.high - self.low

    def crosses(self, other: Wall) -> bool:
        """Return whether the walls cross; touching does not count."""
        if self.vertical == other.vertical:
            return False
        return other.low < self.line < other.high and self.low < other.line < self.high

    def meet(self, other: Wall) -> None:
        """Record the position at which a perpendicular wall starts or ends on this one."""
        if self.vertical == other.vertical or not self.low <= other.line <= self.high:
            return
        if other.low == self.line:
            self.above.append(other.line)
        elif other.high == self.line:
            self.below.append(other.line)


@dataclass
class Walls:
    """The walls of one world: the outer ones, if any, and the inner ones, split at their doors."""

    outer: list[Wall]
    inner: list[Wall]
    rooms: list[Room] = field(default_factory=list)  # only in some scenarios
    quadrant: int = 0  # cells along a side of the closed corner, if there is one

    def occupy(self, grid: int) -> Array:
        """Return a mask [grid, grid] of the cells that walls cover, indexed by x and y."""
        taken = np.zeros((grid, grid), bool)
        for wall in (*self.outer, *self.inner):
            cells = slice(wall.low, wall.high + 1)
            taken[(wall.line, cells) if wall.vertical else (cells, wall.line)] = True
        return taken

    def boxes(self) -> Array:
        """Return boxes [walls, 5]: center x, y and half-sizes x, y, z in meters. Walls that meet touch face to face."""
        rows = []
        for wall, height in [(w, OUTER_HEIGHT) for w in self.outer] + [(w, INNER_HEIGHT) for w in self.inner]:
            across = (wall.line + 0.5) * CELL
            along = ((wall.low + wall.high + 1) / 2) * CELL
            half = wall.length * CELL / 2 - HALF_WIDTH
            if wall.vertical:
                rows.append((across, along, HALF_WIDTH, half, height / 2))
            else:
                rows.append((along, across, half, HALF_WIDTH, height / 2))
        return np.array(rows, np.float64).reshape(-1, 5)


def draw_walls(options: GameOptions, draws: RandomDraws) -> Walls:
    """Draw the walls of a scenario; raise LayoutFailed if random rooms do not fit."""
    grid = options.grid
    outer = outer_walls(grid)
    if options.scenario == "randomwalls":
        inner = _random_inner(options, draws)
        return Walls(outer if draws.chance(options.outside_walls) else [], inner)
    if options.scenario in ("quadrant", "var_quadrant"):
        share = 0.5 if options.scenario == "quadrant" else draws.uniform(0.3, 0.6)
        size = int(share * grid)
        return Walls(outer, _quadrant(options, draws, size), quadrant=size)
    if options.scenario == "half":
        return Walls(outer, _with_door(Wall(False, grid // 2, 0, grid - 1), options.door_size, draws))
    if options.scenario == "var_tri":
        inner, rooms = _three_rooms(options, draws)
        return Walls(outer, inner, rooms)
    return Walls(outer, [])


def outer_walls(grid: int) -> list[Wall]:
    last = grid - 1
    return [Wall(vertical, line, 0, last) for vertical in (True, False) for line in (0, last)]


def _quadrant(options: GameOptions, draws: RandomDraws, size: int) -> list[Wall]:
    """Draw two walls with doors that close off the lower right corner, `size` cells wide."""
    line, last = options.grid - size, options.grid - 1
    walls = [Wall(True, line, 0, size), Wall(False, size, line, last)]
    doors = [True, True]
    if draws.chance(options.door_dropout):
        doors[draws.below(2)] = False
    parts = []
    for wall, door in zip(walls, doors, strict=True):
        parts += _with_door(wall, options.door_size, draws) if door else [wall]
    return parts


def _three_rooms(options: GameOptions, draws: RandomDraws) -> tuple[list[Wall], list[Room]]:
    """Draw a wall across the floor and a second one from it to one side; return their parts and the three rooms."""
    last, vertical, after = options.grid - 1, draws.chance(0.5), draws.chance(0.5)
    line, split = (int(draws.uniform(0.4, 0.6) * options.grid) for _ in range(2))
    across = Wall(vertical, line, 0, last)
    second = Wall(not vertical, split, line, last) if after else Wall(not vertical, split, 0, line)
    before_line, after_line = (1, line - 1), (line + 1, last - 1)
    halved, whole = (after_line, before_line) if after else (before_line, after_line)
    spans = [(whole, (1, last - 1)), (halved, (1, split - 1)), (halved, (split + 1, last - 1))]
    rooms = [(a[0], b[0], a[1], b[1]) if vertical else (b[0], a[0], b[1], a[1]) for a, b in spans]
    parts = [part for wall in (across, second) for part in _with_door(wall, options.door_size, draws)]
    return parts, rooms


def _random_inner(options: GameOptions, draws: RandomDraws) -> list[Wall]:
    number = (1 + draws.below(options.num_rooms) if options.random_rooms else options.num_rooms) - 1
    for _ in range(TRIES):
        walls = outer_walls(options.grid)
        while len(walls) < 4 + number and (found := _next_wall(walls, options.min_room_size, draws)) is not None:
            for wall in walls:
                wall.meet(found)
                found.meet(wall)
            walls.append(found)
        if len(walls) == 4 + number:
            return [part for wall in walls[4:] for part in _with_door(wall, options.door_size, draws)]
    raise LayoutFailed(f"no place for {number} inner walls that leave rooms of {options.min_room_size} cells")


def _next_wall(walls: list[Wall], min_room_size: int, draws: RandomDraws) -> Wall | None:
    for _ in range(TRIES):
        start = walls[draws.below(len(walls))]
        found = []
        for end in walls:
            if end.vertical != start.vertical or end.line == start.line or start.length < 2:
                continue
            place = start.low + 1 + draws.below(start.length - 1)
            low, high = sorted((start.line, end.line))
            wall = Wall(not start.vertical, place, low, high)
            junctions = start.above if end.line > start.line else start.below
            if (
                end.low <= place <= end.high
                and all(abs(place - junction) > min_room_size for junction in junctions)
                and not any(wall.crosses(other) for other in walls)
            ):
                found.append(wall)
        if found:
            return found[draws.below(len(found))]
    return None


def _with_door(wall: Wall, size: int, draws: RandomDraws) -> list[Wall]:
    """Draw a door between two junctions of a wall; return the wall's parts, or the whole wall if no door fits."""
    if size == 0:
        return [wall]
    junctions = sorted({*wall.above, *wall.below})
    gaps = [(a, b - a) for a, b in itertools.pairwise(junctions) if b - a >= size + 1]
    if not gaps:
        return [wall]
    junction, gap = gaps[draws.below(len(gaps))]
    door = junction + 1 + draws.below(gap - size)
    parts = ((wall.low, door - 1), (door + size, wall.high))
    return [Wall(wall.vertical, wall.line, low, high) for low, high in parts if high > low]
