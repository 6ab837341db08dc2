"""Replay of recorded updates: a trainer learns from the same batches again and reaches the same parameters."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from srl.api.algorithm import AlgorithmConfig
from srl.api.spaces import Space
from srl.api.trainer import Trainer, TrainerGroup, TrainResult
from srl.base.config import TrustCode, from_file, texts_in
from srl.base.tree import Array
from srl.datasets.recorded_streams import RecordedStream
from srl.datasets.stream_layout import StreamLayout
from srl.datasets.stream_segments import Segment, StreamError, batch_of, digest_of, plain
from srl.results.recorded_blocks import recorded_policies
from srl.storage import ROOT, checkpoints, run_directory
from srl.storage.run_directory import RunDirectory
from srl.terminal.formatting import plural
from srl.workers.process import one_thread

OnUpdate = Callable[[int, Any, Trainer, TrainResult], object]
MISFITS = (ValueError, KeyError, TypeError, IndexError, AttributeError, RuntimeError)
"""Errors of a trainer whose batch or state is that of another algorithm."""


@dataclass(frozen=True)
class ReplayedUpdate:
    """One update that was made again."""

    update: int
    digest: str  # of the parameters after it
    recorded: str  # the same in the record; empty if the trainer failed in this update
    metrics: Mapping[str, float]
    skipped: bool = False  # a loss or gradient was not finite

    @property
    def is_equal(self) -> bool:
        return self.digest == self.recorded


@dataclass(frozen=True)
class Replayed:
    """Updates that were made again."""

    run: Path
    policy: str
    start: str  # where the replay started
    first: int  # first update that was asked for
    updates: tuple[ReplayedUpdate, ...]  # also those between the start and the first one
    distances: Mapping[int, float]
    """Update -> largest difference between its parameters and the recorded ones, where those are recorded in full."""
    parameters: Array = field(repr=False)
    notes: tuple[str, ...] = ()

    @property
    def first_difference(self) -> int | None:
        """First update whose parameters differ from the recorded ones."""
        return next((one.update for one in self.updates if one.recorded and not one.is_equal), None)

    def __str__(self) -> str:
        return "\n".join(summary(self))

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"


def summary(done: Replayed) -> list[str]:
    last, different = done.updates[-1].update, done.first_difference
    lines = [f"{done.run.name}, {done.policy}: updates {done.first} to {last}, from {done.start}"]
    lines += done.notes
    lines += [
        f"update {one.update} was skipped: a loss or gradient is not finite" for one in done.updates if one.skipped
    ]
    if different is None:
        compared = sum(bool(one.recorded) for one in done.updates)
        lines.append(f"the parameters after {plural(compared, 'update')} are those of the record, bit for bit")
    else:
        lines.append(f"the parameters differ from the record from update {different} on")
        for update, distance in done.distances.items():
            if update >= different:
                lines.append(f"  after update {update} by at most {distance:.3g}")
    return lines


def replay_run(
    run: str | Path,
    *,
    from_update: int | None = None,
    to_update: int | None = None,
    policy: str = "",
    on_update: OnUpdate | None = None,
    trust_code: TrustCode = False,
    root: str | Path = ROOT,
) -> Replayed:
    """Make recorded updates of a run again (`srl train ENV --record-streams`), and compare the parameters.

    The trainer starts from the nearest recorded state or checkpoint before `from_update`, and ends after `to_update`;
    by default, these are the first and the last update of the newest part of the record. `policy` is needed if several
    policies learn. `on_update` is called after each update with its number, its batch, the trainer and the result.
    `run` is as for :func:`srl.load_run`, `trust_code` as for :func:`srl.load`.
    """
    source = Source.open(run_directory.find(run, Path(root)), policy, trust_code)
    route = source.route(from_update, to_update)
    if route.ranks > 1:
        from srl.results.replay_ranks import replay_ranks

        if on_update is not None:
            raise ValueError(f"on_update needs updates of one trainer; these were made by {route.ranks}")
        return replay_ranks(source, route)
    return replayed(source, route, list(source.play(route, on_update=on_update)))


@dataclass(frozen=True)
class Step:
    """An update that was made again, with the parameters after it, which are valid until the next one."""

    update: ReplayedUpdate
    distance: float | None  # from the recorded parameters before the update, if there are any
    parameters: Array


def replayed(source: Source, route: Route, steps: list[Step]) -> Replayed:
    distances = {one.update.update - 1: one.distance for one in steps if one.distance is not None}
    return Replayed(
        source.run.path,
        source.policy,
        route.start,
        route.first,
        tuple(one.update for one in steps),
        {update: distance for update, distance in distances.items() if update > route.version},
        steps[-1].parameters.copy(),
        tuple(source.notes),
    )


@dataclass(frozen=True)
class Route:
    """A replay to make."""

    version: int  # number of the update after which it starts
    first: int
    last: int
    ranks: int
    checkpoint: str = ""  # path; empty: the state in the record

    @property
    def start(self) -> str:
        return Path(self.checkpoint).name or f"the recorded state after update {self.version}"


@dataclass
class Source:
    """The record of one policy, and what its trainers are made of."""

    run: RunDirectory
    policy: str
    stream: RecordedStream
    observation: Space
    action: Space
    trust_code: TrustCode
    known_texts: frozenset[str]  # texts in the config of the run, if its code is trusted
    notes: list[str] = field(default_factory=list)
    _told: tuple[int, str] = (0, "")  # writer and algorithm of the current trainer
    _layout: StreamLayout = field(init=False)  # of its batches

    @classmethod
    def open(cls, run: RunDirectory, policy: str, trust_code: TrustCode) -> Source:
        """Raises StreamError if nothing is recorded, ValueError for an unknown policy, and UntrustedCode."""
        recorded, described = recorded_policies(run, policy), run.read_config()["policies"]
        if len(recorded) > 1:
            raise ValueError(f"{run.name} has several policies; choose one: {', '.join(recorded)} (`policy`, --policy)")
        name = recorded[0]
        if name not in described:
            raise ValueError(f"{run.config} has no policy {name!r}")
        trusted = run.trusted(trust_code)
        kinds = {"algorithm": AlgorithmConfig, "observation": Space, "action": Space}
        parts = from_file(described[name], kinds, f"{run.config}, policy {name!r}", trusted)
        texts = frozenset(texts_in(described[name]["algorithm"])) if trusted is True else frozenset()
        stream = RecordedStream(run.streams / name)
        return cls(run, name, stream, parts["observation"], parts["action"], trust_code, texts)

    def algorithm(self, segment: Segment) -> AlgorithmConfig:
        """Return the config of a segment. What it names is trusted if the config of the run, which is signed, names it
        too."""
        data = segment.head.algorithm
        trusted: TrustCode = self.trust_code or (bool(self.known_texts) and set(texts_in(data)) <= self.known_texts)
        found = from_file({"algorithm": data}, {"algorithm": AlgorithmConfig}, str(segment.file.path), trusted)
        algorithm: AlgorithmConfig = found["algorithm"]
        try:
            algorithm.check(self.observation, self.action)
        except ValueError:
            algorithm = algorithm.on_cpu()
            algorithm.check(self.observation, self.action)
            note = "this machine does not have the device of the trainer: the CPU rounds differently"
            self.notes += [note] if note not in self.notes else []
        return algorithm

    def route(self, first: int | None, last: int | None) -> Route:
        """Return from where to where to replay. Raises StreamError if that is not possible."""
        stream = self.stream
        spans = stream.spans()
        if not spans:
            raise StreamError(f"{stream.folder} has no update that all ranks have recorded")
        last = spans[-1][1] if last is None else last
        span = next((span for span in spans if span[0] <= last <= span[1]), None)
        if span is None or (first is not None and not span[0] <= first <= last):
            asked = f"{first} to {last}" if first is not None else f"up to {last}"
            raise StreamError(f"updates {asked} are not recorded without a gap; recorded are {stream.described()}")
        starts = self._starts(span)
        wanted = first if first is not None else min(starts, default=span[0]) + 1
        version = max((version for version in starts if version < wanted), default=None)
        if version is None:
            raise StreamError(self._no_start(wanted, span, starts))
        ranks = {stream.head(update).ranks for update in range(version + 1, last + 1)}
        if len(ranks) > 1:
            change = next(u for u in range(version + 2, last + 1) if stream.head(u).ranks != stream.head(u - 1).ranks)
            raise StreamError(
                f"the number of trainers changed before update {change}; replay up to {change - 1}, or from a later "
                "update on"
            )
        return Route(version, wanted, last, ranks.pop(), starts[version])

    def _no_start(self, wanted: int, span: tuple[int, int], starts: Mapping[int, str]) -> str:
        if not starts:
            return (
                f"there is no state of the trainer in updates {span[0]} to {span[1]} to start from: it is larger than "
                "the record allows, and no checkpoint is of that time. Record with a larger --record-mb, or keep more "
                "checkpoints (--keep-last)"
            )
        return (
            f"there is no state of the trainer before update {wanted} to start from; the first possible --from-update "
            f"of this part of the record is {min(starts) + 1}"
        )

    def _starts(self, span: tuple[int, int]) -> dict[int, str]:
        """Return the versions from which a part of the record can be replayed, with the checkpoint of each, empty for a
        state in the record."""
        stream = self.stream
        found: dict[int, str] = {}
        for path in checkpoints.checkpoints(self.run.checkpoints):
            version = _version_of(path, self.policy)
            if version is not None and span[0] - 1 <= version < span[1] and stream.is_whole(version + 1):
                found[version] = str(path)
        found |= {update - 1: "" for update in range(span[0], span[1] + 1) if stream.has_state(update)}
        return found

    def state(self, route: Route) -> Mapping[str, Array]:
        """Return the state of the trainer at the start. Raises StreamError if a checkpoint has other parameters than
        the record."""
        if not route.checkpoint:
            return self.stream.segment(route.version + 1).state
        arrays, _ = checkpoints.read(Path(route.checkpoint))
        prefix = f"{self.policy}/"
        state = {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
        recorded = self.stream.digest(route.version)
        if recorded and "parameters" in state and digest_of(state["parameters"]) != recorded:
            raise StreamError(f"checkpoint {route.checkpoint} has other parameters than the record of its update")
        return state

    def play(
        self, route: Route, group: TrainerGroup | None = None, on_update: OnUpdate | None = None
    ) -> Iterator[Step]:
        """Make the updates again, as one of the ranks."""
        with contextlib.suppress(ImportError):
            importlib.import_module("torch")  # before it is limited to one thread, as in workers
        with one_thread():
            yield from self._play(route, group, on_update)

    def _play(self, route: Route, group: TrainerGroup | None, on_update: OnUpdate | None) -> Iterator[Step]:
        rank = 0 if group is None else group.rank
        trainer: Trainer | None = None
        for number in range(route.version + 1, route.last + 1):
            segment = self.stream.segment(number, rank)
            if number == route.version + 1 or number == segment.file.first:
                trainer = self._trainer(trainer, route, segment, number, group)
            assert trainer is not None
            head, arrays = segment.update_head(number), segment.arrays[number]
            state = segment.state if number == segment.file.first else {}
            distance = _distance(trainer.parameters(), state["parameters"]) if "parameters" in state else None
            try:
                self._layout.check(head.kind, arrays)
                batch = batch_of(head, arrays)
            except (ValueError, TypeError) as error:
                raise StreamError(f"update {number} in {segment.file.path} does not fit the policy: {error}") from error
            result = trainer.step(batch, head.progress)
            parameters = trainer.parameters()
            if on_update is not None:
                on_update(number, batch, trainer, result)
            metrics = {name: float(value) for name, value in result.metrics.items()}
            update = ReplayedUpdate(number, digest_of(parameters), head.digest, metrics, result.skipped)
            yield Step(update, distance, parameters)

    def _trainer(
        self, before: Trainer | None, route: Route, segment: Segment, update: int, group: TrainerGroup | None
    ) -> Trainer:
        """Return the trainer for a segment: the one before, or what replaced it in the run."""
        algorithm = self.algorithm(segment)
        self._layout = StreamLayout(algorithm, self.observation, self.action)
        told = segment.file.writer, plain(segment.head.algorithm)
        if before is not None and told == self._told:
            return before
        is_same = before is not None and told[0] == self._told[0]
        self._told = told
        if is_same and before is not None:  # an option changed during the run
            before.reconfigure(algorithm)
            return before
        state = self.state(route) if before is None else before.state()
        trainer = algorithm.build_trainer(self.observation, self.action, segment.head.seed)
        try:
            trainer.restore(state)
        except MISFITS as error:
            raise StreamError(f"{route.start} has a state of another trainer: {error}") from error
        if before is not None and not segment.update_head(update).is_whole:  # an exact resume
            trainer.restore_uncommitted(before.uncommitted_state())
        if group is not None and group.size > 1:
            trainer.join(group)
        return trainer


def _version_of(path: Path, policy: str) -> int | None:
    """Return the number of the update of a checkpoint; None if it cannot be read."""
    try:
        return int(checkpoints.read(path)[1]["policies"][policy]["version"])
    except (checkpoints.CheckpointError, KeyError, TypeError, ValueError):
        return None


def _distance(one: Array, other: Array) -> float | None:
    if one.shape != other.shape or not one.size:
        return None
    return float(np.max(np.abs(one.astype(np.float64) - other.astype(np.float64))))
