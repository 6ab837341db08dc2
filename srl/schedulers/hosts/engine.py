"""The engine contract: an engine starts a run's host agents, and restarts those that end too early."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

from srl.transports.join_ticket import JoinTicket

MAX_RETRY_SECONDS = 30.0  # longest delay between attempts; once an agent runs longer, earlier failures do not count
MAX_REPORTS = 2  # consecutive failures that are reported


class Engine(ABC):
    """Base class of engines, which start agents as a process on this machine, as Slurm steps or as Ray actors."""

    warning: str = ""  # what others could do to this engine; empty if nothing

    @abstractmethod
    def start(self, new_ticket: Callable[[], JoinTicket]) -> None:
        """Start agents, each with a new ticket to join the run. Error messages tell the user what to change."""

    @abstractmethod
    def poll(self) -> str | None:
        """Restart agents that ended. Return a description of new problems, or None. Never blocks."""

    @abstractmethod
    def start_failed(self) -> bool:
        """Return whether agents have permanently failed to start. A run still waiting for its hosts then fails."""

    @abstractmethod
    def hint(self) -> str:
        """Return advice for the user when hosts are missing."""

    @abstractmethod
    def close(self) -> None:
        """End the remaining agents."""


@dataclass
class Retries:
    """Retry delays, which double with each consecutive failure."""

    first: float  # seconds before the first retry
    failures: int = 0
    _began: float = 0.0
    _due: float = 0.0
    _refused: bool = False

    def started(self, now: float) -> None:
        self._began = now

    def ended(self, now: float, refused: bool = False) -> bool:
        """Schedule the next attempt after a failure, or after the controller `refused` the agent. Return whether the
        failure should be reported."""
        self._refused = refused
        self.failures = 1 if now - self._began > MAX_RETRY_SECONDS else self.failures + 1
        self._due = now + min(MAX_RETRY_SECONDS, self.first * 2 ** (self.failures - 1))
        return self.failures <= MAX_REPORTS

    @property
    def hopeless(self) -> bool:
        """Whether another attempt is unlikely to succeed: after two consecutive failures, or a refusal."""
        return self._refused or self.failures > 1

    def due(self, now: float) -> bool:
        return now >= self._due
