"""What a death means: restart now, restart later, or give up. Decisions only; no processes in here."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from srl.api.experiment import RestartRule
from srl.base.clock import Looks
from srl.base.text import last_line

FIRST_BACKOFF = 0.2
MAX_BACKOFF = 30.0
HEALTHY_SECONDS = 5.0
"""Who worked so long and then died was killed, or met something rare: a restart mends that."""
MAX_HEALTHY_FAILURES = 10
"""So many times more deaths are allowed to those who had worked for a while."""


QUARANTINE_SECONDS = 60.0
GUARD_SECONDS = 60.0
GUARD_SHARE = 0.2
GUARD_ALWAYS = 2
STOPPED_SHARE = 0.5
"""If more than these are stopped at once, somebody wanted the whole run to rest."""
FROZEN_SECONDS = 2.0
MAX_SHARE_INVERSE = 10.0


@dataclass(frozen=True)
class Restart:
    after: float
    """Seconds to wait first."""
    quarantine: bool = False
    """This one dies again and again, and nobody else does: it is its place, its seed or its host."""


@dataclass(frozen=True)
class GiveUp:
    reason: str


@dataclass
class History:
    """The deaths of one worker group."""

    rule: RestartRule
    _deaths: deque[tuple[float, bool, str]] = field(default_factory=deque)

    def died(self, name: str, reason: str, now: float, worked: float = 0.0, size: int = 1) -> Restart | GiveUp:
        """A worker that had worked for a while is replaced at once, as is the first that had not; those that die soon
        after their start come back ever later, and too many of them end the run. If it is only one of a group of
        `size` that does so, it is left out for QUARANTINE_SECONDS, and the others go on."""
        self._deaths.append((now, worked < HEALTHY_SECONDS, name))
        while self._deaths and now - self._deaths[0][0] > self.rule.window:
            self._deaths.popleft()
        early = sum(soon for _, soon, _ in self._deaths)
        others = sum(soon for _, soon, who in self._deaths if who != name)
        if early > self.rule.max_failures and size > 1 and others <= 1 and not self.rule.together:
            return Restart(QUARANTINE_SECONDS, quarantine=True)
        if early > self.rule.max_failures or len(self._deaths) > MAX_HEALTHY_FAILURES * self.rule.max_failures:
            return GiveUp(
                f"{name} died, as its group did {len(self._deaths)} times within {self.rule.window:.0f} s; a restart "
                f"does not mend this. The last time: {reason}"
            )
        if worked >= HEALTHY_SECONDS or early <= 1:
            return Restart(0.0)
        return Restart(min(MAX_BACKOFF, FIRST_BACKOFF * 2 ** (early - 2)))


@dataclass
class Guard:
    """Keeps us from acting on a large share of the fleet at once: if very many seem to hang, it is rather something
    that they share, or our own sight of them, and replacing them all would make it worse."""

    _acted: deque[float] = field(default_factory=deque)

    def allows(self, now: float, size: int, stopped: int = 0) -> bool:
        """May one more of `size` workers be replaced for no better reason than that it seems stuck? A better one is the
        kernel's word that it is `stopped`, with so many others; unless they are most of them."""
        if 0 < stopped <= max(GUARD_ALWAYS, STOPPED_SHARE * size):
            return True
        while self._acted and now - self._acted[0] > GUARD_SECONDS:
            self._acted.popleft()
        if len(self._acted) >= max(GUARD_ALWAYS, GUARD_SHARE * size):
            return False
        self._acted.append(now)
        return True


@dataclass
class Pace:
    """How often something is done that takes the longer the more workers there are: at most a tenth of the time."""

    seconds: float
    """At the least, between two times."""
    _next: float = 0.0
    _began: float = 0.0

    def due(self, now: float) -> bool:
        self._began = now
        return now >= self._next

    def done(self, now: float) -> None:
        self._next = self._began + max(self.seconds, MAX_SHARE_INVERSE * (now - self._began))


@dataclass
class Watch:
    """Tells a stuck worker from a slow or a waiting one by what its gauges do, not by a clock on the wall."""

    looks: Looks = field(default_factory=Looks)
    seen: tuple[int, int] = (-1, -1)
    still: float = 0.0
    """Seconds in which we looked and nothing moved."""

    def stuck(self, progress: int, stamp: int, now: float, timeout: float, frozen: bool = False) -> bool:
        """`stamp` changes with every change of phase: one who waits wakes up and lies down again all the time, one who
        is frozen or hangs in a call does not. Of one whom the kernel calls stopped (`frozen`) nothing is to be hoped:
        it gets FROZEN_SECONDS."""
        passed = self.looks.passed(now)
        if (progress, stamp) != self.seen:
            self.seen, self.still = (progress, stamp), 0.0
            return False
        self.still += passed
        return self.still > (min(timeout, FROZEN_SECONDS) if frozen else timeout)


def briefly(reason: str) -> str:
    """What a message has room for."""
    return last_line(reason, "no reason given", limit=200)
