"""Communication between data-parallel trainers; a no-op for a single trainer."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

import torch.distributed
from torch import Tensor

from srl.api.trainer import Rendezvous, TrainerGroup


def backend_for(devices: Sequence[torch.device]) -> str:
    """Return the torch.distributed backend, where `devices[i]` is the device of rank i. NCCL needs one GPU per rank;
    gloo works on the CPU and on shared GPUs."""
    kinds = {device.type for device in devices}
    if len(devices) > 1 and not (kinds == {"cpu"} or kinds == {"cuda"}):
        raise ValueError(f"data-parallel trainers must be on cpu or cuda; found {', '.join(map(str, devices))}")
    distinct = len(set(devices)) == len(devices)
    return "cpu:gloo,cuda:nccl" if kinds == {"cuda"} and distinct and torch.distributed.is_nccl_available() else "gloo"


class NotFiniteError(ArithmeticError):
    """A loss, gradient or statistic is not finite. Either all ranks raise this error or none does."""


class _RendezvousStore(torch.distributed.Store):  # type: ignore[name-defined, misc]
    """The store that torch needs to connect ranks, backed by a rendezvous."""

    def __init__(self, rendezvous: Rendezvous) -> None:
        super().__init__()
        self._rendezvous = rendezvous

    def set(self, key: str, value: str | bytes) -> None:
        self._rendezvous.set(key, value.encode() if isinstance(value, str) else value)

    def get(self, key: str) -> bytes:
        return self._rendezvous.get(key)

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        for key in keys:
            self._rendezvous.get(key)


class Ranks:
    """A group of data-parallel trainers. Calls block until every rank has made the same call, or raise RuntimeError
    after the group's timeout (NCCL terminates the process instead)."""

    def __init__(self) -> None:
        self.rank = 0
        self.size = 1

    def join(self, group: TrainerGroup, backend: str = "gloo") -> None:
        """Join a group, leaving the previous one: torch has one group per process."""
        if self.size > 1:
            torch.distributed.destroy_process_group()
            self.rank, self.size = 0, 1
        if group.size > 1:
            where: dict[str, Any] = {"init_method": group.rendezvous}
            if not isinstance(group.rendezvous, str):
                where = {"store": _RendezvousStore(group.rendezvous)}
            if group.interface:
                os.environ.update({"GLOO_SOCKET_IFNAME": group.interface, "NCCL_SOCKET_IFNAME": group.interface})
            timeout = timedelta(seconds=group.timeout)
            torch.distributed.init_process_group(
                backend, rank=group.rank, world_size=group.size, timeout=timeout, **where
            )
        self.rank, self.size = group.rank, group.size

    def add(self, tensor: Tensor) -> None:
        """Replace a tensor with its sum over all ranks."""
        if self.size > 1:
            torch.distributed.all_reduce(tensor)

    def highest(self, tensor: Tensor) -> None:
        """Replace the elements of a tensor with their maxima over all ranks."""
        if self.size > 1:
            torch.distributed.all_reduce(tensor, torch.distributed.ReduceOp.MAX)

    def lowest(self, number: int) -> int:
        """Return the lowest number that any rank passes."""
        if self.size == 1:
            return number
        tensor = torch.tensor([number])
        torch.distributed.all_reduce(tensor, torch.distributed.ReduceOp.MIN)
        return int(tensor)

    def copy_first(self, tensors: Iterable[Tensor]) -> None:
        """Replace tensors with those from rank 0."""
        if self.size > 1:
            for tensor in tensors:
                torch.distributed.broadcast(tensor, src=0)
