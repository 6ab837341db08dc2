"""Advantages, value targets and sample weights for a batch, corrected for data from an older policy."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch

from srl.algorithms.ppo.config import PPOConfig
from srl.algorithms.ppo.sequences import action_rows, merge, whole_lanes
from srl.algorithms.returns.gae import generalized_advantages
from srl.algorithms.returns.vtrace import vtrace
from srl.algorithms.training.devices import fetch, move
from srl.api.trainer import Trajectory
from srl.base.tree import Array, map_tree
from srl.networks.backpropagation import Pass
from srl.networks.distributions.distribution import Distribution


class Reevaluation(NamedTuple):
    """An older policy's decisions, evaluated by the policy before the update."""

    log_prob: Array  # [T+1, B]
    value: Array  # [T+1, B]


class Estimates(NamedTuple):
    log_prob: Array  # [T, B], under the policy in the denominator of ratios
    value: Array  # [T, B]
    advantage: Array  # [T, B], 0 in rows without a decision
    target: Array  # [T, B], value target
    weight: Array | None = None  # [T, B], weight of each sample in the policy loss; None: all equal


def evaluate_current(
    network_pass: Pass, distribution: Distribution, batch: Trajectory, device: torch.device, num_parts: int
) -> Reevaluation:
    """Compute log-probabilities and values with the current network, including the bootstrap row. To bound memory use,
    the batch is processed in `num_parts` parts: some rows at a time, or some lanes if the network is recurrent."""
    num_rows, num_lanes = batch.acting.shape
    action = action_rows(batch.decision["action"])
    results: list[torch.Tensor] = []
    parts = [(slice(None), lanes) for lanes in _slices(num_lanes, num_parts)]
    if batch.state is None:
        parts = [(rows, slice(None)) for rows in _slices(num_rows, num_parts)]
    with torch.no_grad():
        for rows, lanes in parts:
            if batch.state is None:
                observation = map_tree(lambda array, rows=rows: move(merge(array[rows]), device), batch.observation)
            else:
                observation = whole_lanes(batch, lanes, device)
            parameters, value = network_pass.forward(observation)
            log_prob = distribution.log_prob(parameters, move(merge(action[rows, lanes]), device))
            results.append(torch.stack((log_prob, value)))
    widths = [num_lanes if batch.state is None else lanes.stop - lanes.start for _, lanes in parts]
    pieces = [fetch(piece).numpy().reshape(2, -1, width) for piece, width in zip(results, widths, strict=True)]
    return Reevaluation(*np.concatenate(pieces, axis=1 if batch.state is None else 2))


def _slices(length: int, num_parts: int) -> list[slice]:
    bounds = [length * i // num_parts for i in range(num_parts + 1)]
    return [slice(start, end) for start, end in pairwise(bounds) if end > start]


def estimate(batch: Trajectory, config: PPOConfig, current: Reevaluation | None) -> Estimates:
    """Compute the estimates for a batch. `current` is given if and only if the config corrects for older data."""
    decided_log_prob = np.asarray(batch.decision["log_prob"])
    ends = (batch.terminated, batch.truncated, batch.acting)
    if current is None:
        value = np.asarray(batch.decision["value"])
        advantage = generalized_advantages(batch.reward, value, *ends, config.gamma, config.gae_lambda)
        return Estimates(decided_log_prob[:-1], value[:-1], advantage, advantage + value[:-1])
    log_prob, value = current
    if config.correction == "vtrace":
        traced = vtrace(
            batch.reward,
            value,
            log_prob - decided_log_prob,
            *ends,
            gamma=config.gamma,
            gae_lambda=config.gae_lambda,
            rho_clip=config.rho_clip,
            c_clip=config.c_clip,
        )
        return Estimates(log_prob[:-1], value[:-1], traced.advantage, traced.target, traced.weight)
    advantage = generalized_advantages(batch.reward, value, *ends, config.gamma, config.gae_lambda)
    weight = np.minimum(np.exp(log_prob - decided_log_prob)[:-1], np.float32(config.rho_clip))
    return Estimates(log_prob[:-1], value[:-1], advantage, advantage + value[:-1], weight)
