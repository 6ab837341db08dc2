"""Probe of an environment before the run: its spaces and the cost of a step."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np

from srl.api.lanes import LanesConfig, LaneSpec
from srl.base.config import from_data, to_data
from srl.base.state import NotResumable
from srl.environments.random_actions import has_masks, some_actions
from srl.experiments.graph.child_process import in_child, may_fork

PROBE_SECONDS = 0.05
CHEAP_SECONDS = 0.05
"""If building and stepping one copy takes less than this, many copies are built."""
MANY_COPIES = 64
BUILD_SECONDS = 5.0
"""Minimum time limit for building and stepping copies, to allow for a busy machine."""


@dataclass(frozen=True)
class EnvironmentProfile:
    """Results of probing an environment."""

    spec: LaneSpec  # spec of one copy
    step_us: float  # microseconds per step of one copy
    why_not_resumable: str = ""
    """Reason why copies cannot be saved in the middle of an episode; empty if they can, or if it was not checked."""


def probe(environment: LanesConfig, seed: int, timeout: float = 60.0, resumable: bool = False) -> EnvironmentProfile:
    """Build a few copies and step them briefly with random actions, in a child process where possible. With
    `resumable`, also check whether copies can be saved in the middle of an episode."""
    if not may_fork():
        return _probe(environment, seed, resumable)
    subject = f"environment {environment.environment_name()}, tried for a moment,"
    limit = max(timeout, BUILD_SECONDS)
    profile: EnvironmentProfile = from_data(
        in_child(lambda: to_data(_probe(environment, seed, resumable)), limit, subject)
    )
    return profile


def _probe(environment: LanesConfig, seed: int, resumable: bool) -> EnvironmentProfile:
    began = time.perf_counter()
    lanes, copies = environment.build(1), 1
    try:
        generator = np.random.default_rng(seed)
        time_steps = lanes.step(some_actions(lanes.spec, generator, lanes.reset(seed)))
        if time.perf_counter() - began < CHEAP_SECONDS:  # a vectorized environment is cheap only with many copies
            lanes.close()
            lanes, copies = environment.build(MANY_COPIES), MANY_COPIES
            time_steps = lanes.reset(seed)
        spec = lanes.spec
        actions = some_actions(spec, generator, time_steps)
        masked = has_masks(spec, time_steps)
        until, seconds = time.perf_counter() + PROBE_SECONDS, list[float]()
        while not seconds or time.perf_counter() < until:
            began = time.perf_counter()
            time_steps = lanes.step(actions)
            seconds.append(time.perf_counter() - began)
            if masked:
                actions = some_actions(spec, generator, time_steps)
        step_us = float(np.median(seconds)) / copies * 1e6  # other processes interrupt only a few steps
        why_not = ""
        if resumable:
            try:
                lanes.state()
            except NotResumable as error:
                why_not = f"{spec.environment}: {error}"
        return EnvironmentProfile(replace(spec, num_copies=1), step_us, why_not)
    finally:
        lanes.close()
