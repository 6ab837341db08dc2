"""The scheduler contract: finds workers a place to run, and tells what happens to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, Union, runtime_checkable

from srl.api.control import FromWorker, ToWorker
from srl.api.experiment import Resources
from srl.api.worker import Place, WorkerConfig
from srl.base.meter import Meter


@dataclass(frozen=True)
class WorkerMessage:
    """A worker sent a message."""

    place: Place
    message: FromWorker


@dataclass(frozen=True)
class Died:
    """A worker's process is gone, for whatever reason; `reason` is for people."""

    place: Place
    reason: str
    clean: bool = False
    blameless: bool = False
    """Its host was lost, or it was asked to leave: nothing was wrong with the worker."""


@dataclass(frozen=True)
class HostEvent:
    """Something happened to the places where workers run: a host came or went."""

    text: str
    fatal: bool = False
    """The run cannot go on."""


@dataclass(frozen=True)
class Usage:
    """What a worker's process takes."""

    host: str = ""
    """Empty where there is only one."""
    cpu_percent: float = 0.0
    rss_mb: float = 0.0
    stopped: bool = False
    """The kernel says that it does not run at all: somebody sent it SIGSTOP."""


Event = Union[WorkerMessage, Died, HostEvent]


@runtime_checkable
class Scheduler(Protocol):
    def start(self, place: Place, config: WorkerConfig, resources: Resources, seed: int) -> None:
        """Begin to start a worker; `Ready` or `Died` follows."""

    def check_room(self, wanted: Sequence[tuple[str, Resources]]) -> None:
        """Raises ValueError if these workers (name, needs) cannot be placed beside those that run."""

    def send(self, places: Sequence[Place], message: ToWorker) -> None:
        """Deliver to those that still live; never blocks."""

    def kill(self, place: Place) -> None:
        """End it at once; `Died` follows."""

    def signal(self, place: Place, number: int) -> None:
        """Send its process a signal, as a person could. Raises ValueError where it has none of its own."""

    def poll(self, timeout: float) -> list[Event]:
        """Everything that happened; waits at most `timeout` seconds for something to happen."""

    def meter(self, place: Place) -> Meter:
        """The worker's gauges."""

    def pid(self, place: Place) -> int:
        """Its process, or 0 where it has none of its own."""

    def usage(self, place: Place) -> Usage:
        """What it takes, measured when asked, or not long ago."""

    def dump(self, place: Place) -> str:
        """Where the worker is in its code, for a report on a hang; may be empty."""

    def close(self) -> None:
        """End everything and leave nothing behind. Idempotent."""
