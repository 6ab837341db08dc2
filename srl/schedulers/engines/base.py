"""What starts agents on hosts: by hand, a process here, Slurm's steps, Ray's actors."""

from __future__ import annotations

from typing import Protocol


class Engine(Protocol):
    """Brings agents into being."""

    def start(self, address: str, secret: bytes) -> None:
        """Have agents join there. Raises what the user can mend."""

    def poll(self) -> str | None:
        """What happened to them, or None as long as all is well; agents that end are started again. Never blocks."""

    def in_vain(self) -> bool:
        """Is one of them not going to come? Then a run that waits for all does not begin."""

    def hint(self, address: str) -> str:
        """What the user can do if hosts are missing."""

    def close(self) -> None: ...
