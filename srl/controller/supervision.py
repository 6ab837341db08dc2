"""What a death means: restart now, restart later, or give up. Decisions only; no processes in here."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from srl.api.experiment import RestartRule

FIRST_BACKOFF = 0.2
MAX_BACKOFF = 30.0


@dataclass(frozen=True)
class Restart:
    after: float
    """Seconds to wait first."""


@dataclass(frozen=True)
class GiveUp:
    reason: str


@dataclass
class History:
    """The deaths of one worker group."""

    rule: RestartRule
    _deaths: deque[float] = field(default_factory=deque)

    def died(self, name: str, reason: str, now: float) -> Restart | GiveUp:
        """The first death in a while is mended at once; repeated ones ever later, and too many end the run."""
        self._deaths.append(now)
        while self._deaths and now - self._deaths[0] > self.rule.window:
            self._deaths.popleft()
        count = len(self._deaths)
        if count > self.rule.max_failures:
            return GiveUp(
                f"{name} died {count} times within {self.rule.window:.0f} s, the last time: {reason}; "
                "a restart does not mend this"
            )
        return Restart(0.0 if count == 1 else min(MAX_BACKOFF, FIRST_BACKOFF * 2 ** (count - 2)))


@dataclass
class Watch:
    """Tells a stuck worker from a slow or a waiting one by what its gauges do, not by a clock on the wall."""

    progress: int = -1
    phase: int = -1
    since: float = 0.0

    def stuck(self, progress: int, phase: int, waiting: bool, now: float, timeout: float) -> bool:
        if waiting or progress != self.progress or phase != self.phase:
            self.progress, self.phase, self.since = progress, phase, now
            return False
        return now - self.since > timeout
