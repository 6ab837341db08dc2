"""The push stream: full blocks from producers to consumers, by index on a host, by value between hosts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from srl.api.block import BlockSpec
from srl.api.streams import StreamEnd
from srl.api.worker import Context
from srl.streams.push_consumer import Consumer
from srl.streams.push_producer import Producer
from srl.streams.routes import RouteName


@dataclass(frozen=True)
class PushStream:
    """An edge from actors to trainers. Both ends are made from this one description."""

    name: str
    spec: BlockSpec
    batch_blocks: int
    """Blocks that one consumer takes for one update."""
    capacity: int = 2
    """Full blocks that may wait, for each producer; never less than one producer alone needs to complete a batch. Of a
    broadcast: what the other groups may keep, beside what the described one needs."""
    full: Literal["block", "drop_oldest"] = "block"
    """When they wait: producers pause, or the oldest blocks give way."""
    max_lag: int | None = 1
    """Policy versions by which a sample may be behind the update that uses it; None: any."""
    remote: bool = False
    """Reach consumers over TCP, as if they were on another host."""
    consumers: int = 1
    """How many there are. Each waits for a whole batch, so a producer needs room for one batch of each."""
    route: RouteName = "balanced"
    """Whom a block goes to: one of all consumers, or (`broadcast`) one of every group of workers that consumes. The
    description is that of one group, the trainers; the others' ends are made from a `tap` of it."""

    def __post_init__(self) -> None:
        if self.batch_blocks < 1 or self.capacity < 1 or self.consumers < 1:
            raise ValueError(
                f"stream {self.name}: batch_blocks, capacity and consumers are at least 1, found {self.batch_blocks}, "
                f"{self.capacity} and {self.consumers}"
            )

    @property
    def prefix(self) -> str:
        return f"push/{self.name}/"

    @property
    def batch(self) -> int:
        """Rows that all consumers together take for one update."""
        return self.batch_blocks * self.spec.lanes * self.spec.horizon * self.consumers

    @property
    def room(self) -> int:
        """Full blocks that a producer has memory for. In a broadcast every group but one may hold others back as far
        as the capacity goes; then there is still a batch for that one, so that they never wait for each other."""
        batch = self.batch_blocks * self.consumers
        return batch + self.capacity if self.route == "broadcast" else max(self.capacity, batch)

    def end(self, side: Literal["source", "target"]) -> StreamEnd:
        return StreamEnd(self.name, "push", side, "tcp" if self.remote else "host")

    def tap(
        self,
        batch_blocks: int = 1,
        capacity: int | None = None,
        full: Literal["block", "drop_oldest"] = "block",
        max_lag: int | None = None,
    ) -> PushStream:
        """The same blocks for another group of workers, by rules of its own: how many at once, how many more may wait,
        who gives way if it is slow (the producers, or its oldest blocks), and how old they may be.

        What all taps keep together, waiting and taken, has to fit into the capacity of the stream."""
        if self.route != "broadcast":
            raise ValueError(f"stream {self.name}: only a broadcast has taps; say route='broadcast' at both its ends")
        waiting = self.capacity - batch_blocks if capacity is None else capacity
        if batch_blocks < 1 or waiting < 1 or batch_blocks + waiting > self.capacity:
            raise ValueError(
                f"stream {self.name}: a tap that takes {batch_blocks} at once and lets {max(waiting, 1)} wait needs a "
                f"capacity of {batch_blocks + max(waiting, 1)}; the stream has {self.capacity}"
            )
        return replace(self, batch_blocks=batch_blocks, capacity=waiting, full=full, max_lag=max_lag, consumers=1)

    def producer(self, context: Context, num_open: int, num_spare: int = 0) -> Producer:
        """The end that fills up to `num_open` blocks at the same time. Spare blocks are never posted."""
        return Producer(self, context, num_open, num_spare)

    def consumer(self, context: Context) -> Consumer:
        return Consumer(self, context)
