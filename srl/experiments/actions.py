"""Random actions, for looking at environments without a policy."""

from __future__ import annotations

from typing import Any

import numpy as np

from srl.api.lanes import LaneSpec
from srl.api.spaces import Box, Dict, Discrete, MultiDiscrete, Space
from srl.base.tree import Tree


def some_actions(spec: LaneSpec, generator: np.random.Generator) -> tuple[Tree, ...]:
    """One random action for every lane of every team."""
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
