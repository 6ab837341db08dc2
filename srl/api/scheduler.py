"""The scheduler contract: a scheduler starts workers and reports what happens to them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Union

import msgspec

from srl.api.control import FromWorker, ToWorker
from srl.api.experiment import Resources
from srl.api.parameters import ParameterStore
from srl.api.worker import WorkerConfig, WorkerId
from srl.base.meter import Meter
from srl.base.state import NotResumable, State

MAX_WORKERS = 100_000
"""Maximum number of workers in one run."""


@dataclass(frozen=True)
class WorkerMessage:
    """A worker sent a message."""

    worker_id: WorkerId
    message: FromWorker


@dataclass(frozen=True)
class Died:
    """A worker's process ended; `reason` is for people to read."""

    worker_id: WorkerId
    reason: str
    clean: bool = False
    """The worker finished or was asked to stop."""
    blameless: bool = False
    """The worker is not at fault: its host was lost, or it was preempted."""


@dataclass(frozen=True)
class HostEvent:
    """A change among the run's hosts, for example one joined or was lost."""

    text: str
    fatal: bool = False
    """The run cannot continue."""


@dataclass(frozen=True)
class Usage:
    """Current resource usage of a worker's process."""

    host: str = ""
    """Empty if the run has only one."""
    cpu_percent: float = 0.0
    rss_mb: float = 0.0
    stopped: bool = False
    """The kernel reports the process as stopped (SIGSTOP)."""


Event = Union[WorkerMessage, Died, HostEvent]


class OrphanWorker(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A worker that outlived its controller, as reported by its host."""

    worker_id: WorkerId
    ready: bool
    endpoints: dict[str, str]
    """Name -> address."""


class TakeoverRecord(msgspec.Struct, frozen=True):
    """Data with which a new controller finds the hosts of a run. It contains no secret."""

    address: str
    """Address at which host agents look for their controller."""
    hosts: list[str]
    reports: dict[str, int] = {}
    """Agent (by its relay's unique address) -> number of its last report that `poll` has returned. The agent repeats
    later reports to the next controller."""


class Scheduler(ABC):
    """Base class of schedulers. The defaults suit a scheduler whose workers run without their own process or host and
    end with the scheduler."""

    inline: bool = False
    """Whether workers run in the thread that calls `poll`. Such a run can be saved between two polls with everything in
    progress (`state`, `restore`), and must not use other threads."""

    @abstractmethod
    def start(self, worker_id: WorkerId, config: WorkerConfig, resources: Resources, seed: int) -> None:
        """Begin to start a worker; a `Ready` message or `Died` follows."""

    @abstractmethod
    def send(self, worker_ids: Sequence[WorkerId], message: ToWorker) -> None:
        """Send a message to those workers that are alive. Never blocks."""

    @abstractmethod
    def kill(self, worker_id: WorkerId) -> None:
        """End a worker at once; `Died` follows."""

    @abstractmethod
    def poll(self, timeout: float) -> list[Event]:
        """Return all new events; wait at most `timeout` seconds for the first."""

    @abstractmethod
    def meter(self, worker_id: WorkerId) -> Meter:
        """Return the worker's gauges."""

    @abstractmethod
    def close(self) -> None:
        """End all workers and release everything. Idempotent."""

    def check_room(self, wanted: Sequence[tuple[str, Resources]]) -> None:
        """Raise ValueError if these workers (name, resources) do not fit beside the running ones."""

    def signal(self, worker_id: WorkerId, number: int) -> None:
        """Send a signal to the worker's process. Raises ValueError if it has no process of its own."""
        raise ValueError(
            f"cannot send a signal to {worker_id.name}: its scheduler runs workers without their own process"
        )

    def pid(self, worker_id: WorkerId) -> int:
        """Return the worker's process id, or 0 if it has no process (yet)."""
        return 0

    def usage(self, worker_id: WorkerId) -> Usage:
        """Return the worker's recent resource usage."""
        return Usage()

    def dump(self, worker_id: WorkerId) -> str:
        """Return the worker's stack traces for the report on a hang; may be empty."""
        return ""

    def parameters(self) -> Mapping[str, ParameterStore]:
        """Return the parameter store of each policy, to publish versions before workers start (past opponents on
        resume)."""
        return {}

    # Saving a run with everything in progress; only where `inline` is true.

    def state(self) -> State:
        """Return the state of all workers. Raises NotResumable, naming the worker that cannot be saved."""
        raise NotResumable(f"{type(self).__name__} does not save the state of its workers")

    def restore(self, state: State) -> None:
        """Set the state that workers continue from. Call it before the first worker starts."""
        raise NotResumable(f"{type(self).__name__} does not restore the state of workers")

    # Taking over workers that outlived their controller.

    def takeover_record(self) -> TakeoverRecord | None:
        """Return the record for the next controller; None if workers end with this controller."""
        return None

    def takeover_recorded(self, record: TakeoverRecord) -> None:
        """Note that the record is on disk, so that agents may discard reports that it covers."""

    def find_orphans(self, hosts: Sequence[str], timeout: float) -> list[OrphanWorker]:
        """Wait until these hosts reconnect and return the workers that they kept. Raises ConnectionError if none does
        within `timeout` seconds. Then `adopt` every worker and call `finish_adoption`."""
        raise ConnectionError(f"cannot take over: workers of {type(self).__name__} end together with their controller")

    def adopt(self, worker_id: WorkerId, config: WorkerConfig, resources: Resources, seed: int) -> None:
        """Supervise an orphan as if this scheduler had started it. `Died` follows if it was lost in the meantime."""
        raise ValueError(f"cannot adopt {worker_id.name}: workers of {type(self).__name__} end with their controller")

    def finish_adoption(self, timeout: float) -> None:
        """Wait until the gauges of all adopted workers have arrived, so that counts continue."""


class Engine(ABC):
    """Starts a run's host agents: as a process on this machine, as Slurm steps or as Ray actors."""

    @abstractmethod
    def start(self, address: str, secret: bytes) -> None:
        """Start agents that join the run at `address`. Errors name what the user can change."""

    @abstractmethod
    def poll(self) -> str | None:
        """Restart agents that ended. Returns a description of new problems, or None. Never blocks."""

    @abstractmethod
    def start_failed(self) -> bool:
        """Return whether agents failed to start for good. A run that still waits for its hosts then fails."""

    @abstractmethod
    def hint(self, address: str) -> str:
        """Return advice for the user when hosts are missing."""

    @abstractmethod
    def close(self) -> None:
        """End the remaining agents."""
