"""Compiled UCT (Kocsis and Szepesvári 2006): a tree search whose leaves are valued by random games."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from srl.base.tree import Array
from srl.environments.games.board_kernels import Rules, is_legal, num_actions, play

compiled = njit(cache=True, nogil=True, error_model="numpy")
MOST_DEPTH = 1100  # more than the cells of any board


@compiled
def next_bits(state: Array) -> Any:
    """Return the next number of a SplitMix64 generator (Steele et al. 2014)."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    bits = state[0]
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


@compiled
def random_legal(rules: Rules, board: Array, random: Array) -> Any:
    """Draw a legal move."""
    count = np.uint64(num_actions(rules))
    while True:
        action: Any = np.int64(next_bits(random) % count)
        if is_legal(rules, board, action):
            return action


@compiled
def random_game(rules: Rules, board: Array, random: Array) -> float:
    """Play a random game in place. Return its result for the player to move: 1, 0 or -1."""
    sign = 1.0
    while board[-1] == 0:
        if play(rules, board, random_legal(rules, board, random)):
            return sign
        sign = -sign
    return 0.0


@compiled
def best_move(rules: Rules, root: Array, rollouts: int, exploration: float, random: Array) -> int:
    """Return the move with the most visits of a tree of `rollouts` simulations."""
    width = num_actions(rules)
    visits, means = np.zeros((rollouts + 1, width)), np.zeros((rollouts + 1, width))
    child = np.full((rollouts + 1, width), -1, np.int64)
    boards = np.zeros((rollouts + 1, len(root)), np.int8)
    lost = np.zeros(rollouts + 1, np.int64)  # 1 where the player to move has lost
    boards[0] = root
    path, taken = np.zeros(MOST_DEPTH, np.int64), np.zeros(MOST_DEPTH, np.int64)
    used, board = 1, root.copy()
    for _ in range(rollouts):
        node, depth = 0, 0
        while True:
            if boards[node, -1] != 0:
                gain = -float(lost[node])
                break
            total = visits[node].sum()
            best, at = -np.inf, -1
            for action in range(width):
                if is_legal(rules, boards[node], action):
                    if visits[node, action] == 0:
                        score = 1e9 + np.float64(next_bits(random) >> np.uint64(11))
                    else:
                        bonus = exploration * np.sqrt(np.log(total + 1) / visits[node, action])
                        score = means[node, action] + bonus
                    if score > best:
                        best, at = score, action
            path[depth], taken[depth] = node, at
            depth += 1
            if child[node, at] < 0:
                child[node, at] = used
                boards[used] = boards[node]
                lost[used] = play(rules, boards[used], at)
                board[:] = boards[used]
                gain = -float(lost[used]) if boards[used, -1] != 0 else random_game(rules, board, random)
                used += 1
                break
            node = child[node, at]
        for i in range(depth - 1, -1, -1):
            gain = -gain
            node, action = path[i], taken[i]
            visits[node, action] += 1
            means[node, action] += (gain - means[node, action]) / visits[node, action]
    return int(np.argmax(visits[0]))


@compiled
def best_moves(rules: Rules, states: Array, rollouts: int, exploration: float, seeds: Array, actions: Array) -> None:
    random = np.zeros(1, np.uint64)
    for i in range(len(states)):
        random[0] = seeds[i]
        actions[i] = best_move(rules, states[i], rollouts, exploration, random)
