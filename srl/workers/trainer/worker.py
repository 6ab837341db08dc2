"""The trainer worker: takes batches, learns, commits and publishes."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from srl.api.algorithm import AlgorithmConfig
from srl.api.control import ChangeOption, Done, Instruction, Notice, OptionValue
from srl.api.dataflow import OnPolicy, Replay, first_steps
from srl.api.spaces import Space
from srl.api.streams import Batch, BatchSource, StreamBatchSource, StreamEnd
from srl.api.trainer import TrainerGroup
from srl.api.worker import FINISHED, IDLE, WORKED, Context, PollResult, RunBroken, WorkerConfig
from srl.base.meter import Counter, Phase
from srl.base.seeding import derive
from srl.base.state import NotResumableYet, State, part, under
from srl.datasets.stream_recorder import StreamRecorder, StreamRecording
from srl.replay.goals import GoalRewards, GoalRewardsConfig
from srl.replay.saving import NOT_SAVED, ReplaySaving
from srl.streams.push import PushStream
from srl.streams.sample import SampleStream
from srl.workers.reanalyzer import ReanalyzerConfig
from srl.workers.trainer.batches import (
    BatchMaker,
    DirectBatches,
    PrefetchedBatches,
    TrajectoryMaker,
    padded,
    set_gauges,
)
from srl.workers.trainer.sampled import SampledBatches
from srl.workers.trainer.transformed import TransformedBatches
from srl.workers.trainer.update_reporter import UpdateReporter

MAX_SKIPPED = 3
AGREED = "next update"


@dataclass(frozen=True)
class TrainerWorkerConfig(WorkerConfig):
    policy: str
    algorithm: AlgorithmConfig
    observation: Space
    action: Space
    samples: PushStream
    target_steps: int
    seed: int  # seed of the initial parameters, the same for all ranks
    size: int = 1  # number of data-parallel trainers of this policy
    alone: bool = True
    """Whether this is the only policy that learns. Otherwise, because all policies play together, a trainer that has
    reached its target continues, with its schedules at their end, until the others have reached theirs."""
    journal: bool = False  # whether to report each update's samples, which costs a digest of the parameters
    data: tuple[str, ...] = ()
    """Data sets to learn from, in place of what actors send. A step is then a gradient step."""
    replay: SampleStream | None = None
    """Stream to the replay workers that consume `samples`; None: the trainer consumes them itself."""
    goals: GoalRewardsConfig | None = None
    """Rewards of goals, if the dataflow relabels what this trainer draws; replay workers have their own."""
    recording: StreamRecording | None = None  # where to record the batches, with `--record-streams`
    saving: ReplaySaving = NOT_SAVED

    def committed_policy(self) -> str:
        return self.policy

    def resized(self, count: int) -> TrainerWorkerConfig:
        """Return a copy of this config in which `count` trainers share the same batch."""
        flow = self.algorithm.dataflow()
        if self.replay is not None and isinstance(flow, Replay):
            if flow.batch % count:
                raise ValueError(f"a batch of {flow.batch} units cannot be shared by {count} trainers")
            return replace(self, size=count)
        blocks = self.samples.batch_blocks * self.samples.consumers
        if blocks % count:
            possible = ", ".join(str(number) for number in range(1, blocks + 1) if blocks % number == 0)
            raise ValueError(f"a batch of {blocks} blocks cannot be shared by {count} trainers; use one of {possible}")
        samples = replace(self.samples, batch_blocks=blocks // count, consumers=count)
        return replace(self, samples=samples, size=count)

    def with_target_steps(self, target_steps: int) -> TrainerWorkerConfig:
        return replace(self, target_steps=target_steps)

    def changeable(self) -> tuple[str, ...]:
        return self.algorithm.changeable()

    def with_option(self, name: str, value: OptionValue) -> TrainerWorkerConfig | None:
        if name not in self.algorithm.changeable():
            return None
        return replace(self, algorithm=self.algorithm.with_option(name, value))

    def sizes(self) -> dict[str, float]:
        cost, flow = self.algorithm.update_cost(), self.algorithm.dataflow()
        if self.data:
            return {"batch": self.samples.batch, "recorded": 1}
        sizes: dict[str, float] = {"horizon": self.samples.spec.horizon, "batch": self.samples.batch}
        if isinstance(flow, Replay):
            sizes["updates_per_decision"] = flow.updates_per_decision
            if flow.reanalysis is not None:
                sizes["max_target_age"] = flow.reanalysis.max_age
        return {**sizes, "epochs": cost.epochs, "num_minibatches": cost.minibatches}

    def ends(self) -> list[StreamEnd]:
        if self.data:
            return []
        return [self.samples.end("target") if self.replay is None else self.replay.end("source")]

    def source(
        self,
        context: Context,
        version: int,
        published: Callable[[], int],
        num_batches: int,
        lowest: Callable[[int], int],
    ) -> StreamBatchSource:
        """Return the source of batches from update number `version` on, `num_batches` of which exist at a time.
        `lowest` is that of the trainer."""
        flow = self.algorithm.dataflow()
        if self.replay is not None and isinstance(flow, Replay):
            updates = max(1.0, self.target_steps / self.samples.batch)
            return SampledBatches(flow, self.replay, context, self.size, updates, version, published)
        return DirectBatches(self.samples, context, version, published, self.maker(num_batches, context, lowest))

    def maker(self, num_batches: int, context: Context, lowest: Callable[[int], int]) -> BatchMaker:
        """Return the maker of batches, `num_batches` of which exist at a time. `lowest` is that of the trainer."""
        flow = self.algorithm.dataflow()
        if isinstance(flow, OnPolicy):
            return TrajectoryMaker(self.samples, num_batches)
        from srl.workers.trainer.replayed import ReplayMaker  # imports numba

        kept = context.kept_memory(self.policy, context.worker_id.index)
        counts = self.target_steps, num_batches
        reanalyzer = ReanalyzerConfig.of(self.policy, self.algorithm, self.observation, self.action)
        again = None if reanalyzer is None else reanalyzer.build(context)
        return ReplayMaker(flow, self.samples, *counts, self.seed, kept, lowest, self.rewards(), again)

    def rewards(self) -> GoalRewards | None:
        """Return the rewards of goals, for a memory in this trainer."""
        return None if self.goals is None else self.goals.build()

    def transformed(self, source: StreamBatchSource, rank: int) -> StreamBatchSource:
        """Return the source with the transform of the dataflow, unless there is none or buffer workers apply it."""
        flow = self.algorithm.dataflow()
        transform = flow.transform if isinstance(flow, Replay) else None
        if transform is None or (self.replay is not None and self.replay.is_transformed):
            return source
        seed = derive(self.seed, "trainer", self.policy, rank)
        return TransformedBatches(source, transform.build(self.observation, self.action), seed)

    def build(self, context: Context) -> TrainerWorker:
        return TrainerWorker(self, context)


class TrainerWorker:
    """Worker that learns from batches. Each update is *committed* before it is published: the trainer's state is
    written to memory that outlives this process, so that no published version can be lost."""

    def __init__(self, config: TrainerWorkerConfig, context: Context) -> None:
        self._config = config
        self._context = context
        self._meter = context.meter
        self._rank = context.worker_id.index
        seed = derive(config.seed, "trainer", config.policy)
        self._trainer = config.algorithm.build_trainer(config.observation, config.action, seed)
        self._commits = context.commits(config.policy)
        self._parameters = context.parameters(config.policy)
        self._version = 0
        self._steps = 0
        self._skipped = 0
        self._group: TrainerGroup | None = None
        self._records = UpdateReporter(config.policy, context.worker_id, config.size, config.journal, context.report)
        self._resume()
        where, place = config.recording, (config.policy, self._rank, config.size, seed)
        self._recorder = None if where is None else StreamRecorder(where, *place, context.threads)
        if config.size > 1:
            self._group = context.trainer_group(config.policy, config.size)
            self._trainer.join(self._group)
            self._agree(self._group)
        if self._rank == 0:
            if self._commits.version < 0:
                self._commit()
            if self._parameters.version < self._version:
                self._parameters.push(self._version, self._trainer.parameters())
        self._meter.set(Counter.VERSION, self._version)
        self._published = self._version
        self._saver = config.saving.open(context, config.policy, config.samples.consumers)
        self._batches = self._open_batches()
        self._resumed = self._version > 0
        self._used: Batch | None = None
        self._changes: deque[ChangeOption] = deque()  # not applied yet
        self._last_change = 0  # number of the last change received
        self._done_reported = False

    def _open_batches(self) -> BatchSource:
        config, version, durable = self._config, self._version, self._durable_version
        if config.data:
            from srl.workers.trainer.recorded import RecordedBatches  # imports numba and h5py

            spaces, flow = (config.observation, config.action), config.algorithm.dataflow()
            assert isinstance(flow, Replay)
            own = config.target_steps, version, self._steps, self._rank, config.seed
            recorded = RecordedBatches(config.data, flow, config.samples, spaces, *own, config.rewards())
            return config.transformed(recorded, self._rank)

        def open_source(context: Context) -> StreamBatchSource:
            num_batches = PrefetchedBatches.NUM_BATCHES if context.threads else DirectBatches.NUM_BATCHES
            source = config.source(context, version, durable, num_batches, self._trainer.lowest)
            return config.transformed(source, self._rank)

        if self._context.threads:
            return PrefetchedBatches(open_source, self._context, version, durable)
        return open_source(self._context)

    def _resume(self) -> None:
        committed = self._commits.read()
        if committed is not None:
            version, state, metadata = committed
            self._trainer.restore(state)
            self._version = version
            self._steps = int(metadata["steps"])
            self._records.resume(metadata, self._trainer.parameters())
        # Versions must increase: actors may have used later ones, if a state was lost while there was no controller.
        self._version = max(self._version, self._parameters.version)

    def _agree(self, group: TrainerGroup) -> None:
        """Adopt rank 0's version and number of steps, because the states on different hosts may differ in age."""
        if not isinstance(group.rendezvous, str):
            if self._rank == 0:
                group.rendezvous.set(AGREED, f"{self._version} {self._steps}".encode())
            version, steps = group.rendezvous.get(AGREED).split()
            self._version, self._steps = int(version), int(steps)

    def _commit(self) -> None:
        metadata: dict[str, Any] = {"steps": self._steps, "policy": self._config.policy, "wall_time": time.time()}
        metadata["records"] = self._records.last
        self._commits.write(self._version, self._trainer.state(), metadata)

    def _durable_version(self) -> int:
        """Return the newest published version that would survive the loss of this host. Admissions never require a
        newer version, because a replacement trainer might not reach it."""
        if self._commits.version < self._published:
            return self._published  # rank 0 is on another host, which sends only durable versions
        return min(self._published, self._commits.durable)

    def poll(self) -> PollResult:
        self._records.report(self._durable_version())
        self._saver.poll()
        if self._used is not None and not self._return_batch():
            return WORKED  # rank 0 publishes within microseconds
        if self._done and self._finish():
            return FINISHED
        batch = self._batches.poll()
        if batch is None:
            return IDLE
        try:
            self._learn(batch)
        except BaseException:
            if self._recorder is not None:
                self._recorder.fail()
            raise
        return FINISHED if self._used is None and self._done and self._finish() else WORKED

    @property
    def _done(self) -> bool:
        return self._steps >= self._config.target_steps

    def _finish(self) -> bool:
        """Report, once, that this policy has reached its target. Return whether the trainer is finished."""
        if self._durable_version() < self._version:
            return False  # the last update must not be lost with this host
        self._records.report(self._version)
        if not self._done_reported:
            self._done_reported = True
            self._context.report(Done(f"{self._steps:,} steps", self._config.policy))
        return self._config.alone

    def _learn(self, batch: Batch) -> None:
        meter = self._meter
        meter.enter(Phase.UPDATE)
        self._apply_changes()
        progress = min(1.0, self._steps / self._config.target_steps)
        self._records.announce(self._version + 1, batch)
        data, recorder = self._agreed_data(batch), self._recorder
        if recorder is not None:
            recorder.before(self._version + 1, self._config.algorithm, data, progress, batch, self._trainer)
        result = self._trainer.step(data, progress)
        batch.priorities = padded(result.priorities, batch)
        self._count(batch)
        self._note_refill(batch)
        self._steps += result.num_decisions
        self._version += 1
        meter.enter(Phase.PUBLISH)
        if result.skipped:
            self._count_skipped()
        else:
            self._skipped = 0
        self._records.add(self._version, self._steps, result, self._trainer.parameters(), batch)
        if self._rank == 0:
            self._commit()
            self._parameters.push(self._version, self._trainer.parameters())
        if recorder is not None:
            for text in recorder.after(self._trainer.parameters()):
                self._context.report(Notice(text))
        meter.set(Counter.VERSION, self._version)
        meter.add(Counter.PROGRESS)
        if not meter.get(Counter.FIRST_UPDATE_NS):
            meter.set(Counter.FIRST_UPDATE_NS, time.time_ns())
        self._used = batch
        if self._return_batch():
            # Now, so that what a callback changes affects the next update.
            self._records.report(self._durable_version())
        meter.enter(Phase.OTHER)

    def _agreed_data(self, batch: Batch) -> Any:
        """Return the data of a batch, with as many minibatches from replay as all ranks have: they must make the same
        number of gradient steps, and one of them may have a memory that is almost empty."""
        data = batch.data
        if self._config.size == 1 or isinstance(self._config.algorithm.dataflow(), OnPolicy):
            return data
        num_steps = self._trainer.lowest(data.num_steps)
        return data if num_steps == data.num_steps else first_steps(data, num_steps)

    def _note_refill(self, batch: Batch) -> None:
        """Report that the replay of a resumed run starts empty, once."""
        missing = batch.gauges.get(Counter.REPLAY_WARMUP, 0)
        if self._resumed and missing and self._rank == 0:
            first = f"the replay starts empty: {missing:,} more decisions of the current policy refill it"
            self._context.report(Notice(f"{first} before learning continues"))
        self._resumed = False

    def instruct(self, message: Instruction) -> None:
        if isinstance(message, ChangeOption):
            self._changes.append(message)
            self._last_change = message.number

    def _apply_changes(self) -> None:
        """Apply the changes that all ranks have received, so that their parameters remain the same."""
        known = self._trainer.lowest(self._last_change) if self._config.size > 1 else self._last_change
        while self._changes and self._changes[0].number <= known:
            change = self._changes.popleft()
            changed = self._config.with_option(change.name, change.value)
            if changed is not None:
                self._config = changed
                self._trainer.reconfigure(changed.algorithm)

    def _count_skipped(self) -> None:
        self._skipped += 1
        if self._rank == 0:  # all ranks skip the same updates
            self._meter.add(Counter.SKIPPED_UPDATES)
        self._context.report(Notice(f"update {self._version} had a loss or gradient that is not finite: skipped"))
        if self._skipped >= MAX_SKIPPED:
            raise RunBroken(
                f"{MAX_SKIPPED} updates in a row had a loss or gradient that is not finite, so none was applied; "
                "the last good parameters are in the checkpoint. Lower the learning rate, or look for huge "
                "observations or rewards with `srl check-env`"
            )

    def _return_batch(self) -> bool:
        """If this version is published, give back the batch and admit the blocks that the version allows. Return
        whether it is."""
        assert self._used is not None
        if self._parameters.version < self._version:
            return False
        self._published = self._version
        self._batches.give_back(self._used)
        self._used = None
        return True

    def _count(self, batch: Batch) -> None:
        total, count, most = batch.lag_totals
        self._meter.add(Counter.LEARNED, count)
        if count:
            self._meter.add(Counter.LAG_SUM, total)
            self._meter.add(Counter.LAG_COUNT, count)
            self._meter.set(Counter.LAG_MAX, max(self._meter.get(Counter.LAG_MAX), most))
        set_gauges(self._meter, self._batches.status(), batch.gauges)

    def state(self) -> State:
        """Return the state that is not in the commit."""
        if self._used is not None:
            raise NotResumableYet("an update is not published yet")
        own = {"skipped": np.array(self._skipped), **under("uncommitted", self._trainer.uncommitted_state())}
        return {**own, **under("batches", self._batches.state())}

    def restore(self, state: State) -> bool:
        self._skipped = int(state["skipped"])
        self._trainer.restore_uncommitted(part(state, "uncommitted"))
        return self._batches.restore(part(state, "batches"))

    def close(self) -> None:
        for text in self._recorder.close() if self._recorder is not None else ():
            self._context.report(Notice(text))
        self._batches.close()
        self._saver.close()
        if self._group is not None and not isinstance(self._group.rendezvous, str):
            self._group.rendezvous.close()
