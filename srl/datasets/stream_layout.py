"""Layout of recorded batches: files of another user must not reach compiled code with other arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from srl.api.algorithm import AlgorithmConfig
from srl.api.block import POSITION, STATE, STEP_ARRAYS
from srl.api.spaces import Dict, Discrete, MultiDiscrete, Space, array_spec
from srl.base.tree import Array, ArraySpec, leaves
from srl.datasets.stream_segments import LAGS, Kind

REPLAY_ARRAYS = {name: ArraySpec((), "float32") for name in ("discount", "weight")}
REQUIRED = {
    "trajectory": ("reward", "terminated", "truncated", "acting", "first", "version"),
    "transitions": ("reward", "discount", "weight"),
    "sequences": ("reward", "terminated", "truncated", "acting", "first", "valid", "weight"),
}


class StreamLayout:
    """The arrays that batches of a policy may have."""

    def __init__(self, algorithm: AlgorithmConfig, observation: Space, action: Space) -> None:
        decision = algorithm.decision_spec(observation, action)
        seen = array_spec(observation)
        tree: dict[str, Any] = {"observation": seen, "next_observation": seen, "new": seen, "decision": decision}
        tree |= {**STEP_ARRAYS, **REPLAY_ARRAYS, "valid": ArraySpec((), "bool"), POSITION: ArraySpec((), "float32")}
        if STATE in decision:
            tree[STATE] = decision[STATE]
        self._specs = dict(leaves(tree))
        choices = {"observation": observation, "next_observation": observation, "new": observation}
        self._sizes = {path: sizes for root, space in choices.items() for path, sizes in _choices(space, root)}
        self._sizes |= dict(_choices(action, "decision/action"))

    def check(self, kind: Kind, arrays: Mapping[str, Array]) -> None:
        """Raise ValueError unless these are the arrays of a batch."""
        reward = arrays.get("reward")
        lead = 3 if kind == "sequences" else 2
        if reward is None or reward.ndim != lead:
            raise ValueError(f"a batch needs rewards with {lead} axes")
        missing = [name for name in REQUIRED[kind] if name not in arrays]
        roots = {path.partition("/")[0] for path in arrays}
        missing += [name for name in ("observation", "decision") if name not in roots]
        if missing:
            raise ValueError(f"a batch has no {missing[0]}")
        for path, array in arrays.items():
            if path == LAGS:
                continue
            spec = self._specs.get(path)
            if spec is None:
                raise ValueError(f"a batch of this policy has no array {path[:80]!r}")
            axes = _axes(path, kind, array, reward.shape)
            if array.dtype.name != spec.dtype or array.shape != (*axes, *spec.shape):
                shape = (*axes, *spec.shape)
                raise ValueError(f"{path} must be {spec.dtype} {shape}, found {array.dtype.name} {array.shape}")
            sizes = self._sizes.get(path)
            if sizes is not None and array.size and (array.min() < 0 or bool((array >= sizes).any())):
                raise ValueError(f"{path} has values outside of its space")


def _axes(path: str, kind: Kind, array: Array, lead: tuple[int, ...]) -> tuple[int, ...]:
    """Return the leading axes of an array, where those of rewards are `lead`."""
    root = path.partition("/")[0]
    if root == "new":
        return array.shape[:1]
    if kind == "sequences" and root == STATE:
        return (lead[0], lead[2])
    if kind == "sequences" and root == "weight":
        units = array.shape[1] if array.ndim == 2 else 0
        return (lead[0], units if units and lead[2] % units == 0 else lead[2])
    return lead


def _choices(space: Space, root: str) -> list[tuple[str, Array]]:
    """Return path and number of alternatives of each array of choices."""
    if isinstance(space, Dict):
        return [pair for name, item in space.items.items() for pair in _choices(item, f"{root}/{name}")]
    if isinstance(space, Discrete):
        return [(root, np.array(space.n))]
    return [(root, np.array(space.nvec))] if isinstance(space, MultiDiscrete) else []
