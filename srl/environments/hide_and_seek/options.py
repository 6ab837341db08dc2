"""The options of a game: what differs between variants, checked when it is made."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from srl.base.errors import nearest

Count: TypeAlias = int | tuple[int, int]
"""A number, or the least and the most of one that is drawn for each episode."""

CELL = 0.2  # m, of the grid on which a world is laid out
SCENARIOS = ("quadrant", "var_quadrant", "randomwalls", "empty", "half", "var_tri")
TASKS = ("hide-and-seek", "lock-and-return", "sequential-lock", "blueprint", "shelter")
REWARDS = ("joint_zero_sum", "joint_mean", "selfish")
STARTS = ("uniform", "quadrant", "outside", "together")


@dataclass(frozen=True)
class GameOptions:
    """The defaults are the full game of Baker et al. (2019); :mod:`.variants` has the others."""

    scenario: str = "randomwalls"
    """Where the walls are: quadrant, var_quadrant, randomwalls, empty, half or var_tri."""
    task: str = "hide-and-seek"
    """hide-and-seek, or one of the transfer tasks: lock-and-return, sequential-lock, blueprint, shelter."""
    num_hiders: Count = 2
    num_seekers: Count = 2
    """Sizes that are drawn, such as (1, 3), are drawn for each episode; the lanes of absent agents rest."""
    num_boxes: Count = (3, 9)
    num_elongated: Count = (3, 9)
    """How many of the boxes are long; never more than there are boxes."""
    num_ramps: int = 2
    lock_ramps: bool = True
    horizon: int = 240
    preparation: float = 0.4
    """The share of an episode in which seekers stand still and nobody earns."""
    reward: str = "joint_zero_sum"
    scale: float = 1.0
    """The floor is 6 m times this, the cells stay: 1.5 and 2 are the harder maps."""
    bounds: tuple[float, float, float, float] | None = (-6.0, -6.0, 12.0, 12.0)
    """x0, y0, x1, y1, times `scale`: who leaves earns -10. None: no bounds."""
    penalize_objects_out: bool = False
    """An object out of bounds costs every agent 10."""
    num_rooms: int = 4
    random_rooms: bool = True
    """Draw 1 to `num_rooms` rooms; otherwise there are exactly so many."""
    min_room_size: int = 6  # cells
    door_size: int = 2  # cells; 0: no doors
    door_dropout: float = 0.5
    """In the quadrant: the chance that only one of the two walls has a door."""
    outside_walls: float = 0.5
    """In randomwalls: the chance that the floor is walled in."""
    hiders_start: str = "together"
    seekers_start: str = "together"
    """uniform, quadrant, outside (the quadrant) or together (within `together_radius` of the first of the team)."""
    together_radius: float = 0.5  # m, times `scale`
    max_others: int | None = None
    """Rows for other agents in an observation; None: as many as there can be."""
    num_food: int = 0
    num_food_clusters: int = 1
    food_radius: float = 0.5
    food_health: int = 40
    food_respawn: int = 5
    food_together_radius: float = 0.25
    food_centered: bool = True
    """Clusters begin within the middle quarter of each side, otherwise anywhere; in the quadrants neither."""
    food_reward: float = 1.0
    eat_when_caught: bool = False
    num_sites: Count = (1, 4)
    """Of the blueprint task."""
    timestep: float = 0.005
    substeps: int = 15
    """15 x 0.005 s is the original; 10 x 0.0075 s is 1.5 times as fast and another game."""
    sleep: bool = True
    """Let objects that rest drop out of the physics."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):  # A command line and JSON know lists only.
            if isinstance(value := getattr(self, field.name), list):
                object.__setattr__(self, field.name, tuple(value))
        for check, names in _CHECKS:
            for name in names:
                check(name, getattr(self, name))
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
        """Cells along a side."""
        return round(30 * self.scale)

    @property
    def floor(self) -> float:
        """Metres along a side."""
        return self.grid * CELL

    @property
    def most_agents(self) -> int:
        return most(self.num_hiders) + most(self.num_seekers)

    @property
    def has_elongated(self) -> bool:
        return most(self.num_elongated) > 0 and most(self.num_boxes) > 0

    @property
    def num_preparation(self) -> int:
        """Steps of preparation."""
        return math.ceil(self.preparation * self.horizon - 1e-9)

    @property
    def num_walls(self) -> int:
        """The most pieces of wall that a layout can have."""
        if self.scenario == "randomwalls":
            return 4 + 2 * (self.num_rooms - 1)
        return {"empty": 4, "half": 6, "var_tri": 8}.get(self.scenario, 8)


def least(count: Count) -> int:
    return count if isinstance(count, int) else count[0]


def most(count: Count) -> int:
    return count if isinstance(count, int) else count[1]


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


Check: TypeAlias = Callable[[str, Any], None]
"""ValueError, with the option's name and what is allowed, for a value that is not."""


def _among(allowed: tuple[str, ...]) -> Check:
    def check(name: str, value: Any) -> None:
        if value not in allowed:
            raise ValueError(f"{name} {value!r} is not known{nearest(str(value), allowed)}")

    return check


def _at_least(minimum: int) -> Check:
    def check(name: str, value: Any) -> None:
        if not _is_whole(value) or value < minimum:
            raise ValueError(f"{name} must be a whole number of at least {minimum}, not {value!r}")

    return check


def _count(minimum: int) -> Check:
    def check(name: str, value: Any) -> None:
        pair = value if isinstance(value, tuple) else (value, value)
        if len(pair) != 2 or not all(map(_is_whole, pair)) or not minimum <= pair[0] <= pair[1]:
            raise ValueError(f"{name} must be a number of at least {minimum} or a pair (least, most), not {value!r}")

    return check


def _share(name: str, value: Any) -> None:
    if not (_is_number(value) and 0 <= value <= 1):
        raise ValueError(f"{name} must be between 0 and 1, not {value!r}")


def _positive(name: str, value: Any) -> None:
    if not (_is_number(value) and value > 0):
        raise ValueError(f"{name} must be a positive number, not {value!r}")


def _number(name: str, value: Any) -> None:
    if not _is_number(value):
        raise ValueError(f"{name} must be a number, not {value!r}")


def _truth(name: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be true or false, not {value!r}")


def _others(name: str, value: Any) -> None:
    if value is not None:
        _at_least(0)(name, value)


def _bounds(name: str, value: Any) -> None:
    fits = isinstance(value, tuple) and len(value) == 4 and all(map(_is_number, value))
    if value is not None and not (fits and value[0] < value[2] and value[1] < value[3]):
        raise ValueError(f"{name} must be x0, y0, x1, y1 with x0 < x1 and y0 < y1, or None, not {value!r}")


_CHECKS: tuple[tuple[Check, tuple[str, ...]], ...] = (
    (_among(SCENARIOS), ("scenario",)),
    (_among(TASKS), ("task",)),
    (_among(REWARDS), ("reward",)),
    (_among(STARTS), ("hiders_start", "seekers_start")),
    (_count(0), ("num_hiders", "num_seekers", "num_boxes", "num_elongated")),
    (_count(1), ("num_sites",)),
    (_at_least(0), ("num_ramps", "num_food", "door_size", "food_respawn")),
    (_at_least(1), ("horizon", "num_rooms", "min_room_size", "substeps", "num_food_clusters", "food_health")),
    (_share, ("preparation", "door_dropout", "outside_walls")),
    (_positive, ("scale", "timestep", "together_radius", "food_radius", "food_together_radius")),
    (_number, ("food_reward",)),
    (_truth, ("lock_ramps", "penalize_objects_out", "random_rooms", "food_centered", "eat_when_caught", "sleep")),
    (_others, ("max_others",)),
    (_bounds, ("bounds",)),
)
"""One for every option: a test compares."""
