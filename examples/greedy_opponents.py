"""Scripted opponents: greedy ones take an immediate win, others also block one of the opponent. Otherwise they move at
random.

    srl train pettingzoo:classic.connect_four_v3 --algo ippo --self-play prioritized --keep-every 200000
    srl league latest --against random --against examples/greedy_opponents.py:greedy_connect_four --greedy

PettingZoo's observation is two planes, our pieces and the opponent's, and a mask of legal moves.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

import srl

Board = np.ndarray[Any, Any]


def lines(shape: tuple[int, int], length: int) -> list[list[tuple[int, int]]]:
    """All places of `length` pieces in a row."""
    found = []
    for row in range(shape[0]):
        for column in range(shape[1]):
            for down, right in ((0, 1), (1, 0), (1, 1), (1, -1)):
                places = [(row + i * down, column + i * right) for i in range(length)]
                if all(0 <= r < shape[0] and 0 <= c < shape[1] for r, c in places):
                    found.append(places)
    return found


CONNECT_FOUR, TIC_TAC_TOE = lines((6, 7), 4), lines((3, 3), 3)


def completes(pieces: Board, place: tuple[int, int], all_lines: list[list[tuple[int, int]]]) -> bool:
    return any(place in line and all(pieces[other] for other in line if other != place) for line in all_lines)


def choose(
    observation: dict[str, Board],
    generator: np.random.Generator,
    places: dict[int, tuple[int, int]],
    all_lines: list[list[tuple[int, int]]],
    planes: tuple[int, ...],
) -> int:
    """`places` says where each legal move puts a piece. In plane 0 a line of ours is completed, in 1 the other is kept
    from it."""
    board = observation["observation"]
    for plane in planes:
        for move, place in places.items():
            if completes(board[..., plane] != 0, place, all_lines):
                return move
    return int(generator.choice(list(places)))


def connect_four_places(observation: dict[str, Board]) -> dict[int, tuple[int, int]]:
    """A piece falls down its column; row 0 is on top."""
    taken = observation["observation"].any(axis=2)  # [6, 7]
    legal = np.flatnonzero(observation["action_mask"])
    return {int(column): (int(np.flatnonzero(~taken[:, column])[-1]), int(column)) for column in legal}


def tictactoe_places(observation: dict[str, Board]) -> dict[int, tuple[int, int]]:
    return {int(move): (int(move) // 3, int(move) % 3) for move in np.flatnonzero(observation["action_mask"])}


def greedy_connect_four(observation: dict[str, Board], generator: np.random.Generator) -> int:
    return choose(observation, generator, connect_four_places(observation), CONNECT_FOUR, (0,))


def connect_four(observation: dict[str, Board], generator: np.random.Generator) -> int:
    return choose(observation, generator, connect_four_places(observation), CONNECT_FOUR, (0, 1))


def greedy_tictactoe(observation: dict[str, Board], generator: np.random.Generator) -> int:
    return choose(observation, generator, tictactoe_places(observation), TIC_TAC_TOE, (0,))


def tictactoe(observation: dict[str, Board], generator: np.random.Generator) -> int:
    return choose(observation, generator, tictactoe_places(observation), TIC_TAC_TOE, (0, 1))


if __name__ == "__main__":  # worker processes import this file
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200_000)
    parser.add_argument("--root", default="runs")
    arguments = parser.parse_args()
    run = srl.train(
        "pettingzoo:classic.tictactoe_v3", algo="ippo", self_play="uniform", steps=arguments.steps, root=arguments.root
    )
    against = ("random", f"{__file__}:greedy_tictactoe", f"{__file__}:tictactoe")
    result = srl.league(run.path, versions=1, against=against, games=20, greedy=True)
    for opponent, points in zip(result.players[1:], result.points[0][1:], strict=True):
        print(f"points per game against {opponent}: {points:.2f}")
