"""Recorded data of probes, for algorithms that learn from data sets."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from srl.api.lanes import TeamSpec
from srl.base.object_names import load_object
from srl.base.tree import Array
from srl.datasets.reader import Episode
from srl.datasets.writer import DatasetWriter
from srl.testing.probe_environments import follow

NUM_EPISODES = 512


def record(
    directory: Path, environment: str, options: Mapping[str, Any], team: TeamSpec, better_share: float, seed: int
) -> Path:
    """Write a data set of a probe. In each observation, the better action has the share `better_share`: exactly, so
    that answers which depend on it are known. Real-valued actions are random numbers of the chosen sign."""
    probe = load_object(environment)(**options)
    real = not hasattr(probe.action_space, "n")
    rng = np.random.default_rng(seed)
    writer = DatasetWriter(directory, team.observation, team.action, {})
    for number in range(NUM_EPISODES):
        observation, _ = probe.reset(seed=seed if number == 0 else None)
        seen, actions, rewards, ends = [observation], list[Any](), list[float](), list[tuple[bool, bool]]()
        while not (ends and any(ends[-1])):
            choice = int(follow(_stacked(seen[-1:]))[0])
            if (number * better_share) % 1.0 + better_share < 1.0:  # the share of numbers that reach a whole one
                choice = 1 - choice
            actions.append(_real(choice, rng) if real else choice)
            observation, reward, *end, _ = probe.step(actions[-1])
            seen.append(observation)
            rewards.append(reward)
            ends.append((bool(end[0]), bool(end[1])))
        terminated, truncated = np.array(ends).T
        taken = np.array(actions, np.float32 if real else np.int64)
        writer.add(Episode(_stacked(seen), taken, np.array(rewards, np.float32), terminated, truncated))
    writer.close()
    return directory


def _real(choice: int, rng: np.random.Generator) -> Array:
    return rng.uniform(0.0, 1.0, 1).astype(np.float32) * (2 * choice - 1)


def _stacked(seen: list[Any]) -> Any:
    if isinstance(seen[0], Mapping):
        return {key: np.stack([one[key] for one in seen]) for key in seen[0]}
    return np.stack(seen)
