"""Actors, replay workers, buffer workers and the sources of trainers in one thread."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace

import numpy as np

from srl.api.dataflow import BatchTransform, Replay
from srl.api.spaces import Box, Discrete
from srl.api.streams import Batch
from srl.streams.push import PushStream
from srl.streams.sample import SampleStream
from srl.workers.replay.buffer import BufferWorker, BufferWorkerConfig
from srl.workers.replay.worker import ReplayWorker, ReplayWorkerConfig
from srl.workers.trainer.sampled import SampledBatches
from support.stages import SPEC, Stage
from support.waiting import until

DECISIONS = SPEC.horizon * SPEC.lanes  # in a block
SPACES = Box((3,), "float32"), Discrete(2)


class Rig:
    """One producer of numbered blocks, replay workers and the sources of trainers, all in one thread."""

    def __init__(
        self,
        stage: Stage,
        flow: Replay,
        shards: int = 1,
        ranks: int = 1,
        max_lag: int | None = None,
        transform: BatchTransform | None = None,
        keeps: bool = True,
    ) -> None:
        """With a `transform`, there are buffer workers. Unless it `keeps` them, the memories of earlier rigs are not
        used."""
        self.stage, self.flow, self.ranks = stage, flow, ranks
        self.samples = PushStream("policy", SPEC, 1, max_lag=max_lag, consumers=shards, remote=stage.remote)
        self.replay = SampleStream("policy", SPEC, flow.unit, shards, stage.remote)
        self.batches = replace(self.replay, name="policy+buffers") if transform else self.replay
        self.config = ReplayWorkerConfig("policy", flow, self.samples, self.replay, seed=3)
        self.published = self.number = 0
        self._stack = stage._stack.enter_context(ExitStack())
        self.workers = [self.worker(index, keeps=keeps) for index in range(shards)]
        self.transform = transform
        self.buffers = [self.buffer(index) for index in range(shards if transform else 0)]
        self.sources = [self.source(rank) for rank in range(ranks)]
        self.producer = stage.producer(self.samples, num_open=2)

    def worker(self, index: int, incarnation: int = 0, keeps: bool = True) -> ReplayWorker:
        """Return a new worker; unless it `keeps` the memory of an earlier one, as if it were on another host."""
        context = self.stage.world.context("replay", index, incarnation)
        context.replays = context.replays if keeps else {}
        worker = self.config.build(context)
        self._stack.callback(worker.close)
        return worker

    def buffer(self, index: int, incarnation: int = 0) -> BufferWorker:
        assert self.transform is not None
        config = BufferWorkerConfig(self.replay, self.batches, self.transform, *SPACES)
        worker = config.build(self.stage.world.context("buffers", index, incarnation))
        self._stack.callback(worker.close)
        return worker

    def source(self, rank: int, incarnation: int = 0, version: int = 0) -> SampledBatches:
        context = self.stage.world.context("trainers", rank, incarnation)
        ranks = self.ranks
        source = SampledBatches(self.flow, self.batches, context, ranks, 100.0, version, lambda: self.published)
        self._stack.callback(source.close)
        return source

    def play(self) -> None:
        """Produce what is admitted: each reward is the number of its block."""
        self.producer.poll()
        while (opened := self.producer.open()) is not None:
            for path, array in opened.block.arrays.items():
                array[...] = self.number if path == "reward" else 0
            opened.block.arrays["acting"][...] = True
            opened.block.arrays["version"][...] = opened.min_version
            opened.track = self.number
            self.number += 1
            self.producer.post(opened)
        for worker in self.workers:
            worker.poll()
        for buffer in self.buffers:
            buffer.poll()

    def batch(self, rank: int = 0) -> Batch:
        found: Batch = until(self.sources[rank].poll, self.play)
        return found

    def learn(self, rank: int = 0, priorities: float | None = None) -> Batch:
        """Use a batch, give it back and publish."""
        batch = self.batch(rank)
        if priorities is not None:
            batch.priorities = np.full_like(batch.data.weight, priorities)
        self.published = max(self.published, batch.update + 1)
        self.sources[rank].give_back(batch)
        return batch

    def size(self, index: int = 0) -> int:
        return self.workers[index]._shard._memory.size

    def close(self) -> None:
        """Close workers and sources; the producer stays."""
        self._stack.close()
