"""Prefetching: the next batch is gathered while the current one trains."""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from srl.api.status import StreamStatus
from srl.api.streams import PushConsumer
from srl.api.trainer import Trajectory
from srl.api.worker import Context
from srl.base.state import NotResumable, State
from srl.base.tree import Array
from srl.streams.push import PushStream
from srl.streams.push_consumer import LATE_BLOCK_POLLS
from srl.workers.doorbells import Doorbells
from srl.workers.trainer.batches import BatchMemory

IDLE_SECONDS = 0.5
HESITATION_SHARE = 0.5
"""Of the time that a batch takes: the most that a complete one waits for a block that is late."""
LEAST_SECONDS = 0.001


@dataclass(frozen=True)
class Batch:
    update: int
    """The update that this batch is for."""
    trajectory: Trajectory
    memory: BatchMemory
    samples: tuple[str, ...] = ()
    """What its blocks are called."""

    @property
    def lags(self) -> Array:
        """How many versions each decision is behind this update."""
        trajectory = self.trajectory
        lags: Array = self.update - trajectory.version[:-1][trajectory.acting[:-1]].astype(np.int64)
        return lags


def _next_batch(consumer: PushConsumer, update: int, memories: deque[BatchMemory]) -> Batch | None:
    """Gather the batch for this update into one of the memories, and give its blocks back."""
    blocks = consumer.take(update)
    if blocks is None:
        return None
    memory = memories.popleft()
    trajectory = memory.gather(blocks)
    consumer.release(blocks)
    return Batch(update, trajectory, memory, tuple(block.label for block in blocks))


class BatchSource(Protocol):
    """Gives a trainer its batches. One batch is out at a time; `give_back` it before taking the next."""

    def poll(self) -> Batch | None: ...

    def give_back(self, batch: Batch, version: int) -> None:
        """The batch was used, and parameters of `version` are published."""

    def status(self) -> StreamStatus: ...

    def state(self) -> State: ...

    def restore(self, state: State) -> bool: ...

    def close(self) -> None: ...


class DirectBatches:
    """Gathers when asked: for runs in one thread."""

    def __init__(self, stream: PushStream, context: Context, version: int) -> None:
        self._consumer = stream.consumer(context, version)
        self._free = deque([BatchMemory(stream.spec, stream.batch_blocks)])
        self._update = version

    def poll(self) -> Batch | None:
        self._consumer.poll()
        batch = _next_batch(self._consumer, self._update, self._free)
        if batch is not None:
            self._update += 1
        return batch

    def give_back(self, batch: Batch, version: int) -> None:
        self._free.append(batch.memory)
        self._consumer.advance(version)

    def status(self) -> StreamStatus:
        return self._consumer.status()

    def state(self) -> State:
        return self._consumer.state()

    def restore(self, state: State) -> bool:
        return self._consumer.restore(state)

    def close(self) -> None:
        self._consumer.close()


class PrefetchedBatches:
    """Gathers in a thread that owns the stream's consumer; numpy's copies leave the interpreter to the trainer."""

    def __init__(self, stream: PushStream, context: Context, version: int, depth: int = 2) -> None:
        self._bells = Doorbells()
        self._context = context
        self._consumer = stream.consumer(_Listening(context, self._bells), version)
        self._free = deque(BatchMemory(stream.spec, stream.batch_blocks) for _ in range(depth))
        self._ready: deque[Batch] = deque()
        self._version = version
        self._update = version
        self._stopping = False
        self._error: BaseException | None = None
        self._gathered = time.monotonic()
        self._batch_seconds = 0.0
        self._ring = context.bell()
        self._status = self._consumer.status()
        self._thread = threading.Thread(target=self._run, name="prefetch", daemon=True)
        self._thread.start()

    def poll(self) -> Batch | None:
        if self._error is not None:
            raise RuntimeError(f"gathering a batch failed: {self._error}") from self._error
        return self._ready.popleft() if self._ready else None

    def give_back(self, batch: Batch, version: int) -> None:
        self._free.append(batch.memory)
        self._version = version
        self._bells.ring()

    def status(self) -> StreamStatus:
        return self._status

    def state(self) -> State:
        raise NotResumable("a trainer that gathers in a thread cannot be saved with its batches")

    def restore(self, state: State) -> bool:
        raise NotResumable("a trainer that gathers in a thread cannot be restored with its batches")

    def close(self) -> None:
        self._stopping = True
        self._bells.ring()
        self._thread.join(timeout=5.0)
        self._bells.close()

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._turn()
                self._bells.wait(self._rest())
        except BaseException as error:
            self._error = error
            self._ring()
        finally:
            self._consumer.close()

    def _rest(self) -> float:
        """Until the next turn, if nobody rings before."""
        if not self._consumer.waits_for_late_block:
            return IDLE_SECONDS
        return min(IDLE_SECONDS, max(LEAST_SECONDS, HESITATION_SHARE * self._batch_seconds / LATE_BLOCK_POLLS))

    def _turn(self) -> None:
        self._consumer.poll()
        self._consumer.advance(self._version)
        while self._free:
            batch = _next_batch(self._consumer, self._update, self._free)
            if batch is None:
                break
            self._ready.append(batch)
            self._update += 1
            self._ring()
            self._batch_seconds, self._gathered = time.monotonic() - self._gathered, time.monotonic()
        self._status = self._consumer.status()


class _Listening:
    """The worker's context, but for what wakes whom: the stream's endpoints wake the gathering thread."""

    def __init__(self, context: Context, bells: Doorbells) -> None:
        self.place = context.place
        self.seed = context.seed
        self.meter = context.meter
        self.names = context.names
        self.listen = context.listen
        self.connect = context.connect
        self.parameters = context.parameters
        self.commits = context.commits
        self.report = context.report
        self.bell = context.bell
        self.wake_on = bells.watch
        self.threads = context.threads
        self.trainer_group = context.trainer_group
        self.hear = context.hear
