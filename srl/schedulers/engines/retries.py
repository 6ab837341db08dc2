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
    _refused: bool = False

    def begun(self, now: float) -> None:
        self._began = now

    def ended(self, now: float, refused: bool = False) -> bool:
        """Plan the next try; is this one worth telling? `refused`: it was told that it is not wanted."""
        self._refused = refused
        self.failures = 1 if now - self._began > MAX_SECONDS else self.failures + 1
        self._due = now + min(MAX_SECONDS, self.first * 2 ** (self.failures - 1))
        return self.failures <= MAX_REPORTS

    @property
    def in_vain(self) -> bool:
        """It failed twice, or was refused: another try is not likely to go better."""
        return self._refused or self.failures > 1

    def due(self, now: float) -> bool:
        return now >= self._due
