"""Benchmark of an actor's overhead over its bare environment."""

from __future__ import annotations

import statistics
import time
from dataclasses import replace
from typing import Any

import numpy as np

from srl.api.block import BlockSpec
from srl.api.lanes import LanesConfig
from srl.api.spaces import array_spec
from srl.bench.options import BenchOptions
from srl.bench.random_policy import TABLE, RandomConfig
from srl.environments.registry import lanes_config
from srl.experiments.graph.environment_probe import probe
from srl.streams.push import PushStream
from srl.streams.push_consumer import Consumer
from srl.testing.contexts import World
from srl.workers.actor.worker import Actor, ActorConfig
from srl.workers.role import Role

HORIZON = 128
POLLS = 2  # actor polls between consumer polls; less than a block
REPEATS = 25


class _ActorHarness:
    """An actor in this thread and a consumer of its blocks."""

    def __init__(self, environment: LanesConfig, copies: int, horizon: int) -> None:
        spec = replace(probe(environment, 0).spec, num_copies=copies)
        team = spec.teams[0]
        lanes = spec.num_lanes(0)
        algorithm = RandomConfig()
        decision = algorithm.decision_spec(team.observation, team.action)
        stream = PushStream("raw", BlockSpec(horizon, lanes, array_spec(team.observation), decision), 1, max_lag=None)
        self._world = World()
        self._world.stores["policy"].push(0, np.zeros(1, np.float32))
        self._consumer: Consumer = stream.consumer(self._world.context("consumer"))
        role = Role("policy", algorithm, team.observation, team.action, stream)
        self._actor: Actor = ActorConfig(environment, spec, (role,), copies).build(self._world.context("actors"))
        self._per_block = horizon * lanes
        self._updates = 0

    def run(self, seconds: float) -> float:
        """Return lane steps per second of actor time, excluding consumer time, over at least one block."""
        taken, spent = 0, 0.0
        while spent < seconds or not taken:
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
        self._world.close()


def raw_actor(options: BenchOptions) -> dict[str, Any]:
    """Compare an actor with its bare environment in many short alternating turns, and return the medians."""
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
    """Return a function that steps Gymnasium's vector environment (native if available) with precomputed actions."""
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
