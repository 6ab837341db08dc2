"""Hosts of a simulated cluster, with their memory and processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from srl.api.parameters import ParameterStore
from srl.api.worker import Worker, WorkerId
from srl.base.snapshot import Snapshot
from srl.names.table import NameView
from srl.parameters.host import HostParameterStore
from srl.workers.context import WorkerContext


@dataclass(eq=False)
class Process:
    """A worker's process."""

    worker_id: WorkerId
    host: SimHost
    names: NameView
    context: WorkerContext
    worker: Worker
    frozen: bool = False
    finished: bool = False


@dataclass(eq=False)
class SimHost:
    """A host, from its join to its loss. If it comes back, it is a new host with empty memory."""

    name: str
    policies: Sequence[str]
    stores: dict[str, ParameterStore] = field(init=False)
    commits: dict[str, Snapshot] = field(init=False)
    alive: bool = True
    member: bool = True
    """Whether the controller counts on this host."""
    agent_frozen: bool = False
    outbox: list[Callable[[], None]] = field(default_factory=list)
    """What a frozen agent will do when it continues."""
    uploading: dict[str, int] = field(default_factory=dict)
    """Policy -> version of the state that the controller has not confirmed yet."""
    confirmed: dict[str, tuple[int, Any]] = field(default_factory=dict)
    """Policy -> newest version that may leave this host, and its parameters."""
    offered: set[tuple[str, int]] = field(default_factory=set)
    """Policy and receiver of the versions on their way."""
    uploaded: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.stores = {policy: HostParameterStore.create(policy) for policy in self.policies}
        self.commits = {policy: Snapshot.create(f"commit-{policy}") for policy in self.policies}
        for snapshot in self.commits.values():
            snapshot.set_durable(-1)

    def close(self) -> None:
        for store in self.stores.values():
            store.memory.close()  # type: ignore[attr-defined]
        for snapshot in self.commits.values():
            snapshot.memory.close()
