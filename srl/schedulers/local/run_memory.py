"""A run's shared memory on one host. The supervisor holds it, so it outlives any worker."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from srl.base.meter import MeterTable
from srl.base.shared_memory import KeptFile, Memory
from srl.base.snapshot import Snapshot
from srl.parameters.host import HostParameterStore

MAX_HOST_WORKERS = 1024
REPLAY, DISK = "replay", "replay-on-disk"  # kinds of kept files


@dataclass
class RunMemory:
    meters: MeterTable
    parameters: dict[str, HostParameterStore]  # policy -> its versions
    commits: dict[str, Snapshot]  # policy -> last state that its trainer committed
    push_event: int = -1  # eventfd signaled when a trainer on this host publishes; -1 if nothing waits for it
    replays: dict[str, KeptFile] = field(default_factory=dict)  # policy -> its replay, empty at first

    @classmethod
    def create(
        cls,
        policies: Sequence[str],
        *,
        with_push_event: bool = False,
        keeps_replay: bool = True,
        replay_dir: Path | None = None,
    ) -> RunMemory:
        """`keeps_replay`: whether replay outlives workers; with `replay_dir`, it is on that disk."""
        replays = {policy: KeptFile.create(f"replay-{policy}", replay_dir) for policy in policies if keeps_replay}
        push_event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC) if with_push_event else -1
        return cls(
            MeterTable.create(MAX_HOST_WORKERS),
            {policy: HostParameterStore.create(policy) for policy in policies},
            {policy: Snapshot.create(f"commit-{policy}") for policy in policies},
            push_event,
            replays,
        )

    def descriptors(self) -> dict[str, int]:
        """Return the descriptors that another process needs to map the same memory."""
        found = {"meters": self.meters.memory.fd}
        if self.push_event >= 0:
            found["push_event"] = self.push_event
        for policy in self.commits:
            found[f"parameters/{policy}"] = self.parameters[policy].memory.fd
            found[f"commits/{policy}"] = self.commits[policy].memory.fd
        for policy, file in self.replays.items():
            found[f"{DISK if file.on_disk else REPLAY}/{policy}"] = file.fd
        return found

    @classmethod
    def inherit(cls, descriptors: dict[str, int]) -> RunMemory:
        """Map the same memory in a process that has these descriptors."""
        push_event = descriptors.get("push_event", -1)
        replays = {
            policy: KeptFile(fd, kind == DISK)
            for name, fd in descriptors.items()
            for kind, _, policy in [name.partition("/")]
            if kind in (DISK, REPLAY)
        }
        mapped = ("meters", "parameters", "commits")
        named = {name: Memory.from_fd(fd) for name, fd in descriptors.items() if name.partition("/")[0] in mapped}
        policies = [name.removeprefix("commits/") for name in named if name.startswith("commits/")]
        return cls(
            MeterTable(named["meters"]),
            {policy: HostParameterStore(named[f"parameters/{policy}"], push_event) for policy in policies},
            {policy: Snapshot(named[f"commits/{policy}"]) for policy in policies},
            push_event,
            replays,
        )

    def close(self) -> None:
        self.meters.memory.close()
        for store in self.parameters.values():
            store.memory.close()
        for snapshot in self.commits.values():
            snapshot.memory.close()
        for file in self.replays.values():
            file.close()
        if self.push_event >= 0:
            os.close(self.push_event)
            self.push_event = -1
