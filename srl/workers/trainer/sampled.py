"""Batches from replay workers: how many minibatches an update has, and how they are put together from all shards."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from srl.api.block import joined
from srl.api.dataflow import Replay, batch_of
from srl.api.status import StreamStatus
from srl.api.streams import Batch, Filled, Inserted, Sampled
from srl.api.worker import Context
from srl.base.meter import Counter
from srl.base.state import NotResumable, State
from srl.base.tree import Array, from_leaves
from srl.streams.sample import WEIGHT, SampleStream

ROUNDING = 1e-6  # a ratio such as 0.3 is not exact in binary
GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0


def steps_due(flow: Replay, facts: Sequence[Inserted]) -> int:
    """Return the number of minibatches of an update: `updates_per_decision` for each decision that the shards have just
    inserted, with what remained from earlier updates by rounding. There are none before the warm-up ends."""
    before, collected = sum(one.before for one in facts), sum(one.collected for one in facts)
    if collected < max(flow.warmup, 1) or not any(one.mass > 0.0 for one in facts):
        return 0
    ratio = flow.updates_per_decision
    return int(collected * ratio + ROUNDING) - int(before * ratio + ROUNDING)


def shares(batch: int, masses: Sequence[float], update: int) -> list[int]:
    """Return how many of `batch` units come from each shard, in proportion to their mass. The fractions are rounded
    differently at each update, so that the means over updates are exact."""
    if sum(masses) <= 0.0:
        masses = [1.0] * len(masses)
    ends = np.cumsum(masses) / sum(masses) * batch
    rounded = np.floor(ends + (update * GOLDEN) % 1.0).astype(int)
    rounded[-1] = batch
    return [int(count) for count in np.diff(np.minimum(rounded, batch), prepend=0)]


def importance_weights(probabilities: Sequence[Array], beta: float) -> tuple[Array, Array]:
    """Return the weights [K, B] of units that were drawn from shard i with `probabilities[i]` [K, n_i], and their
    divisors [K]. The probability of a unit among all B is n_i / B times that; weights are (memory size *
    probability)^-beta, divided by the maximum over their minibatch (Schaul et al. 2016, section 3.4)."""
    batch = sum(part.shape[1] for part in probabilities)
    exact = np.concatenate([part.astype(np.float64) * (part.shape[1] / batch) for part in probabilities], axis=1)
    lowest = exact.min(axis=1, keepdims=True)
    weights: Array = (lowest / exact) ** beta
    return weights.astype(np.float32), lowest[:, 0] ** -beta


def side_by_side(stream: SampleStream, parts: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
    """Put the parts of all shards side by side: by path, along the axis of the units."""
    if len(parts) == 1:
        return dict(parts[0])
    axes = {path: len(stream.leading(path, 0, 0)) - 1 for path in parts[0]}
    return {path: np.concatenate([part[path] for part in parts], axis=axis) for path, axis in axes.items()}


@dataclass(frozen=True)
class _Origin:
    """Where the units of a batch came from."""

    sampled: Sampled
    counts: list[int]  # units from each shard


class SampledBatches:
    """Source that asks replay workers for the batch of each update (:class:`srl.api.streams.StreamBatchSource`)."""

    def __init__(
        self,
        flow: Replay,
        stream: SampleStream,
        context: Context,
        size: int,
        updates: float,
        version: int,
        published: Callable[[], int],
    ) -> None:
        """`size` is the number of trainers, `updates` the number of updates in the run."""
        self._flow, self._stream = flow, stream
        self._batch = flow.batch // size
        self._updates = updates
        self._client = stream.client(context, context.worker_id.index, size)
        self._published = published
        self._update = version
        self._is_requested = False
        self._filled: Filled | None = None
        self._counts: list[int] = []

    @property
    def is_urgent(self) -> bool:
        return not self._client.is_connected  # nothing wakes this source when a replay worker has been replaced

    def receive(self) -> None:
        self._client.advance(self._published())

    def poll(self) -> Batch | None:
        self.receive()
        return self.take()

    def take(self) -> Batch | None:
        if not self._is_requested:
            self._is_requested = True
            self._client.fill(self._update)
        while (answer := self._client.poll()) is not None:
            if isinstance(answer, Filled):
                self._filled = answer
                masses = [facts.mass for facts in answer.facts]
                self._counts = shares(self._batch, masses, self._update)
                self._client.draw(steps_due(self._flow, answer.facts), self._counts)
            elif answer.parts is None:
                self._client.draw(0, self._counts)  # a memory turned out to be empty
            else:
                return self._made(answer, answer.parts)
        return None

    def _made(self, sampled: Sampled, parts: Sequence[Mapping[str, Array]]) -> Batch:
        filled = self._filled
        assert filled is not None
        given = [part for part in parts if part]
        if any(part.keys() != given[0].keys() for part in given):
            raise ValueError("replay workers sent different arrays; all of them must run the same version of SRL")
        arrays = side_by_side(self._stream, given)
        priorities, largest = self._flow.priorities, None
        if priorities is not None:
            beta = priorities.exponent(self._update / self._updates)
            arrays[WEIGHT], largest = importance_weights([part[WEIGHT] for part in given], beta)
        new = from_leaves(filled.new)["observation"] if self._flow.keeps_new else None
        data = batch_of(self._flow.unit, arrays, sum(facts.num_decisions for facts in filled.facts), new)
        data = replace(data, largest_weight=largest)
        labels = tuple(label for facts in filled.facts for label in facts.samples)
        episodes = joined((actor, found) for facts in filled.facts for actor, found in facts.episodes.items())
        missing = max(0, self._flow.warmup - sum(facts.collected for facts in filled.facts))
        origin = _Origin(sampled, self._counts)
        batch = Batch(self._update, data, filled.lags, labels, episodes, drawn=origin)
        batch.gauges = {Counter.REPLAY_WARMUP: missing}
        self._update += 1
        self._is_requested = False
        return batch

    def give_back(self, batch: Batch) -> None:
        origin = batch.drawn
        assert isinstance(origin, _Origin)
        if batch.priorities is not None and self._flow.priorities is not None:
            ends = np.cumsum(origin.counts)[:-1]
            self._client.feedback(origin.sampled, np.split(batch.priorities, ends, axis=1))
        self.receive()

    def status(self) -> StreamStatus:
        """Return an empty status: the replay workers report on the blocks."""
        return StreamStatus(self._stream.name, "sample", 0.0, 0, 0, 0)

    def state(self) -> State:
        raise NotResumable("only a replay inside the trainer (--replay inline) can be saved with the work in progress")

    def restore(self, state: State) -> bool:
        raise NotResumable("only a replay inside the trainer (--replay inline) can be restored")

    def close(self) -> None:
        self._client.close()
