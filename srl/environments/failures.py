"""Environment failures: non-finite numbers, and a limit on how often a failing copy is replaced."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Collection
from typing import Any

import gymnasium
import numpy as np

from srl.base.errors import WrongValue
from srl.base.tree import Array, Tree, leaves

MAX_FAILURES_IN_A_ROW = 20

VALID = object()
RESET_RESULT = ("observation", "info")
STEP_RESULT = ("observation", "reward", "terminated", "truncated", "info")
OLD_API = {
    True: "the old Gym API returned only the observation: return observation, {}",
    False: "replace `done` of the old Gym API by terminated (by the task) and truncated (by a time limit)",
}


class EnvironmentBroken(RuntimeError):
    """An environment could not be built, or could not be replaced after a failure."""


def count_failure(in_a_row: int, at_first_step: bool, report: str) -> int:
    """Return the number of consecutive failures, including this one. Raise EnvironmentBroken after too many that
    occurred at the first step.

    Otherwise, lanes stepped without an actor could replace an environment forever. An actor stops earlier: it limits
    all failures within a minute (`--max-env-failures`).
    """
    in_a_row = in_a_row + 1 if at_first_step else 1
    if in_a_row >= MAX_FAILURES_IN_A_ROW:
        raise EnvironmentBroken(f"{report}\nIt failed {in_a_row} times in a row at its first step")
    return in_a_row


def all_finite(tree: Tree) -> bool:
    """Return whether every float in the tree is finite. Integer arrays are skipped."""
    if isinstance(tree, np.ndarray):
        return tree.dtype.kind != "f" or int(np.count_nonzero(np.isfinite(tree))) == tree.size
    return all(all_finite(item) for item in tree.values())


def finite_check(example: Tree) -> Callable[[Any, Array], bool]:
    """Return a function ``(observation, reward) -> bool`` that checks whether a batch like `example` is all finite. It
    makes as few calls as possible because some environments step hundreds of lanes in 50 microseconds."""
    isfinite = math.isfinite
    if not isinstance(example, np.ndarray) or example.dtype.kind != "f":
        return lambda observation, reward: all_finite(reward) and all_finite(observation)

    def check(observation: Array, reward: Array) -> bool:
        # If the sum of squares is finite, so is every term; if not, it may have overflowed, so look closer.
        numbers = observation.ravel(order="K")
        if isfinite(numbers.dot(numbers)) and isfinite(reward.dot(reward)):
            return True
        return all_finite(observation) and all_finite(reward)

    return check


def broken_lanes(observation: Tree, reward: Array) -> dict[int, str]:
    """Map each lane that has a non-finite observation or reward to an error message."""
    found: dict[int, str] = {}
    for path, leaf in (*leaves(observation), ("reward", reward)):
        if leaf.dtype.kind == "f":
            finite = np.isfinite(leaf).reshape(len(leaf), -1).all(axis=1)  # [L]
            what = "reward" if leaf is reward else f"observation {path!r}" if path else "observation"
            for lane in np.flatnonzero(~finite):
                found.setdefault(int(lane), f"{what} is not finite: {np.array2string(leaf[lane], threshold=20)}")
    return found


def failed_lanes(failures: Collection[int], num_lanes: int) -> Array | None:
    """Return a mask [L] of the lanes that failed, or None if none did."""
    if not failures:
        return None
    failed = np.zeros(num_lanes, bool)
    failed[list(failures)] = True
    return failed


def not_a_number(name: str, reward: Any) -> str:
    several = isinstance(reward, (list, tuple, np.ndarray))
    fix = "wrap an environment with several agents as a PettingZoo environment, or return the sum of their rewards"
    return (
        f"environment {name}: expected the reward to be a number, found {type(reward).__name__} {reward!r}; "
        f"{fix if several else 'return float(reward)'}"
    )


def check_result(name: str, result: Any, start: bool, error: Exception) -> None:
    """Raise EnvironmentBroken if an error is due to `reset` or `step` returning the wrong number of values, because
    another copy will do so, too. `result` is VALID if they returned nothing yet."""
    expected = RESET_RESULT if start else STEP_RESULT
    if result is VALID or (isinstance(result, tuple) and len(result) == len(expected)):
        return
    found = f"a tuple of {len(result)} values" if isinstance(result, tuple) else type(result).__name__
    call = f"{'reset' if start else 'step'} to return ({', '.join(expected)})"
    raise EnvironmentBroken(f"environment {name}: expected {call}, found {found}; {OLD_API[start]}") from error


def check_made(environment: Any) -> None:
    """Raise WrongValue if what a function made is no Gymnasium environment, or lacks what every one has."""
    if not isinstance(environment, gymnasium.Env):
        hint = "a function that makes a VectorEnv takes `num_envs`, one that makes Lanes takes `num_copies`"
        hint = "return the environment" if environment is None else hint
        raise WrongValue(f"it returned {type(environment).__name__}, not a gymnasium.Env; {hint}")
    bare = environment.unwrapped
    for name in ("observation_space", "action_space"):
        if not isinstance(getattr(environment, name, None), gymnasium.Space):
            raise WrongValue(f"{type(bare).__name__} has no `{name}`; set it to a gymnasium.spaces.Space in `__init__`")
    parameters = inspect.signature(bare.reset).parameters
    if "seed" not in parameters and not any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
        fix = "write `def reset(self, *, seed=None, options=None)` and call `super().reset(seed=seed)` first"
        raise WrongValue(f"`reset` of {type(bare).__name__} takes no `seed`; {fix}")
