"""What a run tells about itself: one snapshot, drawn by the live view, printed by `srl ps`, kept in the metrics."""

from __future__ import annotations

import msgspec


class WorkerStatus(msgspec.Struct, frozen=True):
    name: str
    """`actors/0`"""
    group: str
    pid: int = 0
    incarnation: int = 0
    """How many processes held this place before."""
    state: str = "starting"
    """starting | running | stopped | failed"""
    busy: dict[str, float] = {}
    """Share of wall time in each phase over the last seconds: env, inference, update, publish, other, waiting."""
    cpu_percent: float = 0.0
    rss_mb: float = 0.0
    host: str = ""
    """Which of the run's hosts it is on; empty where there is only one."""
    progress: int = 0
    """Grows with every piece of work."""
    cut: int = 0
    """TCP connections that it lost to `srl chaos`."""


class StreamStatus(msgspec.Struct, frozen=True):
    name: str
    kind: str
    """push | request"""
    filled: float = 0.0
    """0 = empty, 1 = full: the share of the capacity that waits to be consumed."""
    posted: int = 0
    consumed: int = 0
    dropped: int = 0
    batch_mean: float = 0.0
    """Request streams: lanes answered per batch."""


class EvaluationStatus(msgspec.Struct, frozen=True):
    """The last evaluation, and the best."""

    count: int
    """Evaluations so far."""
    step: int
    """Steps that the evaluated version had learned from."""
    versions: dict[str, int]
    """Policy -> version."""
    episodes: int
    return_mean: float
    return_interval: float | None
    """Half the width of the 95 % interval of the mean; None for a single episode."""
    length_mean: float
    best_return: float
    """The highest mean so far, and where it was."""
    best_step: int
    cut: int = 0
    """How many of the episodes were cut off, because they did not end."""


class Settings(msgspec.Struct, frozen=True):
    """What a run was given, or chose for itself, so that advice can name other figures; 0: not known."""

    lanes: int = 0
    """Environment copies in each group of an actor's ring."""
    ring: int = 0
    batch: int = 0
    """Decisions of one update, over all trainers of a policy."""
    num_minibatches: int = 0


class RunStatus(msgspec.Struct, frozen=True):
    run: str
    environment: str
    algorithm: str
    path: str
    state: str = "starting"
    """queued (on Slurm) | starting | running | finished | stopped | failed"""
    reason: str = ""
    """Why it ended, or waits."""
    settings: Settings = Settings()
    elapsed: float = 0.0
    steps: int = 0
    """Agent decisions consumed by the trainers."""
    first_steps: int = 0
    """Those of them that a resumed run began with."""
    decisions: int = 0
    """Agent decisions made by the actors, whether or not anybody learned from them."""
    target_steps: int = 0
    updates: int = 0
    version: int = 0
    env_fps: float = 0.0
    train_fps: float = 0.0
    lag_mean: float = 0.0
    lag_max: int = 0
    max_lag: int = 0
    episodes: int = 0
    return_mean: float | None = None
    """Mean over the last 100 episodes."""
    length_mean: float | None = None
    facts: dict[str, float] = {}
    """What environments told of their episodes, means over about the last 100."""
    evaluation: EvaluationStatus | None = None
    return_curve: list[float] = []
    """Evenly spread over the run so far, at most 200 points."""
    metrics: dict[str, float] = {}
    """The algorithm's own figures of the last update: losses, entropy, KL."""
    workers: list[WorkerStatus] = []
    streams: list[StreamStatus] = []
    bottleneck: str = ""
    advice: str = ""
    restarts: int = 0
    lane_failures: int = 0
    messages: list[str] = []
    """The last notable events, newest last."""
    seconds_to_first_update: float | None = None
    """Since the command was given."""
