"""Can an environment be saved in the middle of its episodes? Tried, not believed."""

from __future__ import annotations

import time

import numpy as np

from srl.api.lanes import Arrival, Lanes, LanesConfig, ResumableLanes
from srl.base.state import NotResumable
from srl.base.tree import leaves
from srl.experiments.actions import some_actions

STEPS = 100
TRIAL_SECONDS = 0.2
COPIES = 2


def why_not_resumable(environment: LanesConfig, seed: int) -> str:
    """Step copies, save them, restore others, step both with the same actions: empty if they show the same."""
    one, other = environment.build(COPIES), environment.build(COPIES)
    try:
        if not (isinstance(one, ResumableLanes) and isinstance(other, ResumableLanes)):
            return f"{one.spec.environment}: {type(one).__name__} has no `state` and `restore`"
        one.reset(seed)
        generator = np.random.default_rng(seed)
        _play(one, generator)
        try:
            other.restore(one.state())
        except NotResumable as error:
            return f"{one.spec.environment}: {error}"
        differing = _compare(one, other, generator)
        return f"{one.spec.environment}: {differing}" if differing else ""
    finally:
        one.close()
        other.close()


def _play(lanes: Lanes, generator: np.random.Generator) -> None:
    until = time.monotonic() + TRIAL_SECONDS
    for _ in range(STEPS):
        lanes.step(some_actions(lanes.spec, generator))
        if time.monotonic() > until:
            return


def _compare(one: Lanes, other: Lanes, generator: np.random.Generator) -> str:
    until = time.monotonic() + 2 * TRIAL_SECONDS
    for step in range(STEPS):
        actions = some_actions(one.spec, generator)
        for left, right in zip(one.step(actions), other.step(actions), strict=True):
            if differing := _difference(left, right):
                return f"its restored copy shows another {differing} {step + 1} steps later"
        if time.monotonic() > until:
            break
    return ""


def _difference(left: Arrival, right: Arrival) -> str:
    pairs = zip(leaves(left.observation, "observation"), leaves(right.observation, "observation"), strict=True)
    for (path, mine), (_, theirs) in pairs:
        if not np.array_equal(mine, theirs):
            return path
    for name in ("reward", "terminated", "truncated", "acting", "first"):
        if not np.array_equal(getattr(left, name), getattr(right, name)):
            return name
    return ""
