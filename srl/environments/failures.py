"""Failures of environments: numbers that are not finite, and the limit on replacements of a copy that fails."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from srl.base.tree import Array, Tree, leaves

MAX_FAILURES_IN_A_ROW = 20


class EnvironmentBroken(RuntimeError):
    """An environment could not be built, or could not be replaced after a failure."""


def count_failure(in_a_row: int, at_first_step: bool, report: str) -> int:
    """Return the number of failures in a row, including this one. Raise EnvironmentBroken if no replacement gets beyond
    its first step.

    Lanes that are stepped without an actor would otherwise replace an environment forever. An actor stops earlier: it
    counts all failures within a minute (`--max-env-failures`).
    """
    in_a_row = in_a_row + 1 if at_first_step else 1
    if in_a_row >= MAX_FAILURES_IN_A_ROW:
        raise EnvironmentBroken(f"{report}\nIt failed {in_a_row} times in a row at its first step")
    return in_a_row


def all_finite(tree: Tree) -> bool:
    """Return whether every float in the tree is finite, in one pass over the batch. Integers cost nothing."""
    if isinstance(tree, np.ndarray):
        return tree.dtype.kind != "f" or int(np.count_nonzero(np.isfinite(tree))) == tree.size
    return all(all_finite(item) for item in tree.values())


def finite_check(example: Tree) -> Callable[[Any, Array], bool]:
    """Return a function ``(observation, reward) -> all finite`` for batches like `example`. It makes as few calls as
    possible, because some environments step hundreds of lanes in 50 microseconds."""
    isfinite = math.isfinite
    if not isinstance(example, np.ndarray) or example.dtype.kind != "f":
        return lambda observation, reward: all_finite(reward) and all_finite(observation)

    def check(observation: Array, reward: Array) -> bool:
        # A sum of squares is finite only if all its terms are; one that overflowed needs a closer look.
        numbers = observation.ravel(order="K")
        if isfinite(numbers.dot(numbers)) and isfinite(reward.dot(reward)):
            return True
        return all_finite(observation) and all_finite(reward)

    return check


def broken_lanes(observation: Tree, reward: Array) -> dict[int, str]:
    """Return a message for each lane with a number that is not finite."""
    found: dict[int, str] = {}
    for path, leaf in (*leaves(observation), ("reward", reward)):
        if leaf.dtype.kind == "f":
            finite = np.isfinite(leaf).reshape(len(leaf), -1).all(axis=1)  # [L]
            what = "reward" if leaf is reward else f"observation {path!r}" if path else "observation"
            for lane in np.flatnonzero(~finite):
                found.setdefault(int(lane), f"{what} is not finite: {np.array2string(leaf[lane], threshold=20)}")
    return found


def failed_lanes(failures: Collection[int], num_lanes: int) -> Array | None:
    """Return which lanes failed, [L] bool, or None if all are well."""
    if not failures:
        return None
    failed = np.zeros(num_lanes, bool)
    failed[list(failures)] = True
    return failed
