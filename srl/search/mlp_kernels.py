"""A small MuZero network in compiled code, and whole searches with it, without Python between simulations."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from srl.base.tree import Array
from srl.search.kernels import OK, Nodes, Picks, Rules, advance, bare, compiled, fast_exp
from srl.search.samples import Sampler, add_actions, child_seed, draw

TANH, UNIT, CHANGE = 0, 1, 2  # how a latent state is bounded; CHANGE: tanh of the state before and its change
EPSILON = np.float32(0.001)  # of the h transform
MOST_ROWS = 128


class Layers(NamedTuple):
    """Dense layers in a vector of parameters. Weights of layer i [in, out] begin at starts[i], its biases follow."""

    flat: Array  # [parameters] float32
    starts: Array  # [layers] int64
    sizes: Array  # [layers + 1] int64


class Work(NamedTuple):
    """Memory of one pass of L rows."""

    latent: Array  # [L, H] float32
    first: Array  # [L * widest layer] float32
    second: Array  # [L * widest layer] float32
    policy: Array  # [L, outputs] float32; without samples, the same array as logits
    logits: Array  # [L, A] float32
    value: Array  # [L] float32
    reward: Array  # [L] float32
    kept: Array  # [L, kept] float32, the sampled actions of the states, after their seeds
    chosen: Array  # [L, size] float32, one of them


@bare
def product(inputs: Array, weights: Array, outputs: Array) -> None:
    """Write inputs [L, in] times weights [in, out], 16 inputs at a time: each step of the inner loop is a chain of 16
    multiplications and additions of vectors."""
    w, num_inputs = weights, inputs.shape[1]
    for row in range(len(inputs)):
        for i in range(w.shape[1]):
            outputs[row, i] = 0
    k = 0
    while k + 16 <= num_inputs:
        w0, w1, w2, w3, w4, w5, w6, w7 = w[k], w[k + 1], w[k + 2], w[k + 3], w[k + 4], w[k + 5], w[k + 6], w[k + 7]
        v0, v1, v2, v3, v4, v5 = w[k + 8], w[k + 9], w[k + 10], w[k + 11], w[k + 12], w[k + 13]
        v6, v7 = w[k + 14], w[k + 15]
        for row in range(len(inputs)):
            x, y = inputs[row, k : k + 16], outputs[row]
            x0, x1, x2, x3, x4, x5, x6, x7 = x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7]
            z0, z1, z2, z3, z4, z5, z6, z7 = x[8], x[9], x[10], x[11], x[12], x[13], x[14], x[15]
            for i in range(w.shape[1]):
                first = x0 * w0[i] + x1 * w1[i] + x2 * w2[i] + x3 * w3[i] + x4 * w4[i] + x5 * w5[i]
                second = x6 * w6[i] + x7 * w7[i] + z0 * v0[i] + z1 * v1[i] + z2 * v2[i] + z3 * v3[i]
                y[i] += first + second + z4 * v4[i] + z5 * v5[i] + z6 * v6[i] + z7 * v7[i]
        k += 16
    while k < num_inputs:
        for row in range(len(inputs)):
            for i in range(w.shape[1]):
                outputs[row, i] += inputs[row, k] * w[k, i]
        k += 1


@compiled
def dense(layers: Layers, index: int, inputs: Array, num_inputs: int, work: Array) -> Array:
    """Return inputs [L, in] times the first weights of a layer, in `work`, without biases."""
    start, num_outputs = layers.starts[index], layers.sizes[index + 1]
    weights = layers.flat[start : start + num_inputs * num_outputs].reshape(num_inputs, num_outputs)
    outputs = work[: len(inputs) * num_outputs].reshape(len(inputs), num_outputs)
    if len(inputs) <= MOST_ROWS:  # faster than BLAS, and a row does not depend on the number of rows
        product(inputs, weights, outputs)
    else:
        np.dot(inputs, weights, outputs)
    return outputs


@compiled
def biases(layers: Layers, index: int) -> Array:
    start = layers.starts[index] + layers.sizes[index] * layers.sizes[index + 1]
    return layers.flat[start : start + layers.sizes[index + 1]]


@compiled
def rectify(outputs: Array, bias: Array) -> None:
    for row in range(len(outputs)):
        for i in range(len(bias)):
            outputs[row, i] = max(outputs[row, i] + bias[i], np.float32(0))


@compiled
def bound(outputs: Array, bias: Array, bounds: int, latent: Array) -> None:
    """Write latent states [L, H]: tanh of the outputs or, with CHANGE, of the states before and the outputs; or each
    row scaled to [0, 1]."""
    for row in range(len(outputs)):
        if bounds != UNIT:
            for i in range(len(bias)):
                x = outputs[row, i] + bias[i]
                if bounds == CHANGE:
                    x += latent[row, i]
                x = max(min(x, np.float32(15)), np.float32(-15))
                latent[row, i] = np.float32(1) - np.float32(2) / (fast_exp(x + x) + np.float32(1))
        else:
            low = high = outputs[row, 0] + bias[0]
            for i in range(len(bias)):
                x = outputs[row, i] + bias[i]
                latent[row, i] = x
                low, high = min(low, x), max(high, x)
            scale = np.float32(1) / max(high - low, np.float32(1e-5))
            for i in range(len(bias)):
                latent[row, i] = (latent[row, i] - low) * scale


@compiled
def pass_hidden(layers: Layers, hidden: Array, first: Array, second: Array, begin: int, end: int) -> Array:
    """Apply layers from `begin` to before `end`, all rectified but the last one, which is without its bias."""
    last = len(layers.starts) - 1
    for index in range(begin, end):
        work = second if index % 2 else first
        hidden = dense(layers, index, hidden, layers.sizes[index], work)
        if index < last:
            rectify(hidden, biases(layers, index))
    return hidden


@compiled
def represent(layers: Layers, observations: Array, bounds: int, work: Work) -> None:
    """Map observations [L, D] to work.latent."""
    outputs = pass_hidden(layers, observations, work.first, work.second, 0, len(layers.starts))
    bound(outputs, biases(layers, len(layers.starts) - 1), bounds, work.latent)


@compiled
def imagine(layers: Layers, actions: Array, sampler: Sampler, bounds: int, work: Work) -> None:
    """Replace work.latent by the states that actions [L] lead to, or work.chosen [L, size] with samples. Actions are
    the last inputs of the first layer."""
    num_latent, num_outputs, last = work.latent.shape[1], layers.sizes[1], len(layers.starts) - 1
    hidden = dense(layers, 0, work.latent, num_latent, work.first)
    rows, bias = layers.starts[0] + num_latent * num_outputs, biases(layers, 0)
    if sampler.number:
        end = layers.starts[0] + layers.sizes[0] * num_outputs
        add_actions(sampler, work.chosen, layers.flat[rows:end].reshape(-1, num_outputs), hidden)
    else:
        for row in range(len(hidden)):
            start = rows + actions[row] * num_outputs
            embedding = layers.flat[start : start + num_outputs]
            for i in range(num_outputs):
                hidden[row, i] += embedding[i]
    if last > 0:
        rectify(hidden, bias)
        hidden = pass_hidden(layers, hidden, work.first, work.second, 1, last + 1)
    bound(hidden, biases(layers, last), bounds, work.latent)


@compiled
def scalar(outputs: Array, bias: Array, start: int, num_bins: int, bin_width: np.float32) -> np.float32:
    """Return the mean of bins under the inverse of h(x) = sign(x) (sqrt(|x| + 1) - 1) + 0.001 x; of one bin, itself."""
    if num_bins == 1:
        return outputs[start] + bias[start]  # type: ignore[no-any-return]
    top = np.float32(-3e38)
    for i in range(start, start + num_bins):
        outputs[i] += bias[i]
        top = max(top, outputs[i])
    total, mean = np.float32(0), np.float32(0)
    for i in range(num_bins):
        weight = fast_exp(outputs[start + i] - top)
        total += weight
        mean += weight * np.float32(i)
    mean = (mean / total - np.float32(num_bins // 2)) * bin_width
    root = (np.sqrt(1 + 4 * EPSILON * (abs(mean) + 1 + EPSILON)) - 1) / (2 * EPSILON)
    return np.float32(np.sign(mean) * (root * root - 1))


@compiled
def predict(layers: Layers, heads: Layers, num_bins: int, bin_width: np.float32, work: Work) -> None:
    """Write the policies, values and rewards of work.latent. `heads` is the last layer, padded to whole vectors."""
    last = len(layers.starts) - 1
    hidden = pass_hidden(layers, work.latent, work.first, work.second, 0, last)
    outputs = dense(heads, 0, hidden, layers.sizes[last], work.second if last % 2 else work.first)
    bias, num_policy = biases(heads, 0), work.policy.shape[1]
    for row in range(len(outputs)):
        for a in range(num_policy):
            work.policy[row, a] = outputs[row, a] + bias[a]
        work.value[row] = scalar(outputs[row], bias, num_policy, num_bins, bin_width)
        work.reward[row] = scalar(outputs[row], bias, num_policy + num_bins, num_bins, bin_width)


@compiled
def choose(sampler: Sampler, kept: Array, edge: int, row: int, work: Work) -> None:
    """Copy an action of a node to work.chosen, and the seed of the node that it leads to to work.kept."""
    for j in range(sampler.size):
        work.chosen[row, j] = kept[1 + edge * sampler.size + j]
    work.kept[row, 0] = child_seed(kept[0], edge)


@compiled
def search_all(
    nodes: Nodes,
    picks: Picks,
    rules: Rules,
    lanes: Array,
    states: Array,
    dynamics: Layers,
    prediction: Layers,
    heads: Layers,
    bounds: int,
    num_bins: int,
    bin_width: np.float32,
    discount: Array,
    legal: Array,
    chance: Array,
    sampler: Sampler,
    work: Work,
) -> tuple[int, int]:
    """Run all simulations of the first lanes, which have begun. `states` [(S+1) * L, H + kept] has their latent states,
    and their samples."""
    num_rows, num_latent = states.shape[0] // (rules.num_simulations + 1), work.latent.shape[1]
    for simulation in range(rules.num_simulations):
        for lane in range(len(lanes)):
            row = picks.row[lane]
            for i in range(num_latent):
                work.latent[lane, i] = states[row, i]
            if sampler.number:
                choose(sampler, states[row, num_latent:], picks.edge[lane], lane, work)
        imagine(dynamics, picks.edge, sampler, bounds, work)
        begin = (simulation + 1) * num_rows
        for lane in range(len(lanes)):
            for i in range(num_latent):
                states[begin + lane, i] = work.latent[lane, i]
        predict(prediction, heads, num_bins, bin_width, work)
        if sampler.number:
            draw(sampler, work.policy, work.kept, work.logits)
            states[begin : begin + len(lanes), num_latent:] = work.kept
        problem, where = advance(
            nodes, picks, rules, lanes, work.reward, discount, work.value, work.logits, legal, chance
        )
        if problem != OK:
            return problem, where
    return OK, 0
