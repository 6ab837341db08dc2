"""Simulators of games that are Python objects: a state is the list of the moves that led to it."""

from __future__ import annotations

from abc import abstractmethod
from collections import OrderedDict
from typing import Any

import numpy as np

from srl.api.simulator import Moves, Simulator, SimulatorSpec
from srl.api.spaces import Space, array_spec
from srl.base.tree import Array, ArraySpec, Tree, map_tree

MOST_POSITIONS = 20_000
"""Positions that are remembered, so that a move in one of them need not replay the game."""


class HistorySimulator(Simulator):
    """A state is int32 [max_moves + 1]: the number of moves, and the moves, padded with -1. Subclasses say what a
    position is. Positions are never changed."""

    def __init__(self, name: str, num_actions: int, num_players: int, max_moves: int, observation: Space) -> None:
        self.spec = SimulatorSpec(
            name, num_actions, observation, ArraySpec((max_moves + 1,), "int32"), max_moves, num_players
        )
        self._positions: OrderedDict[bytes, Any] = OrderedDict()

    @abstractmethod
    def first(self) -> Any:
        """Return the position in which games begin."""

    @abstractmethod
    def after(self, position: Any, action: int) -> tuple[Any, float]:
        """Return the position after a move and the reward of the player who moved."""

    @abstractmethod
    def has_ended(self, position: Any) -> bool: ...

    @abstractmethod
    def mover(self, position: Any) -> int: ...

    @abstractmethod
    def moves_of(self, position: Any) -> Array:
        """Return the legal moves as numbers [n]; the game has not ended."""

    @abstractmethod
    def seen(self, position: Any) -> Tree:
        """Return what the player to move sees, for one position."""

    def begin(self, num: int, random: np.random.Generator) -> Array:
        state = np.full((num, self.spec.max_moves + 1), -1, np.int32)
        state[:, 0] = 0
        return state

    def step(self, state: Array, action: Array) -> Moves:
        num = len(state)
        after = np.array(state, np.int32)
        reward, ended = np.zeros(num, np.float32), np.zeros(num, np.bool_)
        to_play, legal = np.zeros(num, np.int64), np.zeros((num, self.spec.num_actions), np.bool_)
        for row, move in enumerate(np.asarray(action).tolist()):
            count = int(state[row, 0])
            if count >= self.spec.max_moves:
                raise ValueError(f"{self.spec.name}: a game has more than max_moves={self.spec.max_moves} moves")
            position, reward[row] = self.after(self.position(state[row]), move)
            after[row, 0], after[row, count + 1] = count + 1, move
            self._remember(after[row].tobytes(), position)
            ended[row] = self.has_ended(position)
            if not ended[row]:
                to_play[row] = self.mover(position)
                legal[row, self.moves_of(position)] = True
        return Moves(after, reward, ended, to_play, legal)

    def legal(self, state: Array) -> Array:
        legal = np.zeros((len(state), self.spec.num_actions), np.bool_)
        for row, position in enumerate(map(self.position, state)):
            if not self.has_ended(position):
                legal[row, self.moves_of(position)] = True
        return legal

    def observe(self, state: Array) -> Tree:
        found: Tree = map_tree(lambda leaf: leaf.empty(len(state)), array_spec(self.spec.observation))
        for row, position in enumerate(map(self.position, state)):
            map_tree(lambda rows, one, row=row: rows.__setitem__(row, one), found, self.seen(position))
        return found

    def ply(self, state: Array) -> Array:
        return state[:, 0].astype(np.int64)

    def to_play(self, state: Array) -> Array:
        positions = map(self.position, state)
        return np.array([0 if self.has_ended(one) else self.mover(one) for one in positions], np.int64)

    def position(self, state: Array) -> Any:
        """Return the position of one state, from memory or by replaying its moves."""
        key = np.asarray(state, np.int32).tobytes()
        if key in self._positions:
            self._positions.move_to_end(key)
            return self._positions[key]
        position = self.first()
        for move in state[1 : 1 + int(state[0])].tolist():
            position = self.after(position, move)[0]
        self._remember(key, position)
        return position

    def _remember(self, key: bytes, position: Any) -> None:
        self._positions[key] = position
        if len(self._positions) > MOST_POSITIONS:
            self._positions.popitem(last=False)
