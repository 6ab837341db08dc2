"""Compiled loops over the rows of a replay memory: random draws, n-step returns, copies of rows.

A *strip* is one lane's rows of one slot: strip = slot * lanes + lane. It has T+1 rows, of which the first T are units.
A *unit* is (strip, row) as one number, strip * T + row; a *place* is strip * (T+1) + row. Compiled functions call only
functions of their own module, because Numba's cache does not notice changes in others.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from srl.base.tree import Array

compiled = njit(cache=True, nogil=True, error_model="numpy")

ACTING, TERMINATED, TRUNCATED, FIRST = 1, 2, 4, 8  # bits of a row's flags
RUNNING = ACTING | FIRST  # an episode runs on into a row in which, of these two, only ACTING is set


@compiled
def next_random(state: Array) -> Any:
    """Advance a SplitMix64 generator (Steele et al. 2014) and return 64 random bits."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    bits = state[0]
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


@compiled
def fill_uniform(state: Array, values: Array) -> None:
    """Fill an array with random numbers in [0, 1)."""
    for i in range(len(values)):
        values[i] = np.float64(next_random(state) >> np.uint64(11)) * 2.0**-53


@compiled
def draw_uniform(state: Array, flags: Array, num_strips: int, units: Array) -> None:
    """Draw acting rows of the first strips with equal probability, by rejection. At least one row must be acting."""
    num_rows = flags.shape[1] - 1
    total = np.float64(num_strips * num_rows) * 2.0**-53
    for i in range(len(units)):
        while True:
            unit = np.int64(np.float64(next_random(state) >> np.uint64(11)) * total)
            strip = unit // num_rows
            if flags[strip, unit - strip * num_rows] & ACTING:
                break
        units[i] = unit


@compiled
def write_steps(
    acting: Array,
    terminated: Array,
    truncated: Array,
    first: Array,
    reward: Array,
    flags: Array,
    rewards: Array,
) -> int:
    """Write the step arrays [T+1, L] of a block into its strips [L, T+1]. Return the number of acting rows before the
    last one."""
    num_rows, lanes = acting.shape
    count = 0
    for lane in range(lanes):
        for row in range(num_rows):
            bits = 0
            if acting[row, lane]:
                bits |= ACTING
                count += row < num_rows - 1
            if terminated[row, lane]:
                bits |= TERMINATED
            if truncated[row, lane]:
                bits |= TRUNCATED
            if first[row, lane]:
                bits |= FIRST
            flags[lane, row] = bits
            rewards[lane, row] = reward[row, lane]
    return count


@compiled
def n_step_returns(
    units: Array,
    num_steps: int,
    gamma: float,
    lanes: int,
    flags: Array,
    rewards: Array,
    following: Array,
    places: Array,
    ends: Array,
    returns: Array,
    discounts: Array,
) -> None:
    """Compute the discounted sum of up to `num_steps` rewards from each unit on, and the place from which to bootstrap.

    The sum stops where the episode ends or the chain of blocks does. The last row of a block is the first one of the
    next block, unless the episode was cut there, for example because the environment failed.
    """
    num_rows = flags.shape[1] - 1
    for i in range(len(units)):
        strip = np.int64(np.uint64(units[i]) // np.uint64(num_rows))
        row = units[i] - strip * num_rows
        places[i] = strip * (num_rows + 1) + row
        total, discount = 0.0, 1.0
        step = 0
        while True:
            total += discount * rewards[strip, row]
            discount *= gamma
            ended = flags[strip, row] & (TERMINATED | TRUNCATED)
            row += 1
            step += 1
            if ended & TERMINATED:
                discount = 0.0
            if ended or step == num_steps:
                break
            if row == num_rows:
                after = following[strip // lanes]
                if after < 0:
                    break
                next_strip = after * lanes + strip % lanes
                if flags[next_strip, 0] & RUNNING != ACTING:
                    break
                strip, row = next_strip, 0
            elif flags[strip, row] & RUNNING != ACTING:
                break
        ends[i] = strip * (num_rows + 1) + row
        returns[i] = total
        discounts[i] = discount


@compiled
def take_rows(source: Array, places: Array, target: Array) -> None:
    """Copy rows of words: target[i] = source[places[i]]."""
    width = source.shape[1]
    for i in range(len(places)):
        place = places[i]
        for k in range(width):
            target[i, k] = source[place, k]


@compiled
def generations_of(units: Array, units_per_slot: int, generation: Array, found: Array) -> None:
    """Look up the generation of the slot of each unit."""
    for i in range(len(units)):
        found[i] = generation[units[i] // units_per_slot]
