"""Makes the targets of remembered decisions again, with the newest parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from srl.api.algorithm import AlgorithmConfig
from srl.api.dataflow import Replay
from srl.api.spaces import Space
from srl.api.worker import Context
from srl.base.tree import Array, leaves, map_tree

MAX_ROWS = 256  # rows of one search: bounds the memory of its trees


@dataclass(frozen=True)
class ReanalyzerConfig:
    policy: str
    algorithm: AlgorithmConfig
    observation: Space
    action: Space
    max_age: int

    @classmethod
    def of(cls, policy: str, algorithm: AlgorithmConfig, observation: Space, action: Space) -> ReanalyzerConfig | None:
        """Return the config for an algorithm; None if its targets stay as they were recorded."""
        flow = algorithm.dataflow()
        if not isinstance(flow, Replay) or flow.reanalysis is None:
            return None
        return cls(policy, algorithm.on_cpu(), observation, action, flow.reanalysis.max_age)

    def build(self, context: Context) -> Reanalyzer:
        return Reanalyzer(self, context)


class Reanalyzer:
    """A policy that is called with observations [N, ...], and returns targets by name and their version."""

    def __init__(self, config: ReanalyzerConfig, context: Context) -> None:
        self._max_age = config.max_age
        self._parameters = context.parameters(config.policy)
        self._policy = config.algorithm.build_policy(config.observation, config.action, 0)

    @property
    def version(self) -> int:
        """The newest version."""
        return self._parameters.version

    def is_ready(self, update: int) -> bool:
        """Return whether the newest parameters are new enough for the targets of an update."""
        return self.version >= max(0, update - self._max_age)

    def __call__(self, observation: Any) -> tuple[Mapping[str, Array], int]:
        pulled = self._parameters.pull(newer_than=self._policy.version)
        if pulled is not None:
            version, parameters = pulled
            self._policy.load(parameters, version)
        count = len(next(leaves(observation))[1])
        parts = [
            self._policy.reanalyze(map_tree(lambda array, at=at: array[at : at + MAX_ROWS], observation))
            for at in range(0, count, MAX_ROWS)
        ]
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}, self._policy.version
