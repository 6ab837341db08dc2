"""Endpoint tables: the controller's own, and the copy that each worker holds."""

from __future__ import annotations

from collections.abc import Callable


class NameTable:
    """The controller's table. Every entry belongs to an owner and is removed when the controller revokes that owner."""

    def __init__(self) -> None:
        self._entries: dict[str, tuple[str, str]] = {}  # name -> address, owner

    def register(self, name: str, address: str, owner: str) -> None:
        self._entries[name] = address, owner

    def revoke(self, owner: str) -> bool:
        """Remove all of an owner's entries. Return whether there were any."""
        owned = [name for name, (_, other) in self._entries.items() if other == owner]
        for name in owned:
            del self._entries[name]
        return bool(owned)

    def lookup(self, prefix: str) -> dict[str, str]:
        return {name: address for name, (address, _) in self._entries.items() if name.startswith(prefix)}


class NameView:
    """A worker's copy of the table: registrations go to the controller, lookups use the last table that it sent."""

    def __init__(self, register: Callable[[str, str], None]) -> None:
        self._register = register
        self._entries: dict[str, str] = {}

    def register(self, name: str, address: str) -> None:
        self._register(name, address)

    def lookup(self, prefix: str) -> dict[str, str]:
        return {name: address for name, address in self._entries.items() if name.startswith(prefix)}

    def replace(self, entries: dict[str, str]) -> None:
        self._entries = entries
