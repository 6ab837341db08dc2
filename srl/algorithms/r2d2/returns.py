"""Targets of R2D2 (Kapturowski et al. 2019): n-step returns within a sequence, of rescaled values."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from srl.base.tree import Array

SLOPE = 1e-3


def rescale(values: Tensor) -> Tensor:
    """Compress large values (Pohlen et al. 2018): h(x) = sign(x) (sqrt(|x| + 1) - 1) + slope x."""
    return values.sign() * ((values.abs() + 1.0).sqrt() - 1.0) + SLOPE * values


def unscale(values: Tensor) -> Tensor:
    """Return the exact inverse of `rescale`:

    h^-1(x) = sign(x) (((sqrt(1 + 4 slope (|x| + 1 + slope)) - 1) / (2 slope))^2 - 1)

    The quotient is computed as 2 (|x| + 1 + slope) / (sqrt(...) + 1), which is the same without the cancellation.
    """
    shifted = values.abs() + (1.0 + SLOPE)
    root = 2.0 * shifted / ((1.0 + 4.0 * SLOPE * shifted).sqrt() + 1.0)
    return values.sign() * (root.square() - 1.0)


class NStepReturns(NamedTuple):
    """Targets of R rows of N lanes, before bootstrapping: target = reward + discount * value(row `end`)."""

    reward: Array  # [R, N] float32: discounted sum of up to n rewards
    discount: Array  # [R, N] float32: gamma^k after k rewards; 0 if the episode terminated
    end: Array  # [R, N] int64: row from which to bootstrap, at most R
    learned: Array  # [R, N] bool: rows that have a target


def n_step_returns(
    reward: Array,
    terminated: Array,
    truncated: Array,
    acting: Array,
    first: Array,
    valid: Array,
    n_step: int,
    gamma: float,
) -> NStepReturns:
    """Compute the targets in a sequence [R+1, N]. The sum stops after n rewards, where the episode ends, and at the
    last valid row. A truncation bootstraps from the last observation, which is in the next row, a termination not at
    all. Only rows in which the lane acts, and whose next row is known, have a target."""
    learned = acting[:-1] & valid[:-1] & valid[1:]
    # A sum that reaches row r goes on there if an episode is running.
    continues = np.zeros_like(acting)
    continues[1:-1] = learned[1:] & ~first[1:-1] & ~(terminated | truncated)[:-2]
    num_rows, num_lanes = learned.shape
    rows, lanes = np.arange(num_rows)[:, None], np.arange(num_lanes)
    total = np.zeros(learned.shape, np.float32)
    discount = np.ones(learned.shape, np.float32)
    end = np.broadcast_to(rows, learned.shape).copy()
    running = learned.copy()
    for _ in range(n_step):
        total += np.where(running, discount * reward[end, lanes], np.float32(0.0))
        factor = np.where(terminated[end, lanes], np.float32(0.0), np.float32(gamma))
        discount *= np.where(running, factor, np.float32(1.0))
        end += running
        running &= continues[end, lanes]
    return NStepReturns(total, discount, end, learned)


def sequence_priorities(errors: Tensor, learned: Tensor, eta: float) -> Tensor:
    """Return a priority [N] for each sequence of absolute errors [R, N]: eta max + (1 - eta) mean over its learned rows
    (Kapturowski et al. 2019, section 2.3); 0 if there is none."""
    errors = errors * learned
    mean = errors.sum(0) / learned.sum(0).clamp(min=1)
    return torch.lerp(mean, errors.amax(0), eta)
