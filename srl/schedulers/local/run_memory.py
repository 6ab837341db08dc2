"""The memory of a run on one host, held by its supervisor so that it outlives any worker."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from srl.base.meter import MeterTable
from srl.base.shared_memory import Memory
from srl.base.snapshot import Snapshot
from srl.parameters.host import HostParameterStore

MAX_WORKERS = 1024


@dataclass
class RunMemory:
    board: MeterTable
    parameters: dict[str, HostParameterStore]
    commits: dict[str, Snapshot]
    bell: int = -1
    """An eventfd that rings when a trainer of this host publishes; -1 where nobody listens."""

    @classmethod
    def create(cls, policies: Sequence[str], *, with_bell: bool = False) -> RunMemory:
        bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC) if with_bell else -1
        return cls(
            MeterTable.create(MAX_WORKERS),
            {policy: HostParameterStore.create(policy) for policy in policies},
            {policy: Snapshot.create(f"commit-{policy}") for policy in policies},
            bell,
        )

    def descriptors(self) -> dict[str, int]:
        """What a process must inherit to see the same memory."""
        found = {"board": self.board.memory.fd}
        if self.bell >= 0:
            found["bell"] = self.bell
        for policy in self.commits:
            found[f"parameters/{policy}"] = self.parameters[policy].memory.fd
            found[f"commits/{policy}"] = self.commits[policy].memory.fd
        return found

    @classmethod
    def inherit(cls, descriptors: dict[str, int]) -> RunMemory:
        """The same memory in a process that inherited its descriptors."""
        bell = descriptors.get("bell", -1)
        named = {name: Memory.from_fd(fd) for name, fd in descriptors.items() if name != "bell"}
        policies = [name.removeprefix("commits/") for name in named if name.startswith("commits/")]
        return cls(
            MeterTable(named["board"]),
            {policy: HostParameterStore(named[f"parameters/{policy}"], bell) for policy in policies},
            {policy: Snapshot(named[f"commits/{policy}"]) for policy in policies},
            bell,
        )

    def close(self) -> None:
        self.board.memory.close()
        for store in self.parameters.values():
            store.memory.close()
        for snapshot in self.commits.values():
            snapshot.memory.close()
        if self.bell >= 0:
            os.close(self.bell)
            self.bell = -1
