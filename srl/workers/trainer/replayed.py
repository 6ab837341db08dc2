"""Batches from replay: the blocks of an update go into the memory, and its minibatches are drawn from all that it
holds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from srl.api.dataflow import Replay
from srl.api.streams import PostedBlock
from srl.base.state import State, pack, part, under, unpack
from srl.replay.memory import ReplayMemory
from srl.streams.push import PushStream
from srl.workers.trainer.batches import Batch, episodes_of, labels_of, lags_of


class ReplayMaker:
    """Maker that keeps the ratio of gradient steps to decisions: each batch has `updates_per_decision` minibatches for
    every decision in its blocks. There are none before the warm-up ends, nor are they made up for later."""

    def __init__(self, flow: Replay, stream: PushStream, target_steps: int, num_batches: int, seed: int) -> None:
        self._flow, self._stream = flow, stream
        self._memory = ReplayMemory(flow, stream.spec, seed, stream.consumers)
        self._target = max(1, target_steps // stream.consumers)
        self._warmup = flow.warmup // stream.consumers
        self._owed = 0.0  # gradient steps, including a fraction of one
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
        drawn.batch.num_decisions = new
        return Batch(update, drawn.batch, np.concatenate(lags), labels_of(blocks), episodes_of(blocks), drawn=drawn)

    def _steps_due(self, num_decisions: int) -> int:
        if self._memory.collected < max(self._warmup, 1) or self._memory.size == 0:
            return 0
        self._owed += num_decisions * self._flow.updates_per_decision
        steps = int(self._owed)
        self._owed -= steps
        return steps

    def give_back(self, batch: Batch) -> None:
        self.num_free += 1
        if batch.priorities is not None:
            self._memory.feedback(batch.drawn, batch.priorities)

    def state(self) -> State:
        return {"owed": pack(self._owed), **under("memory", self._memory.state())}

    def restore(self, state: State) -> None:
        self._owed = unpack(state["owed"])
        self._memory.restore(part(state, "memory"))
