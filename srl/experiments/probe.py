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

PROBE_SECONDS = 0.1
PROBE_COPIES = 4


@dataclass(frozen=True)
class Probed:
    spec: LaneSpec
    """Of one copy."""
    step_us: float
    """Microseconds of one copy's step, seen from Python with a few copies."""


def probe(environment: LanesConfig, seed: int, timeout: float = 60.0) -> Probed:
    """Build a few copies and step them for a moment with random actions, away from this process where possible."""
    if not may_fork():
        return _probe(environment, seed)
    what = f"environment {getattr(environment, 'name', type(environment).__name__)}, tried for a moment,"
    probed: Probed = from_data(in_child(lambda: to_data(_probe(environment, seed)), timeout, what))
    return probed


def _probe(environment: LanesConfig, seed: int) -> Probed:
    lanes = environment.build(PROBE_COPIES)
    try:
        generator = np.random.default_rng(seed)
        lanes.reset(seed)
        spec = lanes.spec
        actions = tuple(
            random_actions(team.action, spec.num_lanes(index), generator) for index, team in enumerate(spec.teams)
        )
        began, count = time.perf_counter(), 0
        while count == 0 or time.perf_counter() - began < PROBE_SECONDS:
            lanes.step(actions)
            count += PROBE_COPIES
        return Probed(replace(spec, num_copies=1), (time.perf_counter() - began) / count * 1e6)
    finally:
        lanes.close()


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
