"""Data-parallel trainers of a simulated cluster: they wait for each other as gloo's collectives do."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from srl.api.streams import Batch
from srl.api.trainer import TrainerGroup, TrainResult, Trajectory
from srl.base.tree import Array
from srl.workers.trainer.batches import DirectBatches
from srl.workers.trainer.worker import AGREED
from support.counting import CountingTrainer


class PeerLost(RuntimeError):
    """Another rank is gone, as gloo reports it."""


@dataclass
class RankGroup:
    """The ranks of one incarnation of a group of trainers. Implements `srl.api.trainer.Rendezvous`."""

    size: int
    broken: bool = False
    state: Mapping[str, Array] = field(default_factory=dict)  # of rank 0, which the others copy
    values: dict[str, bytes] = field(default_factory=dict)
    digests: dict[int, dict[int, int]] = field(default_factory=dict)  # update -> rank -> digest of its batch
    _arrived: set[int] = field(default_factory=set)

    def arrive(self, rank: int) -> None:
        self._arrived.add(rank)

    def may_build(self, rank: int) -> bool:
        """Return whether a rank need not wait: rank 0 waits for all others, which wait for what it sets."""
        return len(self._arrived) == self.size and (rank == 0 or AGREED in self.values)

    def set(self, key: str, value: bytes) -> None:
        self.values[key] = value

    def get(self, key: str) -> bytes:
        return self.values[key]

    def close(self) -> None: ...


class GroupBatches:
    """Batches of one rank, each held back until every rank has one: the collective that an update begins with."""

    def __init__(self, own: DirectBatches, ranks: RankGroup, rank: int) -> None:
        self._own = own
        self._ranks = ranks
        self._rank = rank
        self._held: Batch | None = None

    def poll(self) -> Batch | None:
        if self._ranks.broken:
            raise PeerLost("another rank is gone")
        if self._held is None:
            self._held = self._own.poll()
            if self._held is None:
                return None
            digests = self._ranks.digests.setdefault(self._held.update, {})
            digests[self._rank] = digest_of(self._held.data)
        else:
            self._own._consumer.poll()  # as the thread that gathers the next batch does
        if len(self._ranks.digests[self._held.update]) < self._ranks.size:
            return None
        batch, self._held = self._held, None
        return batch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)


def digest_of(batch: Trajectory) -> int:
    digest = 0
    for array in (batch.decision["action"], batch.version):
        digest = zlib.crc32(np.ascontiguousarray(array).data, digest)
    return digest


class ChainTrainer(CountingTrainer):
    """A trainer whose parameters depend on every batch so far, so that an update that is computed again differs."""

    def __init__(self) -> None:
        super().__init__()
        self._chain = 0
        self._ranks: RankGroup | None = None

    def step(self, batch: Trajectory, progress: float) -> TrainResult:
        digest = digest_of(batch)
        if self._ranks is not None:
            (update,) = [u for u, found in self._ranks.digests.items() if len(found) == self._ranks.size][-1:]
            digests = self._ranks.digests[update]
            digest = zlib.crc32(repr(sorted(digests.items())).encode())
        self._chain = zlib.crc32(digest.to_bytes(4, "little"), self._chain)
        return super().step(batch, progress)

    def parameters(self) -> Array:
        return np.array([self._counters[1], self._chain >> 16, self._chain & 0xFFFF], np.float32)

    def state(self) -> Mapping[str, Array]:
        return {**super().state(), "chain": np.array(self._chain)}

    def restore(self, state: Mapping[str, Array]) -> None:
        super().restore(state)
        self._chain = int(state["chain"])

    def join(self, group: TrainerGroup) -> None:
        assert isinstance(group.rendezvous, RankGroup)
        self._ranks = group.rendezvous
        if group.rank == 0:
            self._ranks.state = {key: np.array(value) for key, value in self.state().items()}
        else:
            self.restore(self._ranks.state)
