"""Batches from replay, changed by the transform of the dataflow."""

from __future__ import annotations

from srl.api.dataflow import BatchFunction, transformed
from srl.api.status import StreamStatus
from srl.api.streams import Batch, StreamBatchSource
from srl.base.seeding import generator
from srl.base.state import State


class TransformedBatches:
    """Source that changes the batches of another one. What is random in the batch of an update depends only on the seed
    and the number of the update, so that a resumed run goes on as if it had not stopped, wherever the replay is."""

    def __init__(self, source: StreamBatchSource, function: BatchFunction, seed: int) -> None:
        self._source, self._function, self._seed = source, function, seed

    @property
    def is_urgent(self) -> bool:
        return self._source.is_urgent

    def receive(self) -> None:
        self._source.receive()

    def poll(self) -> Batch | None:
        self.receive()
        return self.take()

    def take(self) -> Batch | None:
        batch = self._source.take()
        if batch is not None:
            batch.data = transformed(self._function, batch.data, generator(self._seed, "transform", batch.update))
        return batch

    def give_back(self, batch: Batch) -> None:
        self._source.give_back(batch)

    def status(self) -> StreamStatus:
        return self._source.status()

    def state(self) -> State:
        return self._source.state()

    def restore(self, state: State) -> bool:
        return self._source.restore(state)

    def close(self) -> None:
        self._source.close()
