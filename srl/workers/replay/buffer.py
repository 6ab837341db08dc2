"""Buffer workers: they are between replay workers and trainers, and change the batches that pass."""

from __future__ import annotations

from dataclasses import dataclass

from srl.api.dataflow import BatchTransform
from srl.api.spaces import Space
from srl.api.streams import StreamEnd
from srl.api.worker import IDLE, WORKED, Context, PollResult, WorkerConfig
from srl.streams.sample import SampleStream


@dataclass(frozen=True)
class BufferWorkerConfig(WorkerConfig):
    """Config of one buffer worker for each replay worker."""

    replay: SampleStream  # to the replay workers, and to the trainers
    batches: SampleStream
    transform: BatchTransform
    observation: Space
    action: Space

    def ends(self) -> list[StreamEnd]:
        return [self.batches.end("target"), self.replay.end("source")]

    def build(self, context: Context) -> BufferWorker:
        return BufferWorker(self, context)


class BufferWorker:
    """Worker that applies a transform to the batches of one replay worker."""

    def __init__(self, config: BufferWorkerConfig, context: Context) -> None:
        change = config.transform.build(config.observation, config.action)
        self._relay = config.batches.relay(context, config.replay, change)

    def poll(self) -> PollResult:
        return WORKED if self._relay.poll() else IDLE

    def close(self) -> None:
        self._relay.close()
