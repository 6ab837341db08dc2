"""Tic-tac-toe, Connect Four and their relatives as simulators."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from srl.api.simulator import Foresight, Moves, Simulator, SimulatorConfig, SimulatorSpec, Symmetry
from srl.api.spaces import Box
from srl.base.tree import Array, ArraySpec
from srl.environments.games import board_kernels
from srl.environments.games.board_kernels import Rules

MOST_CELLS = 1024


@dataclass(frozen=True)
class RowGameConfig(SimulatorConfig):
    """Two players put stones on a board in turn. The first one with `length` stones in a row wins."""

    rows: int = 3
    columns: int = 3
    length: int = 3
    gravity: bool = False
    """Stones fall to the lowest free cell of a column, so that an action is a column."""

    def __post_init__(self) -> None:
        if min(self.rows, self.columns) < 1 or self.rows * self.columns > MOST_CELLS:
            raise ValueError(f"a board needs 1 to {MOST_CELLS} cells, found {self.rows} x {self.columns}")
        if not 2 <= self.length <= max(self.rows, self.columns):
            raise ValueError(f"length must be from 2 to the longer side of the board, found {self.length}")

    def build(self) -> RowGame:
        return RowGame(self)

    def title(self) -> str:
        known = {(3, 3, 3, False): "tic-tac-toe", (6, 7, 4, True): "connect-four"}
        shape = (self.rows, self.columns, self.length, self.gravity)
        return known.get(shape, f"{self.length} in a row on {self.rows} x {self.columns}")


class RowGame(Simulator):
    """The winner's reward is 1, which is a reward of -1 for the other player."""

    def __init__(self, config: RowGameConfig) -> None:
        self.rules = Rules(config.rows, config.columns, config.length, config.gravity)
        self._cells = config.rows * config.columns
        self.spec = SimulatorSpec(
            name=config.title(),
            num_actions=config.columns if config.gravity else self._cells,
            observation=Box((2, config.rows, config.columns), "float32", 0.0, 1.0),
            state=ArraySpec((self._cells + 2,), "int8"),
            max_moves=self._cells,
            num_players=2,
        )

    def begin(self, num: int, random: np.random.Generator) -> Array:
        return self.spec.state.empty(num)

    def step(self, state: Array, action: Array) -> Moves:
        num = len(state)
        moves = Moves(
            np.array(state, np.int8),
            np.zeros(num, np.float32),
            np.zeros(num, np.bool_),
            np.zeros(num, np.int64),
            np.zeros((num, self.spec.num_actions), np.bool_),
        )
        wrong = board_kernels.step_all(self.rules, moves.state, np.asarray(action, np.int64), *moves[1:])
        if wrong >= 0:
            raise ValueError(f"{self.spec.name}: move {action[wrong]} is illegal in row {wrong}")
        return moves

    def legal(self, state: Array) -> Array:
        legal = np.zeros((len(state), self.spec.num_actions), np.bool_)
        board_kernels.legal_all(self.rules, np.asarray(state, np.int8), legal)
        return legal

    def observe(self, state: Array) -> Array:
        planes = np.zeros((len(state), 2, self.rules.rows, self.rules.columns), np.float32)
        board_kernels.observe_all(np.asarray(state, np.int8), planes.reshape(len(state), 2, self._cells))
        return planes

    def foresee(self, state: Array, plies: int) -> Foresight:
        found = Foresight(
            np.full(len(state), np.nan, np.float32), np.zeros((len(state), self.spec.num_actions), np.bool_)
        )
        board_kernels.foresee_all(self.rules, np.asarray(state, np.int8), plies, *found)
        return found

    def ply(self, state: Array) -> Array:
        found = np.zeros(len(state), np.int64)
        board_kernels.ply_all(np.asarray(state, np.int8), found)
        return found

    def symmetries(self) -> tuple[Symmetry, ...]:
        """With gravity, the mirror image; else all that map the board to itself."""
        board = np.arange(self._cells).reshape(self.rules.rows, self.rules.columns)
        if self.rules.gravity:
            return (Symmetry(board[:, ::-1].ravel().copy(), np.arange(self.rules.columns)[::-1].copy()),)
        turned = [np.rot90(one, quarter) for one in (board, board[:, ::-1]) for quarter in range(4)]
        found = [one.ravel().copy() for one in turned if one.shape == board.shape]
        return tuple(Symmetry(cells, cells) for cells in found[1:])
