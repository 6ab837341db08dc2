"""The players of `examples/greedy_opponents.py`, on boards made by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from srl.base.object_names import load_object
from srl.environments.pettingzoo.config import PettingZooConfig

PLACE = "examples/greedy_opponents.py"


def position(game: str, moves: list[int]) -> dict[str, Any]:
    """Return the observation of the next player after these moves."""
    environment = PettingZooConfig(f"classic.{game}").make()
    environment.reset(seed=0)
    for move in moves:
        environment.step(move)
    seen: dict[str, Any] = environment.last()[0]
    environment.close()
    return seen


@pytest.mark.parametrize(
    ("game", "player", "moves", "answer"),
    [
        ("tictactoe_v3", "greedy_tictactoe", [0, 3, 1, 4], 2),  # 0 1 2 is a row
        ("tictactoe_v3", "tictactoe", [0, 3, 1, 4], 2),
        ("tictactoe_v3", "tictactoe", [0, 8, 1], 2),  # the opponent's row
        ("tictactoe_v3", "tictactoe", [0, 8, 3], 6),  # the opponent's column
        ("connect_four_v3", "greedy_connect_four", [3, 0, 3, 1, 3, 6], 3),
        ("connect_four_v3", "connect_four", [3, 0, 3, 1, 3], 3),
        ("connect_four_v3", "connect_four", [0, 6, 1, 6, 2], 3),
    ],
)
def test_a_player_wins_if_it_can_and_else_prevents_a_win(game: str, player: str, moves: list[int], answer: int) -> None:
    choose = load_object(f"{PLACE}:{player}")
    seen = position(game, moves)
    assert {choose(seen, np.random.default_rng(seed)) for seed in range(5)} == {answer}


def test_a_player_that_is_only_greedy_lets_its_opponent_win() -> None:
    choose = load_object(f"{PLACE}:greedy_tictactoe")
    seen = position("tictactoe_v3", [0, 8, 1])
    assert len({choose(seen, np.random.default_rng(seed)) for seed in range(20)}) > 1
