"""Batches from replay: the blocks of an update go into the memory, and its minibatches are drawn from all that it
holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from srl.api.dataflow import Replay
from srl.api.streams import Batch, PostedBlock
from srl.base.meter import Counter
from srl.base.shared_memory import KeptMemory
from srl.base.state import State, pack, part, under, unpack
from srl.replay.goals import GoalRewards
from srl.replay.memory import Drawn, ReplayMemory
from srl.replay.storage import Arena
from srl.streams.push import PushStream
from srl.workers.reanalyzer import Reanalyzer
from srl.workers.trainer.batches import episodes_of, labels_of, lags_of

WARMUP, DECISIONS, STEPS = 0, 1, 2
"""Counts: decisions for the warm-up, decisions since, and gradient steps of the batches that were given back."""
ROUNDING = 1e-6  # a ratio such as 0.3 is not exact in binary


class ReplayMaker:
    """Maker that keeps the ratio of gradient steps to decisions: each batch has `updates_per_decision` minibatches for
    every decision in its blocks. There are none before the warm-up ends, nor are they made up for later.

    With `kept`, memory and counts outlive this process. `lowest` returns the lowest number of all ranks."""

    def __init__(
        self,
        flow: Replay,
        stream: PushStream,
        target_steps: int,
        num_batches: int,
        seed: int,
        kept: KeptMemory | None = None,
        lowest: Callable[[int], int] = int,
        rewards: GoalRewards | None = None,
        reanalyzer: Reanalyzer | None = None,
    ) -> None:
        self._flow, self._stream = flow, stream
        arena = Arena(kept)
        self._counts = arena.array("counts", (3,), "int64")
        self._memory = ReplayMemory(flow, stream.spec, seed, stream.consumers, arena, rewards)
        self._target = max(1, target_steps // stream.consumers)
        self._warmup = flow.warmup // stream.consumers
        # Ranks must make the same number of gradient steps, but some may have lost their memory, or counted less.
        self._counts[...] = [lowest(int(count)) for count in self._counts]
        owed = self._counts[DECISIONS] * flow.updates_per_decision - self._counts[STEPS]
        if not -1.0 <= owed <= num_batches * stream.batch * flow.updates_per_decision + 1.0:
            self._counts[DECISIONS:] = 0  # the ratio was another one
        self._num_steps = int(self._counts[STEPS])  # including those of batches in use
        self.num_free = num_batches
        self._reanalyzer = reanalyzer
        self._target_age = 0

    def is_ready(self, update: int) -> bool:
        """Return whether targets can be new enough for an update."""
        return self._reanalyzer is None or self._reanalyzer.is_ready(update)

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
        if self._reanalyzer is not None and steps:
            self._target_age = self._memory.refresh(drawn, update, self._reanalyzer)
        batch = Batch(update, drawn.batch, np.concatenate(lags), labels_of(blocks), episodes_of(blocks), drawn=drawn)
        batch.gauges = self._gauges(drawn)
        return batch

    def _steps_due(self, num_decisions: int) -> int:
        counts = self._counts
        counts[WARMUP] += num_decisions
        if counts[WARMUP] < max(self._warmup, 1) or self._memory.num_drawable == 0:
            return 0
        counts[DECISIONS] += num_decisions
        steps = int(int(counts[DECISIONS]) * self._flow.updates_per_decision + ROUNDING) - self._num_steps
        self._num_steps += steps
        return steps

    def _gauges(self, drawn: Drawn) -> dict[Counter, int]:
        memory = self._memory
        return {
            Counter.REPLAY_SIZE: memory.size,
            Counter.REPLAY_CAPACITY: self._flow.capacity // self._stream.consumers,
            Counter.REPLAY_BYTES: memory.nbytes,
            Counter.REPLAY_WARMUP: max(0, self._warmup - int(self._counts[WARMUP])),
            Counter.REPLAY_DECISIONS: int(self._counts[DECISIONS]),
            Counter.REPLAY_STEPS: self._num_steps,
            Counter.REPLAY_AGE: memory.age_of(drawn),
            Counter.TARGET_AGE: self._target_age,
        }

    def give_back(self, batch: Batch) -> None:
        self.num_free += 1
        self._counts[STEPS] += len(batch.drawn.index)
        if batch.priorities is not None:
            self._memory.feedback(batch.drawn, batch.priorities)

    def state(self) -> State:
        return {"counts": pack(self._counts.tolist()), **under("memory", self._memory.state())}

    def restore(self, state: State) -> None:
        self._counts[...] = unpack(state["counts"])
        self._num_steps = int(self._counts[STEPS])
        self._memory.restore(part(state, "memory"))
