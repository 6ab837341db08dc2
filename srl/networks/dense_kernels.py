"""Compiled passes of dense layers, for networks so small that the calls of torch cost as much as the arithmetic.

The parameters of a stack of E networks with the same sizes are one flat vector, in which `offsets` [layers, 2] are the
positions of the weights [E, in, out] and of the biases [E, out] of each layer. Several threads run the same function on
parts of a minibatch, and meet at barriers.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias, Union

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core.cgutils import get_or_insert_function
from numba.extending import intrinsic

from srl.base.tree import Array

Index: TypeAlias = Union[int, np.int64]
"""Callers pass `np.int64(0)`, because numba would compile a function once more for the constant 0."""

BETA1, BETA2 = 0.9, 0.999
SPINS, SLEEP_MICROSECONDS = 3000, 50  # the spins of a barrier take about 0.1 ms
compiled = njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract"})
inlined = njit(inline="always", cache=True, nogil=True, error_model="numpy", fastmath={"contract"})
"""For functions that are called once: a function that is compiled on its own is optimized again with each caller."""


@intrinsic
def _pause(typing_context: Any, microseconds: Any) -> Any:
    """Sleep, unless `microseconds` is 0, and order the reads and writes before and after this call."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(ir.IntType(32), [ir.IntType(32)])
        usleep = get_or_insert_function(builder.module, kind, "usleep")  # type: ignore[no-untyped-call]
        with builder.if_then(builder.icmp_unsigned("!=", arguments[0], arguments[0].type(0))):
            builder.call(usleep, arguments)
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(types.uint32), generate


@compiled
def meet(barrier: Array, part: int) -> None:
    """Wait until the threads of all parts are here. `barrier` [parts, 8] int64 has a cache line for each of them.

    They are usually here within microseconds. If one does not get a core, the others sleep: threads that spin would
    slow it down."""
    if len(barrier) == 1:
        return
    _pause(0)  # type: ignore[call-arg]
    barrier[part, 0] += 1
    number, turns = barrier[part, 0], 0
    for other in range(len(barrier)):
        while barrier[other, 0] < number:
            turns += 1
            _pause(0 if turns < SPINS else SLEEP_MICROSECONDS)
    _pause(0)


@compiled
def copy_into(target: Array, row: int, column: int, source: Array) -> None:
    """Copy an array, as an assignment to a slice would; the code for its errors takes seconds to compile."""
    for i in range(source.shape[0]):
        for j in range(source.shape[1]):
            target[row + i, column + j] = source[i, j]


@inlined
def weights_of(flat: Array, offsets: Array, sizes: Array, layer: int, member: Index) -> Array:
    inputs, outputs = sizes[layer], sizes[layer + 1]
    start = offsets[layer, 0] + member * inputs * outputs
    return flat[start : start + inputs * outputs].reshape(inputs, outputs)


@inlined
def biases_of(flat: Array, offsets: Array, sizes: Array, layer: int, member: Index) -> Array:
    outputs = sizes[layer + 1]
    start = offsets[layer, 1] + member * outputs
    return flat[start : start + outputs]


@inlined
def outputs_of(work: Array, start: Index, sizes: Array, layer: int, num_kept: int, num_rows: int) -> Array:
    """Return the first `num_rows` outputs of a layer, of which a forward pass has kept `num_kept` in `work`."""
    for below in range(layer):
        start += num_kept * sizes[below + 1]
    return work[start : start + num_rows * sizes[layer + 1]].reshape(num_rows, sizes[layer + 1])


@inlined
def kept_size(sizes: Array, num_rows: int) -> int:
    """Return the number of elements that a forward pass keeps."""
    total = 0
    for size in sizes[1:]:
        total += num_rows * size
    return total


@compiled
def forward(
    flat: Array, offsets: Array, sizes: Array, member: Index, inputs: Array, work: Array, start: Index, is_tanh: bool
) -> Array:
    """Map inputs [N, in] to outputs [N, out]. The outputs of all layers are kept in `work` from `start` on."""
    num_rows, last = len(inputs), len(sizes) - 2
    hidden = inputs
    for layer in range(last + 1):
        output = outputs_of(work, start, sizes, layer, num_rows, num_rows)
        np.dot(hidden, weights_of(flat, offsets, sizes, layer, member), output)
        bias = biases_of(flat, offsets, sizes, layer, member)
        for row in range(num_rows):
            if layer == last:
                for i in range(len(bias)):
                    output[row, i] += bias[i]
            elif is_tanh:
                for i in range(len(bias)):
                    output[row, i] = np.tanh(output[row, i] + bias[i])
            else:
                for i in range(len(bias)):
                    output[row, i] = max(output[row, i] + bias[i], np.float32(0.0))
        hidden = output
    return hidden


@compiled
def _below(
    flat: Array, offsets: Array, sizes: Array, member: Index, layer: int, upstream: Array, output: Array,
    scratch: Array, is_tanh: bool,
) -> Array:  # fmt: skip
    """Return the gradient of the sums of layer `layer - 1`, whose outputs are given, from that of `layer`."""
    num_rows, size = output.shape
    found = scratch[: num_rows * size].reshape(num_rows, size)
    np.dot(upstream, weights_of(flat, offsets, sizes, layer, member).T, found)
    if is_tanh:
        for row in range(num_rows):
            for i in range(size):
                found[row, i] *= np.float32(1.0) - output[row, i] * output[row, i]
    else:
        for row in range(num_rows):
            for i in range(size):
                found[row, i] = found[row, i] if output[row, i] > np.float32(0.0) else np.float32(0.0)
    return found


@compiled
def backward(
    flat: Array, gradient: Array, offsets: Array, sizes: Array, member: Index, inputs: Array, upstream: Array,
    work: Array, start: Index, num_kept: int, scratch: Array, is_tanh: bool,
) -> None:  # fmt: skip
    """Write the gradient of a member's parameters into the flat vector `gradient`, given that of the outputs [N, out]
    for the first N of the `num_kept` rows of a forward pass. `scratch` [2, ...] has room for the widest layer."""
    num_rows = len(upstream)
    for layer in range(len(sizes) - 2, -1, -1):
        sums = biases_of(gradient, offsets, sizes, layer, member)
        for row in range(num_rows):
            for i in range(len(sums)):
                sums[i] = upstream[row, i] if row == 0 else sums[i] + upstream[row, i]
        if layer == 0:
            np.dot(inputs[:num_rows].T, upstream, weights_of(gradient, offsets, sizes, 0, member))
        else:
            below = outputs_of(work, start, sizes, layer - 1, num_kept, num_rows)
            np.dot(below.T, upstream, weights_of(gradient, offsets, sizes, layer, member))
            upstream = _below(flat, offsets, sizes, member, layer, upstream, below, scratch[layer % 2], is_tanh)


@compiled
def input_gradient(
    flat: Array, offsets: Array, sizes: Array, member: Index, first: int, upstream: Array, work: Array, start: Index,
    scratch: Array, is_tanh: bool, result: Array,
) -> None:  # fmt: skip
    """Write the gradient [N, in - first] of the inputs from column `first` on."""
    num_rows = len(upstream)
    for layer in range(len(sizes) - 2, 0, -1):
        below = outputs_of(work, start, sizes, layer - 1, num_rows, num_rows)
        upstream = _below(flat, offsets, sizes, member, layer, upstream, below, scratch[layer % 2], is_tanh)
    np.dot(upstream, weights_of(flat, offsets, sizes, 0, member)[first:].T, result)


@compiled
def add_parts(gradients: Array, first: int, last: int) -> float:
    """Add the gradients [parts, P] of all parts to those of part 0, from element `first` to `last`. Return the sum of
    their squares."""
    for part in range(1, len(gradients)):
        for i in range(first, last):
            gradients[0, i] += gradients[part, i]
    squares = 0.0
    for i in range(first, last):
        squares += gradients[0, i] * gradients[0, i]
    return squares


@compiled
def adam(
    values: Array, gradient: Array, exp_avg: Array, exp_avg_sq: Array, number: float, rate: float, eps: float,
    scale: float,
) -> None:  # fmt: skip
    """Take step number `number` of Adam (Kingma & Ba 2015) with `scale` times the gradient."""
    step_size = np.float32(rate / (1.0 - BETA1**number))
    root = np.float32(1.0 / np.sqrt(1.0 - BETA2**number))
    small, factor = np.float32(eps), np.float32(scale)
    decay1, decay2 = np.float32(1.0 - BETA1), np.float32(1.0 - BETA2)
    for i in range(len(values)):
        slope = factor * gradient[i]
        mean = exp_avg[i] + decay1 * (slope - exp_avg[i])
        square = exp_avg_sq[i] + decay2 * (slope * slope - exp_avg_sq[i])
        exp_avg[i], exp_avg_sq[i] = mean, square
        values[i] -= step_size * mean / (np.sqrt(square) * root + small)


@compiled
def move_towards(target: Array, values: Array, tau: float) -> None:
    share = np.float32(tau)
    for i in range(len(values)):
        target[i] = values[i] if tau == 1.0 else target[i] + share * (values[i] - target[i])


class Stack(NamedTuple):
    """A network, or several with the same sizes, and their optimizer. All vectors are flat."""

    values: Array  # [P]
    target: Array  # [P]; [1] if there is no target network
    gradients: Array  # [parts, P]
    exp_avg: Array
    exp_avg_sq: Array
    num_steps: Array  # [1]: steps of Adam
    offsets: Array  # [layers, 2]
    sizes: Array  # [layers + 1]
    num_members: int


class Team(NamedTuple):
    """What the threads share to work together."""

    barrier: Array  # [parts, 8]
    squares: Array  # [parts, 8]: squared norms of parts of a gradient


@compiled
def descend(part: int, team: Team, stack: Stack, rate: float, eps: float, max_norm: float, tau: float) -> None:
    """Update this thread's part of the parameters, with the sum of all parts' gradients scaled down to `max_norm` (0:
    no limit), and move the target towards them by a share `tau`."""
    num_parts, size = stack.gradients.shape
    low, high = part * size // num_parts, (part + 1) * size // num_parts
    squares = add_parts(stack.gradients, low, high)
    scale = 1.0
    if max_norm > 0.0:
        team.squares[part, 0] = squares
        meet(team.barrier, part)
        total = 0.0
        for other in range(num_parts):
            total += team.squares[other, 0]
        scale = min(1.0, max_norm / (np.sqrt(total) + 1e-6))
    number = stack.num_steps[0] + 1.0
    adam(
        stack.values[low:high], stack.gradients[0, low:high], stack.exp_avg[low:high], stack.exp_avg_sq[low:high],
        number, rate, eps, scale,
    )  # fmt: skip
    if tau > 0.0:
        move_towards(stack.target[low:high], stack.values[low:high], tau)
    meet(team.barrier, part)
    if part == 0:
        stack.num_steps[0] = number  # read again only after the next barrier
