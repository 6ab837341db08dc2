"""Compiled gradient steps of SAC, TD3 and DDPG for networks of dense layers. Each thread learns from a part of the
rows of a minibatch, and updates a part of the parameters."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from srl.base.tree import Array
from srl.networks.dense_kernels import (
    Stack,
    Team,
    adam,
    backward,
    compiled,
    copy_into,
    descend,
    forward,
    inlined,
    input_gradient,
    kept_size,
    meet,
    outputs_of,
)
from srl.networks.options import STATE_LOG_STD

LOG_STD_MIDDLE, LOG_STD_HALF = 0.5 * sum(STATE_LOG_STD), 0.5 * (STATE_LOG_STD[1] - STATE_LOG_STD[0])
HALF_LOG_TWO_PI, LOG_FOUR = 0.5 * math.log(2.0 * math.pi), math.log(4.0)
CRITIC_LOSS, VALUE, ACTOR_LOSS, ENTROPY, NUM_SUMS = 0, 1, 2, 3, 4
"""Columns of the sums over rows."""


class Rows(NamedTuple):
    """K minibatches of B transitions. Features are what the dense layers see of an observation."""

    actor: Array  # [K, B, F]
    actor_next: Array
    critic: Array  # [K, B, G]
    critic_next: Array
    action: Array  # [K, B, d], in units of the bounds
    reward: Array  # [K, B]
    discount: Array
    weight: Array
    noise: Array  # [K, B, d]
    noise_next: Array
    members: Array  # [K, M]: critics whose lowest value is the target


class Settings(NamedTuple):
    is_tanh: bool
    of_lowest: bool  # whether the actor maximizes the lowest value of the critics, and not their mean
    policy_delay: int
    tau: float
    rate: float
    eps: float
    max_norm: float  # 0: no limit
    num_valued: int  # critics whose values the actor maximizes, from the first on
    is_gaussian: bool = False  # SAC; otherwise the actor is deterministic, and has a target network
    learn_temperature: bool = False
    target_entropy: float = 0.0
    smoothing: float = 0.0  # standard deviation and limit of the noise of a deterministic target policy
    smoothing_limit: float = 0.0


class Work(NamedTuple):
    """Memory of the threads."""

    team: Team
    kept: Array  # [parts, ...]: outputs of layers
    inputs: Array  # [parts, ...]: inputs of networks
    scratch: Array  # [parts, 2, ...]: gradients of layers


class Results(NamedTuple):
    errors: Array  # [K, B]: mean absolute errors of the critics
    sums: Array  # [parts, K, NUM_SUMS]
    temperature: Array  # [K]


@compiled
def learn(
    part: int, first_number: int, actor: Stack, critics: Stack, temperature: Stack, rows: Rows, settings: Settings,
    work: Work, results: Results,
) -> None:  # fmt: skip
    """Make K gradient steps together with the threads of the other parts; the first has the number `first_number`."""
    num_parts, num_rows = len(work.kept), rows.reward.shape[1]
    low, high = part * num_rows // num_parts, (part + 1) * num_rows // num_parts
    for k in range(len(rows.reward)):
        with_actor = (first_number + k) % settings.policy_delay == 0
        weight = math.exp(temperature.values[0]) if settings.is_gaussian else 0.0
        critic_gradients(part, k, low, high, with_actor, actor, critics, weight, rows, settings, work, results)
        meet(work.team.barrier, part)
        tau = settings.tau if settings.is_gaussian or with_actor else 0.0
        descend(part, work.team, critics, settings.rate, settings.eps, settings.max_norm, tau)
        if with_actor:
            actor_gradients(part, k, low, high, actor, critics, weight, rows, settings, work, results)
            meet(work.team.barrier, part)
            if part == 0 and settings.is_gaussian:
                results.temperature[k] = weight
                _adapt_temperature(k, temperature, num_rows, settings, results)
            tau = 0.0 if settings.is_gaussian else settings.tau
            descend(part, work.team, actor, settings.rate, settings.eps, settings.max_norm, tau)


@inlined
def _adapt_temperature(k: int, temperature: Stack, num_rows: int, settings: Settings, results: Results) -> None:
    """Take a step along log(temperature) * (entropy - target), as `losses.temperature_loss`."""
    if settings.learn_temperature:
        entropy = 0.0
        for part in range(len(results.sums)):
            entropy += results.sums[part, k, ENTROPY] / num_rows
        temperature.gradients[0, 0] = entropy - settings.target_entropy
        temperature.num_steps[0] += 1.0
        adam(
            temperature.values, temperature.gradients[0], temperature.exp_avg, temperature.exp_avg_sq,
            temperature.num_steps[0], settings.rate, settings.eps, 1.0,
        )  # fmt: skip


@inlined
def critic_gradients(
    part: int, k: int, low: int, high: int, with_actor: bool, actor: Stack, critics: Stack, temperature: float,
    rows: Rows, settings: Settings, work: Work, results: Results,
) -> None:  # fmt: skip
    """Write the critics' gradients for the rows from `low` to `high`. With `with_actor`, a gaussian actor sees their
    observations too, in the same products; `actor_gradients` needs its outputs."""
    num_rows, is_tanh = high - low, settings.is_tanh
    kept, inputs, scratch = work.kept[part], work.inputs[part], work.scratch[part]
    errors, sums = results.errors[k, low:high], results.sums[part, k]
    joined = _joined(rows, num_rows, inputs)
    num_features = rows.critic.shape[2]
    copy_into(joined, 0, 0, rows.critic_next[k, low:high])
    log_prob = _next_actions(k, low, high, with_actor, actor, rows, settings, kept, inputs, joined)
    start = kept_size(actor.sizes, 2 * num_rows)
    target = np.empty(num_rows, np.float32)
    for i in range(rows.members.shape[1]):
        member = rows.members[k, i]
        values = forward(critics.target, critics.offsets, critics.sizes, member, joined, kept, start, is_tanh)
        for row in range(num_rows):
            target[row] = values[row, 0] if i == 0 else min(target[row], values[row, 0])
    for row in range(num_rows):
        value = target[row] - temperature * log_prob[row]
        target[row] = rows.reward[k, low + row] + rows.discount[k, low + row] * value
    copy_into(joined, 0, 0, rows.critic[k, low:high])
    copy_into(joined, 0, num_features, rows.action[k, low:high])
    upstream = np.empty((num_rows, 1), np.float32)
    for member in range(critics.num_members):
        values = forward(critics.values, critics.offsets, critics.sizes, member, joined, kept, start, is_tanh)
        for row in range(num_rows):
            error, weight = values[row, 0] - target[row], rows.weight[k, low + row]
            sums[CRITIC_LOSS] += 0.5 * error * error * weight
            sums[VALUE] += values[row, 0] / critics.num_members
            errors[row] += abs(error) / critics.num_members
            upstream[row, 0] = error * weight / rows.reward.shape[1]
        backward(
            critics.values, critics.gradients[part], critics.offsets, critics.sizes, member, joined, upstream, kept,
            start, num_rows, scratch, is_tanh,
        )  # fmt: skip


@inlined
def _joined(rows: Rows, num_rows: int, inputs: Array) -> Array:
    """Return the memory for the critics' inputs: features and unit actions."""
    start, size = 2 * num_rows * rows.actor.shape[2], rows.critic.shape[2] + rows.action.shape[2]
    return inputs[start : start + num_rows * size].reshape(num_rows, size)


@inlined
def _next_actions(
    k: int, low: int, high: int, with_actor: bool, actor: Stack, rows: Rows, settings: Settings, kept: Array,
    inputs: Array, joined: Array,
) -> Array:  # fmt: skip
    """Write the actions after the next observations into the last columns of `joined`. Return their log-densities."""
    num_rows, d, size = high - low, rows.action.shape[2], rows.actor.shape[2]
    first = num_rows if with_actor and settings.is_gaussian else 0
    seen = inputs[: (first + num_rows) * size].reshape(first + num_rows, size)
    if first:
        copy_into(seen, 0, 0, rows.actor[k, low:high])
    copy_into(seen, first, 0, rows.actor_next[k, low:high])
    values = actor.values if settings.is_gaussian else actor.target
    outputs = forward(values, actor.offsets, actor.sizes, np.int64(0), seen, kept, np.int64(0), settings.is_tanh)
    log_prob = np.zeros(num_rows, np.float32)
    for row in range(num_rows):
        for i in range(d):
            noise, mean = rows.noise_next[k, low + row, i], outputs[first + row, i]
            if settings.is_gaussian:
                action, density = _squashed_sample(mean, outputs[first + row, d + i], noise)
                log_prob[row] += density
            else:
                limit = settings.smoothing_limit
                action = math.tanh(mean) + min(max(noise * settings.smoothing, -limit), limit)
                action = min(max(action, -1.0), 1.0)
            joined[row, joined.shape[1] - d + i] = action
    return log_prob


@compiled
def _squashed_sample(mean: float, raw_log_std: float, noise: float) -> tuple[float, float]:
    """Return a = tanh(u) with u = mean + std * noise, and log N(u; mean, std) - log(1 - a^2), where
    log(1 - tanh(u)^2) = log 4 - 2 |u| - 2 log(1 + exp(-2 |u|))."""
    log_std = LOG_STD_MIDDLE + LOG_STD_HALF * math.tanh(raw_log_std)
    u = mean + math.exp(log_std) * noise
    size = abs(u)
    log_slope = LOG_FOUR - 2.0 * size - 2.0 * math.log1p(math.exp(-2.0 * size))
    return math.tanh(u), -0.5 * noise * noise - log_std - HALF_LOG_TWO_PI - log_slope


@inlined
def actor_gradients(
    part: int, k: int, low: int, high: int, actor: Stack, critics: Stack, temperature: float, rows: Rows,
    settings: Settings, work: Work, results: Results,
) -> None:  # fmt: skip
    """Write the actor's gradients for the rows from `low` to `high`, after their `critic_gradients`."""
    num_rows, d, is_tanh = high - low, rows.action.shape[2], settings.is_tanh
    kept, inputs, scratch = work.kept[part], work.inputs[part], work.scratch[part]
    num_features, last = rows.critic.shape[2], len(actor.sizes) - 2
    num_kept = 2 * num_rows
    if not settings.is_gaussian:
        num_kept = num_rows
        forward(
            actor.values, actor.offsets, actor.sizes, np.int64(0), rows.actor[k, low:high], kept, np.int64(0), is_tanh
        )
    outputs = outputs_of(kept, np.int64(0), actor.sizes, last, num_kept, num_rows)
    joined = _joined(rows, num_rows, inputs)
    copy_into(joined, 0, 0, rows.critic[k, low:high])
    log_prob = 0.0
    for row in range(num_rows):
        for i in range(d):
            if settings.is_gaussian:
                action, density = _squashed_sample(outputs[row, i], outputs[row, d + i], rows.noise[k, low + row, i])
                log_prob += density
            else:
                action = math.tanh(outputs[row, i])
            joined[row, num_features + i] = action
    value, by_action = _action_gradient(num_rows, d, actor, critics, rows, settings, kept, joined, scratch)
    share = temperature / rows.reward.shape[1]
    upstream = np.empty((num_rows, actor.sizes[last + 1]), np.float32)
    for row in range(num_rows):
        for i in range(d):
            action = joined[row, num_features + i]
            slope = by_action[row, i] * (1.0 - action * action)
            if settings.is_gaussian:  # dL/du = dL/da (1 - a^2) + dL/dlog p * 2a
                slope += share * 2.0 * action
                bounded = math.tanh(outputs[row, d + i])
                std = math.exp(LOG_STD_MIDDLE + LOG_STD_HALF * bounded)
                by_log_std = slope * std * rows.noise[k, low + row, i] - share
                upstream[row, d + i] = by_log_std * LOG_STD_HALF * (1.0 - bounded * bounded)
            upstream[row, i] = slope
    backward(
        actor.values, actor.gradients[part], actor.offsets, actor.sizes, np.int64(0), rows.actor[k, low:high],
        upstream, kept, np.int64(0), num_kept, scratch, is_tanh,
    )  # fmt: skip
    results.sums[part, k, ACTOR_LOSS] = temperature * log_prob - value
    results.sums[part, k, ENTROPY] = -log_prob


@inlined
def _action_gradient(
    num_rows: int, d: int, actor: Stack, critics: Stack, rows: Rows, settings: Settings, kept: Array, joined: Array,
    scratch: Array,
) -> tuple[float, Array]:  # fmt: skip
    """Return the sum of the values that the actor maximizes, and the gradient of minus their mean with respect to the
    actions [N, d]."""
    start, step = kept_size(actor.sizes, 2 * num_rows), kept_size(critics.sizes, num_rows)
    count, last, is_tanh = settings.num_valued, len(critics.sizes) - 2, settings.is_tanh
    for member in range(count):
        forward(critics.values, critics.offsets, critics.sizes, member, joined, kept, start + member * step, is_tanh)
    lowest = np.zeros(num_rows, np.int64)
    total = 0.0
    for row in range(num_rows):
        best = np.inf
        for member in range(count):
            value = outputs_of(kept, start + member * step, critics.sizes, last, num_rows, num_rows)[row, 0]
            if not settings.of_lowest:
                total += value / count
            elif value < best:
                best, lowest[row] = value, member
        if settings.of_lowest:
            total += best
    share = np.float32(-1.0 / (rows.reward.shape[1] * (1 if settings.of_lowest else count)))
    by_action = np.zeros((num_rows, d), np.float32)
    one = np.empty((num_rows, d), np.float32)
    upstream = np.full((num_rows, 1), share)
    chosen = np.empty(num_rows, np.int64)
    packed = start + count * step
    for member in range(count):
        num_chosen = 0  # a row has a gradient only where its value is the one that is maximized
        for row in range(num_rows):
            if not settings.of_lowest or lowest[row] == member:
                chosen[num_chosen] = row
                num_chosen += 1
        for layer in range(last):
            output = outputs_of(kept, start + member * step, critics.sizes, layer, num_rows, num_rows)
            _take_rows(
                output, chosen[:num_chosen], outputs_of(kept, packed, critics.sizes, layer, num_chosen, num_chosen)
            )
        input_gradient(
            critics.values, critics.offsets, critics.sizes, member, joined.shape[1] - d, upstream[:num_chosen], kept,
            packed, scratch, is_tanh, one[:num_chosen],
        )  # fmt: skip
        for i in range(num_chosen):
            for j in range(d):
                by_action[chosen[i], j] += one[i, j]
    return total, by_action


@compiled
def _take_rows(source: Array, chosen: Array, target: Array) -> None:
    for i in range(len(chosen)):
        for j in range(source.shape[1]):
            target[i, j] = source[chosen[i], j]
