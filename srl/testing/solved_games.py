"""An exact check of policies in small games: whether they make a mistake on any line."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from srl.api.lanes import LanesConfig
from srl.api.policy import Policy
from srl.api.simulator import Simulator
from srl.base.tree import Array
from srl.environments.games.config import GameConfig
from srl.environments.games.joint_lanes import observations_of

MOST_POSITIONS = 200_000
ROWS = 512  # positions per call of the policy


@dataclass(frozen=True)
class PerfectPlay:
    """Result of :func:`perfect_play`."""

    positions: tuple[int, int]  # positions in which the policy had to move, as player 0 and as player 1
    mistakes: tuple[int, int]  # those in which its move gave up what it could have reached
    examples: tuple[Array, ...]  # states of some mistakes

    @property
    def perfect(self) -> bool:
        return not any(self.mistakes)


def perfect_play(policy: Policy, environment: LanesConfig, *, greedy: bool = True) -> PerfectPlay:
    """Let a policy play in each seat of a game against every possible reply, and count its mistakes.

    A mistake is a move after which the result of perfect play is worse than before it. `environment` is that of a run,
    such as ``lanes_config("game:tic-tac-toe").with_states()``. Raises ValueError for games with more than 200,000
    positions."""
    if not isinstance(environment, GameConfig):
        raise ValueError(f"{environment.environment_name()} has no simulator; only games (game:NAME) can be checked")
    simulator = environment.game.build()
    if simulator.spec.num_players != 2:
        raise ValueError(f"{simulator.spec.name} has one player; only games of two players can be checked")
    values = solved(simulator)
    positions, mistakes, examples = [0, 0], [0, 0], list[Array]()
    for seat in range(2):
        states = simulator.begin(1, np.random.default_rng(0))
        known: set[bytes] = set()
        while len(states):
            mine = simulator.to_play(states) == seat
            after = [*_replies(simulator, states[~mine])]
            for rows in np.array_split(states[mine], -(-int(mine.sum()) // ROWS) or 1):
                if not len(rows):
                    continue
                moved, wrong = _moved(policy, environment, simulator, rows, values, greedy)
                positions[seat] += len(rows)
                mistakes[seat] += int(wrong.sum())
                examples += list(rows[wrong][: 8 - len(examples)])
                after.append(moved)
            states = _new(after, known, states)
    return PerfectPlay((positions[0], positions[1]), (mistakes[0], mistakes[1]), tuple(examples))


def solved(simulator: Simulator) -> dict[bytes, float]:
    """Return the value of each position that can occur, for the player to move."""
    layers: list[Array] = []
    states = simulator.begin(1, np.random.default_rng(0))
    known: set[bytes] = set()
    total = 0
    while len(states):
        layers.append(states)
        total += len(states)
        if total > MOST_POSITIONS:
            raise ValueError(f"{simulator.spec.name} has more than {MOST_POSITIONS:,} positions, too many to solve")
        states = _new([*_replies(simulator, states)], known, states)
    values: dict[bytes, float] = {}
    for states in reversed(layers):  # positions of one layer have the same number of moves
        legal, mover = simulator.legal(states), simulator.to_play(states)
        best = np.full(len(states), -np.inf)
        for action in range(legal.shape[1]):
            rows = np.flatnonzero(legal[:, action])
            if len(rows):
                best[rows] = np.maximum(best[rows], _gain(simulator, states[rows], mover[rows], action, values))
        values |= {state.tobytes(): value for state, value in zip(states, best.tolist(), strict=True)}
    return values


def _gain(simulator: Simulator, states: Array, mover: Array, action: Any, values: dict[bytes, float]) -> Array:
    """Return the value of an action, or of actions [n], for the players who move."""
    moves = simulator.step(states, np.broadcast_to(action, len(states)))
    later = np.array([0.0 if over else values[s.tobytes()] for s, over in zip(moves.state, moves.ended, strict=True)])
    gain: Array = moves.reward + np.where(moves.to_play == mover, later, -later)
    return gain


def _replies(simulator: Simulator, states: Array) -> Iterator[Array]:
    """Yield the positions after every legal move in which the game goes on."""
    legal = simulator.legal(states)
    for action in range(legal.shape[1] if len(states) else 0):
        rows = np.flatnonzero(legal[:, action])
        if len(rows):
            moves = simulator.step(states[rows], np.full(len(rows), action))
            yield moves.state[~moves.ended]


def _new(parts: list[Array], known: set[bytes], like: Array) -> Array:
    """Return the positions that occur for the first time."""
    found = []
    for state in (one for part in parts for one in part):
        key = state.tobytes()
        if key not in known:
            known.add(key)
            found.append(state)
    return np.stack(found) if found else like[:0]


def _moved(
    policy: Policy,
    environment: GameConfig,
    simulator: Simulator,
    states: Array,
    values: dict[bytes, float],
    greedy: bool,
) -> tuple[Array, Array]:
    """Return the positions after the policy's moves in which the game goes on, and which moves were mistakes [n]."""
    legal, mover = simulator.legal(states), simulator.to_play(states)
    observation = observations_of(environment, simulator, states, legal, mover)
    decision = policy.act(observation, None, np.ones(len(states), np.bool_), greedy=greedy)
    action: Any = decision["action"]
    is_legal = legal[np.arange(len(states)), action]
    best = np.array([values[state.tobytes()] for state in states])
    wrong = ~is_legal
    moved = np.flatnonzero(is_legal)
    wrong[moved] = _gain(simulator, states[moved], mover[moved], action[moved], values) < best[moved] - 1e-6
    moves = simulator.step(states[moved], action[moved])
    return moves.state[~moves.ended], wrong
