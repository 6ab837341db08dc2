"""An experiment: a graph of workers as plain data. A stream is a field in the configs of the workers at both ends."""

from __future__ import annotations

from dataclasses import dataclass, field

from srl.api.streams import StreamEnd
from srl.api.worker import WorkerConfig


@dataclass(frozen=True)
class Resources:
    """Resources that each worker of a group needs; the scheduler places it on a host that has them."""

    cpu: float = 1.0
    gpu: float = 0.0
    memory_mb: int = 0
    node: str = ""  # pattern for the name or label of a host, e.g. `gpu*`; on Slurm, a feature of the node
    niceness: int = 0  # of the process (0 to 19): where cores are scarce, workers with a lower value run first


@dataclass(frozen=True)
class RestartRule:
    """What to do when a worker dies."""

    together: bool = False
    """Restart all workers if one dies (data-parallel trainers). To be scalable, such a group's config implements
    `resized`."""
    max_failures: int = 5
    """Number of early deaths (less than 5 s after the worker was ready) allowed within `window` seconds, and a tenth of
    the number of all deaths allowed in that time. Above that the run fails, or continues without the group if it is
    not `vital`."""
    window: float = 60.0
    vital: bool = True  # whether the run needs this group
    hang_timeout: float = 60.0  # seconds in one phase of work without progress after which a worker is replaced


@dataclass(frozen=True)
class WorkerGroup:
    """Workers with the same config."""

    name: str
    config: WorkerConfig
    count: int
    resources: Resources = Resources()
    restart: RestartRule = RestartRule()
    fixed_because: str = ""  # reason why `srl scale` may not change the count during the run; empty: it may


@dataclass(frozen=True)
class Edge:
    """A stream between two worker groups, or within one."""

    source: str
    target: str
    stream: str
    kind: str  # as in StreamEnd
    where: str  # as in StreamEnd


@dataclass(frozen=True)
class Experiment:
    """A graph of workers, and the properties of the run that views show."""

    name: str
    seed: int
    groups: tuple[WorkerGroup, ...]
    policies: tuple[str, ...]  # each has a parameter store and memory for its trainer's committed state
    learning: tuple[str, ...] = ()  # policies that a trainer updates; the run is complete when all of them are
    environment: str = ""
    algorithm: str = ""
    target_steps: int = 0
    max_lag: int = 0
    description: dict[str, object] = field(default_factory=dict)
    """Spaces and algorithms as plain data, sufficient to use the trained policies without the run."""

    def edges(self) -> tuple[Edge, ...]:
        """Return the streams between groups, computed from the configs' `ends`."""
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
