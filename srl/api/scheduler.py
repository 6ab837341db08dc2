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

MAX_WORKERS = 100_000  # in one run


@dataclass(frozen=True)
class WorkerMessage:
    """A message from a worker."""

    worker_id: WorkerId
    message: FromWorker


@dataclass(frozen=True)
class Died:
    """The end of a worker."""

    worker_id: WorkerId
    reason: str  # for people to read
    clean: bool = False  # the worker finished or was asked to stop
    blameless: bool = False  # the worker is not at fault: its host was lost, or it was preempted


@dataclass(frozen=True)
class HostEvent:
    """A change among the run's hosts, for example one joined or was lost."""

    text: str
    fatal: bool = False  # the run cannot continue
    lost: bool = False  # the host is gone, with its workers


@dataclass(frozen=True)
class Usage:
    """Current resource usage of a worker's process."""

    host: str = ""  # empty if the run has only one
    cpu_percent: float = 0.0
    rss_mb: float = 0.0
    stopped: bool = False  # the kernel reports the process as stopped (SIGSTOP)


Event = Union[WorkerMessage, Died, HostEvent]


class OrphanWorker(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A worker that outlived its controller, as reported by its host."""

    worker_id: WorkerId
    ready: bool
    endpoints: dict[str, str]  # name -> address


class TakeoverRecord(msgspec.Struct, frozen=True):
    """Data with which a new controller finds the hosts of a run. It contains no secret."""

    address: str  # at which host agents look for their controller
    hosts: list[str]
    reports: dict[str, int] = {}
    """Number of the last report that `poll` has returned, by agent (address of its relay). Later ones are repeated."""


class Scheduler(ABC):
    """Base class of schedulers. The defaults suit workers that run in this process and end with the scheduler."""

    inline: bool = False  # all workers run in the thread that calls `poll`, so that a run can be saved between polls

    @abstractmethod
    def start(self, worker_id: WorkerId, config: WorkerConfig, resources: Resources, seed: int) -> None:
        """Start a worker in the background; a `Ready` message or `Died` follows."""

    @abstractmethod
    def send(self, worker_ids: Sequence[WorkerId], message: ToWorker) -> None:
        """Send a message to those of the workers that are alive. Never blocks."""

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
        """Send a signal to the worker's process. Raises ValueError if it has no separate process."""
        raise ValueError(f"cannot send a signal to {worker_id.name}: it runs inside the scheduler's process")

    def disturb_host(self, worker_id: WorkerId, fault: str, seconds: float) -> None:
        """Inject a fault into the worker's host, for `srl chaos`. Raises ValueError if it is not possible here."""
        raise ValueError("it needs workers in processes of their own (--scheduler processes or hosts)")

    def pid(self, worker_id: WorkerId) -> int:
        """Return the worker's process id, or 0 if it has no process (yet)."""
        return 0

    def usage(self, worker_id: WorkerId) -> Usage:
        """Return the worker's recent resource usage."""
        return Usage()

    def refused(self) -> Mapping[str, int]:
        """Return the number of connections that the scheduler itself has refused, by reason."""
        return {}

    def dump(self, worker_id: WorkerId) -> str:
        """Return the worker's stack traces for the report on a hang; may be empty."""
        return ""

    def parameters(self) -> Mapping[str, ParameterStore]:
        """Return the store of each policy, so that a resumed run publishes past opponents before its workers start."""
        return {}

    # Exact resume; only where `inline` is true.

    def state(self) -> State:
        """Return the state of all workers. Raises NotResumable, naming the worker that cannot be saved."""
        raise NotResumable(f"{type(self).__name__} does not save the state of its workers")

    def restore(self, state: State) -> None:
        """Set the state that workers continue from. Call it before the first worker starts."""
        raise NotResumable(f"{type(self).__name__} does not restore the state of workers")

    # Takeover: a new controller continues a run whose controller died.

    def takeover_record(self) -> TakeoverRecord | None:
        """Return the record for the next controller; None if workers end with this one."""
        return None

    def takeover_recorded(self, record: TakeoverRecord) -> None:
        """Note that the record is on disk, so that agents may discard reports that it covers."""

    def find_orphans(self, hosts: Sequence[str], timeout: float) -> list[OrphanWorker]:
        """Wait until these hosts reconnect and return their workers, each of which `adopt` must take over before
        `finish_takeover`. Raises ConnectionError if no host does within `timeout` seconds."""
        raise ConnectionError(f"cannot take over: workers of {type(self).__name__} end together with their controller")

    def adopt(self, worker_id: WorkerId, config: WorkerConfig, resources: Resources, seed: int) -> None:
        """Supervise an orphan as if this scheduler had started it. `Died` follows if it was lost in the meantime."""
        raise ValueError(f"cannot adopt {worker_id.name}: workers of {type(self).__name__} end with their controller")

    def finish_takeover(self, timeout: float) -> None:
        """Wait until the gauges of all adopted workers have arrived, so that counts continue."""
