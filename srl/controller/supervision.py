"""What a death means: restart now, restart later, or give up. Decisions only; no processes in here."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from srl.api.experiment import RestartRule

FIRST_BACKOFF = 0.2
MAX_BACKOFF = 30.0
HEALTHY_SECONDS = 5.0
"""Who worked so long and then died was killed, or met something rare: a restart mends that."""
MAX_HEALTHY_FAILURES = 10
"""So many times more deaths are allowed to those who had worked for a while."""


FROZEN_SECONDS = 3.0


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
    _deaths: deque[tuple[float, bool]] = field(default_factory=deque)

    def died(self, name: str, reason: str, now: float, worked: float = 0.0) -> Restart | GiveUp:
        """A worker that had worked for a while is replaced at once, as is the first that had not; those that die soon
        after their start come back ever later, and too many of them end the run."""
        self._deaths.append((now, worked < HEALTHY_SECONDS))
        while self._deaths and now - self._deaths[0][0] > self.rule.window:
            self._deaths.popleft()
        early = sum(soon for _, soon in self._deaths)
        if early > self.rule.max_failures or len(self._deaths) > MAX_HEALTHY_FAILURES * self.rule.max_failures:
            return GiveUp(
                f"{name} died, as its group did {len(self._deaths)} times within {self.rule.window:.0f} s; a restart "
                f"does not mend this. The last time: {reason}"
            )
        if worked >= HEALTHY_SECONDS or early <= 1:
            return Restart(0.0)
        return Restart(min(MAX_BACKOFF, FIRST_BACKOFF * 2 ** (early - 2)))


@dataclass
class Watch:
    """Tells a stuck worker from a slow or a waiting one by what its gauges do, not by a clock on the wall."""

    seen: tuple[int, int] = (-1, -1)
    since: float = 0.0

    def stuck(self, progress: int, stamp: int, now: float, timeout: float, frozen: bool = False) -> bool:
        """`stamp` changes with every change of phase: one who waits wakes up and lies down again all the time, one who
        is frozen or hangs in a call does not. Of one whom the kernel calls stopped (`frozen`) nothing is to be hoped:
        it gets FROZEN_SECONDS."""
        if (progress, stamp) != self.seen:
            self.seen, self.since = (progress, stamp), now
            return False
        return now - self.since > (min(timeout, FROZEN_SECONDS) if frozen else timeout)


def first_line(text: str) -> str:
    """What a message has room for: the last line of a traceback says what happened."""
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return lines[-1][:200] if lines else "no reason given"
