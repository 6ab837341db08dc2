"""The status of a run, computed from its workers' gauges and reports."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from srl.api.block import LENGTH, RETURN
from srl.api.control import EpisodeReport, Evaluated, MetricsReport, UpdateRecord
from srl.api.experiment import Experiment
from srl.api.scheduler import Usage
from srl.api.status import (
    EdgeStatus,
    EvaluationStatus,
    PolicyStatus,
    ReplayStatus,
    RunStatus,
    StreamStatus,
    WorkerStatus,
)
from srl.api.worker import WorkerId
from srl.base.files import Losses
from srl.base.meter import Counter, Meter, Phase
from srl.base.statistics import Speed
from srl.controller.bottleneck import Bottleneck
from srl.controller.diagnosis import settings_of
from srl.controller.metrics import metric_name
from srl.controller.policy_gauges import PolicyGauges

NO_USAGE = Usage()
WINDOW_SECONDS = 5.0
TOTALS = (
    Counter.LEARNED,
    Counter.DECISIONS,
    Counter.LAG_SUM,
    Counter.LAG_COUNT,
    Counter.LANE_FAILURES,
    Counter.SKIPPED_UPDATES,
    Counter.UNRECORDED,
    Counter.REANALYZED,
    Counter.REFUSED_CONNECTIONS,
)
NO_COUNTS = dict.fromkeys(TOTALS, 0)
PHASE_NAMES = {
    Phase.WAITING: "waiting",
    Phase.ENV: "env",
    Phase.INFERENCE: "inference",
    Phase.UPDATE: "update",
    Phase.PUBLISH: "publish",
    Phase.OTHER: "other",
}


@dataclass
class WorkerView:
    """The controller's view of a worker."""

    worker_id: WorkerId
    meter: Meter
    pid: int
    state: str
    usage: Usage = NO_USAGE


class Gauges:
    """Statistics of a run. Totals include workers that ended, because a replacement's counters start at zero."""

    def __init__(
        self,
        experiment: Experiment,
        path: str,
        losses: Losses | None = None,
        refused: Callable[[], Mapping[str, int]] = dict,
    ) -> None:
        self._experiment = experiment
        self._path = path
        self._losses = losses or Losses()
        self._refused = refused
        self._settings = settings_of(experiment)
        self.policies = {name: PolicyGauges() for name in experiment.policies}
        self._learning = experiment.learning or experiment.policies
        self._several = len(experiment.policies) > 1
        self._policy_of = {group.name: group.config.committed_policy() for group in experiment.groups}
        self._other_policy = "" if self._several else "".join(experiment.policies)  # for groups that commit none
        edges = experiment.edges()
        self._edges = [EdgeStatus(edge.source, edge.target, edge.stream, edge.kind, edge.where) for edge in edges]
        self._stream_of = {edge.target: edge.stream for edge in edges if edge.kind != "parameters"}
        # Worker -> its recent observations: time, and seconds spent in each phase so far.
        self._phases: dict[str, deque[tuple[float, dict[Phase, float]]]] = {}
        self._ended: dict[str, dict[Counter, int]] = {}  # policy -> totals of workers that are gone
        self._ended_replay: dict[str, ReplayStatus | None] = {}
        self._made, self._used = Speed(WINDOW_SECONDS), Speed(WINDOW_SECONDS)
        self._steps = 0  # of the last status
        self._new_evaluations: list[tuple[str, EvaluationStatus]] = []
        self.metrics: dict[str, float] = {}
        self.lost_rows: dict[str, int] = {}  # sink -> rows that it did not accept
        self.lost_calls: dict[str, int] = {}  # callback and event -> calls that were not made
        self._bottleneck = Bottleneck(self._forget_work)
        self.began = 0.0  # wall-clock time at which the command started
        self.first_update: float | None = None

    @property
    def first_steps(self) -> int:
        """Number of steps before the run was resumed."""
        return sum(policy.first_steps for policy in self.policies.values())

    def resume_from(self, policies: Mapping[str, Mapping[str, Any]]) -> None:
        """Continue counting from a checkpoint: policy -> `steps` and `version`."""
        for name, metadata in policies.items():
            self.policies[name].first_steps = self.policies[name].recorded_steps = int(metadata["steps"])
            self.policies[name].version = int(metadata["version"])
        for policy in self.policies.values():
            policy.begin_at(policy.version, self.recorded_step)

    def _policy(self, group: str) -> str:
        return self._policy_of.get(group, "") or self._other_policy

    def forget(self, worker_id: WorkerId, meter: Meter) -> None:
        """Add the counts of a worker that ended to the totals."""
        ended = self._ended.setdefault(self._policy(worker_id.group), {})
        for counter in TOTALS:
            ended[counter] = ended.get(counter, 0) + meter.get(counter)
        self._update_maxima(worker_id.group, meter)
        self._ended_replay[worker_id.name] = self._replay_of(worker_id, meter)
        self._phases.pop(worker_id.name, None)

    @property
    def several(self) -> bool:
        """Whether the run has several policies, whose names are then in the names of metrics."""
        return self._several

    def add_record(self, record: UpdateRecord) -> int:
        """Process an update. Return the number of steps of the run after it."""
        self.policies[record.policy].add_record(record)
        self.policies[record.policy].note_step(record.update, self.recorded_step)
        self._add_metrics(record.policy, record.metrics)
        return self.recorded_step

    @property
    def recorded_step(self) -> int:
        """Number of steps of the run after the last update that was reported."""
        return sum(policy.recorded_steps for policy in self.policies.values())

    @property
    def waits_for_evaluation(self) -> bool:
        """Whether the run learns from recorded data, where only evaluations have returns, and the newest version has
        none."""
        policies = [self.policies[name] for name in self._learning] if self._settings.recorded else []
        return any(policy.evaluation is None or policy.evaluation.version < policy.version for policy in policies)

    def add_report(self, message: EpisodeReport | Evaluated | MetricsReport) -> None:
        """Process a worker's report."""
        policy = self.policies.get(message.policy or self._other_policy)
        if isinstance(message, EpisodeReport):
            if policy is not None:
                policy.episodes.add(message.episodes.values())
        elif isinstance(message, Evaluated):
            if policy is not None:
                found = policy.add_evaluation(message, self._steps or self.first_steps)
                self._new_evaluations.append((message.policy, found))
        else:
            self._add_metrics(message.policy if policy is not None else "", message.metrics)

    def _add_metrics(self, policy: str, metrics: Mapping[str, float]) -> None:
        self.metrics.update({metric_name(name, policy if self._several else ""): v for name, v in metrics.items()})

    def drain_evaluations(self) -> list[tuple[str, EvaluationStatus]]:
        """Return the evaluations since the last call, each with its policy."""
        found, self._new_evaluations = self._new_evaluations, []
        return found

    def state(self) -> dict[str, Any]:
        """Return, as plain data, everything that cannot be read from the workers. A resumed run uses the statistics of
        episodes and evaluations; a takeover uses all of it."""
        ended = {policy: {counter.name: value for counter, value in t.items()} for policy, t in self._ended.items()}
        policies = {name: policy.state() for name, policy in self.policies.items()}
        return {"policies": policies, "ended": ended, "first_update": self.first_update}

    def restore(self, state: Mapping[str, Any]) -> None:
        for name, saved in state.get("policies", {}).items():
            self.policies[name].restore(saved)

    def take_over(self, state: Mapping[str, Any]) -> None:
        for name, saved in state["policies"].items():
            self.policies[name].take_over(saved)
        self._ended = {policy: {Counter[c]: v for c, v in t.items()} for policy, t in state["ended"].items()}
        self.first_update = state["first_update"]

    def status(
        self,
        members: list[WorkerView],
        now: float,
        elapsed: float,
        state: str,
        restarts: int,
        messages: list[str],
        reason: str = "",
    ) -> RunStatus:
        by_policy = self._count(members)
        total = {counter: sum(counts[counter] for counts in by_policy.values()) for counter in TOTALS}
        learned = self.first_steps + total[Counter.LEARNED]
        env_fps, train_fps = self._made.add(now, total[Counter.DECISIONS]), self._used.add(now, learned)
        self._steps = learned
        experiment = self._experiment
        policies = {name: self._policy_status(name, by_policy.get(name, NO_COUNTS)) for name in self.policies}
        learning = [self.policies[name].episodes for name in self._learning]
        status = RunStatus(
            run=experiment.name,
            environment=experiment.environment,
            algorithm=experiment.algorithm,
            path=self._path,
            state=state,
            reason=reason,
            settings=self._settings,
            elapsed=elapsed,
            steps=learned,
            first_steps=self.first_steps,
            decisions=self.first_steps + total[Counter.DECISIONS],
            target_steps=experiment.target_steps,
            updates=sum(policy.version for policy in policies.values() if policy.learning),
            version=max((policy.version for policy in policies.values()), default=0),
            env_fps=env_fps,
            train_fps=train_fps,
            lag_mean=_mean_lag(total),
            lag_max=max((policy.lag_max for policy in policies.values()), default=0),
            max_lag=experiment.max_lag,
            episodes=sum(policy.episodes for policy in policies.values()),
            return_mean=learning[0].mean(RETURN) if len(learning) == 1 else None,
            length_mean=learning[0].mean(LENGTH) if len(learning) == 1 else None,
            facts=learning[0].facts if len(learning) == 1 else {},
            policies=policies,
            return_curve=list(learning[0].curve) if len(learning) == 1 else [],
            metrics=dict(self.metrics),
            workers=[self._worker(member, now) for member in members],
            streams=self._streams(members),
            edges=self._edges,
            replay=self._replay(members),
            restarts=restarts,
            lane_failures=total[Counter.LANE_FAILURES],
            skipped_updates=total[Counter.SKIPPED_UPDATES],
            refused={**self._refused(), **({"data": data} if (data := total[Counter.REFUSED_CONNECTIONS]) else {})},
            unrecorded_decisions=total[Counter.UNRECORDED],
            reanalyzed=total[Counter.REANALYZED],
            losses=self._losses.totals(),
            lost_rows=self.lost_rows,
            lost_calls=self.lost_calls,
            messages=messages,
            seconds_to_first_update=self.first_update,
        )
        bottleneck, advice = self._bottleneck.of(status, now, self.first_update is not None)
        return msgspec.structs.replace(status, bottleneck=bottleneck, advice=advice)

    def _policy_status(self, name: str, counts: Mapping[Counter, int]) -> PolicyStatus:
        gauges = self.policies[name]
        episodes = gauges.episodes
        return PolicyStatus(
            learning=name in self._learning,
            steps=gauges.first_steps + counts[Counter.LEARNED],
            version=gauges.version,
            lag_mean=_mean_lag(counts),
            lag_max=gauges.lag_max,
            episodes=episodes.count,
            return_mean=episodes.mean(RETURN),
            length_mean=episodes.mean(LENGTH),
            return_curve=list(episodes.curve),
            facts=episodes.facts,
            evaluation=gauges.evaluation,
        )

    def _count(self, members: list[WorkerView]) -> dict[str, dict[Counter, int]]:
        """Return the totals of each policy's workers, including those that ended."""
        counts = {policy: {counter: t.get(counter, 0) for counter in TOTALS} for policy, t in self._ended.items()}
        for member in members:
            group = member.worker_id.group
            found = counts.setdefault(self._policy(group), dict(NO_COUNTS))
            for counter in TOTALS:
                found[counter] += member.meter.get(counter)
            self._update_maxima(group, member.meter)
        return counts

    def _update_maxima(self, group: str, meter: Meter) -> None:
        policy = self.policies.get(self._policy(group))
        if policy is not None:
            policy.version = max(policy.version, meter.get(Counter.VERSION))
            policy.lag_max = max(policy.lag_max, meter.get(Counter.LAG_MAX))
        first = meter.get(Counter.FIRST_UPDATE_NS)
        if first and self.first_update is None:
            self.first_update = first * 1e-9 - self.began

    def _worker(self, member: WorkerView, now: float) -> WorkerStatus:
        samples = self._phases.setdefault(member.worker_id.name, deque())
        spent = member.meter.seconds()
        samples.append((now, spent))
        while len(samples) > 2 and now - samples[0][0] > WINDOW_SECONDS:
            samples.popleft()
        then, before = samples[0]
        busy: dict[str, float] = {}
        span = now - then
        if span > 0:
            for phase, name in PHASE_NAMES.items():  # excludes the start of its process
                share = (spent[phase] - before[phase]) / span
                if share > 0.0005:
                    busy[name] = min(1.0, share)
        return WorkerStatus(
            name=member.worker_id.name,
            group=member.worker_id.group,
            pid=member.pid,
            incarnation=member.worker_id.incarnation,
            state=member.state,
            busy=busy,
            cpu_percent=member.usage.cpu_percent,
            rss_mb=member.usage.rss_mb,
            host=member.usage.host,
            progress=member.meter.get(Counter.PROGRESS),
            disturbed_connections=member.meter.get(Counter.DISTURBED_CONNECTIONS),
            compiling=bool(member.meter.get(Counter.COMPILING)),
        )

    def _forget_work(self) -> None:
        """Let the shares of time begin with the last status."""
        for samples in self._phases.values():
            while len(samples) > 1:
                samples.popleft()

    def _streams(self, members: list[WorkerView]) -> list[StreamStatus]:
        """Return the state of each stream, as reported by its consumers."""
        streams = []
        for member in members:
            meter, worker_id = member.meter, member.worker_id
            number = self._number(worker_id)
            if meter.get(Counter.POSTED):
                streams.append(
                    StreamStatus(
                        name=f"samples/{number}",
                        kind="push",
                        filled=meter.get(Counter.QUEUED) / 1000,
                        posted=meter.get(Counter.POSTED),
                        consumed=meter.get(Counter.CONSUMED),
                        dropped=meter.get(Counter.DROPPED),
                    )
                )
            if batches := meter.get(Counter.BATCHES):
                mean = meter.get(Counter.BATCHED_LANES) / batches
                streams.append(StreamStatus(f"requests/{number}", "request", 0.0, batches, batches, 0, mean))
        return streams

    def _replay(self, members: list[WorkerView]) -> list[ReplayStatus]:
        ended = self._ended_replay
        found = [
            ended.get(m.worker_id.name) if m.state == "ended" else self._replay_of(m.worker_id, m.meter)
            for m in members
        ]
        return [each for each in found if each is not None]

    def _replay_of(self, worker_id: WorkerId, meter: Meter) -> ReplayStatus | None:
        if not (capacity := meter.get(Counter.REPLAY_CAPACITY)):
            return None
        decisions = meter.get(Counter.REPLAY_DECISIONS)
        return ReplayStatus(
            f"replay/{self._number(worker_id)}",
            meter.get(Counter.REPLAY_SIZE),
            capacity,
            meter.get(Counter.REPLAY_BYTES),
            self._settings.updates_per_decision,
            meter.get(Counter.REPLAY_STEPS) / decisions if decisions else None,
            meter.get(Counter.REPLAY_AGE),
            meter.get(Counter.REPLAY_WARMUP),
            meter.get(Counter.TARGET_AGE),
            decisions,
            self._settings.max_target_age,
        )

    def _number(self, worker_id: WorkerId) -> str:
        """Return the part of a stream's name that follows its kind."""
        stream = self._stream_of.get(worker_id.group, worker_id.group)
        return f"{stream}/{worker_id.index}" if self._several else str(worker_id.index)


def _mean_lag(counts: Mapping[Counter, int]) -> float:
    return counts[Counter.LAG_SUM] / counts[Counter.LAG_COUNT] if counts[Counter.LAG_COUNT] else 0.0
