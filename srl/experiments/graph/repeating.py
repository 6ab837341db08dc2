"""Can an environment be saved in the middle of its episodes? Tried, not believed."""

from __future__ import annotations

import time

import numpy as np

from srl.api.lanes import Arrival, Lanes, LanesConfig
from srl.base.state import NotResumable
from srl.base.tree import leaves
from srl.results.random_actions import some_actions

STEPS = 100
TRIAL_SECONDS = 0.2
COPIES = 2


def why_not_resumable(environment: LanesConfig, seed: int) -> str:
    """Step copies, save them, restore others, step both with the same actions: empty if they show the same."""
    one, other = environment.build(COPIES), environment.build(COPIES)
    try:
        generator = np.random.default_rng(seed)
        arrivals = _play(one, one.reset(seed), generator)
        try:
            other.restore(one.state())
        except NotResumable as error:
            return f"{one.spec.environment}: {error}"
        differing = _compare(one, other, arrivals, generator)
        return f"{one.spec.environment}: {differing}" if differing else ""
    finally:
        one.close()
        other.close()


def _play(lanes: Lanes, arrivals: tuple[Arrival, ...], generator: np.random.Generator) -> tuple[Arrival, ...]:
    until = time.monotonic() + TRIAL_SECONDS
    for _ in range(STEPS):
        arrivals = lanes.step(some_actions(lanes.spec, generator, arrivals))
        if time.monotonic() > until:
            break
    return arrivals


def _compare(one: Lanes, other: Lanes, arrivals: tuple[Arrival, ...], generator: np.random.Generator) -> str:
    until = time.monotonic() + 2 * TRIAL_SECONDS
    for step in range(STEPS):
        actions = some_actions(one.spec, generator, arrivals)
        arrivals = one.step(actions)
        for left, right in zip(arrivals, other.step(actions), strict=True):
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
