"""The replay worker: inserts the blocks of a policy into its memory, and answers the draws of trainers."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from srl.api.control import Notice
from srl.api.dataflow import Replay
from srl.api.streams import DrawRequest, Feedback, FillRequest, NewTargetsOf, RowsRequest, StreamEnd
from srl.api.worker import IDLE, WORKED, Context, PollResult, WorkerConfig
from srl.base.meter import Counter
from srl.base.seeding import derive
from srl.base.tree import leaves
from srl.replay.goals import GoalRewardsConfig
from srl.replay.saving import NOT_SAVED, ReplaySaving
from srl.streams.push import PushStream
from srl.streams.push_consumer import LATE_BLOCK_POLLS
from srl.streams.sample import OBSERVATION, SampleStream
from srl.workers.reanalyzer import ReanalyzerConfig
from srl.workers.trainer.batches import LATE_BLOCK_SHARE, set_gauges

if TYPE_CHECKING:
    from srl.replay.memory import Drawn
    from srl.replay.targets import StaleRows

REPLAY_MODULE = "srl.workers.replay.shard"
"""Module that is slow to import, because it imports Numba: import it once, in the process from which workers fork."""
NUM_REMEMBERED = 4  # draws of a trainer to which feedback may still come


@dataclass(frozen=True)
class ReplayWorkerConfig(WorkerConfig):
    policy: str
    flow: Replay
    samples: PushStream  # one consumer for each replay worker
    replay: SampleStream
    seed: int
    goals: GoalRewardsConfig | None = None  # rewards of goals, if the dataflow relabels
    reanalyzer: ReanalyzerConfig | None = None  # if the dataflow has a reanalysis
    saving: ReplaySaving = NOT_SAVED

    def ends(self) -> list[StreamEnd]:
        ends = [self.samples.end("target"), self.replay.end("target")]
        return ends if self.reanalyzer is None else [*ends, StreamEnd(self.policy, "parameters", "target")]

    def build(self, context: Context) -> ReplayWorker:
        return ReplayWorker(self, context)


class ReplayWorker:
    """Worker that keeps its part of a policy's past blocks. The trainers say which update comes next: it then inserts
    the blocks of that update, and draws from all that it has."""

    def __init__(self, config: ReplayWorkerConfig, context: Context) -> None:
        from srl.workers.replay.shard import ReplayShard  # imports numba

        self._context = context
        self._meter = context.meter
        index = context.worker_id.index
        seed = config.seed if index == 0 else derive(config.seed, "replay worker", index)
        self._saver = config.saving.open(context, config.policy, config.samples.consumers)
        kept = context.kept_memory(config.policy, index)
        rewards = None if config.goals is None else config.goals.build()
        reanalyzer = None if config.reanalyzer is None else config.reanalyzer.build(context)
        self._shard = ReplayShard(config.flow, config.samples, seed, kept, rewards, reanalyzer)
        self._is_prioritized = config.flow.priorities is not None
        self._consumer = config.samples.consumer(context)
        self._server = config.replay.server(context)
        self._waiting: list[FillRequest] = []
        self._draws: list[DrawRequest] = []  # which wait for newer parameters
        self._handed_out: dict[object, dict[int, StaleRows]] = {}  # reanalyze worker -> tag -> rows
        self._drawn: dict[object, dict[int, Drawn]] = {}  # client -> tag -> units that feedback may be about
        self._taken = time.monotonic()  # time of the last insertion
        self._batch_seconds = 0.0
        self._take_again = 0.0  # time at which to look for a late block again
        self._show()
        if context.worker_id.incarnation > 0 and not self._shard.size:
            context.report(Notice(f"{context.worker_id.name} was replaced and starts empty: new decisions refill it"))

    def poll(self) -> PollResult:
        self._saver.poll()
        requests = self._server.poll()
        self._consumer.poll()
        self._consumer.advance(max(0, self._server.published))
        for request in requests:
            if isinstance(request, FillRequest):
                self._waiting.append(request)
            elif isinstance(request, DrawRequest):
                self._draws.append(request)
            elif isinstance(request, RowsRequest):
                self._hand_out(request)
            elif isinstance(request, NewTargetsOf):
                self._rewrite(request)
            else:
                self._accept(request)
        worked = self._fill() or bool(requests)
        while self._draws and self._shard.is_ready():
            self._draw(self._draws.pop(0))
        if worked:
            self._meter.add(Counter.PROGRESS)
        # A late block may complete the batch without a message that wakes this worker.
        return WORKED if worked or (self._waiting and self._consumer.waits_for_late_block) else IDLE

    def _fill(self) -> bool:
        """Insert the blocks of the next update for which a trainer waits, and answer. Return whether it could."""
        self._waiting = [request for request in self._waiting if self._server.is_waiting(request.client)]
        if not self._waiting:
            return False
        update = min(request.update for request in self._waiting)
        if self._shard.lacks(update) and not self._insert(update):
            return False
        self._shard.forget(self._server.published)
        ready = [request for request in self._waiting if not self._shard.lacks(request.update)]
        self._waiting = [request for request in self._waiting if self._shard.lacks(request.update)]
        for request in ready:
            self._server.report(request, *self._shard.facts(request.update, request.reports))
        return True

    def _insert(self, update: int) -> bool:
        now = time.monotonic()
        late = self._context.threads and self._consumer.waits_for_late_block
        if late and now < self._take_again:
            return False
        self._consumer.skip_to(update)
        blocks = self._consumer.take(update)
        if blocks is None:
            self._take_again = now + LATE_BLOCK_SHARE * self._batch_seconds / LATE_BLOCK_POLLS
            return False
        self._shard.insert(update, blocks)
        self._consumer.release(blocks)
        self._batch_seconds, self._taken = now - self._taken, now
        self._show()
        return True

    def _draw(self, request: DrawRequest) -> None:
        arrays, drawn = self._shard.draw(request.num_steps, request.count)
        self._server.reply(request, arrays)
        if drawn is not None and self._is_prioritized:
            remembered = self._drawn.setdefault(request.client, {})
            remembered[request.tag] = drawn
            for tag in list(remembered)[:-NUM_REMEMBERED]:
                del remembered[tag]
        self._show()

    def _hand_out(self, request: RowsRequest) -> None:
        for client in [client for client in self._handed_out if not self._server.is_waiting(client)]:
            del self._handed_out[client]
        rows = self._shard.next_rows(request.count)
        given = self._handed_out.setdefault(request.client, {})
        given[request.tag] = rows
        for tag in list(given)[:-NUM_REMEMBERED]:
            del given[tag]
        self._server.hand_out(request, dict(leaves(rows.observation, OBSERVATION)) if len(rows.places) else {})

    def _rewrite(self, found: NewTargetsOf) -> None:
        rows = self._handed_out.get(found.client, {}).pop(found.tag, None)
        if rows is not None:
            self._shard.rewrite(rows, found.targets, found.version)

    def _accept(self, feedback: Feedback) -> None:
        for client in [client for client in self._drawn if not self._server.is_waiting(client)]:
            del self._drawn[client]
        drawn = self._drawn.get(feedback.client, {}).pop(feedback.tag, None)
        if drawn is not None:
            self._shard.feedback(drawn, feedback.priorities)

    def _show(self) -> None:
        set_gauges(self._meter, self._consumer.status(), self._shard.gauges())

    def close(self) -> None:
        self._consumer.close()
        self._server.close()
        self._saver.close()
