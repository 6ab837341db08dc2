"""From the workers' gauges to the status of a run."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from srl.api.control import Episodes, Evaluated, Figures
from srl.api.experiment import Experiment
from srl.api.scheduler import Usage
from srl.api.status import EvaluationStatus, RunStatus, Settings, StreamStatus, WorkerStatus
from srl.api.worker import Place
from srl.base.meter import Counter, Meter, Phase
from srl.base.statistics import mean_of
from srl.controller.diagnosis import diagnose

NO_USAGE = Usage()
WINDOW_SECONDS = 5.0
CURVE_POINTS = 200
EPISODE_WINDOW = 100
MAX_MOMENTS = 20_000
TOTALS = (Counter.LEARNED, Counter.DECISIONS, Counter.LAG_SUM, Counter.LAG_COUNT, Counter.LANE_FAILURES)
NAMES = {
    Phase.BOOT: "other",
    Phase.WAITING: "waiting",
    Phase.ENV: "env",
    Phase.INFERENCE: "inference",
    Phase.UPDATE: "update",
    Phase.PUBLISH: "publish",
    Phase.OTHER: "other",
}


@dataclass
class _Track:
    """One worker's gauges over the last seconds."""

    samples: deque[tuple[float, dict[Phase, float], int]] = field(default_factory=deque)


@dataclass
class Member:
    """A worker as the controller knows it."""

    place: Place
    meter: Meter
    pid: int
    state: str
    usage: Usage = NO_USAGE


class Gauges:
    """Keeps totals over restarts: a replacement starts its own counters at zero."""

    def __init__(self, experiment: Experiment, path: str) -> None:
        self._experiment = experiment
        self._path = path
        self._settings = settings_of(experiment)
        self._tracks: dict[str, _Track] = {}
        self._base: dict[Counter, int] = {}
        self._rates: deque[tuple[float, int, int]] = deque()
        self.returns: deque[float] = deque(maxlen=EPISODE_WINDOW)
        self.lengths: deque[float] = deque(maxlen=EPISODE_WINDOW)
        self.episodes = 0
        self.evaluation: EvaluationStatus | None = None
        self._new_evaluations: list[EvaluationStatus] = []
        self._learned_by: deque[tuple[int, int]] = deque(maxlen=MAX_MOMENTS)  # versions and steps, as time went by
        self._curve: list[float] = []
        self._stride = 1
        self._skipped = 0
        self.figures: dict[str, float] = {}
        self.facts: dict[str, float] = {}
        self.version = 0
        self._lag_max = 0
        self._diagnosis = ("", "")
        self.began = 0.0
        """Wall time of the command."""
        self.first_update: float | None = None
        self.first_steps = 0

    def forget(self, place: Place, meter: Meter) -> None:
        """A worker is gone: what it counted stays counted."""
        for counter in TOTALS:
            self._base[counter] = self._base.get(counter, 0) + meter.get(counter)
        self._raise_marks([meter])
        self._tracks.pop(place.name, None)

    def hear(self, message: Episodes | Evaluated | Figures) -> None:
        """A worker has figures to tell."""
        if isinstance(message, Episodes):
            self.add_episodes(message.count, message.returns, message.lengths)
            self.add_facts(message.count, message.facts)
            if len(self._experiment.policies) > 1 and message.returns:
                mean = sum(message.returns) / len(message.returns)
                self.add_facts(message.count, {f"{message.role}/return_mean": mean})
        elif isinstance(message, Evaluated):
            self.add_evaluation(message.versions, message.returns, message.lengths, message.cut)
        else:
            self.figures = {**self.figures, **message.figures}

    def add_episodes(self, count: int, returns: Iterable[float], lengths: Iterable[float]) -> None:
        self.episodes += count
        self.returns.extend(returns)
        self.lengths.extend(lengths)

    def add_facts(self, count: int, facts: Mapping[str, float]) -> None:
        """What environments told of `count` episodes: means that forget as the window of returns does."""
        share = min(1.0, count / EPISODE_WINDOW)
        for name, mean in facts.items():
            before = self.facts.get(name, mean)
            self.facts[name] = before + share * (mean - before)

    def add_evaluation(
        self, versions: dict[str, int], returns: Sequence[float], lengths: Sequence[float], cut: int = 0
    ) -> None:
        former = self.evaluation
        mean = mean_of(returns)
        step = self._steps_of(next(iter(versions.values())))
        best = former is None or mean.value > former.best_return
        self.evaluation = EvaluationStatus(
            count=1 if former is None else former.count + 1,
            step=step,
            versions=versions,
            episodes=mean.count,
            return_mean=mean.value,
            return_interval=mean.interval if mean.count > 1 else None,
            length_mean=mean_of(lengths).value,
            best_return=mean.value if former is None or best else former.best_return,
            best_step=step if former is None or best else former.best_step,
            cut=cut,
        )
        self._new_evaluations.append(self.evaluation)

    def drain_evaluations(self) -> list[EvaluationStatus]:
        """Those since the last call: between two looks there may have been several."""
        found, self._new_evaluations = self._new_evaluations, []
        return found

    def _steps_of(self, version: int) -> int:
        """How much a version had learned from; between two looks at the trainer's gauges steps grow evenly."""
        if not self._learned_by:
            return self.first_steps
        versions, steps = zip(*self._learned_by, strict=True)
        return round(float(np.interp(version, versions, steps)))

    def totals(self) -> dict[str, Any]:
        """Everything as plain data that a controller's successor cannot read from the workers."""
        base = {counter.name: value for counter, value in self._base.items()}
        marks = {"version": self.version, "lag_max": self._lag_max, "first_steps": self.first_steps}
        return {**self.state(), "base": base, "first_update": self.first_update, **marks}

    def take_over(self, totals: Mapping[str, Any]) -> None:
        self.restore(totals)
        self._base = {Counter[name]: value for name, value in totals["base"].items()}
        self.version, self._lag_max = totals["version"], totals["lag_max"]
        self.first_steps, self.first_update = totals["first_steps"], totals["first_update"]

    def state(self) -> dict[str, Any]:
        """The figures of episodes and evaluations as plain data: a run that is resumed goes on with them."""
        return {
            "count": self.episodes,
            "returns": list(self.returns),
            "lengths": list(self.lengths),
            "curve": list(self._curve),
            "stride": self._stride,
            "evaluation": msgspec.to_builtins(self.evaluation),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        self.add_episodes(state.get("count", 0), state.get("returns", ()), state.get("lengths", ()))
        self._curve, self._stride = list(state.get("curve", ())), state.get("stride", 1)
        self.evaluation = msgspec.convert(state.get("evaluation"), EvaluationStatus | None)

    def extend_curve(self) -> None:
        """One more point; when there are too many, every second one goes and the next come half as often."""
        if not self.returns:
            return
        self._skipped += 1
        if self._skipped < self._stride:
            return
        self._skipped = 0
        self._curve.append(sum(self.returns) / len(self.returns))
        if len(self._curve) > CURVE_POINTS:
            self._curve = self._curve[::2]
            self._stride *= 2

    def status(
        self,
        members: list[Member],
        now: float,
        elapsed: float,
        state: str,
        restarts: int,
        messages: list[str],
        reason: str = "",
    ) -> RunStatus:
        learned = self.first_steps + self._total(members, Counter.LEARNED)
        decided = self._total(members, Counter.DECISIONS)
        env_fps, train_fps = self._rate(now, decided, learned)
        lag_count = self._total(members, Counter.LAG_COUNT)
        self._raise_marks([member.meter for member in members])
        if not self._learned_by or self._learned_by[-1][0] != self.version:
            self._learned_by.append((self.version, learned))
        experiment = self._experiment
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
            decisions=self.first_steps + decided,
            target_steps=experiment.target_steps,
            updates=self.version,
            version=self.version,
            env_fps=env_fps,
            train_fps=train_fps,
            lag_mean=self._total(members, Counter.LAG_SUM) / lag_count if lag_count else 0.0,
            lag_max=self._lag_max,
            max_lag=experiment.max_lag,
            episodes=self.episodes,
            return_mean=sum(self.returns) / len(self.returns) if self.returns else None,
            length_mean=sum(self.lengths) / len(self.lengths) if self.lengths else None,
            facts=dict(self.facts),
            evaluation=self.evaluation,
            return_curve=list(self._curve),
            metrics=dict(self.figures),
            workers=[self._worker(member, now) for member in members],
            streams=_streams(members),
            restarts=restarts,
            lane_failures=self._total(members, Counter.LANE_FAILURES),
            messages=messages,
            seconds_to_first_update=self.first_update,
        )
        found = diagnose(status)
        self._diagnosis = found if any(found) else self._diagnosis  # the last one stays when workers have ended
        bottleneck, advice = self._diagnosis
        return msgspec.structs.replace(status, bottleneck=bottleneck, advice=advice)

    def _raise_marks(self, meters: list[Meter]) -> None:
        for meter in meters:
            self.version = max(self.version, meter.get(Counter.VERSION))
            self._lag_max = max(self._lag_max, meter.get(Counter.LAG_MAX))
            first = meter.get(Counter.FIRST_UPDATE_NS)
            if first and self.first_update is None:
                self.first_update = first * 1e-9 - self.began

    def _total(self, members: list[Member], counter: Counter) -> int:
        return self._base.get(counter, 0) + sum(member.meter.get(counter) for member in members)

    def _rate(self, now: float, produced: int, consumed: int) -> tuple[float, float]:
        self._rates.append((now, produced, consumed))
        while len(self._rates) > 2 and now - self._rates[0][0] > WINDOW_SECONDS:
            self._rates.popleft()
        then, produced_then, consumed_then = self._rates[0]
        span = now - then
        if span <= 0:
            return 0.0, 0.0
        return (produced - produced_then) / span, (consumed - consumed_then) / span

    def _worker(self, member: Member, now: float) -> WorkerStatus:
        track = self._tracks.setdefault(member.place.name, _Track())
        spent = member.meter.seconds()
        track.samples.append((now, spent, 0))
        while len(track.samples) > 2 and now - track.samples[0][0] > WINDOW_SECONDS:
            track.samples.popleft()
        then, before, _ = track.samples[0]
        busy: dict[str, float] = {}
        span = now - then
        if span > 0:
            for phase in Phase:
                share = (spent[phase] - before[phase]) / span
                if share > 0.0005:
                    busy[NAMES[phase]] = busy.get(NAMES[phase], 0.0) + min(1.0, share)
        return WorkerStatus(
            name=member.place.name,
            group=member.place.group,
            pid=member.pid,
            incarnation=member.place.incarnation,
            state=member.state,
            busy=busy,
            cpu_percent=member.usage.cpu_percent,
            rss_mb=member.usage.rss_mb,
            host=member.usage.host,
            progress=member.meter.get(Counter.PROGRESS),
            cut=member.meter.get(Counter.BROKEN_CONNECTIONS),
        )


def settings_of(experiment: Experiment) -> Settings:
    """The sizes that count for the run's speed; of several policies, those of the first that learns."""
    found: dict[str, int] = {}
    for group in experiment.groups:
        found = {**group.config.sizes(), **found}
    return Settings(**{name: found[name] for name in Settings.__struct_fields__ if name in found})


def _streams(members: list[Member]) -> list[StreamStatus]:
    """Streams as their consuming ends see them."""
    streams = []
    for member in members:
        meter, index = member.meter, member.place.index
        if meter.get(Counter.POSTED):
            streams.append(
                StreamStatus(
                    name=f"samples/{index}",
                    kind="push",
                    filled=meter.get(Counter.QUEUED) / 1000,
                    posted=meter.get(Counter.POSTED),
                    consumed=meter.get(Counter.CONSUMED),
                    dropped=meter.get(Counter.DROPPED),
                )
            )
        if batches := meter.get(Counter.BATCHES):
            mean = meter.get(Counter.BATCHED_LANES) / batches
            streams.append(StreamStatus(f"requests/{index}", "request", 0.0, batches, batches, 0, mean))
    return streams
