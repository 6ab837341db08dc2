"""Targets of MuZero (Schrittwieser et al. 2020, appendix G): windows of sequences, and values as distributions."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numba import njit
from torch import Tensor

from srl.algorithms.r2d2.returns import rescale
from srl.base.tree import Array

compiled = njit(cache=True, nogil=True, error_model="numpy")


class Windows(NamedTuple):
    """Windows of K steps of the model, which begin at row 0 of N sequences. Place k is the state after k actions.

    The value of place k is `total + discount * value(observation of row end)`. Places after the end of an episode that
    terminated are *absorbing*: their values and rewards are 0. Nothing is known after one that was truncated.
    """

    action: Array  # [K, N] int64; random in absorbing places
    reward: Array  # [K, N] float32: of the action that leads from place k to k + 1
    has_reward: Array  # [K, N] bool
    has_value: Array  # [K+1, N] bool
    has_policy: Array  # [K+1, N] bool: the lane acted here
    total: Array  # [K+1, N] float32: discounted sum of up to n rewards
    discount: Array  # [K+1, N] float32: gamma^k after k rewards; 0 if the episode terminated
    end: Array  # [K+1, N] int64: row from which to bootstrap


def windows(
    action: Array,
    reward: Array,
    terminated: Array,
    truncated: Array,
    acting: Array,
    first: Array,
    valid: Array,
    random_action: Array,
    num_steps: int,
    n_step: int,
    gamma: float,
) -> Windows:
    """Cut windows of `num_steps` steps from sequences [R+1, N] with at least `num_steps + n_step` rows and one more.
    `random_action` [K, N] is for absorbing places."""
    num_lanes, places = reward.shape[1], num_steps + 1
    if len(reward) < places + n_step:
        raise ValueError(f"windows of {num_steps} + {n_step} steps need {places + n_step} rows, found {len(reward)}")
    found = Windows(
        random_action.astype(np.int64),
        np.zeros((num_steps, num_lanes), np.float32),
        np.zeros((num_steps, num_lanes), np.bool_),
        np.zeros((places, num_lanes), np.bool_),
        np.zeros((places, num_lanes), np.bool_),
        np.zeros((places, num_lanes), np.float32),
        np.zeros((places, num_lanes), np.float32),
        np.zeros((places, num_lanes), np.int64),
    )
    _cut(action, reward, terminated, truncated, acting, first, valid, n_step, gamma, found)
    return found


def for_movers(cut: Windows, to_play: Array) -> Windows:
    """Return windows of games of two players for the players to move, `to_play` [R+1, N], from those whose rewards are
    those of player 0. A discount is negative where the other player moves in the row to bootstrap from."""
    sign = (1 - 2 * np.asarray(to_play, np.int64)).astype(np.float32)
    own, later = sign[: len(cut.total)], np.take_along_axis(sign, cut.end, 0)
    return cut._replace(reward=cut.reward * own[:-1], total=cut.total * own, discount=cut.discount * own * later)


@compiled
def _cut(
    action: Array,
    reward: Array,
    terminated: Array,
    truncated: Array,
    acting: Array,
    first: Array,
    valid: Array,
    n_step: int,
    gamma: float,
    found: Windows,
) -> None:
    places, num_lanes = found.has_value.shape
    for lane in range(num_lanes):
        runs, absorbing = acting[0, lane] and valid[0, lane], False
        for k in range(places):
            if runs:
                found.has_policy[k, lane] = True
                total, discount, row = 0.0, 1.0, k
                while True:
                    total += discount * reward[row, lane]
                    discount *= gamma
                    ends = terminated[row, lane] or truncated[row, lane]
                    if terminated[row, lane]:
                        discount = 0.0
                    row += 1
                    if ends or row == k + n_step or not acting[row, lane] or first[row, lane]:
                        break
                found.total[k, lane], found.discount[k, lane], found.end[k, lane] = total, discount, row
            found.has_value[k, lane] = runs or absorbing
            if k == places - 1:
                break
            found.has_reward[k, lane] = runs or absorbing
            if runs:
                found.action[k, lane], found.reward[k, lane] = action[k, lane], reward[k, lane]
                absorbing = terminated[k, lane]
                continues = acting[k + 1, lane] and valid[k + 1, lane] and not first[k + 1, lane]
                runs = continues and not (absorbing or truncated[k, lane])


def two_hot(values: Tensor, num_bins: int, bin_width: float) -> tuple[Tensor, Tensor]:
    """Return the lower one of the two bins [...] int64 that h(value) is between, and the weight of the upper one.
    Values beyond the outer bins count as these."""
    place = rescale(values) / bin_width + num_bins // 2
    lower = place.floor().nan_to_num_(0.0).clamp_(0, num_bins - 2)  # a target that is not finite reaches the loss
    return lower.long(), (place - lower).clamp_(0.0, 1.0)


def bin_loss(logits: Tensor, values: Tensor, bin_width: float) -> Tensor:
    """Return the cross entropy [...] of predicted bins [..., bins] and the distributions of the values [...]."""
    lower, upper_weight = two_hot(values, logits.shape[-1], bin_width)
    log_probability = torch.log_softmax(logits, -1)
    below = log_probability.gather(-1, lower[..., None]).squeeze(-1)
    above = log_probability.gather(-1, lower[..., None] + 1).squeeze(-1)
    return -torch.lerp(below, above, upper_weight)
