"""The recorder contract, and parts that its implementations share: teams of lanes and paths in blocks."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from srl.api.block import STATE, BlockSpec
from srl.api.lanes import TimeStep
from srl.api.streams import Cell
from srl.base.state import State
from srl.base.tree import SEPARATOR, Array, Tree, from_leaves
from srl.workers.actor.episodes import EpisodeTracker

ACTION = "decision/action"


class Recorder(Protocol):
    """Writer of the rows of one role's lanes in one lane group. At every step, the group calls `open`, `cells`,
    `take_decisions`, `post_full`, `actions` and finally `arrive`, with the environment's results."""

    tracker: EpisodeTracker
    is_plain: bool
    """Whether there is one team, one observation array, one action array and no memory, which allows a tight loop."""

    def open(self) -> bool:
        """Open an admitted block for the current row. Return False if admission has not been granted yet."""

    def release(self) -> None:
        """Discard the open block and return its admission. The current row continues in the next block."""

    def cells(self) -> list[Cell]:
        """Return the cells that need a decision; none if all have one."""

    def min_version(self) -> int:
        """Return the oldest policy version that may choose actions for these cells; 0 if their consumers are gone."""

    def take_decisions(self) -> None:
        """Handle the arrival of the decisions for all cells."""

    def post_full(self) -> bool:
        """Post blocks whose last row has its decision. Return whether the lanes need another block before they act."""

    def actions(self) -> tuple[Tree, ...]:
        """Return the actions to take, as one tree [L, ...] per team."""

    def arrive(self, time_steps: Sequence[TimeStep]) -> None:
        """Write the environment's results, one time step for each of the role's teams."""

    def abandon(self) -> None:
        """Discard the unfinished rows, because the whole environment failed."""

    def state(self) -> State: ...

    def restore(self, state: State) -> None:
        """Continue from a saved state. The producer has already been restored."""


def positions_of(actor: int, slot: int, num_slots: int, num_lanes: int) -> Array:
    """Return the positions [num_lanes] in [0, 1) of the lanes in one slot of an actor's ring. The lanes of an actor are
    spread evenly, and those of all actors too, however many there are: actors are shifted by the van der Corput
    sequence (0, 1/2, 1/4, 3/4, 1/8, ...)."""
    shift, share = 0.0, 0.5
    while actor:
        shift += share * (actor & 1)
        actor, share = actor >> 1, share / 2.0
    positions: Array = (slot * num_lanes + np.arange(num_lanes) + shift) / (num_slots * num_lanes)
    return positions.astype(np.float32)


def memory_paths(spec: BlockSpec) -> list[tuple[str, str]]:
    """Return the two paths of each array of a policy's memory: after a decision, and before the lane's next one."""
    paths = [path for path, _ in spec.arrays() if path.partition("/")[0] == STATE]
    return [(f"decision/{path}", path) for path in paths]


def action_paths(spec: BlockSpec) -> list[str]:
    return [path for path, _ in spec.arrays() if path == ACTION or path.startswith(f"{ACTION}{SEPARATOR}")]


class Teams:
    """Slices of a role's lanes, one per team."""

    def __init__(self, team_lanes: list[int]) -> None:
        edges = np.cumsum([0, *team_lanes])
        self.slices = [slice(int(a), int(b)) for a, b in itertools.pairwise(edges)]
        self.num_lanes = int(edges[-1])

    def actions(self, arrays: Mapping[str, Array]) -> tuple[Tree, ...]:
        """Split actions [L, ...], given by their paths in a block, into one tree per team."""
        if set(arrays) == {ACTION}:
            return tuple(arrays[ACTION][lanes] for lanes in self.slices)
        parts = {path.removeprefix(f"{ACTION}{SEPARATOR}"): leaf for path, leaf in arrays.items()}
        return tuple(from_leaves({path: leaf[lanes] for path, leaf in parts.items()}) for lanes in self.slices)
