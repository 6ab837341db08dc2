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
    """An edge from actors to trainers. Both ends are made from this description."""

    name: str
    spec: BlockSpec
    batch_blocks: int
    """Blocks that one consumer takes for one update."""
    capacity: int = 2
    """Full blocks of one producer that may wait; never fewer than one producer alone needs to complete a batch. In a
    broadcast: what the taps may keep, beside what the described group needs."""
    full: Literal["block", "drop_oldest"] = "block"
    """Rule for a full stream: producers pause, or the oldest blocks are dropped."""
    max_lag: int | None = 1
    """Policy versions by which a sample may be behind the update that uses it; None: any."""
    remote: bool = False
    """Whether to reach consumers over TCP, as if they were on another host."""
    consumers: int = 1
    """Number of consumers. Each waits for a whole batch, so a producer needs room for one batch of each."""
    route: RouteName = "balanced"
    """Consumers that get a block: one of all (`balanced`), or one of every group of workers that consumes
    (`broadcast`). The description is that of one group, the trainers; other groups use a `tap` of it."""

    def __post_init__(self) -> None:
        if self.batch_blocks < 1 or self.capacity < 1 or self.consumers < 1:
            raise ValueError(
                f"stream {self.name}: batch_blocks, capacity and consumers must be at least 1, found "
                f"{self.batch_blocks}, {self.capacity} and {self.consumers}"
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
        """Full blocks that a producer has memory for. In a broadcast, the taps may hold as many blocks as the capacity
        allows; the room for a batch of the described group comes on top, so that the groups never wait for each
        other."""
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
        """Return the same stream for another group of workers, with its own rules: blocks at once, blocks that may
        wait, the rule when it is slow (producers pause, or it misses its oldest blocks), and the maximum age.

        The blocks that all taps keep together, waiting and taken, must fit into the capacity of the stream."""
        if self.route != "broadcast":
            raise ValueError(f"stream {self.name}: only a broadcast has taps; set route='broadcast' at both its ends")
        waiting = self.capacity - batch_blocks if capacity is None else capacity
        if batch_blocks < 1 or waiting < 1 or batch_blocks + waiting > self.capacity:
            raise ValueError(
                f"stream {self.name}: a tap that takes {batch_blocks} at once and lets {max(waiting, 1)} wait needs a "
                f"capacity of {batch_blocks + max(waiting, 1)}; the stream has {self.capacity}"
            )
        return replace(self, batch_blocks=batch_blocks, capacity=waiting, full=full, max_lag=max_lag, consumers=1)

    def producer(self, context: Context, num_open: int, num_scratch: int = 0) -> Producer:
        """Return an end that fills up to `num_open` blocks at the same time. Scratch blocks are never posted."""
        return Producer(self, context, num_open, num_scratch)

    def consumer(self, context: Context, version: int = 0) -> Consumer:
        """Return an end that takes batches, the first one for update number `version`."""
        return Consumer(self, context, version)
