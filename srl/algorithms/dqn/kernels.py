"""Compiled gradient steps of Q-learning for networks of dense layers that output expected returns. Each thread learns
from a part of the rows of a minibatch, and updates a part of the parameters."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from srl.base.tree import Array
from srl.networks.dense_kernels import Stack, Team, backward, compiled, copy_into, descend, forward, inlined, meet

AHEAD = 8
"""Most minibatches whose next observations the target network evaluates at once; it is constant between its updates."""


class Rows(NamedTuple):
    """K minibatches of B transitions."""

    inputs: Array  # [K, B, F]: what the dense layers see of an observation
    next_inputs: Array
    choice: Array  # [K, B, D]: the chosen actions of D branches, as indices into the n outputs
    reward: Array  # [K, B]
    discount: Array
    weight: Array
    allowed: Array  # [K, B, n] bool: choices that are possible in the next observation; [K, B, 0]: all


class Settings(NamedTuple):
    is_tanh: bool
    double: bool
    huber: bool
    target_update: int
    tau: float
    rate: float
    eps: float
    max_norm: float  # 0: no limit


class Work(NamedTuple):
    """Memory of the threads."""

    team: Team
    kept: Array  # [parts, ...]: outputs of layers
    inputs: Array  # [parts, ...]: inputs of the network
    futures: Array  # [parts, AHEAD, ...]: outputs of the target network
    scratch: Array  # [parts, 2, ...]: gradients of layers


class Results(NamedTuple):
    errors: Array  # [K, B]: absolute errors, the mean over the branches
    values: Array  # [K, B]: values of the chosen actions


@compiled
def learn(
    part: int, first_number: int, stack: Stack, branches: Array, rows: Rows, settings: Settings, work: Work,
    results: Results,
) -> None:  # fmt: skip
    """Make K gradient steps together with the threads of the other parts; the first has the number `first_number`.
    `branches` [D + 1] are the positions at which the outputs of each branch begin."""
    num_parts, (num_steps, num_rows) = len(work.kept), rows.reward.shape
    low, high = part * num_rows // num_parts, (part + 1) * num_rows // num_parts
    size, num_outputs = high - low, stack.sizes[-1]
    upstream = np.empty((size, num_outputs), np.float32)
    begin, end = 0, 0  # minibatches whose futures are known
    for k in range(num_steps):
        number = first_number + k
        if k == end:
            until_update = settings.target_update - (number - 1) % settings.target_update
            begin, end = k, min(num_steps, k + AHEAD, k + until_update)
            _evaluate(
                begin, end, low, high, stack, rows, settings, work.kept[part], work.inputs[part], work.futures[part]
            )
        future = work.futures[part, k - begin, : size * num_outputs].reshape(size, num_outputs)
        num_kept = 2 * size if settings.double else size
        inputs = work.inputs[part, : num_kept * rows.inputs.shape[2]].reshape(num_kept, rows.inputs.shape[2])
        copy_into(inputs, 0, 0, rows.inputs[k, low:high])
        if settings.double:
            copy_into(inputs, size, 0, rows.next_inputs[k, low:high])
        outputs = forward(
            stack.values,
            stack.offsets,
            stack.sizes,
            np.int64(0),
            inputs,
            work.kept[part],
            np.int64(0),
            settings.is_tanh,
        )
        for row in range(size):
            chooser = outputs[size + row] if settings.double else future[row]
            _compare(
                k, low + row, outputs[row], chooser, future[row], branches, rows, settings.huber, results, upstream[row]
            )
        backward(
            stack.values, stack.gradients[part], stack.offsets, stack.sizes, np.int64(0), inputs, upstream,
            work.kept[part], np.int64(0), num_kept, work.scratch[part], settings.is_tanh,
        )  # fmt: skip
        meet(work.team.barrier, part)
        tau = settings.tau if number % settings.target_update == 0 else 0.0
        descend(part, work.team, stack, settings.rate, settings.eps, settings.max_norm, tau)


@inlined
def _evaluate(
    begin: int, end: int, low: int, high: int, stack: Stack, rows: Rows, settings: Settings, kept: Array,
    memory: Array, futures: Array,
) -> None:  # fmt: skip
    """Evaluate the next observations of minibatches with the target network."""
    size, num_features = high - low, rows.inputs.shape[2]
    seen = memory[: (end - begin) * size * num_features].reshape((end - begin) * size, num_features)
    for j in range(begin, end):
        copy_into(seen, (j - begin) * size, 0, rows.next_inputs[j, low:high])
    found = forward(stack.target, stack.offsets, stack.sizes, np.int64(0), seen, kept, np.int64(0), settings.is_tanh)
    for i in range(len(found)):
        for j in range(found.shape[1]):
            futures[i // size, (i % size) * found.shape[1] + j] = found[i, j]


@compiled
def _compare(
    k: int, row: int, outputs: Array, chooser: Array, future: Array, branches: Array, rows: Rows, huber: bool,
    results: Results, gradient: Array,
) -> None:  # fmt: skip
    """Write the gradient of a row's loss with respect to its outputs [n]. `chooser` determines the next actions,
    `future` their values (van Hasselt et al. 2016, eq. 4)."""
    num_branches, masked = len(branches) - 1, rows.allowed.shape[2] > 0
    value = 0.0
    for branch in range(num_branches):
        best = -1
        for i in range(branches[branch], branches[branch + 1]):
            if (not masked or rows.allowed[k, row, i]) and (best < 0 or chooser[i] > chooser[best]):
                best = i
        value += future[max(best, branches[branch])] / num_branches
    target = rows.reward[k, row] + rows.discount[k, row] * value
    for i in range(len(gradient)):
        gradient[i] = np.float32(0.0)
    for branch in range(num_branches):
        choice = rows.choice[k, row, branch]
        difference = outputs[choice] - target
        results.errors[k, row] += abs(difference) / num_branches
        results.values[k, row] += outputs[choice] / num_branches
        if huber:
            difference = min(max(difference, -1.0), 1.0)
        gradient[choice] = difference * rows.weight[k, row] / (num_branches * rows.reward.shape[1])
