"""Reanalyze workers: they make targets in the memories of replay workers again, before these become too old."""

from __future__ import annotations

from dataclasses import dataclass

from srl.api.streams import StreamEnd
from srl.api.worker import IDLE, WORKED, Context, PollResult, WorkerConfig
from srl.base.meter import Counter, Phase
from srl.base.tree import from_leaves
from srl.streams.sample import SampleStream
from srl.workers.reanalyzer import MAX_ROWS, ReanalyzerConfig


@dataclass(frozen=True)
class ReanalyzeWorkerConfig(WorkerConfig):
    replay: SampleStream
    reanalyzer: ReanalyzerConfig

    def ends(self) -> list[StreamEnd]:
        return [self.replay.end("source"), StreamEnd(self.reanalyzer.policy, "parameters", "target")]

    def build(self, context: Context) -> ReanalyzeWorker:
        return ReanalyzeWorker(self, context)


class ReanalyzeWorker:
    """Worker that gets rows from replay workers, searches them with the newest parameters, and returns their targets.
    The replay workers write these: only they write to their memories."""

    def __init__(self, config: ReanalyzeWorkerConfig, context: Context) -> None:
        self._meter = context.meter
        self._reanalyzer = config.reanalyzer.build(context)
        self._client = config.replay.rows(context, MAX_ROWS)

    def poll(self) -> PollResult:
        if self._reanalyzer.version < 0:
            return IDLE
        fetched = self._client.poll()
        for rows in fetched:
            self._meter.enter(Phase.INFERENCE)
            observation = from_leaves(rows.observation)["observation"]
            targets, version = self._reanalyzer(observation)
            self._client.give_back(rows, targets, version)
            self._meter.add(Counter.REANALYZED, len(next(iter(rows.observation.values()))))
            self._meter.add(Counter.PROGRESS)
            self._meter.enter(Phase.OTHER)
        return WORKED if fetched else IDLE

    def close(self) -> None:
        self._client.close()
