"""Batches from replay: the blocks of an update go into the memory, and its minibatches are drawn from all that it
holds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from srl.api.dataflow import Replay
from srl.api.streams import PostedBlock
from srl.base.meter import Counter
from srl.base.state import State, pack, part, under, unpack
from srl.replay.memory import Drawn, ReplayMemory
from srl.streams.push import PushStream
from srl.workers.trainer.batches import Batch, episodes_of, labels_of, lags_of

ROUNDING = 1e-6  # a ratio such as 0.3 is not exact in binary


class ReplayMaker:
    """Maker that keeps the ratio of gradient steps to decisions: each batch has `updates_per_decision` minibatches for
    every decision in its blocks. There are none before the warm-up ends, nor are they made up for later."""

    def __init__(self, flow: Replay, stream: PushStream, target_steps: int, num_batches: int, seed: int) -> None:
        self._flow, self._stream = flow, stream
        self._memory = ReplayMemory(flow, stream.spec, seed, stream.consumers)
        self._target = max(1, target_steps // stream.consumers)
        self._warmup = flow.warmup // stream.consumers
        self._num_decisions = self._num_steps = 0  # since the warm-up
        self.num_free = num_batches

    def make(self, update: int, blocks: Sequence[PostedBlock]) -> Batch:
        self.num_free -= 1
        lags, new = [], 0
        for posted in blocks:
            arrays = posted.block.arrays
            track = (posted.producer, posted.incarnation, posted.track)
            new += self._memory.insert(arrays, track, posted.first_step)
            lags.append(lags_of(update, posted.block.version, arrays["acting"]))
        # All ranks must make the same number of gradient steps, so that these do not depend on who acted.
        spec = self._stream.spec
        counted = new if self._stream.consumers == 1 else len(blocks) * spec.horizon * spec.lanes
        steps = self._steps_due(counted)
        drawn = self._memory.draw(steps, min(1.0, self._memory.collected / self._target))
        batch = Batch(update, drawn.batch, np.concatenate(lags), labels_of(blocks), episodes_of(blocks), drawn=drawn)
        batch.gauges = self._gauges(drawn)
        return batch

    def _steps_due(self, num_decisions: int) -> int:
        if self._memory.collected < max(self._warmup, 1) or self._memory.size == 0:
            return 0
        self._num_decisions += num_decisions
        steps = int(self._num_decisions * self._flow.updates_per_decision + ROUNDING) - self._num_steps
        self._num_steps += steps
        return steps

    def _gauges(self, drawn: Drawn) -> dict[Counter, int]:
        memory = self._memory
        return {
            Counter.REPLAY_SIZE: memory.size,
            Counter.REPLAY_CAPACITY: self._flow.capacity // self._stream.consumers,
            Counter.REPLAY_BYTES: memory.nbytes,
            Counter.REPLAY_WARMUP: max(0, self._warmup - memory.collected),
            Counter.REPLAY_DECISIONS: self._num_decisions,
            Counter.REPLAY_STEPS: self._num_steps,
            Counter.REPLAY_AGE: memory.age_of(drawn),
        }

    def give_back(self, batch: Batch) -> None:
        self.num_free += 1
        if batch.priorities is not None:
            self._memory.feedback(batch.drawn, batch.priorities)

    def state(self) -> State:
        return {"counts": pack([self._num_decisions, self._num_steps]), **under("memory", self._memory.state())}

    def restore(self, state: State) -> None:
        self._num_decisions, self._num_steps = unpack(state["counts"])
        self._memory.restore(part(state, "memory"))
