"""Hindsight before a run starts: whether the environment has goals, and how its functions are called."""

from __future__ import annotations

import time

import numpy as np

from srl.api.algorithm import AlgorithmConfig
from srl.api.dataflow import Replay
from srl.api.experiment import Experiment
from srl.api.lanes import LanesConfig, LaneSpec, TimeStep
from srl.api.spaces import Dict, Space, array_spec
from srl.base.tree import Array, Tree, map_tree
from srl.environments.random_actions import some_actions
from srl.experiments.graph.child_process import in_child, may_fork
from srl.replay.goals import ACHIEVED, DESIRED, Call, GoalRewardsConfig, Played, check_functions
from srl.workers.replay.worker import ReplayWorkerConfig
from srl.workers.trainer.worker import TrainerWorkerConfig

NUM_COPIES = 2
NUM_STEPS = 250
"""Steps of each copy that are compared, at most."""
PLAY_SECONDS = 2.0
"""Time after which fewer steps are compared."""


def goal_rewards(
    algorithm: AlgorithmConfig, environment: LanesConfig, spec: LaneSpec, seed: int, timeout: float
) -> GoalRewardsConfig | None:
    """Return how rewards are computed for other goals; None if the algorithm does not relabel. Plays a few steps, in a
    child process where possible. Raises ValueError if the environment is not suitable."""
    flow = algorithm.dataflow()
    if not isinstance(flow, Replay) or flow.relabel is None:
        return None
    if len(spec.teams) > 1 or len(spec.teams[0].agents) > 1:
        raise ValueError(f"her is for environments with one agent; {spec.environment} has several")
    check_goals(spec.environment, spec.teams[0].observation)
    if not may_fork():
        reward, terminated = _try(environment, seed)
    else:
        subject = f"environment {environment.environment_name()}, played to compare rewards with compute_reward,"
        reward, terminated = in_child(lambda: _try(environment, seed), timeout, subject)
    return GoalRewardsConfig(environment, reward, terminated)


def check_goals(environment: str, observation: Space) -> None:
    """Raise ValueError unless observations have an achieved and a desired goal of the same kind."""
    expected = (
        f"her needs observations that are a Dict with 'observation', {ACHIEVED!r} and {DESIRED!r}, as Gymnasium-"
        f"Robotics' goal environments have; {environment} has"
    )
    if not isinstance(observation, Dict):
        raise ValueError(f"{expected} {observation}")
    if not {ACHIEVED, DESIRED} <= observation.items.keys():
        raise ValueError(f"{expected} a Dict with {', '.join(map(repr, observation.items))}")
    achieved, desired = (array_spec(observation.items[key]) for key in (ACHIEVED, DESIRED))
    if achieved != desired:
        raise ValueError(
            f"her replaces {DESIRED!r} by {ACHIEVED!r}, which must have the same shape and dtype; {environment} has "
            f"{observation.items[DESIRED]} and {observation.items[ACHIEVED]}"
        )


def _try(environment: LanesConfig, seed: int) -> tuple[Call, Call | None]:
    return check_functions(environment.environment_name(), environment.goal_functions(), _played(environment, seed))


def _played(environment: LanesConfig, seed: int) -> Played:
    """Play random actions."""
    lanes = environment.build(NUM_COPIES)
    observations: list[Tree] = []
    rewards: list[Array] = []
    ends: list[Array] = []
    try:
        generator, until = np.random.default_rng(seed), time.perf_counter() + PLAY_SECONDS
        time_step = lanes.reset(seed)[0]
        while len(rewards) < NUM_STEPS and (len(rewards) < 2 or time.perf_counter() < until):
            acted = time_step.acting.copy()
            time_step = lanes.step(some_actions(lanes.spec, generator, (time_step,)))[0]
            after = _finished(acted, time_step)
            observations.append(map_tree(lambda leaf, after=after: leaf[after], time_step.observation))
            rewards.append(time_step.reward[after])
            ends.append(time_step.terminated[after])
    finally:
        lanes.close()
    whole = map_tree(lambda *parts: np.concatenate(parts), observations[0], *observations[1:])
    return Played(whole, np.concatenate(rewards), np.concatenate(ends))


def _finished(acted: Array, after: TimeStep) -> Array:
    """Return which lanes completed a step."""
    done: Array = acted if after.failed is None else acted & ~after.failed
    return done


def hindsight_hint(experiment: Experiment) -> str:
    """Return a line that says how to make hindsight faster; empty if its functions take arrays."""
    for group in experiment.groups:
        goals = group.config.goals if isinstance(group.config, (TrainerWorkerConfig, ReplayWorkerConfig)) else None
        if goals is not None and "single" in (goals.reward, goals.terminated):
            name = "compute_reward" if goals.reward == "single" else "compute_terminated"
            return (
                f"\nhint: {name} takes one goal at a time, so that it is called for every transition that is drawn; "
                "it is faster if it takes arrays of goals [N, ...] and returns [N]"
            )
    return ""
