"""Staleness kept by admission: who may start a block now, so that no data is made only to be thrown away."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Admission:
    """Tickets for blocks. A block that is admitted as the n-th will be used by update ``n // batch_blocks``.

    It is admitted once the policy is at most `max_lag` versions older than the one that update will find. With
    ``max_lag=0`` that means: exactly one batch is made by each version, and nothing while an update runs.
    `max_lag=None` admits everything; then only room bounds the producers.
    """

    batch_blocks: int
    max_lag: int | None
    pauses: bool = True
    """False: producers never wait for a version; what has become too old when it is used is thrown away instead."""
    version: int = 0
    """Updates done; the version that policies decide with."""
    used: int = 0
    """Blocks handed to updates (counted in whole batches, so that it may start anywhere)."""
    queued: int = 0
    """Admitted and here, not yet used."""
    granted: dict[int, int] = field(default_factory=dict)
    """Tickets of blocks that are being filled, and the oldest version that may decide in each."""
    _next_ticket: int = 0

    def restart(self, version: int) -> None:
        """Go on after `version` updates, with nothing under way."""
        self.version = version
        self.used = version * self.batch_blocks
        self.queued = 0
        self.granted.clear()

    def grant(self) -> tuple[int, int] | None:
        """A ticket and the oldest version that may decide in its block, or None: wait for the next update."""
        place = self.used + self.queued + len(self.granted)
        oldest = 0
        if self.max_lag is not None and self.pauses:
            update = place // self.batch_blocks
            oldest = max(0, update - self.max_lag)
            if oldest > self.version:
                return None
        ticket = self._next_ticket
        self._next_ticket += 1
        self.granted[ticket] = oldest
        return ticket, oldest

    def arrived(self, ticket: int) -> bool:
        """The block of a ticket is here. False if the ticket is unknown: a block of a former life."""
        if ticket not in self.granted:
            return False
        del self.granted[ticket]
        self.queued += 1
        return True

    def returned(self, ticket: int) -> None:
        """A ticket came back unused, or its holder died."""
        self.granted.pop(ticket, None)

    def dropped(self) -> None:
        """A block that was here is thrown away."""
        self.queued -= 1

    def consumed(self, num_blocks: int) -> None:
        self.queued -= num_blocks
        self.used += num_blocks

    def stale(self, oldest_version: int, update: int) -> bool:
        """Would using it in update number `update` break the bound?"""
        return self.max_lag is not None and update - oldest_version > self.max_lag

    def endangered(self, update: int) -> int:
        """Blocks that are being filled, and may be good for this update, but not for the next."""
        if not self.pauses or self.max_lag is None:
            return 0
        return sum(oldest == update - self.max_lag for oldest in self.granted.values())
