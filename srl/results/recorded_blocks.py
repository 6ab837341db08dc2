"""What actors produced: histograms of the observations, actions, rewards and ages in recorded streams."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

import numpy as np

from srl.base.errors import nearest
from srl.base.tree import Array
from srl.datasets.recorded_streams import RecordedStream
from srl.datasets.stream_segments import LAGS, Segment, StreamError, read, segment_files
from srl.storage import ROOT, run_directory
from srl.storage.run_directory import RunDirectory
from srl.terminal.drawing import sparkline
from srl.terminal.formatting import figure, percent, plural

BINS = 24
MAX_COMPONENTS = 16  # of a vector that have a histogram each
MAX_CHOICES = 24  # different values that are counted each
MAX_VALUES = 1_000_000  # for the bins of a histogram; counts, means and extremes are those of all values
SHOWN_CHOICES = 8
AGE = "age"
HIDDEN = ("terminated", "truncated", "acting", "first", "valid", "version", "weight", "discount", "position")
"""Arrays without a histogram: marks of rows, and what follows from other arrays."""


@dataclass(frozen=True)
class Histogram:
    """The values of one array, or of one component of it."""

    name: str  # age, reward, observation/..., decision/action, ...
    count: int
    mean: float  # of the finite values, as the following
    std: float
    low: float
    high: float
    edges: tuple[float, ...]  # of the bins; of choices, the choices themselves
    counts: tuple[int, ...]
    not_finite: int = 0
    first_not_finite: str = ""  # update and block of the first value that is not finite

    @property
    def are_choices(self) -> bool:
        return len(self.edges) == len(self.counts)


@dataclass(frozen=True)
class PolicyBlocks:
    """What reached the trainers of one policy."""

    policy: str
    first: int  # update
    last: int
    decisions: int
    drawn: bool  # whether they were drawn from replay, so that they may occur several times
    actors: Mapping[str, int]  # worker -> number of its blocks
    histograms: tuple[Histogram, ...]


@dataclass(frozen=True)
class RecordedBlocks:
    """What reached the trainers of a run."""

    run: Path
    policies: Mapping[str, PolicyBlocks]

    def __str__(self) -> str:
        return "\n".join(line for one in self.policies.values() for line in _lines(self.run.name, one))

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"


def recorded_blocks(
    run: str | Path,
    *,
    from_update: int | None = None,
    to_update: int | None = None,
    policy: str = "",
    root: str | Path = ROOT,
) -> RecordedBlocks:
    """Return histograms of what the actors produced for a range of updates (`srl train ENV --record-streams`), by
    default of all that are recorded. `run` is as for :func:`srl.load_run`. Nothing of the run is imported."""
    found = run_directory.find(run, Path(root))
    return RecordedBlocks(
        found.path,
        {
            name: _policy_blocks(name, RecordedStream(found.streams / name), from_update, to_update)
            for name in recorded_policies(found, policy)
        },
    )


def recorded_policies(run: RunDirectory, policy: str = "") -> list[str]:
    """Return the policies with recorded streams, or the one that is asked for. Raises StreamError if there are none."""
    recorded = sorted(path.name for path in run.streams.iterdir() if path.is_dir()) if run.streams.is_dir() else []
    if not recorded:
        raise StreamError(
            f"{run.name} has no recorded streams; record those of a new or a resumed run with --record-streams"
        )
    if policy and policy not in recorded:
        raise ValueError(f"{run.name} has no record of policy {policy!r}{nearest(policy, recorded)}")
    return [policy] if policy else recorded


def stream_problems(run: Path) -> dict[str, list[str]]:
    """Return what is wrong with the recorded streams of a run, by names such as `streams/policy/0`."""
    found: dict[str, list[str]] = {}
    for folder in sorted(RunDirectory(run).streams.glob("*/*")):
        problems = found.setdefault(str(folder.relative_to(run)), [])
        for file in segment_files(folder):
            try:
                read(file)
            except StreamError as error:
                problems.append(str(error))
    return found


def _policy_blocks(policy: str, stream: RecordedStream, first: int | None, last: int | None) -> PolicyBlocks:
    chosen = [u for u in stream.updates if (first is None or u >= first) and (last is None or u <= last)]
    if not chosen:
        raise StreamError(f"there is no update in this range; recorded are {stream.described()}")
    columns: dict[str, _Column] = {}
    actors: Counter[str] = Counter()
    decisions, drawn, share = 0, False, max(1, MAX_VALUES // len(chosen))
    for update, segment in _segments(stream, chosen):
        head, arrays = segment.update_head(update), segment.arrays[update]
        actors.update(label.rpartition(":")[0].rpartition(".")[0] for label in head.samples)
        drawn = drawn or head.kind != "trajectory"
        try:
            decisions += len(arrays.get(LAGS, ()))
            for name, values, block in _values(head.kind, arrays, head.samples):
                columns.setdefault(name, _Column(name)).add(values, share, update, block, head.samples)
        except (ValueError, TypeError, IndexError) as error:
            raise StreamError(f"update {update} in {segment.file.path} has arrays that do not fit: {error}") from error
    histograms = tuple(columns[name].histogram() for name in sorted(columns, key=_order))
    return PolicyBlocks(policy, chosen[0], chosen[-1], decisions, drawn, dict(sorted(actors.items())), histograms)


def _segments(stream: RecordedStream, updates: Sequence[int]) -> Iterator[tuple[int, Segment]]:
    for update in updates:
        for rank in range(stream.head(update).ranks):
            if rank == 0 or stream.has(update, rank):
                yield update, stream.segment(update, rank)


def _order(name: str) -> tuple[int, str, int]:
    roots = (AGE, "reward", "decision", "observation")
    root = name.partition("/")[0].partition("[")[0]
    plain, _, number = name.partition("[")
    return roots.index(root) if root in roots else len(roots), plain, int(number.rstrip("]") or 0)


def _values(
    kind: str, arrays: Mapping[str, Array], samples: Sequence[str]
) -> Iterator[tuple[str, Array, Array | None]]:
    """Yield name and values [N] of each array or component, and the number of the block of each value if it is known.
    Only rows in which a lane acted count."""
    acting = arrays.get("acting")
    lanes = None
    if kind == "trajectory" and acting is not None and acting.ndim == 2:
        acting = np.concatenate([acting[:-1], np.zeros_like(acting[-1:])])
        if samples and acting.shape[1] % len(samples) == 0:
            lanes = np.broadcast_to(np.arange(acting.shape[1]) // (acting.shape[1] // len(samples)), acting.shape)
    for path, array in arrays.items():
        root = path.partition("/")[0]
        if path == LAGS:
            yield AGE, array, None
            continue
        if root in (*HIDDEN, "next_observation", "state", "new") or array.ndim < 2 or array.dtype == np.bool_:
            continue
        selected, blocks = array, None
        if acting is not None and array.shape[: acting.ndim] == acting.shape:
            selected, blocks = array[acting], None if lanes is None else lanes[acting]
        elif acting is None:
            selected = array.reshape(-1, *array.shape[2:])
        else:
            continue
        if selected.ndim == 2 and 1 < selected.shape[1] <= MAX_COMPONENTS:
            for number in range(selected.shape[1]):
                yield f"{path}[{number}]", selected[:, number], blocks
        else:
            size = selected[0].size if len(selected) else 1
            yield path, selected.reshape(-1), None if blocks is None else np.repeat(blocks, size)


class _Column:
    """Statistics of the values of one name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._count = self._finite = 0
        self._sum = self._squares = 0.0
        self._low, self._high = np.inf, -np.inf
        self._first = ""
        self._kept: list[Array] = []

    def add(self, values: Array, share: int, update: int, blocks: Array | None, samples: Sequence[str]) -> None:
        self._count += len(values)
        if values.dtype.kind == "f" and not (finite := np.isfinite(values)).all():
            if not self._first:
                self._first = f"update {update}"
                if blocks is not None:
                    self._first += f", block {samples[int(blocks[~finite][0])]}"
            values = values[finite]
        if not len(values):
            return
        wide = values.astype(np.float64)
        self._finite += len(wide)
        self._sum += float(wide.sum())
        self._squares += float((wide**2).sum())
        self._low, self._high = min(self._low, float(wide.min())), max(self._high, float(wide.max()))
        self._kept.append(values[:: max(1, -(-len(values) // share))])

    def histogram(self) -> Histogram:
        missing = self._count - self._finite
        if not self._kept:
            empty = (float("nan"),) * 4
            return Histogram(self.name, self._count, *empty, (), (), missing, self._first)
        values = np.concatenate(self._kept)
        mean = self._sum / self._finite
        std = max(0.0, self._squares / self._finite - mean**2) ** 0.5
        found = np.unique(values)
        if len(found) <= MAX_CHOICES:
            edges, counts = found.astype(float), np.array([int((values == one).sum()) for one in found])
        else:
            counts, edges = np.histogram(values.astype(np.float64), BINS, (self._low, self._high))
        limits = self._low, self._high
        binned = tuple(map(float, edges)), tuple(map(int, counts))
        return Histogram(self.name, self._count, mean, std, *limits, *binned, missing, self._first)


def _lines(run: str, blocks: PolicyBlocks) -> Iterator[str]:
    source = "drawn from replay" if blocks.drawn else f"sent by {plural(len(blocks.actors), 'actor')}"
    yield f"{run}, {blocks.policy}: updates {blocks.first} to {blocks.last}, {plural(blocks.decisions, 'new decision')}"
    yield f"  histograms of what was {source}"
    width = max(len(one.name) for one in blocks.histograms)
    for one in blocks.histograms:
        begin = f"  {one.name:<{width}}"
        if not one.counts:
            yield f"{begin}  no finite value; the first is in {one.first_not_finite}"
            continue
        total = sum(one.counts)
        if one.are_choices and len(one.counts) <= SHOWN_CHOICES:
            shares = (f"{edge:.6g}: {percent(c / total)}" for edge, c in zip(one.edges, one.counts, strict=True))
            text = ", ".join(shares)
        else:
            text = f"{figure(one.low)} {sparkline((0, *one.counts), len(one.counts) + 1)[1:]} {figure(one.high)}"
        yield f"{begin}  {text}  mean {figure(one.mean)}, std {figure(one.std)}"
        if one.not_finite:
            yield f"  {'':<{width}}  {plural(one.not_finite, 'value')} not finite, the first in {one.first_not_finite}"
