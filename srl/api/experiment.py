"""An experiment: a graph of workers as plain data. A stream is a field of the worker configs at both its ends."""

from __future__ import annotations

from dataclasses import dataclass, field

from srl.api.streams import StreamEnd
from srl.api.worker import WorkerConfig


@dataclass(frozen=True)
class Resources:
    """Resources that each worker of a group needs; the scheduler finds a host that has them."""

    cpu: float = 1.0
    gpu: float = 0.0
    memory_mb: int = 0
    node: str = ""
    """Pattern for the name or label of a host, e.g. `gpu*`; on Slurm, a feature of the node. Empty: any host."""
    niceness: int = 0
    """Niceness of the process (0 to 19): workers with a higher one yield the core where there are too few."""


@dataclass(frozen=True)
class RestartRule:
    """Reaction to the death of a worker."""

    together: bool = False
    """Restart all workers of the group if one dies (data-parallel trainers). If the group may be scaled, its config
    implements `resized(count)`."""
    max_failures: int = 5
    """Number of deaths within `window` above which the run fails, because restarts do not help."""
    window: float = 60.0
    vital: bool = True
    """Whether the run needs this group. A group that is not vital is dropped if it keeps dying."""
    hang_timeout: float = 60.0
    """Seconds without progress in one phase of work after which a worker counts as stuck and is replaced."""


@dataclass(frozen=True)
class WorkerGroup:
    """Workers with the same config."""

    name: str
    config: WorkerConfig
    count: int
    resources: Resources = Resources()
    restart: RestartRule = RestartRule()
    scalable: bool = True
    """Whether `srl scale` may change the count during the run."""


@dataclass(frozen=True)
class Edge:
    """A stream between two groups of workers (or within one)."""

    source: str
    target: str
    stream: str
    kind: str
    """`push`: blocks of samples. `request`: observations for which the target returns decisions. `parameters`: versions
    of a policy, which the target pulls."""
    where: str
    """`inline`: inside each worker. `host`: shared memory on one host, TCP between hosts. `tcp`: always TCP."""


@dataclass(frozen=True)
class Experiment:
    """A graph of workers and the facts of the run that its views show."""

    name: str
    seed: int
    groups: tuple[WorkerGroup, ...]
    policies: tuple[str, ...]
    """Policies that play. Each has a parameter store and memory for the committed state of its trainer."""
    learning: tuple[str, ...] = ()
    """Policies that a trainer updates; the run is complete when all of them are."""
    environment: str = ""
    algorithm: str = ""
    target_steps: int = 0
    max_lag: int = 0
    description: dict[str, object] = field(default_factory=dict)
    """Spaces and algorithms as plain data: enough to use the trained policies without the run."""

    def edges(self) -> tuple[Edge, ...]:
        """Return which group sends to which over which stream, from the ends that the worker configs describe."""
        ends = [(group.name, end) for group in self.groups for end in group.config.ends()]
        for group in self.groups:
            if policy := group.config.committed_policy():
                ends.append((group.name, StreamEnd(policy, "parameters", "source")))
        return tuple(
            Edge(source, target, end.stream, end.kind, end.where)
            for source, end in ends
            for target, other in ends
            if (end.side, other.side) == ("source", "target")
            and (end.stream, end.kind, end.where) == (other.stream, other.kind, other.where)
            and (end.where != "inline" or source == target)
        )
