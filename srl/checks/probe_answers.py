"""What policies and trainers answer in the observations of probes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from srl.api.algorithm import AlgorithmConfig
from srl.api.lanes import TeamSpec
from srl.api.policy import Policy
from srl.api.spaces import Dict
from srl.api.trainer import Trainer
from srl.base.tree import Array, Tree, leaves, map_tree
from srl.environments.adapters.masks import MASK_KEY
from srl.environments.conversion import OBSERVATION
from srl.storage import checkpoints
from srl.storage.saved_policies import find_checkpoint, read_policy

NUM_DRAWS = 512
"""Number of sampled actions. The mask forbids a third of the actions, so a policy that ignores it is detected."""


def untrained(config: AlgorithmConfig, team: TeamSpec) -> tuple[Policy, Trainer]:
    policy = config.build_policy(team.observation, team.action, 0)
    trainer = config.build_trainer(team.observation, team.action, 0)
    policy.load(trainer.parameters(), 0)
    return policy, trainer


def trained(run: Path, team: TeamSpec) -> Trainer:
    """Return the trainer of a run's last checkpoint."""
    checkpoint = find_checkpoint(run, "latest")
    saved = read_policy(checkpoint)
    trainer = saved.algorithm.build_trainer(team.observation, team.action, 0)
    prefix = f"{saved.name}/"
    arrays = checkpoints.read(checkpoint)[0]
    trainer.restore({name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)})
    return trainer


def forbidden_share(policy: Policy, team: TeamSpec) -> float:
    """Return the fraction of sampled actions that :class:`Masked` forbids."""
    mask: Array = np.array([[1, 1, 0]] * NUM_DRAWS, np.int8)
    observation = observation_of(team, np.ones((NUM_DRAWS, 1), np.float32), mask)
    action = np.asarray(policy.act(observation, None, np.ones(NUM_DRAWS, np.bool_))["action"])
    return float((mask[np.arange(NUM_DRAWS), action] == 0).mean())


def observation_of(team: TeamSpec, seen: Array, mask: Array | None = None, *, hidden: bool = False) -> Tree:
    """Return an observation with the content `seen` [B, n] under the probe's keys (see `probe_environments`)."""
    if not isinstance(team.observation, Dict):
        return seen
    own = {OBSERVATION: np.ones_like(seen) if hidden else seen} | ({} if mask is None else {MASK_KEY: mask})
    return {name: own.get(name, seen) for name in team.observation.items}


def effect_of_memory(policy: Policy, team: TeamSpec) -> float:
    """Return how much memory left over from the previous episode changes the memory after the first decision."""
    observation, first = observation_of(team, np.zeros((1, 1), np.float32)), np.ones(1, np.bool_)
    fresh: Any = policy.act(observation, None, first, greedy=True)["state"]
    stale = map_tree(np.ones_like, fresh)
    kept: Any = policy.act(observation, stale, first, greedy=True)["state"]
    return max(
        float(np.abs(one - other).max()) for (_, one), (_, other) in zip(leaves(fresh), leaves(kept), strict=True)
    )
