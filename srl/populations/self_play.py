"""Self-play: games between a policy and itself or its past versions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from srl.api.algorithm import AlgorithmConfig
from srl.api.lanes import LanesConfig
from srl.api.parameters import ParameterStore
from srl.api.policy import Policy
from srl.api.spaces import Space
from srl.api.worker import Context
from srl.base.seeding import derive
from srl.populations.opponent_pool import LATEST, OpponentPool, PoolConfig
from srl.populations.versus import VersusLanes


@dataclass(frozen=True)
class SelfPlayConfig(LanesConfig):
    """A single-agent environment made from a multi-agent game, in which versions of `policy` play the other agents."""

    inner: LanesConfig
    policy: str
    algorithm: AlgorithmConfig
    observation: Space
    action: Space
    pool: PoolConfig

    def environment_name(self) -> str:
        return self.inner.environment_name()

    def named_code(self) -> tuple[str, ...]:
        return ()

    def bind(self, context: Context) -> BoundSelfPlay:
        """Return the environment with access to the parameter service on the worker's host."""
        return BoundSelfPlay(self, context.parameters(self.policy), context.seed)

    def build(self, num_copies: int) -> VersusLanes:
        raise ValueError(f"{self.environment_name()}: self-play needs a run whose versions are the opponents")


class BoundSelfPlay(LanesConfig):
    """Self-play bound to a parameter service that provides the opponents."""

    def __init__(self, config: SelfPlayConfig, store: ParameterStore, seed: int) -> None:
        self._config = config
        self._store = store
        self._seed = seed
        self._num_builds = 0

    def environment_name(self) -> str:
        return self._config.environment_name()

    def build(self, num_copies: int) -> VersusLanes:
        self._num_builds += 1
        versions = PastVersions(self._config, self._store, derive(self._seed, "self-play", self._num_builds))
        return VersusLanes(self._config.inner.build(num_copies), versions)


class PastVersions:
    """Opponents from the pool, with one policy per tag. Parameters are reloaded when a tag has moved."""

    def __init__(self, config: SelfPlayConfig, store: ParameterStore, seed: int) -> None:
        self._config = config
        self._store = store
        self._seed = seed
        self._generator = np.random.default_rng(seed)
        self._pool = OpponentPool(config.pool, store)
        self._policies: dict[str, Policy] = {}

    def draw(self) -> str:
        tag = self._pool.draw(self._generator)
        policy = self.policy(tag)
        if self._store.version >= 0:  # before the first version, play with the initial weights
            pulled = self._store.pull(tag, newer_than=-1 if tag != LATEST else policy.version)
            if pulled is not None and pulled[0] != policy.version:
                policy.load(pulled[1], pulled[0])
        return tag

    def policy(self, name: str) -> Policy:
        if name not in self._policies:
            config, seed = self._config, derive(self._seed, name)
            self._policies[name] = config.algorithm.build_policy(config.observation, config.action, seed)
        return self._policies[name]

    def add_result(self, name: str, points: float) -> None:
        if name != LATEST:
            self._pool.add_result(self._policies[name].version, points)
