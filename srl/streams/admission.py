"""Admission: consumers admit each block before it is started, so that producers wait instead of sending stale data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Admission:
    """Tickets for blocks. The block with the n-th ticket will be used by update ``n // batch_blocks``.

    It is admitted once the current policy version is at most `max_lag` behind that update. With ``max_lag=0``, each
    version produces exactly one batch, and nothing is produced during an update. ``max_lag=None`` admits everything;
    producers then wait only if their memory is full.
    """

    batch_blocks: int
    max_lag: int | None
    pauses: bool = True
    """Whether producers wait for newer versions. If not, blocks that are too old by the time of use are dropped."""
    version: int = 0  # number of updates done, which is the policy version that actors use
    used: int = field(init=False)  # blocks used by updates, a multiple of a batch; a resumed run starts above 0
    queued: int = 0  # blocks that have arrived but have not been used
    granted: dict[int, int] = field(default_factory=dict)
    """Ticket of each block being filled -> oldest version that may choose its actions."""
    _next_ticket: int = 0

    def __post_init__(self) -> None:
        self.used = self.version * self.batch_blocks

    def grant(self) -> tuple[int, int] | None:
        """Return a ticket and the oldest version that may act in its block, or None if an update must come first."""
        position = self.used + self.queued + len(self.granted)
        oldest = 0
        if self.max_lag is not None and self.pauses:
            update = position // self.batch_blocks
            oldest = max(0, update - self.max_lag)
            if oldest > self.version:
                return None
        ticket = self._next_ticket
        self._next_ticket += 1
        self.granted[ticket] = oldest
        return ticket, oldest

    def arrived(self, ticket: int) -> bool:
        """Count the block of a ticket as arrived. Return False if the ticket is unknown."""
        if ticket not in self.granted:
            return False
        del self.granted[ticket]
        self.queued += 1
        return True

    def returned(self, ticket: int) -> None:
        """Cancel a ticket that came back unused or whose producer died."""
        self.granted.pop(ticket, None)

    def dropped(self) -> None:
        """Remove a dropped block from the count of queued blocks."""
        self.queued -= 1

    def consumed(self, num_blocks: int) -> None:
        self.queued -= num_blocks
        self.used += num_blocks

    def stale(self, oldest_version: int, update: int) -> bool:
        """Return whether a block would be too old for update number `update`."""
        return self.max_lag is not None and update - oldest_version > self.max_lag

    def endangered(self, update: int) -> int:
        """Return the number of blocks being filled that this update may use, but the next may not."""
        if not self.pauses or self.max_lag is None:
            return 0
        return sum(oldest == update - self.max_lag for oldest in self.granted.values())

    def state(self) -> list[Any]:
        return [self.version, self.used, self.queued, list(self.granted.items()), self._next_ticket]

    def restore(self, state: list[Any]) -> None:
        self.version, self.used, self.queued, granted, self._next_ticket = state
        self.granted = dict(granted)
