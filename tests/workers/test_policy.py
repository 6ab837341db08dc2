"""The policy worker: batches of waiting requests, several in flight, and new parameters between them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any

import numpy as np
import pytest
from support.counting import CountingConfig, CountingPolicy
from support.stages import Stage
from support.waiting import until

from srl.api.policy import Decision, GradualDecisions, Policy
from srl.api.spaces import Box, Discrete, Space
from srl.api.streams import Cell
from srl.api.worker import IDLE, WORKED
from srl.base.meter import Counter
from srl.base.state import NotResumable
from srl.base.tree import Array, Tree, map_tree
from srl.streams.request_client import Client
from srl.workers.policy import PolicyWorker, PolicyWorkerConfig

BARRIERS: dict[str, threading.Barrier] = {}


class BarrierPolicy(CountingPolicy):
    """Decides only when as many batches are in flight as the barrier expects."""

    def __init__(self, barrier: str) -> None:
        super().__init__()
        self._barrier = BARRIERS[barrier]

    def act(self, observation: Tree, state: Tree | None, first: Array, *, greedy: bool = False) -> Decision:
        self._barrier.wait(timeout=60.0)
        return super().act(observation, state, first, greedy=greedy)


@dataclass(frozen=True)
class BarrierConfig(CountingConfig):
    barrier: str = ""

    def build_policy(self, observation: Space, action: Space, seed: int) -> Policy:
        return BarrierPolicy(self.barrier)


class GradualPolicy(CountingPolicy):
    def gradual_decisions(self) -> GradualDecisions | None:
        return AllowedDecisions(self)


class AllowedDecisions(GradualDecisions):
    """Finishes a decision in the step after its key was allowed."""

    def __init__(self, policy: CountingPolicy) -> None:
        self._policy = policy
        self.begun: dict[int, tuple[Tree, Array]] = {}
        self.allowed: set[int] = set()
        self._keys = count()

    def begin(self, observation: Tree, state: Tree | None, first: Array) -> int:
        key = next(self._keys)
        self.begun[key] = map_tree(np.copy, observation), first.copy()
        return key

    def step(self) -> list[tuple[int, Decision]]:
        ready = [key for key in self.begun if key in self.allowed]
        return [
            (key, self._policy.act(observation, None, first))
            for key in ready
            for observation, first in [self.begun.pop(key)]
        ]


@dataclass(frozen=True)
class GradualConfig(CountingConfig):
    def build_policy(self, observation: Space, action: Space, seed: int) -> Policy:
        return GradualPolicy()


@pytest.fixture
def served(stage: Stage) -> Iterator[tuple[Stage, Any]]:
    workers: list[PolicyWorker] = []

    def start(algorithm: CountingConfig, in_flight: int = 1, max_batch: int = 0) -> tuple[PolicyWorker, Client]:
        stream = stage.requests(max_batch=max_batch)
        config = PolicyWorkerConfig("policy", algorithm, Box((3,)), Discrete(2), stream, in_flight)
        worker = config.build(stage.world.context("policies"))
        workers.append(worker)
        return worker, stage.client(stream, stage.memory(4))

    yield stage, start
    for worker in workers:
        worker.close()
    workers.clear()


def test_requests_are_answered_with_the_newest_parameters(served: Any) -> None:
    stage, start = served
    worker, client = start(CountingConfig())
    store = stage.world.stores["policy"]
    blocks = client._memory.blocks
    assert worker.poll() == IDLE
    client.post(0, [Cell(blocks[0], 0)], 0)
    client.flush()
    for _ in range(20):
        assert worker.poll() == IDLE  # nothing was published
        assert client.poll() == []
    for version in (0, 1, 5):
        store.push(version, np.array([10.0 * version], np.float32))
        if version:
            client.post(0, [Cell(blocks[0], 0)], 0)
            client.flush()
        assert until(client.poll, worker.poll) == [0]
        assert blocks[0].arrays["version"][0].tolist() == [version] * 2
        assert blocks[0].arrays["decision/value"][0].tolist() == [10.0 * version] * 2
    meter = worker._meter
    assert (meter.get(Counter.VERSION), meter.get(Counter.BATCHES), meter.get(Counter.BATCHED_LANES)) == (5, 3, 6)


def test_batches_in_flight_are_computed_concurrently(served: Any) -> None:
    """The barrier opens only when two batches compute at the same time."""
    stage, start = served
    BARRIERS["two"] = threading.Barrier(2)
    worker, client = start(BarrierConfig(barrier="two"), in_flight=2, max_batch=2)
    stage.world.stores["policy"].push(0, np.zeros(1, np.float32))
    for tag in range(4):
        client.post(tag, [Cell(client._memory.blocks[tag], 0)], 0)
    client.flush()
    answered: list[int] = []

    def poll() -> None:
        worker.poll()
        answered.extend(client.poll())

    until(lambda: len(answered) == 4, poll)
    assert sorted(answered) == [0, 1, 2, 3]


def test_parameters_do_not_change_during_a_batch(served: Any) -> None:
    """The barrier lets the first batch end only when the second, with newer parameters, is in flight as well."""
    stage, start = served
    BARRIERS["late"] = threading.Barrier(2)
    worker, client = start(BarrierConfig(barrier="late"), in_flight=2)
    store = stage.world.stores["policy"]
    store.push(0, np.array([1.0], np.float32))
    block = client._memory.blocks[0]
    client.post(0, [Cell(block, 0)], 0)
    client.flush()
    until(lambda: len(worker._running) == 1, worker.poll, client.poll)
    store.push(1, np.array([2.0], np.float32))
    client.post(1, [Cell(block, 1)], 1)
    client.flush()
    answered: list[int] = []

    def poll() -> None:
        worker.poll()
        answered.extend(client.poll())

    until(lambda: len(answered) == 2, poll)
    assert block.arrays["version"][:2, 0].tolist() == [0, 1]
    assert block.arrays["decision/value"][:2, 0].tolist() == [1.0, 2.0]


def test_requests_join_gradual_decisions_between_their_steps(served: Any) -> None:
    stage, start = served
    worker, client = start(GradualConfig())
    stage.world.stores["policy"].push(0, np.zeros(1, np.float32))
    answered: list[int] = []

    def poll() -> None:
        worker.poll()
        answered.extend(client.poll())

    for tag in range(2):
        client.post(tag, [Cell(client._memory.blocks[tag], 0)], 0)
        client.flush()
        until(partial(lambda begun: len(worker._begun) == begun, tag + 1), poll)
    assert answered == []
    for tag in (1, 0):
        worker._gradual.allowed.add(tag)
        until(partial(answered.count, tag), poll)
    assert answered == [1, 0]
    assert worker.poll() == IDLE


def test_parameters_wait_for_gradual_decisions_and_requests_for_the_parameters(served: Any) -> None:
    stage, start = served
    worker, client = start(GradualConfig())
    store, block = stage.world.stores["policy"], client._memory.blocks[0]
    answered: list[int] = []

    def poll() -> None:
        worker.poll()
        answered.extend(client.poll())

    store.push(0, np.array([1.0], np.float32))
    client.post(0, [Cell(block, 0)], 0)
    client.flush()
    until(lambda: len(worker._begun) == 1, poll)
    with pytest.raises(NotResumable):
        worker.state()
    store.push(1, np.array([2.0], np.float32))
    client.post(1, [Cell(block, 1)], 0)
    client.flush()
    until(lambda: len(worker._server._waiting) == 1, poll)
    poll()
    assert len(worker._begun) == 1
    worker._gradual.allowed |= {0, 1}
    until(lambda: len(answered) == 2, poll)
    assert block.arrays["version"][:2, 0].tolist() == [0, 1]
    assert block.arrays["decision/value"][:2, 0].tolist() == [1.0, 2.0]


def test_poll_raises_an_error_of_the_policy(served: Any) -> None:
    stage, start = served
    BARRIERS["broken"] = threading.Barrier(2)
    BARRIERS["broken"].abort()
    worker, client = start(BarrierConfig(barrier="broken"), in_flight=2)
    stage.world.stores["policy"].push(0, np.zeros(1, np.float32))
    client.post(0, [Cell(client._memory.blocks[0], 0)], 0)
    client.flush()
    with pytest.raises(threading.BrokenBarrierError):
        until(lambda: False, worker.poll, client.poll)


def test_a_poll_with_a_batch_reports_work(served: Any) -> None:
    stage, start = served
    worker, client = start(CountingConfig())
    stage.world.stores["policy"].push(0, np.zeros(1, np.float32))
    client.post(0, [Cell(client._memory.blocks[0], 0)], 0)
    client.flush()
    results = []
    until(client.poll, lambda: results.append(worker.poll()))
    assert WORKED in results
