"""A trainer's batches: gathered from blocks, either on demand or by a thread during the current update."""

from __future__ import annotations

import copy
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from srl.api.block import BlockSpec, Episodes, joined
from srl.api.status import StreamStatus
from srl.api.streams import PostedBlock, PushConsumer
from srl.api.trainer import Trajectory
from srl.api.worker import Context
from srl.base.meter import Counter
from srl.base.state import NotResumable, State, part, under
from srl.base.tree import Array, from_leaves
from srl.streams.push import PushStream
from srl.streams.push_consumer import LATE_BLOCK_POLLS
from srl.workers.wait_set import WaitSet

IDLE_SECONDS = 0.5
LATE_BLOCK_SHARE = 0.5
"""Maximum time that a complete batch waits for a late block, as a fraction of the time between batches."""
MIN_SLEEP_SECONDS = 0.001


@dataclass
class Batch:
    """The data of one update. `data` is valid until the batch is given back."""

    update: int  # number of the update
    data: Any  # a Trajectory or a batch from replay
    lags: Array  # lag of each new decision behind this update, in policy versions
    samples: tuple[str, ...] = ()  # labels of the blocks
    episodes: dict[str, Episodes] = field(default_factory=dict)  # actor -> episodes that ended in its blocks
    priorities: Array | None = None  # feedback to the replay, set after the update
    drawn: Any = None  # in the form of the maker that made the batch
    gauges: Mapping[Counter, int] = field(default_factory=dict)  # of the maker, when it made the batch


class BatchMaker(Protocol):
    """Maker of batches from the blocks of an update. The blocks are released after `make`, so it copies them."""

    @property
    def num_free(self) -> int:
        """Number of batches that can be made before one is given back."""

    def make(self, update: int, blocks: Sequence[PostedBlock]) -> Batch: ...

    def give_back(self, batch: Batch) -> None:
        """Reuse the memory of a batch, and accept its feedback. Called by the thread that calls `make`."""

    def state(self) -> State: ...

    def restore(self, state: State) -> None: ...


def lags_of(update: int, version: Array, acting: Array) -> Array:
    """Return the lag of each decision in rows [T+1, L] of policy versions."""
    lags: Array = update - version[:-1][acting[:-1]].astype(np.int64)
    return lags


def labels_of(blocks: Sequence[PostedBlock]) -> tuple[str, ...]:
    return tuple(block.label for block in blocks)


def episodes_of(blocks: Sequence[PostedBlock]) -> dict[str, Episodes]:
    return joined((block.producer, block.episodes) for block in blocks if block.episodes is not None)


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

    def give_back(self, batch: Batch) -> None:
        self._free.append(batch.drawn)

    def state(self) -> State:
        return {}

    def restore(self, state: State) -> None:
        return


def _next_batch(consumer: PushConsumer, update: int, maker: BatchMaker) -> Batch | None:
    """Make this update's batch, and release its blocks. Return None if blocks are missing."""
    blocks = consumer.take(update)
    if blocks is None:
        return None
    batch = maker.make(update, blocks)
    consumer.release(blocks)
    return batch


class BatchSource(Protocol):
    """Source of a trainer's batches. One batch is in use at a time; return it with `give_back` before the next poll."""

    def poll(self) -> Batch | None: ...

    def give_back(self, batch: Batch) -> None:
        """Give back a used batch, so that its memory can be reused and the replay gets its feedback."""

    def status(self) -> StreamStatus: ...

    def state(self) -> State: ...

    def restore(self, state: State) -> bool: ...

    def close(self) -> None: ...


class DirectBatches:
    """Source that gathers batches on demand, for single-threaded runs."""

    NUM_BATCHES = 1

    def __init__(
        self, stream: PushStream, context: Context, version: int, published: Callable[[], int], maker: BatchMaker
    ) -> None:
        self._consumer = stream.consumer(context, version)
        self._published = published
        self._maker = maker
        self._update = version

    def poll(self) -> Batch | None:
        self._consumer.poll()
        self._consumer.advance(self._published())
        batch = _next_batch(self._consumer, self._update, self._maker)
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
    """Source whose thread owns the stream's consumer and gathers batches; NumPy releases the GIL while it copies."""

    NUM_BATCHES = 2  # one in use, one being gathered

    def __init__(
        self, stream: PushStream, context: Context, version: int, published: Callable[[], int], maker: BatchMaker
    ) -> None:
        self._wait_set = WaitSet()
        self._context = context
        own = copy.copy(context)
        own.wake_on = self._wait_set.watch  # type: ignore[method-assign]  # endpoints wake the thread, not the worker
        self._consumer = stream.consumer(own, version)
        self._maker = maker
        self._used: deque[Batch] = deque()  # batches for the thread to give back to the maker
        self._ready: deque[Batch] = deque()
        self._published = published
        self._given_back = self._update = version
        self._stopping = False
        self._error: BaseException | None = None
        self._gathered = time.monotonic()
        self._batch_seconds = 0.0
        self._wake_worker = context.waker()
        self._status = self._consumer.status()
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
            self._consumer.close()

    def _sleep_seconds(self) -> float:
        """Return the maximum time to sleep before the next poll of the stream."""
        if self._published() < self._given_back:
            return MIN_SLEEP_SECONDS  # nothing wakes this thread when the version becomes durable
        if not self._consumer.waits_for_late_block:
            return IDLE_SECONDS
        return min(IDLE_SECONDS, max(MIN_SLEEP_SECONDS, LATE_BLOCK_SHARE * self._batch_seconds / LATE_BLOCK_POLLS))

    def _gather(self) -> None:
        """Receive blocks, and gather as many batches as are complete and fit into free memory."""
        self._consumer.poll()
        self._consumer.advance(self._published())
        while self._used:
            self._maker.give_back(self._used.popleft())
        while self._maker.num_free:
            batch = _next_batch(self._consumer, self._update, self._maker)
            if batch is None:
                break
            self._ready.append(batch)
            self._update += 1
            self._wake_worker()
            self._batch_seconds, self._gathered = time.monotonic() - self._gathered, time.monotonic()
        self._status = self._consumer.status()
