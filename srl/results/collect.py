"""Data sets of what a run's policy does."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from srl.api.lanes import Lanes, TimeStep
from srl.base.config import TrustCode
from srl.base.tree import Array, Tree, from_leaves, leaves, map_tree
from srl.datasets.reader import Episode
from srl.datasets.writer import DatasetWriter
from srl.experiments.options.roles import role_patterns
from srl.results.load import LoadedRun, load_run
from srl.workers.episode_player import EpisodePlayer
from srl.workers.process import one_thread

MAX_COPIES = 16
STEPS_PER_COPY = 1_000
"""Minimum number of steps that each copy plays, so that a data set does not consist of beginnings of episodes."""


@dataclass(frozen=True)
class Collected:
    """A data set that was written."""

    path: Path  # directory of the data set
    checkpoint: Path
    steps: int
    returns: tuple[float, ...]  # of all its episodes; the last one of each copy may be incomplete


def collect(
    path: str | Path,
    out: str | Path,
    *,
    steps: int = 100_000,
    episodes: int | None = None,
    greedy: bool = True,
    seed: int = 0,
    checkpoint: str | int | Path = "latest",
    env: str | Callable[..., Any] = "",
    env_args: Mapping[str, Any] | None = None,
    trust_code: TrustCode = False,
) -> Collected:
    """Play with a run's policy, and write what it saw and did as a data set in Minari's format.

    `out` is the new directory of the data set, named NAME-vNUMBER. It has exactly `steps` steps, and the episodes that
    have not ended by then are truncated; or it has whole `episodes`. With `greedy`, the policy takes its most likely
    actions; otherwise it samples them, which shows more of the environment. Other arguments are as for
    :func:`srl.evaluate`.
    """
    if (episodes if episodes is not None else steps) < 1:
        raise ValueError(f"steps and episodes must be at least 1, found {steps} and {episodes}")
    run = load_run(path, checkpoint, seed, trust_code, env, env_args)
    copies = min(MAX_COPIES, max(1, steps // STEPS_PER_COPY) if episodes is None else episodes)
    lanes = run.environment.build(copies)
    try:
        team = lanes.spec.teams[0]
        if len(lanes.spec.teams) > 1 or len(team.agents) > 1:
            raise ValueError(f"a data set has one agent; {lanes.spec.environment} has several")
        description = _description(run, greedy)
        writer = DatasetWriter(Path(out), team.observation, team.action, description)
        try:
            player = _Collector(lanes, run, greedy, writer)
            player.collect(seed, steps, episodes)
        except BaseException:
            writer.abandon()
            raise
        writer.close()
    finally:
        lanes.close()
    return Collected(writer.folder.parent, run.checkpoint, writer.num_steps, tuple(player.returns))


def _description(run: LoadedRun, greedy: bool) -> dict[str, Any]:
    """Return entries of the metadata: how the data was made, and Gymnasium's description of the environment if it has
    one, with which Minari makes it."""
    how = "most likely" if greedy else "sampled"
    described: dict[str, Any] = {
        "description": f"{how} actions of the run {run.path.name}, {run.checkpoint.name}",
        "algorithm_name": type(next(iter(run.policies.values()))).__name__,
    }
    with contextlib.suppress(Exception):  # most environments are not registered, and not every spec is plain data
        import gymnasium

        described["env_spec"] = gymnasium.spec(run.environment.environment_name()).to_json()
    return described


class _LaneRecord:
    """The running episode of one lane."""

    def __init__(self) -> None:
        self.observations: list[dict[str, Array]] = []
        self.actions: list[dict[str, Array]] = []
        self.rewards: list[float] = []

    def episode(self, last: dict[str, Array], terminated: bool) -> Episode:
        """Return the episode with its last observation."""
        count = len(self.rewards)
        ends = np.zeros((2, count), bool)
        ends[0 if terminated else 1, -1] = True
        return Episode(
            _stacked([*self.observations, last]), _stacked(self.actions), np.array(self.rewards, np.float32), *ends
        )


class _Collector(EpisodePlayer):
    """Player that records what it does."""

    def __init__(self, lanes: Lanes, run: LoadedRun, greedy: bool, writer: DatasetWriter) -> None:
        super().__init__(lanes, run.policies, role_patterns(lanes.spec, run.roles), greedy)
        self._writer = writer
        self._records = [_LaneRecord() for _ in range(lanes.spec.num_lanes(0))]
        self.returns: list[float] = []

    def collect(self, seed: int, steps: int, episodes: int | None) -> None:
        copies = len(self._records)
        self.begin(seed, copies if episodes is None else episodes)
        shares = np.full(copies, np.inf)
        if episodes is not None:
            shares = episodes // copies + (np.arange(copies) < episodes % copies)
        left = np.inf if episodes is not None else steps
        with one_thread():
            while left > 0 and (shares > 0).any():
                left -= self._record_step(shares, left)
        if episodes is None:
            for lane, record in enumerate(self._records):
                if record.rewards:
                    self._end(lane, self._row(self._time_steps[0], lane), terminated=False)

    def _record_step(self, shares: Array, left: float) -> int:
        """Step once, and record the lanes that act and have a share left, at most `left` of them. Return their
        number."""
        before = self._time_steps[0]
        acting = np.flatnonzero(before.acting & (shares > 0)).tolist()
        acting = acting[: int(min(left, len(acting)))]
        seen = {lane: self._row(before, lane) for lane in acting}
        actions = self._decide(0, before)
        done = {lane: _row_of(actions, lane) for lane in acting}
        after = self.lanes.step((actions,))[0]
        self._time_steps = (after,)
        for lane in acting:
            record = self._records[lane]
            if after.failed is not None and after.failed[lane]:
                self._records[lane] = _LaneRecord()
                continue
            record.observations.append(seen[lane])
            record.actions.append(done[lane])
            record.rewards.append(float(after.reward[lane]))
            if after.terminated[lane] or after.truncated[lane]:
                self._end(lane, self._row(after, lane), bool(after.terminated[lane]))
                shares[lane] -= 1
        return len(acting)

    def _end(self, lane: int, last: dict[str, Array], terminated: bool) -> None:
        record, self._records[lane] = self._records[lane], _LaneRecord()
        self._writer.add(record.episode(last, terminated))
        self.returns.append(float(np.sum(record.rewards)))

    def _row(self, time_step: TimeStep, lane: int) -> dict[str, Array]:
        return _row_of(time_step.observation, lane)


def _row_of(tree: Tree, lane: int) -> dict[str, Array]:
    """Return a copy of one lane's arrays, by path."""
    return dict(leaves(map_tree(lambda array: np.array(array[lane]), tree)))


def _stacked(rows: list[dict[str, Array]]) -> Any:
    return from_leaves({path: np.stack([row[path] for row in rows]) for path in rows[0]})
