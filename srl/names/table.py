"""Names in memory: the table that a controller keeps, and the copy of it that its workers hold."""

from __future__ import annotations

from collections.abc import Callable

from srl.base.clock import Clock, ObservedTime


class NameTable:
    """Every entry belongs to an owner and lives until its owner's lease runs out, is not renewed, or is revoked.

    Leases run while we look at them. A pause of our own (the machine slept, everybody was frozen) ends none: those who
    would have renewed theirs could not, or we did not hear them, and nobody registers twice.
    """

    def __init__(self, clock: Clock, lease: float = 30.0) -> None:
        self._clock = clock
        self._lease = lease
        self._looks = ObservedTime(clock.now())
        self._now = 0.0
        self._entries: dict[str, tuple[str, str]] = {}  # name -> address, owner
        self._leases: dict[str, float] = {}  # owner -> when it ends; only of those who have entries

    def register(self, name: str, address: str, owner: str) -> None:
        self._entries[name] = address, owner
        self._leases[owner] = self._now + self._lease

    def renew(self, owner: str) -> None:
        if owner in self._leases:
            self._leases[owner] = self._now + self._lease

    def revoke(self, owner: str) -> bool:
        """Forget all entries of an owner; True if there were any."""
        if self._leases.pop(owner, None) is None:
            return False
        gone = [name for name, (_, whose) in self._entries.items() if whose == owner]
        for name in gone:
            del self._entries[name]
        return bool(gone)

    def expire(self) -> bool:
        """Forget what was not renewed in time; True if anything was."""
        self._now += self._looks.passed(self._clock.now())
        late = [owner for owner, end in self._leases.items() if end < self._now]
        for owner in late:
            self.revoke(owner)
        return bool(late)

    def lookup(self, prefix: str) -> dict[str, str]:
        return {name: address for name, (address, _) in self._entries.items() if name.startswith(prefix)}


class NameView:
    """A worker's side: registrations go to the controller, look-ups are answered from the last table it sent."""

    def __init__(self, register: Callable[[str, str], None]) -> None:
        self._register = register
        self._entries: dict[str, str] = {}

    def register(self, name: str, address: str) -> None:
        self._register(name, address)

    def lookup(self, prefix: str) -> dict[str, str]:
        return {name: address for name, address in self._entries.items() if name.startswith(prefix)}

    def replace(self, entries: dict[str, str]) -> None:
        self._entries = entries
