"""What starts agents on hosts: by hand, a process here, Slurm's steps, Ray's actors."""

from __future__ import annotations

from typing import Protocol


class Engine(Protocol):
    """Brings agents into being."""

    def start(self, address: str, secret: bytes) -> None:
        """Have agents join there. Raises what the user can mend."""

    def poll(self) -> str | None:
        """Why there will be too few of them, or None as long as all is well. Never blocks."""

    def hint(self, address: str) -> str:
        """What the user can do if hosts are missing."""

    def close(self) -> None: ...
