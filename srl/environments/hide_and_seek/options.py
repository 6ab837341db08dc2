"""Game options, checked at construction."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from srl.base.errors import nearest

Count: TypeAlias = int | tuple[int, int]
"""A number, or the inclusive bounds of a number that is drawn for each episode."""

CELL = 0.2  # m; size of a cell of the layout grid
SCENARIOS = ("quadrant", "var_quadrant", "randomwalls", "empty", "half", "var_tri")
TASKS = ("hide-and-seek", "lock-and-return", "sequential-lock", "blueprint", "shelter")
REWARDS = ("joint_zero_sum", "joint_mean", "selfish")
STARTS = ("uniform", "quadrant", "outside", "together")


@dataclass(frozen=True)
class GameOptions:
    """Options of a game. The defaults give the full game of Baker et al. (2019); for others, see :mod:`.variants`."""

    scenario: str = "randomwalls"
    """Placement of walls: quadrant, var_quadrant, randomwalls, empty, half or var_tri."""
    task: str = "hide-and-seek"
    """hide-and-seek, or one of the transfer tasks: lock-and-return, sequential-lock, blueprint, shelter."""
    num_hiders: Count = 2
    num_seekers: Count = 2
    """Sizes such as (1, 3) are drawn for each episode; the lanes of absent agents are idle."""
    num_boxes: Count = (3, 9)
    num_elongated: Count = (3, 9)
    """Number of elongated boxes, at most the number of boxes."""
    num_ramps: int = 2
    lock_ramps: bool = True
    horizon: int = 240
    preparation: float = 0.4
    """Fraction of an episode during which seekers cannot move and all rewards are 0."""
    reward: str = "joint_zero_sum"
    scale: float = 1.0
    """Side length of the floor in units of 6 m; cells keep their size. 1.5 and 2 are the harder maps."""
    bounds: tuple[float, float, float, float] | None = (-6.0, -6.0, 12.0, 12.0)
    """x0, y0, x1, y1, times `scale`; an agent outside gets reward -10. None: no bounds."""
    penalize_objects_out: bool = False
    """Whether every agent gets reward -10 while an object is out of bounds."""
    num_rooms: int = 4
    random_rooms: bool = True
    """Whether the number of rooms is drawn from 1 to `num_rooms`; otherwise it is `num_rooms`."""
    min_room_size: int = 6  # cells
    door_size: int = 2  # cells; 0: no doors
    door_dropout: float = 0.5
    """Probability that only one of the two walls has a door, in the quadrant scenarios."""
    outside_walls: float = 0.5
    """Probability of outer walls, in the randomwalls scenario."""
    hiders_start: str = "together"
    seekers_start: str = "together"
    """Starting area: uniform, quadrant, outside (the quadrant) or together (within `together_radius` of the first)."""
    together_radius: float = 0.5  # m, times `scale`
    max_others: int | None = None
    """Number of rows for other agents in an observation; None: the largest possible number."""
    num_food: int = 0
    num_food_clusters: int = 1
    food_radius: float = 0.5
    food_health: int = 40
    food_respawn: int = 5
    food_together_radius: float = 0.25
    food_centered: bool = True
    """Whether clusters start in the middle quarter along each axis, not just anywhere; unused in quadrant scenarios."""
    food_reward: float = 1.0
    eat_when_caught: bool = False
    num_sites: Count = (1, 4)
    """Number of construction sites in the blueprint task."""
    timestep: float = 0.005
    substeps: int = 15
    """Physics steps per action. Originally 15 x 0.005 s; 10 x 0.0075 s is 1.5 times as fast but changes the game."""
    sleep: bool = True
    """Whether the physics skips objects at rest."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):  # The command line and JSON only have lists.
            if isinstance(value := getattr(self, field.name), list):
                object.__setattr__(self, field.name, tuple(value))
        for name, choices in _CHOICES.items():
            if (value := getattr(self, name)) not in choices:
                raise ValueError(f"{name} {value!r} is not known{nearest(str(value), choices)}")
        for allowed, holds, names in _RULES:
            for name in names:
                if not holds(value := getattr(self, name)):
                    raise ValueError(f"{name} must be {allowed}, not {value!r}")
        self._check_together()

    def _check_together(self) -> None:
        if self.most_agents < 1:
            raise ValueError("a game needs an agent: num_hiders + num_seekers must be at least 1")
        if self.max_others is not None and self.max_others < self.most_agents - 1:
            raise ValueError(
                f"max_others must be at least {self.most_agents - 1}: there can be {self.most_agents} agents"
            )
        if self.grid < 16:
            raise ValueError(f"scale {self.scale} makes a floor of {self.grid} cells; at least 16 are needed (0.54)")
        if self.task == "lock-and-return" and least(self.num_boxes) < 1:
            raise ValueError("lock-and-return needs a box: num_boxes must be at least 1")
        if self.task != "hide-and-seek" and (self.most_agents, least(self.num_hiders)) != (1, 1):
            raise ValueError(f"{self.task} is a task for one hider: num_hiders=1, num_seekers=0")
        if self.task == "sequential-lock" and (self.scenario, self.num_ramps) != ("var_tri", 3):
            raise ValueError("sequential-lock needs scenario='var_tri' and num_ramps=3, one for each room")

    @property
    def grid(self) -> int:
        """Number of cells along a side of the floor."""
        return round(30 * self.scale)

    @property
    def floor(self) -> float:
        """Side length of the floor in meters."""
        return self.grid * CELL

    @property
    def most_agents(self) -> int:
        return most(self.num_hiders) + most(self.num_seekers)

    @property
    def has_elongated(self) -> bool:
        return most(self.num_elongated) > 0 and most(self.num_boxes) > 0

    @property
    def num_preparation(self) -> int:
        """Number of steps in the preparation phase."""
        return math.ceil(self.preparation * self.horizon - 1e-9)

    @property
    def num_walls(self) -> int:
        """Maximum number of wall segments in a layout."""
        if self.scenario == "randomwalls":
            return 4 + 2 * (self.num_rooms - 1)
        return {"empty": 4, "half": 6, "var_tri": 8}.get(self.scenario, 8)


def least(count: Count) -> int:
    return count if isinstance(count, int) else count[0]


def most(count: Count) -> int:
    return count if isinstance(count, int) else count[1]


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _is_integer(value: Any, minimum: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= minimum


def _is_count(value: Any, minimum: int) -> bool:
    pair = value if isinstance(value, tuple) else (value, value)
    return len(pair) == 2 and all(_is_integer(one, minimum) for one in pair) and pair[0] <= pair[1]


def _are_bounds(value: Any) -> bool:
    fits = isinstance(value, tuple) and len(value) == 4 and all(map(_is_number, value))
    return value is None or (fits and value[0] < value[2] and value[1] < value[3])


_CHOICES = {"scenario": SCENARIOS, "task": TASKS, "reward": REWARDS, "hiders_start": STARTS, "seekers_start": STARTS}
_RULES: tuple[tuple[str, Callable[[Any], bool], tuple[str, ...]], ...] = (
    (
        "a number of at least 0 or a pair (least, most)",
        lambda value: _is_count(value, 0),
        ("num_hiders", "num_seekers", "num_boxes", "num_elongated"),
    ),
    ("a number of at least 1 or a pair (least, most)", lambda value: _is_count(value, 1), ("num_sites",)),
    (
        "an integer of at least 0",
        lambda value: _is_integer(value, 0),
        ("num_ramps", "num_food", "door_size", "food_respawn"),
    ),
    (
        "an integer of at least 1",
        lambda value: _is_integer(value, 1),
        ("horizon", "num_rooms", "min_room_size", "substeps", "num_food_clusters", "food_health"),
    ),
    ("an integer of at least 0", lambda value: value is None or _is_integer(value, 0), ("max_others",)),
    (
        "between 0 and 1",
        lambda value: _is_number(value) and 0 <= value <= 1,
        ("preparation", "door_dropout", "outside_walls"),
    ),
    (
        "a positive number",
        lambda value: _is_number(value) and value > 0,
        ("scale", "timestep", "together_radius", "food_radius", "food_together_radius"),
    ),
    ("a number", _is_number, ("food_reward",)),
    (
        "true or false",
        lambda value: isinstance(value, bool),
        ("lock_ramps", "penalize_objects_out", "random_rooms", "food_centered", "eat_when_caught", "sleep"),
    ),
    ("x0, y0, x1, y1 with x0 < x1 and y0 < y1, or None", _are_bounds, ("bounds",)),
)
"""Allowed values, as text and as a function, and the options they apply to. A test requires a rule for every option."""
