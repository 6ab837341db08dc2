"""A trainer's batches: gathered from blocks, either on demand or by a thread during the current update."""

from __future__ import annotations

import copy
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np

from srl.api.block import BlockSpec, Episodes, joined
from srl.api.status import StreamStatus
from srl.api.streams import Batch, PostedBlock, PushConsumer, StreamBatchSource
from srl.api.trainer import Trajectory
from srl.api.worker import Context
from srl.base.meter import Counter, Meter
from srl.base.state import NotResumable, State, part, under
from srl.base.tree import Array, from_leaves
from srl.streams.push import PushStream
from srl.streams.push_consumer import LATE_BLOCK_POLLS
from srl.workers.wait_set import WaitSet

IDLE_SECONDS = 0.5
LATE_BLOCK_SHARE = 0.5
"""Maximum time that a complete batch waits for a late block, as a fraction of the time between batches."""
MIN_SLEEP_SECONDS = 0.001


class BatchMaker(Protocol):
    """Maker of batches from the blocks of an update. The blocks are released after `make`, so it copies them."""

    @property
    def num_free(self) -> int:
        """Number of batches that can be made before one is given back."""

    def is_ready(self, update: int) -> bool:
        """Return whether the batch of an update can be made, once its blocks are there."""

    def make(self, update: int, blocks: Sequence[PostedBlock]) -> Batch: ...

    def give_back(self, batch: Batch) -> None:
        """Reuse the memory of a batch, and accept its feedback. Called by the thread that calls `make`."""

    def state(self) -> State: ...

    def restore(self, state: State) -> None: ...


def lags_of(update: int, version: Array, acting: Array) -> Array:
    """Return the lag of each decision in rows [T+1, L] of policy versions."""
    decided = acting[:-1]
    versions = version[:-1].ravel() if decided.all() else version[:-1][decided]
    lags: Array = update - versions.astype(np.int64)
    return lags


def labels_of(blocks: Sequence[PostedBlock]) -> tuple[str, ...]:
    return tuple(block.label for block in blocks)


def episodes_of(blocks: Sequence[PostedBlock]) -> dict[str, Episodes]:
    return joined((block.producer, block.episodes) for block in blocks if block.episodes is not None)


def padded(priorities: Array | None, batch: Batch) -> Array | None:
    """Return the priorities with NaN, which changes nothing, for minibatches that were not used."""
    if priorities is None or len(priorities) == batch.data.num_steps:
        return priorities
    unused = np.full((batch.data.num_steps - len(priorities), *priorities.shape[1:]), np.nan, priorities.dtype)
    return np.concatenate([priorities, unused])


def set_gauges(meter: Meter, status: StreamStatus, gauges: Mapping[Counter, int]) -> None:
    """Set the counters of a push stream, and the gauges of the replay that it fills."""
    for counter, value in (
        *gauges.items(),
        (Counter.QUEUED, round(status.filled * 1000)),
        (Counter.POSTED, status.posted),
        (Counter.CONSUMED, status.consumed),
        (Counter.DROPPED, status.dropped),
    ):
        meter.set(counter, value)


class BatchMemory:
    """Memory for one batch: `num_blocks` blocks side by side, time-major ``[T+1, num_blocks * L, ...]``."""

    def __init__(self, spec: BlockSpec, num_blocks: int) -> None:
        self._lanes = spec.lanes
        self._arrays = {path: leaf.empty(spec.rows, num_blocks * spec.lanes) for path, leaf in spec.arrays()}
        self.trajectory = Trajectory(**from_leaves(self._arrays))

    def gather(self, blocks: Sequence[PostedBlock]) -> Trajectory:
        for position, posted in enumerate(blocks):
            lanes = slice(position * self._lanes, (position + 1) * self._lanes)
            for path, target in self._arrays.items():
                target[:, lanes] = posted.block.arrays[path]
        return self.trajectory


class TrajectoryMaker:
    """Maker that places the blocks side by side, for algorithms that use each block once."""

    def __init__(self, stream: PushStream, num_batches: int) -> None:
        self._free = deque(BatchMemory(stream.spec, stream.batch_blocks) for _ in range(num_batches))

    @property
    def num_free(self) -> int:
        return len(self._free)

    def make(self, update: int, blocks: Sequence[PostedBlock]) -> Batch:
        memory = self._free.popleft()
        data = memory.gather(blocks)
        lags = lags_of(update, data.version, data.acting)
        return Batch(update, data, lags, labels_of(blocks), episodes_of(blocks), drawn=memory)

    def is_ready(self, update: int) -> bool:
        return True

    def give_back(self, batch: Batch) -> None:
        self._free.append(batch.drawn)

    def state(self) -> State:
        return {}

    def restore(self, state: State) -> None:
        return


def _next_batch(consumer: PushConsumer, update: int, maker: BatchMaker) -> Batch | None:
    """Make this update's batch, and release its blocks. Return None if blocks are missing."""
    blocks = consumer.take(update) if maker.is_ready(update) else None
    if blocks is None:
        return None
    batch = maker.make(update, blocks)
    consumer.release(blocks)
    return batch


class DirectBatches:
    """Source that gathers batches from a push stream on demand."""

    NUM_BATCHES = 1

    def __init__(
        self, stream: PushStream, context: Context, version: int, published: Callable[[], int], maker: BatchMaker
    ) -> None:
        self._consumer = stream.consumer(context, version)
        self._published = published
        self._maker = maker
        self._update = version

    @property
    def is_urgent(self) -> bool:
        return self._consumer.waits_for_late_block

    def receive(self) -> None:
        self._consumer.poll()
        self._consumer.advance(self._published())

    def poll(self) -> Batch | None:
        self.receive()
        return self.take()

    def take(self) -> Batch | None:
        batch = _next_batch(self._consumer, self._update, self._maker) if self._maker.num_free else None
        if batch is not None:
            self._update += 1
        return batch

    def give_back(self, batch: Batch) -> None:
        self._maker.give_back(batch)
        self._consumer.advance(self._published())

    def status(self) -> StreamStatus:
        return self._consumer.status()

    def state(self) -> State:
        return {**under("consumer", self._consumer.state()), **under("maker", self._maker.state())}

    def restore(self, state: State) -> bool:
        if not self._consumer.restore(part(state, "consumer")):
            return False
        self._maker.restore(part(state, "maker"))
        return True

    def close(self) -> None:
        self._consumer.close()


class PrefetchedBatches:
    """Source whose thread owns another source and makes the next batch during the current update. NumPy releases the
    GIL while it copies."""

    NUM_BATCHES = 2  # one in use, one being made

    def __init__(
        self,
        open_source: Callable[[Context], StreamBatchSource],
        context: Context,
        version: int,
        published: Callable[[], int],
    ) -> None:
        self._wait_set = WaitSet()
        own = copy.copy(context)
        own.wake_on = self._wait_set.watch  # type: ignore[method-assign]  # endpoints wake the thread, not the worker
        self._source = open_source(own)
        self._used: deque[Batch] = deque()  # batches for the thread to give back to the source
        self._ready: deque[Batch] = deque()
        self._num_free = self.NUM_BATCHES
        self._published = published
        self._given_back = version
        self._stopping = False
        self._error: BaseException | None = None
        self._gathered = time.monotonic()
        self._batch_seconds = 0.0
        self._wake_worker = context.waker()
        self._status = self._source.status()
        self._thread = threading.Thread(target=self._run, name="prefetch", daemon=True)
        self._thread.start()

    def poll(self) -> Batch | None:
        if self._error is not None:
            raise RuntimeError(f"gathering a batch failed: {self._error}") from self._error
        return self._ready.popleft() if self._ready else None

    def give_back(self, batch: Batch) -> None:
        self._used.append(batch)
        self._given_back = batch.update + 1
        self._wait_set.wake()

    def status(self) -> StreamStatus:
        return self._status

    def state(self) -> State:
        raise NotResumable("a trainer that gathers in a thread cannot be saved with its batches")

    def restore(self, state: State) -> bool:
        raise NotResumable("a trainer that gathers in a thread cannot be restored with its batches")

    def close(self) -> None:
        self._stopping = True
        self._wait_set.wake()
        self._thread.join(timeout=5.0)
        self._wait_set.close()

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._gather()
                self._wait_set.wait(self._sleep_seconds())
        except BaseException as error:
            self._error = error
            self._wake_worker()
        finally:
            self._source.close()

    def _sleep_seconds(self) -> float:
        """Return the maximum time to sleep before the next poll of the source."""
        if self._published() < self._given_back:
            return MIN_SLEEP_SECONDS  # nothing wakes this thread when the version becomes durable
        if not self._source.is_urgent:
            return IDLE_SECONDS
        return min(IDLE_SECONDS, max(MIN_SLEEP_SECONDS, LATE_BLOCK_SHARE * self._batch_seconds / LATE_BLOCK_POLLS))

    def _gather(self) -> None:
        """Receive data, and make as many batches as are complete and fit into free memory."""
        self._source.receive()
        while self._used:
            self._source.give_back(self._used.popleft())
            self._num_free += 1
        while self._num_free:
            batch = self._source.take()
            if batch is None:
                break
            self._num_free -= 1
            self._ready.append(batch)
            self._wake_worker()
            self._batch_seconds, self._gathered = time.monotonic() - self._gathered, time.monotonic()
        self._status = self._source.status()
