"""Players of board games that search with random games (UCT, Kocsis and Szepesvári 2006), as opponents to measure
against: `srl league RUN --against srl.testing.uct:connect_four`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from srl.api.policy import Decision, Policy
from srl.base.seeding import generator
from srl.base.tree import Array, Tree
from srl.environments.games.board_kernels import Rules
from srl.environments.games.uct import best_moves

TIC_TAC_TOE, CONNECT_FOUR = Rules(3, 3, 3, False), Rules(6, 7, 4, True)
ROLLOUTS = 1000


class UCTPolicy(Policy):
    """Plays each move after a number of random games from positions of a tree. It reads the board of an observation."""

    version = 0

    def __init__(self, rules: Rules, rollouts: int = ROLLOUTS, exploration: float = 1.0, seed: int = 0) -> None:
        if rollouts < 1:
            raise ValueError(f"rollouts must be at least 1, found {rollouts}")
        self._rules, self._rollouts, self._exploration = rules, rollouts, exploration
        self._random = generator(seed, "uct")

    def act(self, observation: Tree, state: Tree | None, first: Array, *, greedy: bool = False) -> Decision:
        return {"action": moves(self._rules, observation, self._rollouts, self._exploration, self._random)}

    def load(self, parameters: Array, version: int) -> None:
        pass


def moves(rules: Rules, observation: Any, rollouts: int, exploration: float, random: np.random.Generator) -> Array:
    """Return the moves [n] for observations of boards [n, 2, rows, columns] and the players to move [n]."""
    planes, mover = observation["observation"], observation["to_play"]
    num = len(planes)
    states = np.zeros((num, rules.rows * rules.columns + 2), np.int8)
    own = (planes[:, 0] - planes[:, 1]).reshape(num, -1)
    states[:, :-2] = own * (1 - 2 * mover[:, None])
    states[:, -2] = mover
    found = np.zeros(num, np.int64)
    best_moves(rules, states, rollouts, exploration, random.integers(0, 2**63, num, np.uint64), found)
    return found


def _one(rules: Rules, observation: Mapping[str, Any], random: np.random.Generator) -> Any:
    batch = {key: np.asarray(observation[key])[None] for key in ("observation", "to_play")}
    return moves(rules, batch, ROLLOUTS, 1.0, random)[0]


def connect_four(observation: Mapping[str, Any], random: np.random.Generator) -> Any:
    """Return the move of a UCT player with 1,000 random games per move."""
    return _one(CONNECT_FOUR, observation, random)


def tic_tac_toe(observation: Mapping[str, Any], random: np.random.Generator) -> Any:
    """Return the move of a UCT player with 1,000 random games per move."""
    return _one(TIC_TAC_TOE, observation, random)
