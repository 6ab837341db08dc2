"""Looking at an environment before the run: its spaces, and what a step costs."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from srl.api.lanes import LanesConfig, LaneSpec
from srl.api.spaces import Box, Dict, Discrete, MultiDiscrete, Space
from srl.base.config import from_data, to_data
from srl.base.tree import Tree
from srl.experiments.trial import in_child, may_fork

PROBE_SECONDS = 0.05
CHEAP_SECONDS = 0.05
"""Making a copy and stepping it once in less time than this, we can afford to make many."""
MANY_COPIES = 64
BUILD_SECONDS = 5.0
"""Copies are given at least this long to be built and to step, on a machine that is busy too."""


@dataclass(frozen=True)
class Probed:
    spec: LaneSpec
    """Of one copy."""
    step_us: float
    """Microseconds of one copy's step."""


def probe(environment: LanesConfig, seed: int, timeout: float = 60.0) -> Probed:
    """Build a few copies and step them for a moment with random actions, away from this process where possible."""
    if not may_fork():
        return _probe(environment, seed)
    what = f"environment {getattr(environment, 'name', type(environment).__name__)}, tried for a moment,"
    bound = max(timeout, BUILD_SECONDS)
    probed: Probed = from_data(in_child(lambda: to_data(_probe(environment, seed)), bound, what))
    return probed


def _probe(environment: LanesConfig, seed: int) -> Probed:
    began = time.perf_counter()
    lanes, copies = environment.build(1), 1
    try:
        generator = np.random.default_rng(seed)
        lanes.reset(seed)
        lanes.step(_actions(lanes.spec, generator))
        if time.perf_counter() - began < CHEAP_SECONDS:  # many together show what a vectorised environment really costs
            lanes.close()
            lanes, copies = environment.build(MANY_COPIES), MANY_COPIES
            lanes.reset(seed)
        spec = lanes.spec
        actions = _actions(spec, generator)
        began, steps = time.perf_counter(), 0
        while steps == 0 or time.perf_counter() - began < PROBE_SECONDS:
            lanes.step(actions)
            steps += copies
        return Probed(replace(spec, num_copies=1), (time.perf_counter() - began) / steps * 1e6)
    finally:
        lanes.close()


def _actions(spec: LaneSpec, generator: np.random.Generator) -> tuple[Tree, ...]:
    return tuple(random_actions(team.action, spec.num_lanes(index), generator) for index, team in enumerate(spec.teams))


def random_actions(space: Space, num_lanes: int, generator: np.random.Generator) -> Tree:
    """Uniform actions [L, ...]."""
    if isinstance(space, Discrete):
        return generator.integers(0, space.n, num_lanes)
    if isinstance(space, MultiDiscrete):
        return generator.integers(0, np.array(space.nvec), (num_lanes, len(space.nvec)))
    if isinstance(space, Dict):
        return {name: random_actions(item, num_lanes, generator) for name, item in space.items.items()}
    low, high = _bounds(space, space.low), _bounds(space, space.high)
    low, high = np.where(np.isfinite(low), low, -1.0), np.where(np.isfinite(high), high, 1.0)
    return generator.uniform(low, high, (num_lanes, *space.shape)).astype(space.dtype)


def _bounds(space: Box, bound: Any) -> Any:
    return np.asarray(bound, np.float64).reshape(space.shape) if isinstance(bound, tuple) else np.float64(bound)
