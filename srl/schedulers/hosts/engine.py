"""The engine contract: an engine starts the host agents of a run, and again if they end too early."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

MAX_RETRY_SECONDS = 30.0  # longest delay between two attempts; an agent that ran longer starts with no failures
MAX_REPORTS = 2  # failures in a row that are reported


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


@dataclass
class Retries:
    """Delays that double with every failure in a row."""

    first: float  # seconds before the first retry
    failures: int = 0
    _began: float = 0.0
    _due: float = 0.0
    _refused: bool = False

    def started(self, now: float) -> None:
        self._began = now

    def ended(self, now: float, refused: bool = False) -> bool:
        """Plan the next attempt after a failure, or after the controller `refused` the agent. Return whether to report
        it."""
        self._refused = refused
        self.failures = 1 if now - self._began > MAX_RETRY_SECONDS else self.failures + 1
        self._due = now + min(MAX_RETRY_SECONDS, self.first * 2 ** (self.failures - 1))
        return self.failures <= MAX_REPORTS

    @property
    def hopeless(self) -> bool:
        """Whether another attempt is unlikely to succeed: two failures in a row, or a refusal."""
        return self._refused or self.failures > 1

    def due(self, now: float) -> bool:
        return now >= self._due
