"""Overhead of an actor compared with its bare environment."""

from __future__ import annotations

import statistics
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from srl.api.algorithm import AlgorithmConfig
from srl.api.block import BlockSpec
from srl.api.lanes import LanesConfig
from srl.api.policy import Decision, Policy
from srl.api.spaces import Space, array_spec
from srl.api.trainer import Trainer
from srl.api.transport import Message
from srl.api.worker import WorkerId
from srl.base.meter import Meter
from srl.base.snapshot import Snapshot
from srl.base.tree import Array, Tree, TreeSpec
from srl.bench.options import BenchOptions
from srl.environments.random_actions import random_actions
from srl.environments.registry import lanes_config
from srl.experiments.graph.environment_probe import probe
from srl.names.table import NameView
from srl.parameters.host import HostParameterStore
from srl.streams.push import PushStream
from srl.streams.push_consumer import Consumer
from srl.transports.inproc import InprocTransport
from srl.workers.actor.worker import Actor, ActorConfig
from srl.workers.context import WorkerContext
from srl.workers.role import Role

TABLE = 64
HORIZON = 128
POLLS = 2
"""Polls of the actor between two polls of the consumer; less than a block."""
REPEATS = 25


@dataclass(frozen=True)
class UniformConfig(AlgorithmConfig):
    """A policy whose random actions are drawn in advance, so that only the actor's own cost is measured."""

    def check(self, observation: Space, action: Space) -> None:
        """Accept all spaces."""

    def decision_spec(self, observation: Space, action: Space) -> dict[str, TreeSpec]:
        return {"action": array_spec(action)}

    def build_policy(self, observation: Space, action: Space, seed: int) -> UniformPolicy:
        return UniformPolicy(action, seed)

    def build_trainer(self, observation: Space, action: Space, seed: int) -> Trainer:
        raise ValueError("the uniform benchmark policy has no trainer")


class UniformPolicy(Policy):
    def __init__(self, action: Space, seed: int) -> None:
        self._space = action
        self._generator = np.random.default_rng(seed)
        self._table: list[Tree] = []
        self._turn = 0

    def act(self, observation: Tree, state: Tree | None, first: Array, *, greedy: bool = False) -> Decision:
        if not self._table:
            self._table = [random_actions(self._space, len(first), self._generator) for _ in range(TABLE)]
        self._turn = (self._turn + 1) % TABLE
        return {"action": self._table[self._turn]}

    def load(self, parameters: Array, version: int) -> None:
        self.version = version


class _ActorHarness:
    """An actor in this thread and a consumer of its blocks."""

    def __init__(self, environment: LanesConfig, copies: int, horizon: int) -> None:
        spec = replace(probe(environment, 0).spec, num_copies=copies)
        team = spec.teams[0]
        lanes = spec.num_lanes(0)
        algorithm = UniformConfig()
        decision = algorithm.decision_spec(team.observation, team.action)
        stream = PushStream("raw", BlockSpec(horizon, lanes, array_spec(team.observation), decision), 1, max_lag=None)
        entries: dict[str, str] = {}
        names = NameView(entries.__setitem__)
        names.replace(entries)
        store = HostParameterStore.create("policy")
        store.push(0, np.zeros(1, np.float32))
        transport, self._directory = InprocTransport(), tempfile.TemporaryDirectory(prefix="srl-bench-")

        def context(group: str) -> WorkerContext:
            return WorkerContext(
                WorkerId(group, 0, 0), 0, Meter.unshared(), names, transport, {"policy": store},
                dict[str, Snapshot](), _ignore, False, Path(self._directory.name),
            )  # fmt: skip

        self._consumer: Consumer = stream.consumer(context("consumer"))
        role = Role("policy", algorithm, team.observation, team.action, stream)
        self._actor: Actor = ActorConfig(environment, spec, (role,), copies).build(context("actors"))
        self._per_block = horizon * lanes
        self._updates = 0

    def run(self, seconds: float) -> float:
        """Return lane steps per second of the actor's time, without that of the consumer."""
        taken, spent = 0, 0.0
        while spent < seconds:
            began = time.perf_counter()
            for _ in range(POLLS):
                self._actor.poll()
            spent += time.perf_counter() - began
            self._consumer.poll()
            while (blocks := self._consumer.take(self._updates)) is not None:
                self._consumer.release(blocks)
                self._updates += 1
                taken += 1
        return taken * self._per_block / spent

    def close(self) -> None:
        self._actor.close()
        self._consumer.close()
        self._directory.cleanup()


def _ignore(message: Message) -> None:
    """Drop a message."""


def raw_actor(options: BenchOptions) -> dict[str, Any]:
    """Compare an actor with its bare environment, alternating; medians over many short turns."""
    from srl.bench.throughput import WORKLOADS

    known = WORKLOADS.get(options.workload)
    name = known.env if known else options.workload
    copies = options.lanes or 256
    environment = lanes_config(name)
    rig = _ActorHarness(environment, copies, HORIZON)
    bare = _bare_vector(name, copies)
    turn = options.seconds / (2 * REPEATS)
    rig.run(turn)
    rates: dict[str, list[float]] = {"actor": [], "bare": []}
    for _ in range(REPEATS):
        rates["bare"].append(bare(turn))
        rates["actor"].append(rig.run(turn))
    rig.close()
    actor, plain = statistics.median(rates["actor"]), statistics.median(rates["bare"])
    ratio = statistics.median(bare / own for bare, own in zip(rates["bare"], rates["actor"], strict=True))
    return {
        "workload": options.workload,
        "lanes": copies,
        "bare_fps": round(plain),
        "actor_fps": round(actor),
        "overhead_percent": round(100 * (ratio - 1), 1),
    }


def _bare_vector(name: str, copies: int) -> Any:
    """Return a function that steps Gymnasium's vector environment (native if there is one) with prepared actions."""
    import gymnasium

    spec = gymnasium.spec(name)
    mode = "vector_entry_point" if spec.vector_entry_point is not None else "sync"
    env = gymnasium.make_vec(name, num_envs=copies, vectorization_mode=mode)
    env.reset(seed=0)
    env.action_space.seed(0)
    actions = [env.action_space.sample() for _ in range(TABLE)]

    def run(seconds: float) -> float:
        count, began = 0, time.perf_counter()
        while (span := time.perf_counter() - began) < seconds:
            for step in range(32):
                env.step(actions[step])
            count += 32
        return count * copies / span

    return run
