"""Retries of agents that ended too early. Decisions only."""

from __future__ import annotations

from dataclasses import dataclass

MAX_SECONDS = 30.0  # Longest delay between two attempts. An agent that ran longer than this starts with no failures.
MAX_REPORTS = 2  # number of failures in a row that are reported


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
        """Plan the next attempt after a failure; `refused`: the controller refused the agent. Returns whether the
        failure is worth a report."""
        self._refused = refused
        self.failures = 1 if now - self._began > MAX_SECONDS else self.failures + 1
        self._due = now + min(MAX_SECONDS, self.first * 2 ** (self.failures - 1))
        return self.failures <= MAX_REPORTS

    @property
    def hopeless(self) -> bool:
        """Whether another attempt is unlikely to succeed: two failures in a row, or a refusal."""
        return self._refused or self.failures > 1

    def due(self, now: float) -> bool:
        return now >= self._due
