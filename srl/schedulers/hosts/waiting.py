"""Workers that wait for a place: who should hear of it, and when. Decisions only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

WAIT_SECONDS = 10.0
"""As long as the work of lost hosts is held back: who waits longer may wait for ever."""
Key = tuple[str, int]


@dataclass
class Waits:
    """Each is told once, until it has found its place."""

    _since: dict[Key, float] = field(default_factory=dict)
    _told: set[Key] = field(default_factory=set)

    def late(self, waiting: Iterable[Key], now: float) -> list[Key]:
        """Who has waited for long, and nobody knows why."""
        self._since = {key: self._since.get(key, now) for key in waiting}
        self._told &= self._since.keys()
        return [key for key, since in self._since.items() if now - since > WAIT_SECONDS and key not in self._told]

    def tell(self, reasons: Mapping[Key, str]) -> list[str]:
        """One line for each reason."""
        self._told.update(reasons)
        lines = []
        for why in sorted(set(reasons.values())):
            (group, index), *others = sorted(key for key, reason in reasons.items() if reason == why)
            who = f"{group}/{index} and {len(others)} more wait" if others else f"{group}/{index} waits"
            lines.append(f"{who}: {why}")
        return lines
