"""The status of a run: one snapshot for the live view, `srl ps`, the metrics and Python; and sinks of its metrics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import msgspec


class WorkerStatus(msgspec.Struct, frozen=True):
    """One worker of a run."""

    name: str
    """`actors/0`"""
    group: str
    pid: int = 0
    incarnation: int = 0
    """Increases with every restart of this worker."""
    state: str = "starting"
    """starting | running | stopping | ended (until it is restarted, if it is)"""
    busy: dict[str, float] = {}
    """Share of the last seconds in each phase: env, inference, update, publish, other, waiting."""
    cpu_percent: float = 0.0
    rss_mb: float = 0.0
    host: str = ""
    """Host of the worker; empty if the run has only one."""
    progress: int = 0
    """Counter that grows with every piece of work."""
    lost_connections: int = 0
    """Number of TCP connections that `srl chaos` closed."""


class StreamStatus(msgspec.Struct, frozen=True):
    """A stream as one of its consumers sees it."""

    name: str
    """`samples/0`: the stream at trainer 0. With several policies `samples/POLICY/0`."""
    kind: str
    """push | request"""
    filled: float = 0.0
    """Fill level, from 0 (empty) to 1 (full)."""
    posted: int = 0
    consumed: int = 0
    dropped: int = 0
    batch_mean: float = 0.0
    """Request streams: mean number of lanes per batch."""


class EvaluationStatus(msgspec.Struct, frozen=True):
    """The last evaluation of a policy, and the best one."""

    count: int
    """Number of evaluations so far."""
    step: int
    """Steps of the run when the evaluated version was made."""
    version: int
    episodes: int
    return_mean: float
    return_interval: float | None
    """Half the width of the 95 % confidence interval of the mean; None for a single episode."""
    length_mean: float
    best_return: float
    """Highest mean of all evaluations."""
    best_step: int
    truncated: int = 0
    """Number of episodes that did not end within `--eval-max-steps`."""


class PolicyStatus(msgspec.Struct, frozen=True):
    """One policy of a run."""

    learning: bool = True
    """False for a frozen policy, which plays and does not change."""
    steps: int = 0
    """Agent decisions that its trainers consumed, including those before a resume."""
    version: int = 0
    """Version of its parameters. Every update makes one; an update that is lost with its host still counts."""
    lag_mean: float = 0.0
    lag_max: int = 0
    episodes: int = 0
    return_mean: float | None = None
    """Mean over its last 100 episodes."""
    length_mean: float | None = None
    facts: dict[str, float] = {}
    """Episode statistics that environments report for its agents, means over about the last 100."""
    return_curve: list[float] = []
    """Mean returns at evenly spaced times since the start of the run, at most 200."""
    evaluation: EvaluationStatus | None = None


class Settings(msgspec.Struct, frozen=True):
    """Sizes of a run, given or chosen, so that advice can name better values; 0: unknown."""

    lanes: int = 0
    """Environment copies in each lane group of an actor's ring."""
    ring: int = 0
    batch: int = 0
    """Decisions per update, over all trainers of a policy."""
    num_minibatches: int = 0


class RunStatus(msgspec.Struct, frozen=True):
    """A run at one moment."""

    run: str
    environment: str
    algorithm: str
    path: str
    state: str = "starting"
    """queued (on Slurm) | starting | running | finished | stopped | failed"""
    reason: str = ""
    """Why the run ended, or why it waits."""
    settings: Settings = Settings()
    elapsed: float = 0.0
    steps: int = 0
    """Agent decisions that the trainers consumed, including those before a resume."""
    first_steps: int = 0
    """Value of `steps` when the run was resumed."""
    decisions: int = 0
    """Agent decisions that the actors made, whether or not a trainer consumed them."""
    target_steps: int = 0
    updates: int = 0
    """Sum of the versions of all policies that learn."""
    version: int = 0
    """Highest version of a policy."""
    env_fps: float = 0.0
    train_fps: float = 0.0
    lag_mean: float = 0.0
    """Versions between the parameters that made a decision and the update that consumed it: mean and maximum."""
    lag_max: int = 0
    max_lag: int = 0
    """Upper bound of the lag (`--max-lag`)."""
    episodes: int = 0
    """Episodes of agents: an episode of two agents counts twice."""
    return_mean: float | None = None
    """Mean over the last 100 episodes of all policies; `policies` has the mean of each."""
    length_mean: float | None = None
    facts: dict[str, float] = {}
    """Episode statistics that environments report, means over about the last 100 of all policies."""
    policies: dict[str, PolicyStatus] = {}
    return_curve: list[float] = []
    """Mean returns at evenly spaced times since the start of the run, at most 200."""
    metrics: dict[str, float] = {}
    """Metrics of the last update (losses, entropy, KL): `NAME`, or `POLICY/NAME` in a run with several policies."""
    workers: list[WorkerStatus] = []
    streams: list[StreamStatus] = []
    bottleneck: str = ""
    """The part of the run that limits its speed; empty while it is too early to say."""
    advice: str = ""
    """The option to change because of it."""
    restarts: int = 0
    lane_failures: int = 0
    messages: list[str] = []
    """The last events, newest last."""
    seconds_to_first_update: float | None = None
    """Seconds between the command and the first update."""

    @property
    def evaluation(self) -> EvaluationStatus | None:
        """The evaluation of the first policy that learns (the only one, unless the run has several)."""
        found = [policy.evaluation for policy in self.policies.values() if policy.learning]
        return found[0] if found else None


class MetricSink(Protocol):
    """A destination of metrics. `--sinks package.module:NAME` names a function that returns one for a run directory."""

    def write(self, step: int, metrics: Mapping[str, float], wall: float) -> None:
        """Write the metrics of one moment; called from one thread. `wall`: seconds since 1970."""

    def close(self) -> None: ...
