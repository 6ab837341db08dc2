"""Recovery from lost hosts: when their workers move, how many start at once, and when waiting workers are reported.
Decisions only; the scheduler acts on them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

NO_HOST_SECONDS = 60.0
"""Time without any host after which a run ends. Agents that lost the controller reconnect within seconds, and engines
start their agents again."""
RECENT_SECONDS = 60.0
MAX_SHARE_LOST = 0.2
HOLD_SECONDS = 10.0
"""Time after the last of many losses for which workers wait for their hosts to return."""
MAX_STARTS = 4
START_SECONDS = 30.0
"""Time after which a worker that is not ready no longer keeps others from starting."""
WAIT_SECONDS = HOLD_SECONDS
"""Waiting time after which the user is informed: a worker that waits longer than this may wait forever."""
Key = tuple[str, int]
"""Group and index of a worker."""


@dataclass
class HostLosses:
    """Times at which hosts of a run were lost."""

    _recent: deque[float] = field(default_factory=deque)
    _no_host_since: float | None = None

    def add(self, now: float) -> None:
        self._recent.append(now)

    def hold(self, now: float, num_hosts: int) -> bool:
        """Whether workers wait instead of sharing the CPUs of the `num_hosts` that are left. If more than a fifth of
        all hosts were lost within a minute, the cause is probably something they share, such as a switch: they will be
        back, and the hosts that are left could not do the work of all. The loss of a single host never holds."""
        while self._recent and now - self._recent[0] > RECENT_SECONDS:
            self._recent.popleft()
        many = len(self._recent) > max(1.0, MAX_SHARE_LOST * (num_hosts + len(self._recent)))
        return many and now - self._recent[-1] < HOLD_SECONDS

    def no_host_left(self, now: float, num_hosts: int) -> bool:
        """Whether the run has had no host for so long that none is expected any more."""
        if num_hosts:
            self._no_host_since = None
        elif self._no_host_since is None:
            self._no_host_since = now
        return self._no_host_since is not None and now - self._no_host_since > NO_HOST_SECONDS


@dataclass
class StartLimiter:
    """Limits how many replacements start on a host at the same time, so that the workers it still has keep running."""

    _starting: dict[str, dict[Key, float]] = field(default_factory=dict)

    def start(self, host: str, worker: Key, now: float) -> bool:
        """Whether the worker may start on this host now; if so, it counts as starting."""
        starting = self._starting.setdefault(host, {})
        if sum(now - began < START_SECONDS for began in starting.values()) >= MAX_STARTS:
            return False
        starting[worker] = now
        return True

    def end(self, host: str, worker: Key) -> None:
        """Stop counting a worker as starting, because it is ready or dead."""
        self._starting.get(host, {}).pop(worker, None)


@dataclass
class WaitReports:
    """Workers that wait for a host. Each is reported once until it has found one."""

    _since: dict[Key, float] = field(default_factory=dict)
    _reported: set[Key] = field(default_factory=set)

    def due(self, waiting: Iterable[Key], now: float) -> list[Key]:
        """Return the workers that have waited for long and were not reported yet."""
        self._since = {key: self._since.get(key, now) for key in waiting}
        self._reported &= self._since.keys()
        return [key for key, since in self._since.items() if now - since > WAIT_SECONDS and key not in self._reported]

    def report(self, reasons: Mapping[Key, str]) -> list[str]:
        """Return one line for each reason."""
        self._reported.update(reasons)
        lines = []
        for reason in sorted(set(reasons.values())):
            (group, index), *others = sorted(key for key, value in reasons.items() if value == reason)
            workers = f"{group}/{index} and {len(others)} more wait" if others else f"{group}/{index} waits"
            lines.append(f"{workers}: {reason}")
        return lines
