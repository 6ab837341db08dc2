"""The status of a run, as shown by the live view, `srl ps`, metrics and Python; and the metric-sink contract."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import msgspec


class WorkerStatus(msgspec.Struct, frozen=True):
    """One worker of a run."""

    name: str  # `actors/0`
    group: str
    pid: int = 0
    incarnation: int = 0  # increases with every restart of this worker
    state: str = "starting"  # starting | running | stopping | ended (until it is restarted, if it is)
    busy: dict[str, float] = {}  # share of the last seconds in env, inference, update, publish, other and waiting
    cpu_percent: float = 0.0
    rss_mb: float = 0.0
    host: str = ""  # empty if the run has only one
    progress: int = 0  # counter that grows with every piece of work
    disturbed_connections: int = 0  # TCP connections that `srl chaos` closed or slowed down
    compiling: bool = False  # whether Numba compiles functions in its process, once per installation


class StreamStatus(msgspec.Struct, frozen=True):
    """A stream as one of its consumers sees it."""

    name: str  # `samples/0`: the stream at trainer 0. With several policies `samples/POLICY/0`.
    kind: str  # push | request
    filled: float = 0.0  # push streams: share of the trainer's next batch that is waiting, at most 1
    posted: int = 0
    consumed: int = 0
    dropped: int = 0
    batch_mean: float = 0.0  # lanes per batch of a request stream


class EdgeStatus(msgspec.Struct, frozen=True):
    """A stream between two groups of workers, or within one."""

    source: str
    target: str
    stream: str
    kind: str  # push | request | sample | parameters
    where: str  # inline | host | remote


class ReplayStatus(msgspec.Struct, frozen=True):
    """The replay memory of one trainer."""

    name: str  # `replay/0`, with several policies `replay/POLICY/0`
    size: int  # decisions in it
    capacity: int
    num_bytes: int  # of a full memory
    wanted: float  # gradient steps per collected decision
    reached: float | None = None  # the same since the warm-up; None before the first gradient step
    age: int = 0  # mean age of the last batch, in decisions collected since
    warmup: int = 0  # decisions that are missing before the first gradient step
    target_age: int = 0  # highest age of reanalyzed targets in the last batch, in versions
    decisions: int = 0  # collected since the warm-up
    max_target_age: int | None = None  # bound on `target_age`; None: targets stay as they were recorded


def score_of(means: Mapping[str, float | None], name: str) -> float | None:
    value = means.get(name.removeprefix("-"))
    return value if value is None or not name.startswith("-") else -value


class EvaluationStatus(msgspec.Struct, frozen=True):
    """The last evaluation of a policy, and the best one."""

    count: int  # number of evaluations so far
    step: int  # steps of the run when the evaluated version was made
    version: int
    episodes: int
    return_mean: float
    return_interval: float | None  # half the 95 % confidence interval of the mean; None for a single episode
    length_mean: float
    best_return: float  # highest mean of all evaluations
    best_step: int
    truncated: int = 0  # episodes that did not end within `--eval-max-steps`
    facts: dict[str, float] = {}  # means of the environment's statistics
    policy: str = ""  # name of the evaluated policy

    def score(self, name: str) -> float | None:
        """Return the mean of `return` or of another statistic, negated for `-NAME`: more is better. None if unknown."""
        return score_of({**self.facts, "return": self.return_mean, "length": self.length_mean}, name)


EPISODE_WINDOW = 100
"""Number of last episodes over which returns, lengths and other statistics are averaged."""


class PolicyStatus(msgspec.Struct, frozen=True):
    """One policy of a run."""

    learning: bool = True  # false for a frozen policy, which plays and does not change
    steps: int = 0  # agent decisions that its trainers consumed, including those before a resume
    version: int = 0  # of its parameters; every update makes one
    lag_mean: float = 0.0
    lag_max: int = 0
    episodes: int = 0
    return_mean: float | None = None  # mean over its last 100 episodes
    length_mean: float | None = None
    facts: dict[
        str, float
    ] = {}  # episode statistics from environments, means over the last 100 episodes that have them
    return_curve: list[float] = []  # mean returns at evenly spaced times since the start of the run, at most 200
    evaluation: EvaluationStatus | None = None

    def score(self, name: str) -> float | None:
        """Return the mean of `return` or of another statistic, negated for `-NAME`: more is better. None if unknown."""
        return score_of({**self.facts, "return": self.return_mean, "length": self.length_mean}, name)


class Settings(msgspec.Struct, frozen=True):
    """Sizes of a run, given or chosen, so that advice can name better values; 0: unknown."""

    lanes: int = 0  # environment copies in each lane group of an actor's ring
    ring: int = 0
    batch: int = 0  # decisions per update, over all trainers of a policy
    epochs: int = 0  # passes over a batch, and gradient steps per pass (`AlgorithmConfig.update_cost`)
    num_minibatches: int = 0
    updates_per_decision: float = 0.0  # gradient steps per decision of an algorithm with replay
    max_target_age: int | None = None  # bound on the age of targets in versions; None: they are not reanalyzed
    eval_versions: int = 0  # versions of the parameters between two evaluations (`--eval-every`)
    eval_share: float = 0.0  # fraction of a core for evaluations
    recorded: int = 0  # 1: the run learns from recorded data, so that nothing plays, and steps are gradient steps


class RunStatus(msgspec.Struct, frozen=True):
    """A run at one moment."""

    run: str
    environment: str
    algorithm: str
    path: str
    state: str = "starting"  # queued (on Slurm) | starting | running | finished | stopped | failed
    reason: str = ""  # why the run ended, or why it waits
    settings: Settings = Settings()
    elapsed: float = 0.0
    steps: int = 0  # agent decisions that the trainers consumed, including those before a resume
    first_steps: int = 0  # value of `steps` when the run was resumed
    decisions: int = 0  # agent decisions that the actors made, whether or not a trainer consumed them
    target_steps: int = 0
    updates: int = 0  # sum of the versions of all policies that learn
    version: int = 0  # highest version of a policy
    env_fps: float = 0.0
    train_fps: float = 0.0
    lag_mean: float = 0.0  # versions between the parameters that made a decision and the update that consumed it
    lag_max: int = 0
    max_lag: int = 0  # upper bound of the lag (`--max-lag`)
    episodes: int = 0  # episodes of agents: an episode of two agents counts twice
    return_mean: float | None = None
    """Mean over the last 100 episodes of the policy that learns; None if several do: see `policies`."""
    length_mean: float | None = None
    facts: dict[str, float] = {}  # like those of PolicyStatus; empty if several policies learn
    policies: dict[str, PolicyStatus] = {}
    return_curve: list[float] = []  # curve of the policy that learns; empty if several do
    metrics: dict[str, float] = {}  # of the last update: `NAME`, or `POLICY/NAME` in a run with several policies
    workers: list[WorkerStatus] = []
    streams: list[StreamStatus] = []
    edges: list[EdgeStatus] = []  # the graph of workers; it does not change during a run
    replay: list[ReplayStatus] = []  # memories of algorithms that learn from past decisions
    bottleneck: str = ""  # the part of the run that limits its speed; empty while it is too early to say
    advice: str = ""  # the option to change because of it
    restarts: int = 0
    lane_failures: int = 0
    skipped_updates: int = 0  # not applied, because a loss or gradient was not finite
    refused: dict[str, int] = {}  # refused connections by reason; `data`: those to workers
    reanalyzed: int = 0  # searches of reanalyze workers
    unrecorded_decisions: int = 0  # of frozen policies, and made while no block was open: trainers never see them
    losses: dict[str, int] = {}  # file of the run -> bytes that a full or broken disk has kept out of it
    lost_rows: dict[str, int] = {}  # sink -> rows of metrics that it did not accept before the run ended
    lost_calls: dict[str, int] = {}  # callback and event -> calls that were not made, because it was too slow
    messages: list[str] = []  # the last events, newest last
    seconds_to_first_update: float | None = None  # seconds between the command and the first update

    @property
    def evaluation(self) -> EvaluationStatus | None:
        """The evaluation of the first policy that learns."""
        found = [policy.evaluation for policy in self.policies.values() if policy.learning]
        return found[0] if found else None


def describe_refused(refused: Mapping[str, int]) -> str:
    """Return refused connections as words: `3 connections (2 silent, 1 protocol)`."""
    total = sum(refused.values())
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in sorted(refused.items()))
    return f"{total:,} connection{'s' if total > 1 else ''} ({reasons})"


class MetricSink(Protocol):
    """A destination of metrics. `--sinks package.module:NAME` names a class or function that makes one from the path of
    the run's directory."""

    def write(self, step: int, metrics: Mapping[str, float], wall: float) -> None:
        """Write the numbers in one row of metrics.jsonl or system.jsonl; called from one thread. `wall`: seconds since
        1970."""

    def close(self) -> None: ...
