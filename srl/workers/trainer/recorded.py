"""Batches from recorded data: a replay memory that holds data sets, and to which nothing is added."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from srl.api.dataflow import Replay
from srl.api.spaces import Space
from srl.api.status import StreamStatus
from srl.api.streams import Batch
from srl.base.meter import Counter
from srl.base.seeding import derive
from srl.base.state import State
from srl.base.tree import Array, from_leaves
from srl.datasets.recorded import HORIZON, RecordedData, block_spec, fill
from srl.replay.goals import GoalRewards
from srl.replay.memory import ReplayMemory
from srl.streams.push import PushStream


class RecordedBatches:
    """Source of batches of `stream.batch` gradient steps each; the last one is smaller, so that the run makes exactly
    `target_steps`. A step of such a run is a gradient step, which rank 0 counts.

    What an update draws depends only on the seed, the rank and the number of the update, so that a resumed run goes on
    as if it had not stopped.
    """

    def __init__(
        self,
        data: tuple[str, ...],
        flow: Replay,
        stream: PushStream,
        spaces: tuple[Space, Space],
        target_steps: int,
        version: int,
        num_steps: int,
        rank: int,
        seed: int,
        rewards: GoalRewards | None = None,
    ) -> None:
        """`num_steps` gradient steps were made before. `spaces` are those of observations and actions."""
        self._stream, self._target = stream, target_steps
        self._update, self._num_steps = version, num_steps
        self._rank, self._seed = rank, seed
        recorded = RecordedData(data)
        spec = block_spec(stream.spec.observation, stream.spec.decision)
        whole = replace(flow, batch=flow.batch // stream.consumers, capacity=recorded.num_blocks * HORIZON)
        self._memory = ReplayMemory(whole, spec, seed, rewards=rewards)
        observations: list[dict[str, Array]] = []

        def insert(arrays: dict[str, Array], track: str, first_step: int) -> None:
            self._memory.insert(arrays, track, first_step)
            if flow.keeps_new:
                acting = arrays["acting"][:-1, 0]
                observations.append({path: array[:-1, 0][acting] for path, array in _observations(arrays).items()})

        fill(insert, recorded.blocks(spec, *spaces))
        self._new = None
        if observations and version == 0:  # a resumed trainer has their statistics
            paths = observations[0]
            self._new = from_leaves({path: np.concatenate([part[path] for part in observations]) for path in paths})

    @property
    def is_urgent(self) -> bool:
        return False

    def receive(self) -> None:
        return

    def poll(self) -> Batch | None:
        return self.take()

    def take(self) -> Batch | None:
        count = min(self._stream.batch, self._target - self._num_steps)
        if count <= 0:
            return None
        self._memory.reseed(derive(self._seed, "recorded", self._rank, self._update))
        drawn = self._memory.draw(count, min(1.0, self._num_steps / self._target))
        counted = count if self._rank == 0 else 0
        data = replace(drawn.batch, num_decisions=counted, new=self._new)
        batch = Batch(self._update, data, np.zeros(counted, np.int64), drawn=drawn)
        batch.gauges = {
            Counter.REPLAY_SIZE: self._memory.size,
            Counter.REPLAY_CAPACITY: self._memory.size,
            Counter.REPLAY_BYTES: self._memory.nbytes,
        }
        self._new = None
        self._update += 1
        self._num_steps += count
        return batch

    def give_back(self, batch: Batch) -> None:
        if batch.priorities is not None:
            self._memory.feedback(batch.drawn, batch.priorities)

    def status(self) -> StreamStatus:
        return StreamStatus(self._stream.name, "recorded")

    def state(self) -> State:
        return {}

    def restore(self, state: State) -> bool:
        return True

    def close(self) -> None:
        return


def _observations(arrays: dict[str, Array]) -> dict[str, Array]:
    """Return the arrays of observations by the rest of their paths."""
    parts = {path.partition("/"): array for path, array in arrays.items()}
    return {rest: array for (root, _, rest), array in parts.items() if root == "observation"}
