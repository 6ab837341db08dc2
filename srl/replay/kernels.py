"""Compiled loops over the rows of a replay memory: random draws, n-step returns, copies of rows.

A *strip* is one lane's rows of one slot: strip = slot * lanes + lane. It has T+1 rows; a *place* is
strip * (T+1) + row. A *unit* is what is drawn, as one number. A transition is strip * T + row. A sequence is
(slot * copies + copy) * starts + k: the k-th of the `starts` rows of a block at which sequences may start, in all lanes
of a copy. Compiled functions call only functions of their own module, because Numba's cache does not notice changes in
others.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from srl.base.tree import Array

compiled = njit(cache=True, nogil=True, error_model="numpy")

ACTING, TERMINATED, TRUNCATED, FIRST = 1, 2, 4, 8  # bits of a row's flags
LONGEST = 2**62  # more steps than any episode has
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
def draw_uniform(state: Array, flags: Array, first: int, num_strips: int, filled: int, units: Array) -> None:
    """Draw acting rows of `num_strips` strips from `first` on with equal probability, by rejection. After the last of
    the `filled` strips comes strip 0. At least one row must be acting."""
    num_rows = flags.shape[1] - 1
    total = np.float64(num_strips * num_rows) * 2.0**-53
    for i in range(len(units)):
        while True:
            unit = np.int64(np.float64(next_random(state) >> np.uint64(11)) * total)
            strip = unit // num_rows
            row = unit - strip * num_rows
            strip = (first + strip) % filled
            if flags[strip, row] & ACTING:
                break
        units[i] = strip * num_rows + row


@compiled
def draw_starts(
    state: Array, first: int, num_units: int, filled: int, copies: int, starts: int, counts: Array, units: Array
) -> None:
    """Draw sequences of `num_units` units from `first` on with equal probability, by rejection. After the last of the
    `filled` units comes unit 0. `counts` [slots] says how many of the starts of a slot can be drawn; at least one must
    not be 0."""
    total = np.float64(num_units) * 2.0**-53
    for i in range(len(units)):
        while True:
            unit = (first + np.int64(np.float64(next_random(state) >> np.uint64(11)) * total)) % filled
            group = unit // starts
            if unit - group * starts < counts[group // copies]:
                break
        units[i] = unit


@compiled
def draw_episodes(
    state: Array, slots: Array, ends: Array, copies: int, lanes: int, horizon: int, flags: Array, units: Array
) -> None:
    """Draw first rows of episodes with equal probability. `ends` [N] are cumulative numbers of those in `slots` [N]."""
    total = np.float64(ends[-1]) * 2.0**-53
    for i in range(len(units)):
        number = np.int64(np.float64(next_random(state) >> np.uint64(11)) * total)
        at = np.searchsorted(ends, number, side="right")
        rest = number - (ends[at - 1] if at > 0 else 0)
        for copy in range(copies):
            for row in range(horizon):
                if rest < 0:
                    break
                if flags[slots[at] * lanes + copy, row] & (ACTING | FIRST) == ACTING | FIRST:
                    units[i] = (slots[at] * copies + copy) * horizon + row
                    rest -= 1


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
def walk(strip: int, row: int, num_steps: int, lanes: int, flags: Array, following: Array) -> tuple[int, int, int]:
    """Walk up to `num_steps` rows of an episode, from one of its decisions on: to its last observation, or to the last
    row that is remembered. Return strip and row, and the number of steps made, which is at least 1. The rules are those
    of `n_step_returns`."""
    num_rows, step = flags.shape[1] - 1, 0
    while True:
        ended = flags[strip, row] & (TERMINATED | TRUNCATED)
        row += 1
        step += 1
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
    return strip, row, step


@compiled
def draw_goals(
    state: Array,
    share: float,
    is_final: bool,
    units: Array,
    lanes: int,
    flags: Array,
    following: Array,
    chosen: Array,
    goals: Array,
) -> int:
    """Choose each transition of `units` with the probability `share`, and a later row of its episode for it: the last
    one, or any of them with equal probability. Fill `chosen` with positions in `units` and `goals` with places, and
    return their number."""
    num_rows, count = flags.shape[1] - 1, 0
    for i in range(len(units)):
        if np.float64(next_random(state) >> np.uint64(11)) * 2.0**-53 >= share:
            continue
        begin = units[i] // num_rows
        at = units[i] - begin * num_rows
        strip, row, length = walk(begin, at, LONGEST, lanes, flags, following)
        if not is_final:
            ahead: Any = 1 + np.int64(np.float64(next_random(state) >> np.uint64(11)) * 2.0**-53 * length)
            strip, row, _ = walk(begin, at, ahead, lanes, flags, following)
        chosen[count] = i
        goals[count] = strip * (num_rows + 1) + row
        count += 1
    return count


@compiled
def follow_steps(units: Array, lanes: int, flags: Array, following: Array, places: Array, lengths: Array) -> None:
    """Fill `places` [N, n] with the rows after each of the next n steps of the transitions, and `lengths` [N] with the
    number of steps until the episode ends or is not remembered. Later places repeat the last one."""
    num_rows = flags.shape[1] - 1
    for i in range(len(units)):
        begin = units[i] // num_rows
        at = units[i] - begin * num_rows
        for step in range(places.shape[1]):
            strip, row, lengths[i] = walk(begin, at, step + 1, lanes, flags, following)
            places[i, step] = strip * (num_rows + 1) + row


@compiled
def sum_rewards(
    rewards: Array, lengths: Array, terminated: Array, gamma: float, chosen: Array, returns: Array, discounts: Array
) -> None:
    """Write the discounted sums of the rewards [N, n] of the first `lengths` [N] steps to the positions `chosen` [N] of
    `returns`. A sum stops after a step that is `terminated` [N, n], which also sets the discount; if that array is
    empty, discounts stay as they are."""
    for i in range(len(lengths)):
        total, discount = 0.0, 1.0
        for step in range(lengths[i]):
            total += discount * rewards[i, step]
            discount *= gamma
            if terminated.size and terminated[i, step]:
                discount = 0.0
                break
        returns[chosen[i]] = total
        if terminated.size:
            discounts[chosen[i]] = discount


@compiled
def follow_sequences(
    units: Array,
    batch: int,
    num_agents: int,
    copies: int,
    starts: int,
    period: int,
    begins: Array,
    flags: Array,
    rewards: Array,
    following: Array,
    places: Array,
    states: Array,
    reward: Array,
    terminated: Array,
    truncated: Array,
    acting: Array,
    first: Array,
    valid: Array,
) -> None:
    """Follow the chains of blocks from each unit on, for R+1 rows. Fill the places of these rows and their steps, all
    [K, R+1, N], and the places of the recurrent states, [K, N].

    Where a chain ends, row T of its last block is the last one that is valid: no reward is known for it, so that no
    lane acts in it, and the row before it is truncated. The same holds where an episode was cut between two blocks.
    """
    num_rows, num_times = flags.shape[1] - 1, places.shape[1]
    lanes = copies * num_agents
    for i in range(len(units)):
        step, group = i // batch, units[i] // starts
        start = units[i] - group * starts
        slot_0, copy = group // copies, group % copies
        for agent in range(num_agents):
            slot, lane, row = slot_0, agent * copies + copy, begins[slot_0] + start * period
            column = (i % batch) * num_agents + agent
            states[step, column] = (slot * lanes + lane) * starts + start
            over = False
            for t in range(num_times):
                if row == num_rows and following[slot] >= 0:
                    slot, row = following[slot], 0
                strip = slot * lanes + lane
                bits = flags[strip, row]
                ends, acts = bits & (TERMINATED | TRUNCATED), bits & ACTING != 0
                places[step, t, column] = strip * (num_rows + 1) + row
                valid[step, t, column] = not over
                first[step, t, column] = bits & FIRST != 0 and not over
                if row == num_rows:
                    reward[step, t, column] = 0.0
                    terminated[step, t, column] = truncated[step, t, column] = False
                    acting[step, t, column] = acts and t == num_times - 1 and not over
                    over = True
                    continue
                if row == num_rows - 1 and acts and not ends and t < num_times - 1:
                    after = following[slot]
                    if after < 0:
                        ends |= TRUNCATED * (t < num_times - 2)
                    elif flags[after * lanes + lane, 0] & RUNNING != ACTING:
                        ends |= TRUNCATED
                reward[step, t, column] = rewards[strip, row]
                terminated[step, t, column] = ends & TERMINATED != 0
                truncated[step, t, column] = ends & TRUNCATED != 0
                acting[step, t, column] = acts
                row += 1


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
