"""Finding lanes whose observation or reward is NaN or infinite."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from srl.base.tree import Array, Tree, leaves


def all_finite(tree: Tree) -> bool:
    """Whether every real number of the tree is finite. One pass over the batch; integers cost nothing."""
    if isinstance(tree, np.ndarray):
        return tree.dtype.kind != "f" or int(np.count_nonzero(np.isfinite(tree))) == tree.size
    return all(all_finite(item) for item in tree.values())


def finite_check(example: Tree) -> Callable[[Any, Array], bool]:
    """A function ``(observation, reward) -> all finite`` for batches like `example`: no more calls than needed, for
    environments that take 50 microseconds to step hundreds of lanes."""
    isfinite = math.isfinite
    if not isinstance(example, np.ndarray) or example.dtype.kind != "f":
        return lambda observation, reward: all_finite(reward) and all_finite(observation)

    def check(observation: Array, reward: Array) -> bool:
        # A sum of squares is finite only if all its terms are; one that overflowed is looked at more closely.
        numbers = observation.ravel(order="K")
        if isfinite(numbers.dot(numbers)) and isfinite(reward.dot(reward)):
            return True
        return all_finite(observation) and all_finite(reward)

    return check


def broken_lanes(observation: Tree, reward: Array) -> dict[int, str]:
    """What is wrong with each lane that holds a number that is not finite."""
    found: dict[int, str] = {}
    for path, leaf in (*leaves(observation), ("reward", reward)):
        if leaf.dtype.kind == "f":
            finite = np.isfinite(leaf).reshape(len(leaf), -1).all(axis=1)  # [L]
            what = "reward" if leaf is reward else f"observation {path!r}" if path else "observation"
            for lane in np.flatnonzero(~finite):
                found.setdefault(int(lane), f"{what} is not finite: {np.array2string(leaf[lane], threshold=20)}")
    return found
