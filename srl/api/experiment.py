"""An experiment: a graph of workers as plain data. Streams are fields of the workers at both their ends."""

from __future__ import annotations

from dataclasses import dataclass, field

from srl.api.worker import WorkerConfig


@dataclass(frozen=True)
class Resources:
    """What one worker of a group needs; a scheduler finds the place."""

    cpu: float = 1.0
    gpu: float = 0.0
    memory_mb: int = 0
    node: str = ""
    """Only on hosts with a name or label that matches this pattern, e.g. `gpu*`; on Slurm: nodes with this feature.
    Empty: on any."""
    niceness: int = 0
    """How readily it leaves the core to others (0 to 19), where workers outnumber the cores."""


@dataclass(frozen=True)
class RestartRule:
    """What the death of a worker means."""

    together: bool = False
    """Restart all workers of the group if one dies (data-parallel trainers). If the group may be scaled, its config
    implements `resized(count)`."""
    max_failures: int = 5
    """More deaths than this within `window` end the run: something is broken that a restart does not mend."""
    window: float = 60.0
    vital: bool = True
    """Can the run not do without this group? One that is not vital is given up when it keeps dying; the run goes on."""
    hang_timeout: float = 60.0
    """Seconds without progress in one phase of work after which a worker counts as stuck and is replaced."""


@dataclass(frozen=True)
class WorkerGroup:
    name: str
    config: WorkerConfig
    count: int
    resources: Resources = Resources()
    restart: RestartRule = RestartRule()
    scalable: bool = True
    """May `srl scale` change the count while the run goes on?"""


@dataclass(frozen=True)
class Experiment:
    name: str
    seed: int
    groups: tuple[WorkerGroup, ...]
    policies: tuple[str, ...]
    """Each has a parameter store and a place for its trainer's committed state."""
    learning: tuple[str, ...] = ()
    """Those that a trainer teaches; the run is complete when all of them are."""
    environment: str = ""
    algorithm: str = ""
    target_steps: int = 0
    max_lag: int = 0
    description: dict[str, object] = field(default_factory=dict)
    """What it takes to use the trained policies without the run: spaces and algorithms, as plain data."""
