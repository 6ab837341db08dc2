"""The name service: addresses of endpoints by name. The controller removes the entries of a worker that ended."""

from __future__ import annotations

from typing import Protocol, runtime_checkable


@runtime_checkable
class NameService(Protocol):
    def register(self, name: str, address: str) -> None:
        """Publish an endpoint, for as long as this worker lives. A later registration replaces an earlier one."""

    def lookup(self, prefix: str) -> dict[str, str]:
        """Return all entries whose names start with `prefix`: name -> address. Cheap: it reads a local copy."""
