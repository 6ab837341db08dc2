"""Compiled rules of games in which a row of equal stones wins: states are boards and two more numbers.

A state is int8 [cells + 2]: 1 for a stone of the first player, -1 for one of the second; then the player to move, and
whether the game has ended.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from srl.base.tree import Array

compiled = njit(cache=True, nogil=True, error_model="numpy")


class Rules(NamedTuple):
    rows: int
    columns: int
    length: int  # of a row of stones that wins
    gravity: bool  # stones fall to the bottom: an action is a column, and not a cell


@compiled
def num_actions(rules: Rules) -> int:
    return rules.columns if rules.gravity else rules.rows * rules.columns


@compiled
def is_legal(rules: Rules, state: Array, action: int) -> Any:
    """Return whether the cell is free; with gravity, the top cell of the column (row 0 is the top)."""
    return state[action] == 0 and state[-1] == 0


@compiled
def count_from(rules: Rules, state: Array, stone: int, row: int, column: int, down: int, right: int) -> int:
    """Return the number of stones of this kind next to a cell in one direction."""
    count = 0
    while True:
        row, column = row + down, column + right
        if not (0 <= row < rules.rows and 0 <= column < rules.columns):
            return count
        if state[row * rules.columns + column] != stone:
            return count
        count += 1


@compiled
def cell_of(rules: Rules, state: Array, action: int) -> int:
    """Return the cell that a legal action fills."""
    if not rules.gravity:
        return action
    cell = (rules.rows - 1) * rules.columns + action
    while state[cell] != 0:
        cell -= rules.columns
    return cell


@compiled
def wins_at(rules: Rules, state: Array, stone: int, cell: int) -> bool:
    """Return whether a stone in this cell makes a row that wins."""
    row, column = cell // rules.columns, cell % rules.columns
    for down, right in ((0, 1), (1, 0), (1, 1), (1, -1)):
        count = 1 + count_from(rules, state, stone, row, column, down, right)
        count += count_from(rules, state, stone, row, column, -down, -right)
        if count >= rules.length:
            return True
    return False


@compiled
def play(rules: Rules, state: Array, action: int) -> int:
    """Make a legal move in place. Return 1 if the mover has won, else 0."""
    cells = rules.rows * rules.columns
    cell, stone = cell_of(rules, state, action), 1 - 2 * state[cells]
    state[cell] = stone
    state[cells] = 1 - state[cells]
    if wins_at(rules, state, stone, cell):
        state[cells + 1] = 1
        return 1
    is_full = True
    for i in range(rules.columns if rules.gravity else cells):
        is_full = is_full and state[i] != 0
    state[cells + 1] = is_full
    return 0


@compiled
def step_all(
    rules: Rules, states: Array, actions: Array, reward: Array, ended: Array, to_play: Array, legal: Array
) -> int:
    """Make one move in each state, in place. Return the first row with an illegal move, or -1."""
    for i in range(len(states)):
        if not (0 <= actions[i] < legal.shape[1] and is_legal(rules, states[i], actions[i])):
            return i
        reward[i] = play(rules, states[i], actions[i])
        ended[i] = states[i, -1] != 0
        to_play[i] = states[i, -2]
        for a in range(legal.shape[1]):
            legal[i, a] = is_legal(rules, states[i], a)
    return -1


@compiled
def legal_all(rules: Rules, states: Array, legal: Array) -> None:
    for i in range(len(states)):
        for a in range(legal.shape[1]):
            legal[i, a] = is_legal(rules, states[i], a)


@compiled
def foresee_all(rules: Rules, states: Array, plies: int, value: Array, moves: Array) -> None:
    """Write the fields of a Foresight of 1 or 2 plies; `value` is NaN and `moves` is False."""
    actions = num_actions(rules)
    is_threat = np.zeros(actions, np.bool_)  # the other player would win here
    for i in range(len(states)):
        state = states[i]
        own, num_threats = 1 - 2 * state[-2], 0
        for a in range(actions):
            is_threat[a] = False
            if is_legal(rules, state, a):
                cell = cell_of(rules, state, a)
                if wins_at(rules, state, own, cell):
                    moves[i, a], value[i] = True, 1
                elif plies > 1 and wins_at(rules, state, -own, cell):
                    is_threat[a] = True
                    num_threats += 1
        if value[i] == 1:
            continue
        num_legal = num_lost = 0
        for a in range(actions):
            if is_legal(rules, state, a):
                above = cell_of(rules, state, a) - rules.columns  # what a move makes free
                moves[i, a] = num_threats == is_threat[a]
                if plies > 1 and rules.gravity and above >= 0 and wins_at(rules, state, -own, above):
                    moves[i, a] = False
                num_legal += 1
                num_lost += not moves[i, a]
        if num_legal > 0 and num_lost == num_legal:
            value[i] = -1
            for a in range(actions):
                moves[i, a] = is_legal(rules, state, a)


@compiled
def observe_all(states: Array, planes: Array) -> None:
    """Write planes [n, 2, cells]: the stones of the player to move, and those of the other one."""
    for i in range(len(states)):
        own = 1 - 2 * states[i, -2]
        for cell in range(planes.shape[2]):
            planes[i, 0, cell] = states[i, cell] == own
            planes[i, 1, cell] = states[i, cell] == -own


@compiled
def ply_all(states: Array, ply: Array) -> None:
    for i in range(len(states)):
        count = 0
        for cell in range(states.shape[1] - 2):
            count += states[i, cell] != 0
        ply[i] = count
