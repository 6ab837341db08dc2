"""What all adapters do with the copies of an environment: seeds, failures, values that are not finite, frames."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from srl.base.seeding import derive
from srl.base.tree import Array, Tree, leaves

MAX_FAILURES_IN_A_ROW = 20


class EnvironmentBroken(RuntimeError):
    """An environment could not be built, or not be replaced after it failed; the message holds the facts."""


def count_failure(in_a_row: int, at_first_step: bool, report: str) -> int:
    """Return the number of failures in a row, with this one; raise EnvironmentBroken if no replacement gets beyond its
    first step.

    Lanes that are stepped without an actor would otherwise replace an environment forever. An actor stops earlier: it
    counts all failures within a minute (`--max-env-failures`).
    """
    in_a_row = in_a_row + 1 if at_first_step else 1
    if in_a_row >= MAX_FAILURES_IN_A_ROW:
        raise EnvironmentBroken(f"{report}\nIt failed {in_a_row} times in a row at its first step")
    return in_a_row


class CopySeeds(Iterator[int]):
    """Seeds that never repeat; a plain counter, so that a saved run continues where it was."""

    def __init__(self, start: int) -> None:
        self.following = start

    def __next__(self) -> int:
        self.following += 1
        return self.following - 1


def copy_seeds(seed: int) -> CopySeeds:
    """Return seeds for copies that start at a number derived from `seed`, small enough for any environment's int32."""
    return CopySeeds(derive(seed, "environments") >> 33)


def all_finite(tree: Tree) -> bool:
    """Return whether every real number of the tree is finite. One pass over the batch; integers cost nothing."""
    if isinstance(tree, np.ndarray):
        return tree.dtype.kind != "f" or int(np.count_nonzero(np.isfinite(tree))) == tree.size
    return all(all_finite(item) for item in tree.values())


def finite_check(example: Tree) -> Callable[[Any, Array], bool]:
    """Return a function ``(observation, reward) -> all finite`` for batches like `example`. It makes no more calls than
    needed, because some environments step hundreds of lanes in 50 microseconds."""
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
    """Return a message for each lane that holds a number that is not finite."""
    found: dict[int, str] = {}
    for path, leaf in (*leaves(observation), ("reward", reward)):
        if leaf.dtype.kind == "f":
            finite = np.isfinite(leaf).reshape(len(leaf), -1).all(axis=1)  # [L]
            what = "reward" if leaf is reward else f"observation {path!r}" if path else "observation"
            for lane in np.flatnonzero(~finite):
                found.setdefault(int(lane), f"{what} is not finite: {np.array2string(leaf[lane], threshold=20)}")
    return found


def rendered_frame(name: str, render: Callable[[], Any]) -> Array:
    """Return the frame that an environment renders, uint8 [height, width, 3]; ValueError if there is none."""
    try:
        frame = render()
    except Exception as error:
        raise ValueError(f"environment {name} cannot be rendered here: {error!r}") from error
    if not isinstance(frame, np.ndarray) or frame.ndim != 3 or frame.shape[2] < 3:
        raise ValueError(
            f"environment {name} cannot be recorded: render() returned {type(frame).__name__}, expected an array "
            "[height, width, 3] as for render_mode='rgb_array'"
        )
    return frame[:, :, :3].astype(np.uint8, copy=False)
