"""Random numbers of searches: one stream for each lane, so that a lane's noise does not depend on the other lanes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias, Union

import numpy as np
from numba import njit

from srl.base.tree import Array

Rng: TypeAlias = Union[np.random.Generator, Sequence[np.random.Generator], Array]
"""One generator for each lane; or one for all, with which the noise of a lane depends on the number of lanes; or an
array [L] of 64-bit integers, which every use advances in place."""

compiled = njit(cache=True, nogil=True, error_model="numpy")
STEP = np.uint64(0x9E3779B97F4A7C15)


@compiled
def mixed_bits(bits: Any) -> Any:
    """Return the output function of SplitMix64 (Steele et al. 2014)."""
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


@compiled
def uniform(state: Array) -> float:
    """Return a number in (0, 1)."""
    state[0] += STEP
    return (np.float64(mixed_bits(state[0]) >> np.uint64(12)) + 0.5) * 2.0**-52


@compiled
def log_gamma_variate(state: Array, shape: float) -> float:
    """Return the logarithm of a gamma variate (Marsaglia and Tsang 2000). It is finite even if the variate is 0."""
    d = max(shape, shape + (shape < 1)) - 1 / 3
    c = 1 / np.sqrt(9 * d)
    while True:
        normal = np.sqrt(-2 * np.log(uniform(state))) * np.cos(2 * np.pi * uniform(state))
        v = (1 + c * normal) ** 3
        if v > 0 and np.log(uniform(state)) < 0.5 * normal**2 + d - d * v + d * np.log(v):
            break
    boost = np.log(uniform(state)) / shape if shape < 1 else 0.0
    return float(np.log(d * v) + boost)


@compiled
def fill_gumbel(seeds: Array, lanes: Array, scale: float, gumbel: Array) -> None:
    """Draw Gumbel noise for these rows of `gumbel` [L, A]."""
    state = np.empty(1, np.uint64)
    for i in range(len(lanes)):
        state[0] = seeds[i]
        for a in range(gumbel.shape[1]):
            gumbel[lanes[i], a] = -np.log(-np.log(uniform(state))) * scale


@compiled
def mix_dirichlet(seeds: Array, lanes: Array, alpha: float, fraction: float, priors: Array) -> None:
    """Mix Dirichlet noise into the priors [L, A] of these rows; negative priors are those of illegal actions."""
    state, noise = np.empty(1, np.uint64), np.empty(priors.shape[1])
    for i in range(len(lanes)):
        state[0] = seeds[i]
        top, total = -np.inf, 0.0
        for a in range(len(noise)):
            if priors[lanes[i], a] >= 0:
                noise[a] = log_gamma_variate(state, alpha)
                top = max(top, noise[a])
        for a in range(len(noise)):
            if priors[lanes[i], a] >= 0:
                noise[a] = np.exp(noise[a] - top)
                total += noise[a]
        for a in range(len(noise)):
            if priors[lanes[i], a] >= 0:
                priors[lanes[i], a] = (1 - fraction) * priors[lanes[i], a] + fraction * noise[a] / total


@compiled
def sample_rows(seeds: Array, weights: Array, temperature: Array, actions: Array) -> None:
    """Draw an action of each row with probabilities proportional to weight ** (1 / temperature)."""
    state, shares = np.empty(1, np.uint64), np.empty(weights.shape[1])
    for i in range(len(weights)):
        state[0] = seeds[i]
        best = 0
        for a in range(len(shares)):
            if weights[i, a] > weights[i, best]:
                best = a
        actions[i] = best
        if temperature[i] > 0:
            total = 0.0
            for a in range(len(shares)):
                shares[a] = (weights[i, a] / weights[i, best]) ** (1 / temperature[i])
                total += shares[a]
            rest = uniform(state) * total
            for a in range(len(shares)):
                if shares[a] > 0:
                    actions[i] = a
                    rest -= shares[a]
                    if rest < 0:
                        break


def draw_seeds(rng: Rng, num_lanes: int) -> Array:
    """Return a fresh seed [L] for each lane."""
    if isinstance(rng, np.random.Generator):
        return rng.integers(0, 2**64, num_lanes, np.uint64)
    if len(rng) != num_lanes:
        raise ValueError(f"expected one random generator or seed for each of {num_lanes} lanes, found {len(rng)}")
    if isinstance(rng, np.ndarray):
        if rng.dtype not in (np.uint64, np.int64) or rng.ndim != 1:
            raise ValueError(f"seeds are an array [lanes] of 64-bit integers, found {rng.dtype} {list(rng.shape)}")
        rng += rng.dtype.type(1)  # so that the next search has other noise
        return mixed_seeds(rng.astype(np.uint64))
    return np.array([generator.integers(0, 2**64, dtype=np.uint64) for generator in rng], np.uint64)


def mixed_seeds(seeds: Array) -> Array:
    """Return seeds whose streams have nothing in common even if the given numbers are consecutive."""
    with np.errstate(over="ignore"):
        return np.asarray(mixed_bits(seeds * STEP), np.uint64)


def sample_actions(weights: Array, temperature: float | Array, rng: Rng | None) -> Array:
    """Return actions [L], drawn with probabilities proportional to weight ** (1 / temperature).

    `weights` [L, A] are visits or a policy. `temperature` is one number or [L]; 0 takes the largest weight. `rng` as in
    `run`; it may be None if all temperatures are 0."""
    weights = np.ascontiguousarray(weights, np.float64)
    if weights.ndim != 2 or not np.all(weights >= 0) or not np.all(weights.max(1, initial=0) > 0):
        raise ValueError("weights are an array [lanes, actions] of numbers >= 0, with one > 0 in each row")
    temperatures = np.broadcast_to(np.asarray(temperature, np.float64), len(weights))
    if not np.all(temperatures >= 0):
        raise ValueError(f"temperature must be at least 0, found {temperatures.min()}")
    if rng is None and np.any(temperatures > 0):
        raise ValueError("drawing with a temperature above 0 needs rng")
    seeds = np.zeros(len(weights), np.uint64) if rng is None else draw_seeds(rng, len(weights))
    actions = np.zeros(len(weights), np.int64)
    sample_rows(seeds, weights, np.ascontiguousarray(temperatures), actions)
    return actions
