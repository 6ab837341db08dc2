"""Samples of actions, for spaces that have too many to search: real numbers, or combinations of choices.

A node keeps its sampled actions with its state, as [latent state | seed | actions]. An action of the tree is an index
into them. A node's seed depends on its parent's seed and on the edge between them, so that a tree depends only on its
root. Seed 0 is for searches without noise: it always gives the same samples, the first of which is the most likely
action.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from srl.base.tree import Array
from srl.search.kernels import compiled, fast_exp
from srl.search.noise import STEP, mixed_bits, mixed_seeds, uniform

SEEDS = 2**24  # float32 represents every integer up to this one
MOST_MEAN, LOG_STD = 3.0, (-5.0, 0.5)
"""Largest mean of u, for a = tanh(u), and smallest and largest log standard deviation. Beyond them an action hardly
changes, and a policy that got there by chance would not come back."""


def check_std(std: float) -> None:
    """Raise ValueError if a policy cannot have this standard deviation."""
    low, high = map(math.exp, LOG_STD)
    if not low < std < high:
        raise ValueError(f"initial_std of sampled actions must be between {low:.2g} and {high:.2g}, found {std}")


@dataclass(frozen=True)
class ActionSamples:
    """The actions of each node, drawn from a policy (Sampled MuZero, Hubert et al. 2021).

    Real-valued actions are a = tanh(u), and a node keeps u. The policy's outputs x stand for the means of u and their
    log standard deviations: 3 tanh(x / 3), and between -5 and 0.5 in proportion to tanh(x). Otherwise they are the
    logits of all choices."""

    count: int
    """Number of samples."""
    size: int
    """Number of elements of an action."""
    choices: tuple[int, ...] = ()
    """Number of choices of each element; (): elements are real numbers."""
    temperature: float = 1.0
    """Samples are drawn with probabilities proportional to policy ** (1 / temperature), and the prior is corrected."""

    def __post_init__(self) -> None:
        if self.count < 1 or self.size < 1 or (self.choices and len(self.choices) != self.size):
            raise ValueError(f"samples need count >= 1, size >= 1 and one number of choices per element, found {self}")
        if not 0.0 < self.temperature < math.inf:
            raise ValueError(f"temperature must be positive, found {self.temperature}")

    @property
    def num_inputs(self) -> int:
        """Number of inputs of the dynamics: real numbers, or a one-hot vector for each element."""
        return sum(self.choices) or self.size

    @property
    def num_outputs(self) -> int:
        return sum(self.choices) or 2 * self.size

    @property
    def kept(self) -> int:
        """Numbers that a node keeps beside its latent state."""
        return 1 + self.count * self.size

    def build(self) -> Sampler:
        return Sampler(self.count, self.size, np.array(self.choices, np.int64), np.float32(self.temperature))


class Sampler(NamedTuple):
    """What compiled code knows about samples; `number` 0: there are none."""

    number: int
    size: int
    choices: Array  # [size] int64, or [0]
    temperature: np.float32


NO_SAMPLES = Sampler(0, 0, np.zeros(0, np.int64), np.float32(1))


def root_seeds(seeds: Array | None, num_lanes: int) -> Array:
    """Return seeds [L] float32 for the roots, from 64-bit integers; None: those without noise."""
    if seeds is None:
        return np.zeros(num_lanes, np.float32)
    return (1 + mixed_seeds(seeds.astype(np.uint64)) % np.uint64(SEEDS - 1)).astype(np.float32)


@compiled
def child_seed(seed: np.float32, edge: int) -> np.float32:
    if seed == 0:
        return seed
    bits = mixed_bits((np.uint64(seed) << np.uint64(32)) + np.uint64(edge + 1) * STEP)
    return np.float32(np.uint64(1) + bits % np.uint64(SEEDS - 1))


@compiled
def draw(sampler: Sampler, policy: Array, kept: Array, logits: Array) -> None:
    """Draw the actions of new nodes from policies [L, outputs], which are overwritten, into `kept`
    [L, 1 + count * size], whose seeds are given. Write the logits [L, count] of the prior: log of policy / sampling
    distribution, plus the log of how often an action was drawn. Repeated actions have -inf, but for the first one."""
    state = np.empty(1, np.uint64)
    shares = np.empty(policy.shape[1], np.float32)
    for row in range(len(policy)):
        state[0] = mixed_bits(np.uint64(kept[row, 0]) * STEP)
        if len(sampler.choices):
            _draw_choices(sampler, policy[row], kept[row], logits[row], shares, state)
        else:
            _draw_numbers(sampler, policy[row], kept[row], logits[row], state)


@compiled
def _draw_numbers(sampler: Sampler, policy: Array, kept: Array, logits: Array, state: Array) -> None:
    size, spread = sampler.size, np.sqrt(sampler.temperature)
    most, low, high = np.float32(MOST_MEAN), np.float32(LOG_STD[0]), np.float32(LOG_STD[1])
    for j in range(size):
        policy[j] = most * np.tanh(policy[j] / most)
        log_std = low + (high - low) * np.float32(0.5) * (np.tanh(policy[size + j]) + np.float32(1))
        policy[size + j] = fast_exp(log_std) * spread
    for k in range(sampler.number):
        square = np.float32(0)
        for j in range(size):
            normal = np.float32(0)
            if k > 0 or kept[0] > 0:
                normal = np.float32(np.sqrt(-2 * np.log(uniform(state))) * np.cos(2 * np.pi * uniform(state)))
            kept[1 + k * size + j] = policy[j] + policy[size + j] * normal
            square += normal * normal
        # log N(u; mean, std) - log N(u; mean, std * sqrt(temperature)), up to a constant
        logits[k] = np.float32(0.5) * (np.float32(1) - sampler.temperature) * square


@compiled
def _draw_choices(sampler: Sampler, policy: Array, kept: Array, logits: Array, shares: Array, state: Array) -> None:
    size, inverse = sampler.size, np.float32(1) / sampler.temperature
    logits[:] = 0
    start = 0
    for j in range(size):
        number, best = sampler.choices[j], 0
        for a in range(number):
            if policy[start + a] > policy[start + best]:
                best = a
        total = np.float32(0)
        for a in range(number):
            shares[a] = np.exp((policy[start + a] - policy[start + best]) * inverse)
            total += shares[a]
        for k in range(sampler.number):
            chosen = best
            if k > 0 or kept[0] > 0:
                rest = np.float32(uniform(state)) * total
                for a in range(number):
                    if shares[a] > 0:
                        chosen = a
                        rest -= shares[a]
                        if rest < 0:
                            break
            kept[1 + k * size + j] = np.float32(chosen)
            logits[k] += (policy[start + chosen] - policy[start + best]) * (np.float32(1) - inverse)
        start += number
    for k in range(sampler.number):
        if logits[k] == -np.float32(np.inf):
            continue
        repeats = 1
        for other in range(k + 1, sampler.number):
            same = True
            for j in range(size):
                same = same and kept[1 + k * size + j] == kept[1 + other * size + j]
            if same:
                repeats += 1
                logits[other] = -np.float32(np.inf)
        logits[k] += np.float32(np.log(repeats))


@compiled
def add_actions(sampler: Sampler, actions: Array, weights: Array, hidden: Array) -> None:
    """Add actions [L, size] to the outputs [L, out] of a first layer, whose `weights` [inputs, out] are those of the
    actions."""
    for row in range(len(hidden)):
        start = 0
        for j in range(sampler.size):
            if len(sampler.choices):
                number = np.int64(actions[row, j])
                for i in range(hidden.shape[1]):
                    hidden[row, i] += weights[start + number, i]
                start += sampler.choices[j]
            else:
                x = np.float32(np.tanh(actions[row, j]))
                for i in range(hidden.shape[1]):
                    hidden[row, i] += x * weights[j, i]


def sampled_actions(samples: ActionSamples, state: Any) -> Array:
    """Return the actions [L, count, size] of states [L, latent + kept]."""
    kept = np.asarray(state)[:, -samples.count * samples.size :]
    return kept.reshape(len(kept), samples.count, samples.size)
