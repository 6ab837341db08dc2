"""Rewards and terminations of goals that an environment did not pursue: its own functions, called with arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from srl.api.lanes import GoalFunctions, LanesConfig
from srl.base.errors import raised
from srl.base.tree import Array, Tree, leaves, map_tree

ACHIEVED, DESIRED = "achieved_goal", "desired_goal"
TOLERANCE = 1e-3  # of rewards: goals are stored as float32
Function: TypeAlias = Callable[[Any, Any, Any], Any]
Call: TypeAlias = Literal["batch", "single"]
"""How to call a function of the environment: with arrays of goals, or with one goal after the other."""


@dataclass(frozen=True)
class GoalRewardsConfig:
    """The functions of a goal environment, and how they are called."""

    environment: LanesConfig
    reward: Call = "batch"
    terminated: Call | None = None  # None: what was recorded holds for any goal

    def build(self) -> GoalRewards:
        functions = self.environment.goal_functions()
        reward, ends = _called(functions.reward, self.reward, np.float32), None
        if self.terminated is not None and functions.terminated is not None:
            ends = _called(functions.terminated, self.terminated, np.bool_)
        return GoalRewards(reward, ends)


@dataclass(frozen=True)
class GoalRewards:
    """Functions of trees of achieved and of desired goals [N, ...], which return arrays [N]."""

    reward: Callable[[Tree, Tree], Array]  # float32
    terminated: Callable[[Tree, Tree], Array] | None  # bool; None: what was recorded holds for any goal


def _called(function: Function, call: Call, kind: type) -> Callable[[Tree, Tree], Array]:
    def with_arrays(achieved: Tree, desired: Tree) -> Array:
        found: Array = np.asarray(function(achieved, desired, {}), kind)
        expected = (num_rows(achieved),)
        if found.shape != expected:
            raise ValueError(f"a function of goals returned an array {found.shape}, expected {expected}")
        return found

    def one_by_one(achieved: Tree, desired: Tree) -> Array:
        return np.array([function(*pair, {}) for pair in pairs(achieved, desired)], kind)

    return with_arrays if call == "batch" else one_by_one


def num_rows(tree: Tree) -> int:
    return next(len(leaf) for _, leaf in leaves(tree))


def pairs(achieved: Tree, desired: Tree) -> list[tuple[Tree, Tree]]:
    """Return single achieved and desired goals."""

    def row(tree: Tree, i: int) -> Tree:
        found: Tree = map_tree(lambda leaf: leaf[i], tree)
        return found

    return [(row(achieved, i), row(desired, i)) for i in range(num_rows(achieved))]


@dataclass(frozen=True)
class Played:
    """Steps of an environment: the observations after them, and what it returned."""

    observation: Mapping[str, Tree]  # [N, ...]
    reward: Array  # [N]
    terminated: Array  # [N] bool


def check_functions(environment: str, functions: GoalFunctions, played: Played) -> tuple[Call, Call | None]:
    """Compare what a goal environment's functions return for the goals of some steps with what the environment did.
    Return how to call them: reward, termination. Raises ValueError if they do not agree."""
    achieved, desired = played.observation[ACHIEVED], played.observation[DESIRED]
    reward = _check(environment, "compute_reward", functions.reward, achieved, desired, played.reward)
    if functions.terminated is None:
        return reward, None
    ends, recorded = functions.terminated, played.terminated
    found = _one_by_one(environment, "compute_terminated", ends, achieved, achieved)
    if not found.any() and not recorded.any():
        return reward, None  # it never terminates, not even where a goal is reached
    return reward, _check(environment, "compute_terminated", ends, achieved, desired, recorded)


def _check(
    environment: str,
    name: str,
    function: Function,
    achieved: Tree,
    desired: Tree,
    recorded: Array,
) -> Call:
    single = _one_by_one(environment, name, function, achieved, desired)
    wrong = np.flatnonzero(~_equal(single, recorded))
    if len(wrong):
        at = wrong[0]
        raise ValueError(
            f"{environment}: hindsight needs `{name}` to return what a step returns, given the goals in the "
            f"observation after it and an empty info; in {len(wrong)} of {len(single)} steps it did not: expected "
            f"{recorded[at]}, found {single[at]}. Wrappers, --action-repeat and other parts of the reward than "
            "the goals have this effect"
        )
    # Every achieved goal with the desired goal of another step, so that different rows need different answers.
    others: Tree = map_tree(lambda leaf: np.roll(leaf, 1, axis=0), desired)
    expected = _one_by_one(environment, name, function, achieved, others)
    try:
        for tree, answer in ((desired, single), (others, expected)):
            found = np.asarray(function(achieved, tree, {}))
            if found.shape != answer.shape or not _equal(found, answer).all():
                return "single"
    except Exception:
        return "single"
    return "batch"


def _one_by_one(environment: str, name: str, function: Function, achieved: Tree, desired: Tree) -> Array:
    try:
        return np.array([np.asarray(function(*pair, {})).item() for pair in pairs(achieved, desired)])
    except Exception as error:
        raise ValueError(
            f"{environment}: hindsight calls `{name}(achieved_goal, desired_goal, info)` with goals that were observed "
            f"and an empty info, expected a number; found {raised(error)}"
        ) from error


def _equal(one: Array, other: Array) -> Array:
    return np.isclose(one.astype(np.float64), other.astype(np.float64), rtol=TOLERANCE, atol=TOLERANCE)
