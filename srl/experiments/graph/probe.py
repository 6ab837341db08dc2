"""Looking at an environment before the run: its spaces, and what a step costs."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np

from srl.api.lanes import Lanes, LanesConfig, LaneSpec
from srl.base.config import from_data, to_data
from srl.base.state import NotResumable
from srl.environments.random_actions import has_masks, some_actions
from srl.experiments.graph.trial import in_child, may_fork

PROBE_SECONDS = 0.05
CHEAP_SECONDS = 0.05
"""Making a copy and stepping it once in less time than this, we can afford to make many."""
MANY_COPIES = 64
BUILD_SECONDS = 5.0
"""Copies are given at least this long to be built and to step, on a machine that is busy too."""


@dataclass(frozen=True)
class Probed:
    spec: LaneSpec
    """Of one copy."""
    step_us: float
    """Microseconds of one copy's step."""
    why_not_resumable: str = ""
    """What keeps its copies from being saved in the middle of an episode; empty: they can be, or nobody asked."""


def probe(environment: LanesConfig, seed: int, timeout: float = 60.0, resumable: bool = False) -> Probed:
    """Build a few copies and step them for a moment with random actions, away from this process where possible.

    With `resumable` the probe also finds out whether the copies can be saved in the middle of an episode.
    """
    if not may_fork():
        return _probe(environment, seed, resumable)
    what = f"environment {environment.environment_name()}, tried for a moment,"
    bound = max(timeout, BUILD_SECONDS)
    probed: Probed = from_data(in_child(lambda: to_data(_probe(environment, seed, resumable)), bound, what))
    return probed


def _probe(environment: LanesConfig, seed: int, resumable: bool) -> Probed:
    began = time.perf_counter()
    lanes, copies = environment.build(1), 1
    try:
        generator = np.random.default_rng(seed)
        arrivals = lanes.step(some_actions(lanes.spec, generator, lanes.reset(seed)))
        if time.perf_counter() - began < CHEAP_SECONDS:  # many together show what a vectorized environment really costs
            lanes.close()
            lanes, copies = environment.build(MANY_COPIES), MANY_COPIES
            arrivals = lanes.reset(seed)
        spec = lanes.spec
        actions = some_actions(spec, generator, arrivals)
        masked = has_masks(spec, arrivals)
        began, steps = time.perf_counter(), 0
        while steps == 0 or time.perf_counter() - began < PROBE_SECONDS:
            arrivals = lanes.step(actions)
            steps += copies
            if masked:
                actions = some_actions(spec, generator, arrivals)
        step_us = (time.perf_counter() - began) / steps * 1e6
        return Probed(replace(spec, num_copies=1), step_us, _why_not_resumable(lanes) if resumable else "")
    finally:
        lanes.close()


def _why_not_resumable(lanes: Lanes) -> str:
    try:
        lanes.state()
    except NotResumable as error:
        return f"{lanes.spec.environment}: {error}"
    return ""
