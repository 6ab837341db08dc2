"""How many workers are begun anew at once on a host. Decisions only."""

from __future__ import annotations

from dataclasses import dataclass, field

MAX_AT_ONCE = 4
START_SECONDS = 30.0
"""Who is not ready after so long does not keep others from beginning."""
Key = tuple[str, int]


@dataclass
class Starts:
    """After a burst of deaths a host has better things to do than to build all that it lost at the same time: what it
    still has must go on."""

    _under_way: dict[str, dict[Key, float]] = field(default_factory=dict)

    def begin(self, host: str, worker: Key, now: float) -> bool:
        """May it begin there now? Then it does."""
        under_way = self._under_way.setdefault(host, {})
        if sum(now - begun < START_SECONDS for begun in under_way.values()) >= MAX_AT_ONCE:
            return False
        under_way[worker] = now
        return True

    def over(self, host: str, worker: Key) -> None:
        """It is ready, or dead."""
        self._under_way.get(host, {}).pop(worker, None)
