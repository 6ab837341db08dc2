"""Sums over data-parallel trainers; a trainer that is alone adds nothing."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

import torch.distributed
from torch import Tensor

from srl.api.trainer import Rendezvous, TrainerGroup


def backend_for(devices: Sequence[torch.device]) -> str:
    """The torch.distributed backend for ranks on these devices, in order. NCCL wants a GPU for each rank; gloo serves
    tensors on the CPU, and on GPUs that ranks share."""
    kinds = {device.type for device in devices}
    if len(devices) > 1 and not (kinds == {"cpu"} or kinds == {"cuda"}):
        raise ValueError(f"trainers learn together on cpu or cuda, not on {', '.join(map(str, devices))}")
    distinct = len(set(devices)) == len(devices)
    return "cpu:gloo,cuda:nccl" if kinds == {"cuda"} and distinct and torch.distributed.is_nccl_available() else "gloo"


class _MeetingStore(torch.distributed.Store):  # type: ignore[name-defined, misc]
    """What torch needs of a store to bring ranks together, over a meeting."""

    def __init__(self, meeting: Rendezvous) -> None:
        super().__init__()
        self._meeting = meeting

    def set(self, key: str, value: str | bytes) -> None:
        self._meeting.set(key, value.encode() if isinstance(value, str) else value)

    def get(self, key: str) -> bytes:
        return self._meeting.get(key)

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        for key in keys:
            self._meeting.get(key)


class Ranks:
    """The trainers that learn together. Calls block until every rank has made the same one, or raise RuntimeError
    after the group's timeout (NCCL ends the process instead)."""

    def __init__(self) -> None:
        self.rank = 0
        self.size = 1

    def join(self, group: TrainerGroup, backend: str = "gloo") -> None:
        """Meet the others; a group joined before is left. torch keeps one group for each process."""
        if self.size > 1:
            torch.distributed.destroy_process_group()
            self.rank, self.size = 0, 1
        if group.size > 1:
            where: dict[str, Any] = {"init_method": group.rendezvous}
            if not isinstance(group.rendezvous, str):
                where = {"store": _MeetingStore(group.rendezvous)}
            if group.interface:
                os.environ.update({"GLOO_SOCKET_IFNAME": group.interface, "NCCL_SOCKET_IFNAME": group.interface})
            torch.distributed.init_process_group(
                backend,
                **where,
                rank=group.rank,
                world_size=group.size,
                timeout=timedelta(seconds=group.timeout),
            )
        self.rank, self.size = group.rank, group.size

    def add(self, tensor: Tensor) -> None:
        """Replace a tensor by its sum over all ranks."""
        if self.size > 1:
            torch.distributed.all_reduce(tensor)

    def copy_first(self, tensors: Iterable[Tensor]) -> None:
        """Replace tensors by those of rank 0."""
        if self.size > 1:
            for tensor in tensors:
                torch.distributed.broadcast(tensor, src=0)
