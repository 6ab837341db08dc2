"""When something that ended, and should not have, is started again. Decisions only."""

from __future__ import annotations

from dataclasses import dataclass

MAX_SECONDS = 30.0
"""Between two tries; who lasted longer than this begins with a clean slate."""
MAX_REPORTS = 2
"""Of something that fails again and again, the first failures are told."""


@dataclass
class Retries:
    """Ever later, unless it had lasted."""

    first: float
    """Seconds before the first of them."""
    failures: int = 0
    _began: float = 0.0
    _due: float = 0.0

    def begun(self, now: float) -> None:
        self._began = now

    def ended(self, now: float) -> bool:
        """Plan the next try; is this one worth telling?"""
        self.failures = 1 if now - self._began > MAX_SECONDS else self.failures + 1
        self._due = now + min(MAX_SECONDS, self.first * 2 ** (self.failures - 1))
        return self.failures <= MAX_REPORTS

    def due(self, now: float) -> bool:
        return now >= self._due
