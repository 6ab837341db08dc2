"""Games with a simulator and known values, for algorithms that search with the rules."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from srl.api.simulator import Moves, Simulator, SimulatorConfig, SimulatorSpec
from srl.api.spaces import Box
from srl.base.tree import Array, ArraySpec

OVER = 2.0  # the state of a game that has ended


@dataclass(frozen=True)
class Planned(SimulatorConfig):
    """Two steps of one player, who observes the state: -1, then 1 or 0.5. Action 1 leads to 1, action 0 to 0.5. The
    second step earns 1 in state 1, and -1 otherwise. The best return is 1; the values are `discount` and 1."""

    def build(self) -> Simulator:
        return TwoMoves(num_players=1)

    def title(self) -> str:
        return "planned"


@dataclass(frozen=True)
class Replied(SimulatorConfig):
    """Player 0 moves in state -1, which leads to state 1. There player 1 wins with action 1, and loses with action 0.
    Under perfect play player 0 loses: the values are -`discount` for player 0, and 1 for player 1."""

    def build(self) -> Simulator:
        return TwoMoves(num_players=2)

    def title(self) -> str:
        return "replied"


class TwoMoves(Simulator):
    """Any number below 0 is the first state, so that the contract of an algorithm can be checked with random ones."""

    def __init__(self, num_players: int) -> None:
        self.spec = SimulatorSpec(
            "probe", 2, Box((1,)), ArraySpec((1,), "float32"), 2, num_players, lowest=-2.0, highest=2.0
        )

    def begin(self, num: int, random: np.random.Generator) -> Array:
        return np.full((num, 1), -1.0, np.float32)

    def step(self, state: Array, action: Array) -> Moves:
        here, action = state[:, 0], np.asarray(action)
        is_first = here < 0
        good = action == 1 if self.spec.num_players == 2 else here >= 0.75
        following = 1.0 if self.spec.num_players == 2 else np.where(action == 1, 1.0, 0.5)
        after = np.where(is_first, following, OVER).astype(np.float32)[:, None]
        reward = np.where(is_first, 0.0, np.where(good, 1.0, -1.0)).astype(np.float32)
        return Moves(after, reward, ~is_first, self.to_play(after), self.legal(after))

    def legal(self, state: Array) -> Array:
        return np.repeat(state < OVER, 2, 1)

    def observe(self, state: Array) -> Array:
        return state.astype(np.float32)

    def ply(self, state: Array) -> Array:
        return np.where(state[:, 0] < 0, 0, np.where(state[:, 0] < OVER, 1, 2))
