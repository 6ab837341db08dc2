"""A check of simulators: that they are deterministic, and keep the rest of their contract."""

from __future__ import annotations

import numpy as np

from srl.api.simulator import Moves, Simulator, SimulatorConfig
from srl.base.tree import Array, Tree, leaves

GAMES, MOST_MOVES = 4, 64
FIELDS = ("state", "reward", "ended", "to_play", "legal")  # of `Moves`


def check_simulator(config: SimulatorConfig, seed: int = 0) -> None:
    """Play a few random games twice, with two simulators: together, and move by move. Raises ValueError if they differ
    or break the contract, saying how."""
    simulator, again = config.build(), config.build()
    spec, title, random = simulator.spec, config.title(), np.random.default_rng(seed)
    if spec.num_players not in (1, 2):
        raise ValueError(f"{title}: a simulator has 1 or 2 players, found {spec.num_players}")
    states = simulator.begin(GAMES, np.random.default_rng(seed))
    _compare(title, "begin", states, again.begin(GAMES, np.random.default_rng(seed)))
    legal = simulator.legal(states)
    for _ in range(min(MOST_MOVES, spec.max_moves)):
        if not legal.any(1).all():
            raise ValueError(f"{title}: a state that has not ended must have a legal action")
        actions = np.array([random.choice(np.flatnonzero(row)) for row in legal])
        before = states.copy()
        moves = simulator.step(states, actions)
        _compare(title, "step changes its argument:", states, before)
        _check_moves(title, simulator, moves)
        alone = [again.step(states[row : row + 1], actions[row : row + 1]) for row in reversed(range(len(states)))]
        for name in FIELDS:
            parts = [getattr(one, name) for one in reversed(alone)]
            _compare(title, f"step ({name})", getattr(moves, name), np.concatenate(parts))
        for name in ("legal", "to_play", "ply", "observe"):
            _compare(title, name, getattr(simulator, name)(moves.state), getattr(again, name)(moves.state))
        going = ~moves.ended
        states, legal = moves.state[going], moves.legal[going]
        if not len(states):
            return


def _check_moves(title: str, simulator: Simulator, moves: Moves) -> None:
    spec = simulator.spec
    if moves.legal[moves.ended].any():
        raise ValueError(f"{title}: a state that has ended must have no legal action")
    if not np.array_equal(moves.legal, simulator.legal(moves.state)):
        raise ValueError(f"{title}: `step` and `legal` disagree about the legal actions of a state")
    if not np.all((moves.reward >= min(spec.lowest, 0.0)) & (moves.reward <= max(spec.highest, 0.0))):
        raise ValueError(
            f"{title}: rewards must be within lowest={spec.lowest} and highest={spec.highest}, found "
            f"{moves.reward.min()} to {moves.reward.max()}"
        )
    going = ~moves.ended
    if not np.array_equal(moves.to_play[going], simulator.to_play(moves.state)[going]):
        raise ValueError(f"{title}: `step` and `to_play` disagree about the player to move")


def _compare(title: str, what: str, one: Tree | Array, other: Tree | Array) -> None:
    pairs = zip(leaves({"": one}), leaves({"": other}), strict=True)
    if any(not np.array_equal(a, b, equal_nan=a.dtype.kind == "f") for (_, a), (_, b) in pairs):
        raise ValueError(
            f"{title} is not deterministic: {what} gave different results for the same states and actions. A search "
            "needs rules without chance, that depend on nothing but the state; use muzero, which learns a model"
        )
