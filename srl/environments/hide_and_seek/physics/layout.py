"""Random layouts of a world: walls first, then agents, boxes, ramps and the rest on free cells."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from srl.base.tree import Array
from srl.environments.failures import EnvironmentBroken
from srl.environments.hide_and_seek.options import CELL, GameOptions, least, most
from srl.environments.hide_and_seek.physics.random_draws import RandomDraws
from srl.environments.hide_and_seek.physics.walls import TRIES, LayoutFailed, Room, draw_walls

LONG_X, LONG_Y, CUBE = range(3)
BOX_HALF_SIZES = np.array([(0.825, 0.075, 0.25), (0.075, 0.825, 0.25), (0.25, 0.25, 0.25)])  # [kinds, 3]
AGENT_SIZE, RAMP_SIZE, FOOD_SIZE, SITE_SIZE = 0.3, 0.5, 0.1, 0.5
CYLINDER_DIAMETER = (1.5, 2.0)
MAX_WORLDS = 300
"""Number of attempts before a layout counts as impossible."""

Cell: TypeAlias = tuple[int, int]
Chooser: TypeAlias = Callable[[tuple[int, int]], Cell]
"""A function that draws the lower left cell for an object of the given size in cells."""


@dataclass
class Layout:
    """The layout of one world. Positions are lower corners of bounding boxes in meters, like the joint positions."""

    walls: Array  # [walls, 5]: center x, y, half-sizes x, y, z
    num_outer: int
    num_hiders: int
    agents: Array  # [agents, 2], hiders first
    box_kinds: Array  # [boxes]: LONG_X, LONG_Y or CUBE
    boxes: Array  # [boxes, 2]
    ramps: Array  # [ramps, 2]
    food: Array = field(default_factory=lambda: np.zeros((0, 2)))
    sites: Array = field(default_factory=lambda: np.zeros((0, 2)))  # centers, in the blueprint task
    cylinder: tuple[float, float, float] | None = None  # center x, y and radius, in the shelter task


def draw_layout(options: GameOptions, draws: RandomDraws) -> Layout:
    """Draw a layout that satisfies the options; raise EnvironmentBroken if there is not enough space."""
    problem = LayoutFailed("")
    for _ in range(MAX_WORLDS):
        try:
            return _Builder(options, draws).build()
        except LayoutFailed as error:
            problem = error
    raise EnvironmentBroken(
        f"no layout in {MAX_WORLDS} attempts satisfies the options ({problem}); the floor has {options.grid} x "
        f"{options.grid} cells: use fewer agents, boxes, ramps or rooms, or a larger `scale`"
    )


class _Builder:
    def __init__(self, options: GameOptions, draws: RandomDraws) -> None:
        self._options, self._draws, self._grid = options, draws, options.grid
        self._walls = draw_walls(options, draws)
        self._taken = self._walls.occupy(options.grid)
        self._quadrant = self._walls.quadrant or options.grid // 2

    def build(self) -> Layout:
        options, draws = self._options, self._draws
        num_hiders, num_seekers = draws.count(options.num_hiders), draws.count(options.num_seekers)
        agents = [
            *self._team(num_hiders, options.hiders_start, "hider"),
            *self._team(num_seekers, options.seekers_start, "seeker"),
        ]
        kinds = self._box_kinds()
        in_quadrant = options.scenario in ("quadrant", "var_quadrant")
        box_chooser = self._in_quadrant if in_quadrant else self._uniform
        boxes = [self._place(BOX_HALF_SIZES[kind, :2] * 2, box_chooser, "box") for kind in kinds]
        rooms = self._walls.rooms if options.task == "sequential-lock" else [None] * options.num_ramps
        ramps = [
            self._place((RAMP_SIZE, RAMP_SIZE), self._in_room(room) if room else self._uniform, "ramp")
            for room in rooms
        ]
        cylinder = self._cylinder() if options.task == "shelter" else None
        num_sites = draws.count(options.num_sites) if options.task == "blueprint" else 0
        sites = [self._place((SITE_SIZE, SITE_SIZE), self._in_middle(0.85), "site") for _ in range(num_sites)]
        return Layout(
            walls=self._walls.boxes(),
            num_outer=len(self._walls.outer),
            num_hiders=num_hiders,
            agents=_points(agents),
            box_kinds=np.array(kinds, np.int64),
            boxes=_points(boxes),
            ramps=_points(ramps),
            food=_points(self._food(in_quadrant)),
            sites=_points(sites) + SITE_SIZE / 2,
            cylinder=cylinder,
        )

    def _box_kinds(self) -> list[int]:
        draws, options = self._draws, self._options
        num_boxes = draws.count(options.num_boxes)
        low, high = least(options.num_elongated), most(options.num_elongated)
        num_long = draws.between(min(low, num_boxes), min(high, num_boxes))
        num_x = draws.between(0, num_long)
        return [LONG_X] * num_x + [LONG_Y] * (num_long - num_x) + [CUBE] * (num_boxes - num_long)

    def _team(self, number: int, start: str, name: str) -> list[tuple[float, float]]:
        choosers = {"uniform": self._uniform, "quadrant": self._in_quadrant, "outside": self._outside_quadrant}
        places: list[tuple[float, float]] = []
        first: Cell = (0, 0)
        for index in range(number):
            if start == "together":
                radius = self._options.together_radius * self._options.scale
                chooser = self._near(first, radius) if index else self._uniform
            else:
                chooser = choosers[start]
            places.append(self._place((AGENT_SIZE, AGENT_SIZE), chooser, name))
            first = first if index else self._last
        return places

    def _food(self, in_quadrant: bool) -> list[tuple[float, float]]:
        """Draw equal clusters (the last may be smaller): the first piece in the middle or anywhere, others near it."""
        options = self._options
        places, first = [], (0, 0)
        size = -(-options.num_food // options.num_food_clusters)
        for index in range(options.num_food):
            if in_quadrant:
                chooser: Chooser = self._in_quadrant
            elif index % size:
                chooser = self._near(first, options.food_together_radius)
            else:
                chooser = self._in_middle(0.25) if options.food_centered else self._uniform
            places.append(self._place((FOOD_SIZE, FOOD_SIZE), chooser, "food"))
            first = first if index % size else self._last
        return places

    def _cylinder(self) -> tuple[float, float, float]:
        diameter = self._draws.uniform(*CYLINDER_DIAMETER)
        x, y = self._place((diameter, diameter), self._in_middle(0.7), "cylinder")
        return x + diameter / 2, y + diameter / 2, diameter / 2

    def _place(self, size: tuple[float, float] | Array, chooser: Chooser, name: str) -> tuple[float, float]:
        """Place an object at random on free cells, mark them as taken, and return its lower corner. Raise LayoutFailed
        if no free cells are found."""
        cells = (math.ceil(size[0] / CELL - 1e-9), math.ceil(size[1] / CELL - 1e-9))
        for _ in range(TRIES):
            x, y = chooser(cells)
            area = self._taken[x : x + cells[0], y : y + cells[1]]
            if not area.any():
                area[...] = True
                self._last = (x, y)
                spare_x, spare_y = cells[0] * CELL - size[0], cells[1] * CELL - size[1]
                return x * CELL + self._draws.uniform(0, spare_x), y * CELL + self._draws.uniform(0, spare_y)
        raise LayoutFailed(f"no free cells for a {name}")

    def _uniform(self, cells: tuple[int, int]) -> Cell:
        return self._range(1, self._grid - cells[0] - 1), self._range(1, self._grid - cells[1] - 1)

    def _in_quadrant(self, cells: tuple[int, int]) -> Cell:
        size = self._quadrant
        return self._range(self._grid - size, self._grid - cells[0] - 1), self._range(1, size - cells[1] - 1)

    def _outside_quadrant(self, cells: tuple[int, int]) -> Cell:
        size, block = self._quadrant, self._draws.below(3)
        line = self._grid - size
        x = self._range(line, self._grid - cells[0] - 1) if block == 2 else self._range(1, line - cells[0] - 1)
        y = self._range(size, self._grid - cells[1] - 1) if block >= 1 else self._range(1, size - cells[1] - 1)
        return x, y

    def _in_middle(self, share: float) -> Chooser:
        low, high = int((1 - share) / 2 * self._grid), int((1 + share) / 2 * self._grid)
        return lambda cells: (self._range(low, high - cells[0]), self._range(low, high - cells[1]))

    def _near(self, first: Cell, radius: float) -> Chooser:
        reach = math.ceil(radius / CELL - 1e-9)

        def choose(cells: tuple[int, int]) -> Cell:
            x, y = (self._range(max(1, a - reach), min(self._grid - 1, a + reach)) for a in first)
            return x, y

        return choose

    def _in_room(self, room: Room) -> Chooser:
        x0, y0, x1, y1 = room
        return lambda cells: (self._range(x0, x1 - cells[0] + 2), self._range(y0, y1 - cells[1] + 2))

    def _range(self, low: int, end: int) -> int:
        """Draw a random integer in [low, end). Raise LayoutFailed if the range is empty."""
        if end <= low:
            raise LayoutFailed("the floor is too small for an object")
        return low + self._draws.below(end - low)


def _points(places: list[tuple[float, float]]) -> Array:
    return np.array(places, np.float64).reshape(-1, 2)
