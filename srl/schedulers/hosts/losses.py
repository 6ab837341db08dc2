"""What the loss of hosts means: when their workers move to others, and when nobody is left. Decisions only."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

DESERTED_SECONDS = 60.0
"""Without any host: agents that lost us dial again within seconds, and ours are started again."""
RECENT_SECONDS = 60.0
SHARE = 0.2
HOLD_SECONDS = 10.0
"""After the last of many losses."""


@dataclass
class Losses:
    """Of the hosts of a run."""

    _recent: deque[float] = field(default_factory=deque)
    _alone_since: float | None = None

    def lost(self, now: float) -> None:
        self._recent.append(now)

    def hold(self, now: float, num_hosts: int) -> bool:
        """Shall workers rather wait than share the CPUs of the `num_hosts` that are left? If more than a fifth of all
        went within a minute it is something that they share, a switch perhaps. They will be back, and those that are
        left could not bear the work of all. One host alone may always go."""
        while self._recent and now - self._recent[0] > RECENT_SECONDS:
            self._recent.popleft()
        many = len(self._recent) > max(1.0, SHARE * (num_hosts + len(self._recent)))
        return many and now - self._recent[-1] < HOLD_SECONDS

    def deserted(self, now: float, num_hosts: int) -> bool:
        """Has there been nobody for so long that nobody will come?"""
        if num_hosts:
            self._alone_since = None
        elif self._alone_since is None:
            self._alone_since = now
        return self._alone_since is not None and now - self._alone_since > DESERTED_SECONDS
