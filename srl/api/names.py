"""The name service: where endpoints are found. Entries carry leases, so that the dead disappear."""

from __future__ import annotations

from typing import Protocol, runtime_checkable


@runtime_checkable
class NameService(Protocol):
    def register(self, name: str, address: str) -> None:
        """Publish an endpoint; the entry lives while its owner does. A later registration replaces an earlier one."""

    def lookup(self, prefix: str) -> dict[str, str]:
        """All live entries whose names start with `prefix`: name -> address. Local and cheap."""
