"""Sums over data-parallel trainers; a trainer that is alone adds nothing."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

import torch.distributed
from torch import Tensor

from srl.api.trainer import TrainerGroup


class Ranks:
    """The trainers that learn together. Calls block until every rank has made the same one, or raise RuntimeError
    after the group's timeout."""

    def __init__(self) -> None:
        self.rank = 0
        self.size = 1

    def join(self, group: TrainerGroup) -> None:
        """Meet the others over gloo; a group joined before is left. torch keeps one group for each process."""
        if self.size > 1:
            torch.distributed.destroy_process_group()
            self.rank, self.size = 0, 1
        if group.size > 1:
            torch.distributed.init_process_group(
                "gloo",
                init_method=group.rendezvous,
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
