"""An actor and the consumers of its streams in one thread, for tests that check every recorded row."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from srl.api.block import BlockSpec, Episodes, concatenated
from srl.api.lanes import Lanes, LanesConfig
from srl.api.spaces import array_spec
from srl.base.tree import Array
from srl.environments.registry import lanes_config
from srl.streams.push import PushStream
from srl.streams.push_consumer import Consumer
from srl.workers.actor.worker import Actor, ActorConfig
from srl.workers.role import Role, assign_teams
from support.counting import CountingConfig
from support.stages import Stage
from support.waiting import until

Rows = Mapping[str, Array]  # path -> [T+1, L, ...]


class ActorRig:
    """An actor with its consumers. `roles` maps patterns of agents to policies, each a `CountingPolicy`."""

    def __init__(
        self,
        env: str | LanesConfig,
        copies: int = 2,
        horizon: int = 4,
        ring: int = 1,
        roles: Mapping[str, str] | None = None,
        max_lag: int | None = None,
        batch_blocks: int = 1,
        aligned: bool | None = None,
        max_env_failures: int = 10,
        memory: bool = False,
        positions: bool = False,
        **options: Any,
    ) -> None:
        roles = roles or {"*": "policy"}
        environment = lanes_config(env, **options) if isinstance(env, str) else env
        probe: Lanes = environment.build(1)
        spec = probe.spec
        probe.close()
        self.stage = Stage("inproc", Path("/nonexistent"))
        self.stage.world.close()
        self.stage.world = type(self.stage.world)(policies=roles.values())
        self.streams: dict[str, PushStream] = {}
        algorithm = CountingConfig(memory=memory)
        made = []
        for (pattern, policy), members in zip(roles.items(), assign_teams(spec, tuple(roles)), strict=True):
            team = spec.teams[members[0]]
            together = all(spec.teams[member].aligned for member in members) if aligned is None else aligned
            lanes = copies * sum(len(spec.teams[member].agents) for member in members) if together else 1
            decision = algorithm.decision_spec(team.observation, team.action)
            block = BlockSpec(horizon, lanes, array_spec(team.observation), decision, positions)
            stream = self.streams[policy] = PushStream(policy, block, batch_blocks, max_lag=max_lag)
            made.append(
                Role(policy, algorithm, team.observation, team.action, stream, agents=pattern, aligned=together)
            )
        self.context = self.stage.world.context("actors", seed=1)
        config = ActorConfig(environment, spec, tuple(made), copies, ring, max_env_failures)
        self.actor: Actor = config.build(self.context)
        self.actor._reported = math.inf  # it never reports by itself: `episodes` asks
        self.consumers = {policy: self.stage.consumer(stream) for policy, stream in self.streams.items()}
        self.updates = dict.fromkeys(self.streams, 0)
        self.tracks: list[tuple[int, int]] = []  # track and first step of each block that `blocks` returned
        self._episodes: dict[str, list[Episodes]] = {policy: [] for policy in self.streams}

    def publish(self, version: int, policy: str = "policy") -> None:
        """Publish parameters; the first one is the version, so that the value of a decision identifies it."""
        self.stage.world.stores[policy].push(version, np.array([version], np.float32))

    def blocks(self, count: int, policy: str = "policy") -> list[Rows]:
        """Step until the consumer has taken `count` more blocks, and return copies of their arrays."""
        found: list[Rows] = []
        while len(found) < count:
            consumer = self.consumers[policy]
            update = self.updates[policy]
            taken = until(lambda: consumer.take(update), *self._polls())  # noqa: B023
            found += [{path: array.copy() for path, array in posted.block.arrays.items()} for posted in taken]
            self.tracks += [(posted.track, posted.first_step) for posted in taken]
            self._episodes[policy] += [posted.episodes for posted in taken if posted.episodes is not None]
            consumer.release(taken)
            self.updates[policy] += 1
        return found

    def play(self, rounds: int) -> None:
        for _ in range(rounds):
            for poll in self._polls():
                poll()

    def _polls(self) -> Sequence[Any]:
        return (self.actor.poll, *(consumer.poll for consumer in self.consumers.values()))

    def consumer(self, policy: str = "policy") -> Consumer:
        return self.consumers[policy]

    def replace_consumer(self, policy: str = "policy") -> None:
        """Replace the consumer by one with the next incarnation, as after the death of a trainer."""
        self.consumers[policy].close()
        self.consumers[policy] = self.stage.consumer(self.streams[policy], incarnation=1)

    def episodes(self, role: int = 0) -> tuple[int, list[float], list[float]]:
        """Return the number, returns and lengths of the episodes that came with blocks since the last call, or wait for
        the next block."""
        found = list(self._episodes.values())[role]
        found += [e for group in self.actor._groups if (e := group.recorders[role].tracker.drain()) is not None]
        columns = concatenated(episodes.arrays() for episodes in found)
        count = sum(episodes.total for episodes in found)
        found.clear()
        return count, columns.get("return", np.zeros(0)).tolist(), columns.get("length", np.zeros(0)).tolist()

    def close(self) -> None:
        self.actor.close()
        self.stage.close()


def one_lane(blocks: Sequence[Rows], lane: int = 0) -> dict[str, Array]:
    """Return the rows of one lane over consecutive blocks, without bootstrap rows: path -> [T * blocks, ...]."""
    return {path: np.concatenate([block[path][:-1, lane] for block in blocks]) for path in blocks[0]}
