"""The scheduler contract: starts workers somewhere and reports what happens to them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Union

import msgspec

from srl.api.control import FromWorker, ToWorker
from srl.api.experiment import Resources
from srl.api.parameters import ParameterStore
from srl.api.worker import Place, WorkerConfig
from srl.base.meter import Meter
from srl.base.state import NotResumable, State

MAX_WORKERS = 100_000
"""Workers of one run."""


@dataclass(frozen=True)
class WorkerMessage:
    """A worker sent a message."""

    place: Place
    message: FromWorker


@dataclass(frozen=True)
class Died:
    """A worker's process ended; `reason` is a text for people."""

    place: Place
    reason: str
    clean: bool = False
    """The worker finished or was asked to stop."""
    blameless: bool = False
    """The worker is not at fault: its host was lost, or it was preempted."""


@dataclass(frozen=True)
class HostEvent:
    """Something happened to the hosts of the run, for example one joined or was lost."""

    text: str
    fatal: bool = False
    """The run cannot continue."""


@dataclass(frozen=True)
class Usage:
    """Resources that a worker's process uses now."""

    host: str = ""
    """Empty where there is only one."""
    cpu_percent: float = 0.0
    rss_mb: float = 0.0
    stopped: bool = False
    """The kernel reports the process as stopped (SIGSTOP)."""


Event = Union[WorkerMessage, Died, HostEvent]


class OrphanWorker(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A worker that outlived its controller, as its host reports it."""

    place: Place
    ready: bool
    endpoints: dict[str, str]
    """Name -> address."""


class TakeoverRecord(msgspec.Struct, frozen=True):
    """Facts that a new controller needs to find the hosts of a run again. It contains no secret."""

    address: str
    """Address at which the agents of the hosts look for their controller."""
    hosts: list[str]
    reports: dict[str, int] = {}
    """Agent (by the unique address of its relay) -> number of its last report that `poll` has returned. The agent
    repeats later reports to the next controller."""


class Scheduler(ABC):
    """Runs workers. A subclass implements the abstract methods; the others have defaults for schedulers whose workers
    have no process, no host and no life beyond that of the scheduler."""

    inline: bool = False
    """Workers run in the thread that calls `poll`. Such a run can be saved between two polls with everything that is in
    progress (`state`, `restore`), and no other thread may work beside it."""

    @abstractmethod
    def start(self, place: Place, config: WorkerConfig, resources: Resources, seed: int) -> None:
        """Begin to start a worker; `Ready` or `Died` follows."""

    @abstractmethod
    def send(self, places: Sequence[Place], message: ToWorker) -> None:
        """Send a message to those of the workers that are alive; never blocks."""

    @abstractmethod
    def kill(self, place: Place) -> None:
        """End a worker at once; `Died` follows."""

    @abstractmethod
    def poll(self, timeout: float) -> list[Event]:
        """Return everything that happened; wait at most `timeout` seconds for the first event."""

    @abstractmethod
    def meter(self, place: Place) -> Meter:
        """Return the worker's gauges."""

    @abstractmethod
    def close(self) -> None:
        """End all workers and release everything. Idempotent."""

    def check_room(self, wanted: Sequence[tuple[str, Resources]]) -> None:
        """Raise ValueError if these workers (name, needs) do not fit beside those that run."""

    def signal(self, place: Place, number: int) -> None:
        """Send a signal to the worker's process. Raises ValueError if it has no process of its own."""
        raise ValueError(f"cannot send a signal to {place.name}: its scheduler runs workers without their own process")

    def pid(self, place: Place) -> int:
        """Process id of the worker, or 0 if it has no process (yet)."""
        return 0

    def usage(self, place: Place) -> Usage:
        """Resources that the worker uses, measured now or a moment ago."""
        return Usage()

    def dump(self, place: Place) -> str:
        """Stack traces of the worker for the report on a hang; may be empty."""
        return ""

    def parameters(self) -> Mapping[str, ParameterStore]:
        """Stores (policy -> store) for versions that workers find when they start: opponents of a resumed run."""
        return {}

    # Saving a run with everything in progress; only where `inline` is true.

    def state(self) -> State:
        """Return the state of all workers. Raises NotResumable, naming the worker that cannot be saved."""
        raise NotResumable(f"{type(self).__name__} does not save the state of its workers")

    def restore(self, state: State) -> None:
        """Set the state that workers continue from, before the first of them is started."""
        raise NotResumable(f"{type(self).__name__} does not restore the state of workers")

    # Taking over workers that outlived their controller.

    def takeover_record(self) -> TakeoverRecord | None:
        """Return the facts that the next controller needs; None if workers end with this controller."""
        return None

    def takeover_recorded(self, record: TakeoverRecord) -> None:
        """The record is on disk: agents may discard reports that it covers."""

    def find_orphans(self, hosts: Sequence[str], timeout: float) -> list[OrphanWorker]:
        """Wait until these hosts have reconnected and return the workers that they kept. Raises ConnectionError if none
        of them reconnects within `timeout` seconds. Adopt every worker, then call `finish_adoption`."""
        raise ConnectionError(f"the workers of {type(self).__name__} do not outlive their controller")

    def adopt(self, place: Place, config: WorkerConfig, resources: Resources, seed: int) -> None:
        """Supervise an orphan as if this scheduler had started it; `Died` follows if it was lost meanwhile."""
        raise ValueError(
            f"{type(self).__name__} cannot adopt {place.name}: its workers do not outlive their controller"
        )

    def finish_adoption(self, timeout: float) -> None:
        """Wait until the gauges of all adopted workers have arrived, so that counts continue."""


class Engine(ABC):
    """Starts the agents of a run on its hosts: as a process of this machine, as Slurm steps or as Ray actors."""

    @abstractmethod
    def start(self, address: str, secret: bytes) -> None:
        """Start agents that join the run at `address`. Raises an error that tells the user what to change."""

    @abstractmethod
    def poll(self) -> str | None:
        """Start agents again that ended. Returns a description of new problems, or None. Never blocks."""

    @abstractmethod
    def start_failed(self) -> bool:
        """Whether an agent is not expected to start any more. A run that still waits for its hosts then fails."""

    @abstractmethod
    def hint(self, address: str) -> str:
        """Advice for the user when hosts are missing."""

    @abstractmethod
    def close(self) -> None:
        """End the agents that have not left yet."""
