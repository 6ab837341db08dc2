"""The engine contract: an engine starts the host agents of a run."""

from __future__ import annotations

from abc import ABC, abstractmethod


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
