"""The simulator contract: the rules of a deterministic game or task, as functions of arrays of states."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from srl.api.spaces import Space
from srl.base.tree import Array, ArraySpec, Tree


@dataclass(frozen=True)
class SimulatorSpec:
    name: str
    num_actions: int
    observation: Space  # what `observe` returns
    state: ArraySpec  # one state
    max_moves: int
    """Moves after which an episode is truncated, unless it has ended before."""
    num_players: int = 1  # 1 or 2; what one of two players wins, the other one loses
    lowest: float = -1.0
    """Lower bound of the sum of a player's rewards from any state on."""
    highest: float = 1.0
    """Upper bound of this sum."""


class Moves(NamedTuple):
    """What follows from one action in each of n states."""

    state: Array  # [n, ...]
    reward: Array  # [n] float32, of the player who moved
    ended: Array  # [n] bool
    to_play: Array  # [n] int64, the player to move in the new state, 0 or 1
    legal: Array  # [n, A] bool, in the new state; all false where it has `ended`


class Foresight(NamedTuple):
    """What the rules alone say about n states."""

    value: Array  # [n] float32, the return of the player to move; NaN where it is not decided
    moves: Array  # [n, A] bool, the legal actions without those that are known to be worse; all false where it ended


class Symmetry(NamedTuple):
    """A change of a position that changes nothing else: of `value`, and of the best actions but for their names."""

    cells: Array  # [cells] int64: cell i of the changed board is cell `cells[i]` of the board
    actions: Array  # [A] int64: action a of the changed position is action `actions[a]` of the position


class Simulator(ABC):
    """States [n, ...] are arrays of `spec.state`, which contain everything that determines the future. All methods are
    pure functions of their arguments: rows do not depend on each other, and no argument is changed."""

    spec: SimulatorSpec

    @abstractmethod
    def begin(self, num: int, random: np.random.Generator) -> Array:
        """Return states [n, ...] in which episodes begin. Only this method may use chance."""

    @abstractmethod
    def step(self, state: Array, action: Array) -> Moves:
        """Take an action [n], which must be legal, in each state."""

    @abstractmethod
    def legal(self, state: Array) -> Array:
        """Return the legal actions [n, A] bool; none where the episode has ended."""

    @abstractmethod
    def observe(self, state: Array) -> Tree:
        """Return what the player to move sees [n, ...], as arrays of `spec.observation`."""

    @abstractmethod
    def ply(self, state: Array) -> Array:
        """Return the number of moves that were made [n] int64."""

    def to_play(self, state: Array) -> Array:
        """Return the player to move [n] int64. Default: players alternate."""
        if self.spec.num_players == 1:
            return np.zeros(len(state), np.int64)
        found: Array = self.ply(state) % 2
        return found

    def foresee(self, state: Array, plies: int) -> Foresight:
        """Look 1 or 2 plies ahead. 1: a move that ends the episode with the `highest` return decides it. 2: so does the
        lack of a move after which the other player has none of these. Default: tries all actions with `step`."""
        num, spec = len(state), self.spec
        legal = self.legal(state)
        mover, decisive, bad = self.to_play(state), np.zeros_like(legal), np.zeros_like(legal)
        for action in range(spec.num_actions):
            rows = np.flatnonzero(legal[:, action])
            if not len(rows):
                continue
            moves = self.step(state[rows], np.full(len(rows), action))
            decisive[rows, action] = moves.ended & (moves.reward >= spec.highest)
            if plies > 1:
                answered = np.flatnonzero(~moves.ended & (moves.to_play != mover[rows]) & (moves.reward <= 0))
                replies = self.foresee(moves.state[answered], plies - 1)
                bad[rows[answered], action] = replies.value >= spec.highest
        value = np.full(num, np.nan, np.float32)
        wins, lost = np.any(decisive, axis=1), np.any(legal, axis=1) & np.all(bad == legal, axis=1)
        value[wins], value[lost] = spec.highest, spec.lowest
        moves_left = np.where(wins[:, None], decisive, np.where(lost[:, None], legal, legal & ~bad))
        return Foresight(value, moves_left)

    def symmetries(self) -> tuple[Symmetry, ...]:
        """Return the symmetries of boards, which observations have as last axes, without the identity. Default:
        none."""
        return ()


class SimulatorConfig(ABC):
    """Name and options of a simulator: a frozen dataclass of plain data."""

    @abstractmethod
    def build(self) -> Simulator: ...

    @abstractmethod
    def title(self) -> str:
        """Return the name for messages."""

    def named_code(self) -> tuple[str, ...]:
        """Return the names of code that is not part of SRL, PettingZoo or OpenSpiel."""
        return ()
