"""Reanalyze workers: rows travel to them, targets travel back, and the bound on their age holds without them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.stages import Stage
from support.waiting import until

from srl.algorithms.muzero.config import MuZeroConfig
from srl.api.block import BlockSpec
from srl.api.spaces import Box, Discrete, array_spec
from srl.base.meter import Counter
from srl.base.tree import Array
from srl.streams.push import PushStream
from srl.streams.sample import SampleStream
from srl.workers.reanalyzer import ReanalyzerConfig
from srl.workers.replay.reanalyze import ReanalyzeWorker, ReanalyzeWorkerConfig
from srl.workers.replay.worker import ReplayWorkerConfig
from srl.workers.trainer.sampled import SampledBatches

SEEN, ARMS = Box((3,)), Discrete(2)
ALGORITHM = MuZeroConfig(
    hidden_sizes=(8,), latent_size=4, num_bins=5, simulations=4, unroll=1, n_step=1, batch_size=4, learning_starts=0,
    updates_per_decision=0.25, bootstrap="search", max_target_age=4,
)  # fmt: skip
SPEC = BlockSpec(4, 2, array_spec(SEEN), ALGORITHM.decision_spec(SEEN, ARMS))


class Run:
    """One producer, one replay worker, the source of a trainer, and reanalyze workers, in one thread."""

    def __init__(self, stage: Stage, num_workers: int) -> None:
        self.stage, flow = stage, ALGORITHM.dataflow()
        samples = PushStream("policy", SPEC, 1, max_lag=None, remote=stage.remote)
        self.stream = SampleStream("policy", SPEC, flow.unit, 1, stage.remote)
        found = ReanalyzerConfig.of("policy", ALGORITHM, SEEN, ARMS)
        assert found is not None
        self.reanalyzer = found
        self.trainer = ALGORITHM.build_trainer(SEEN, ARMS, 1)
        self.history: dict[int, Array] = {}
        self.store = stage.world.context("trainers", 0).parameters("policy")
        self.publish(0)
        config = ReplayWorkerConfig("policy", flow, samples, self.stream, seed=3, reanalyzer=found)
        self.replay = self.built(config.build(stage.world.context("replay", 0)))
        self.workers: list[Any] = [self.worker(index) for index in range(num_workers)]
        context = stage.world.context("trainers", 0)
        self.source = SampledBatches(flow, self.stream, context, 1, 100.0, 0, lambda: self.published)
        self.built(self.source)
        self.producer = stage.producer(samples, num_open=2)
        self.random = np.random.default_rng(0)

    def built(self, part: Any) -> Any:
        self.stage._stack.callback(part.close)
        return part

    def worker(self, index: int, incarnation: int = 0) -> ReanalyzeWorker:
        context = self.stage.world.context("reanalyze", index, incarnation)
        return self.built(ReanalyzeWorkerConfig(self.stream, self.reanalyzer).build(context))

    def publish(self, version: int) -> None:
        self.published = version
        self.history[version] = self.trainer.parameters().copy()
        self.store.push(version, self.history[version])

    def play(self) -> None:
        self.producer.poll()
        while (opened := self.producer.open()) is not None:
            for path, array in opened.block.arrays.items():
                array[...] = 0
                if path == "observation":
                    array[...] = self.random.uniform(-1.0, 1.0, array.shape)
            opened.block.arrays["acting"][...] = True
            opened.block.arrays["version"][...] = opened.min_version
            opened.block.arrays["decision/value"][...] = -77.0  # of the policy that acted
            self.producer.post(opened)
        for part in (self.replay, *self.workers):
            part.poll()

    def learn(self) -> Any:
        batch = until(self.source.poll, self.play)
        value = batch.data.decision["value"][:, :3][batch.data.acting[:, :3]]
        result = self.trainer.step(batch.data, 0.0)
        assert not result.skipped
        self.publish(batch.update + 1)
        self.source.give_back(batch)
        return value

    @property
    def versions(self) -> Array:
        found: Array = self.replay._shard._memory.targets._versions[: self.replay._shard._memory._ring.num_strips]
        return found


@pytest.fixture(params=["inproc", "tcp"])
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(request.param, tmp_path)
    yield stage
    stage.close()


def test_old_targets_are_searched_where_they_are_drawn_if_nobody_else_has(stage: Stage) -> None:
    run, ages = Run(stage, num_workers=0), []
    for _ in range(12):
        recorded = (run.learn() == -77.0).mean()
        ages.append(run.replay._meter.get(Counter.TARGET_AGE))
    assert recorded < 1.0, "only decisions of the last four versions are new enough as they were recorded"
    assert max(ages) <= 4
    assert ages[-1] > 0, "and nothing is searched before it is too old"


def test_workers_search_all_rows_before_they_are_too_old(stage: Stage) -> None:
    run = Run(stage, num_workers=2)
    for _ in range(6):
        run.learn()
    newest = run.published
    until(lambda: run.versions[:-2].min() >= newest - 2, run.play)
    counts = [worker._meter.get(Counter.REANALYZED) for worker in run.workers]
    assert min(counts) > 0
    run.learn()


def test_targets_are_those_of_the_version_that_the_memory_names_without_noise(stage: Stage) -> None:
    run = Run(stage, num_workers=1)
    for _ in range(8):
        run.learn()
    stores = run.replay._shard._memory._ring.stores
    count = len(run.versions)
    rows = {name: stores[name]._array.reshape(-1, *stores[name]._array.shape[2:])[:count] for name in stores}
    policy, seen = ALGORITHM.build_policy(SEEN, ARMS, 5), set()
    for lane, row in zip(*np.nonzero(rows["decision/value"] != -77.0), strict=True):
        version = int(run.versions[lane, row])
        policy.load(run.history[version], version)
        expected = policy.reanalyze(rows["observation"][lane, row][None])
        np.testing.assert_allclose(rows["decision/value"][lane, row], expected["value"][0], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(rows["decision/policy"][lane, row], expected["policy"][0], rtol=1e-4, atol=1e-5)
        seen.add(version)
    assert len(seen) > 1


def test_a_replaced_worker_goes_on_and_the_answer_of_the_lost_one_is_not_needed(stage: Stage) -> None:
    run = Run(stage, num_workers=1)
    for _ in range(3):
        run.learn()
    run.workers.pop().close()
    for _ in range(6):
        run.learn()
    run.workers.append(run.worker(0, incarnation=1))
    newest = run.published
    until(lambda: run.versions[:-2].min() >= newest - 2, run.play)


def test_targets_of_unknown_rows_end_the_connection(stage: Stage) -> None:
    run = Run(stage, num_workers=1)
    for _ in range(3):
        run.learn()
    client = run.workers[0]._client
    rows = until(lambda: next(iter(client.poll()), None), run.replay.poll)
    before = run.versions.copy()
    wrong = {"policy": np.zeros((3, 5), np.float32), "value": np.zeros(3, np.float32)}
    client.give_back(rows, wrong, 2)
    client.give_back(replace(rows, tag=99), {}, 2)
    until(lambda: not client._links, lambda: (run.replay.poll(), client.poll()))
    assert np.array_equal(before, run.versions[: len(before)])


def test_targets_of_a_version_that_is_not_published_are_refused(stage: Stage) -> None:
    """They could not be checked, and would look new for as long as the run lasts."""
    run = Run(stage, num_workers=0)
    for _ in range(6):
        run.learn()
    shard, before = run.replay._shard, run.versions.copy()
    rows = shard.next_rows(8)
    count = len(rows.places)
    made = {"policy": np.full((count, 2), 0.5, np.float32), "value": np.zeros(count, np.float32)}
    shard.rewrite(rows, made, run.published + 1)
    assert np.array_equal(before, run.versions)
    shard.rewrite(rows, made, run.published)
    assert (run.versions != before).sum() == count > 0
