"""The push stream: full blocks from producers to consumers, sent as indices on one host, as arrays between hosts."""

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
    """A stream from actors to trainers. Both endpoints are built from this description."""

    name: str
    spec: BlockSpec
    batch_blocks: int  # blocks that one consumer takes for one update
    capacity: int = 2
    """Number of a producer's full blocks that may wait; if necessary, raised so that one producer can complete a batch
    alone. In a broadcast: number of blocks that the taps may hold, in addition to those of the main consumer group."""
    full: Literal["block", "drop_oldest"] = "block"  # when full, producers pause, or the oldest blocks are dropped
    max_lag: int | None = 1  # maximum age of a sample when an update uses it, in policy versions; None: no limit
    remote: bool = False  # whether to reach consumers over TCP, as if they were on another host
    consumers: int = 1  # each waits for a whole batch, so a producer needs memory for one batch per consumer
    route: RouteName = "balanced"
    """Consumers that receive a block: a single one (`balanced`), or one in each consuming worker group (`broadcast`).
    This description applies to the main group, the trainers; every other group uses a `tap`."""

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
        """Number of rows that all consumers together use in one update."""
        return self.batch_blocks * self.spec.lanes * self.spec.horizon * self.consumers

    @property
    def room(self) -> int:
        """Number of full blocks for which a producer allocates memory. In a broadcast: `capacity` blocks for the taps
        plus one batch for the main consumer group, so that neither waits for the other."""
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
        """Return the same stream for another worker group, with its own batch size, number of blocks that may wait,
        rule for a full stream (producers pause, or the group misses blocks) and maximum age. All taps together may hold
        `capacity` blocks of this stream, waiting or in use."""
        if self.route != "broadcast":
            raise ValueError(
                f"stream {self.name}: only a broadcast has taps; set route='broadcast' for its producers and consumers"
            )
        waiting = self.capacity - batch_blocks if capacity is None else capacity
        if batch_blocks < 1 or waiting < 1 or batch_blocks + waiting > self.capacity:
            raise ValueError(
                f"stream {self.name}: a tap with {batch_blocks} blocks per batch and {max(waiting, 1)} waiting needs a "
                f"capacity of {batch_blocks + max(waiting, 1)}; the stream has {self.capacity}"
            )
        return replace(self, batch_blocks=batch_blocks, capacity=waiting, full=full, max_lag=max_lag, consumers=1)

    def producer(self, context: Context, num_open: int, num_scratch: int = 0) -> Producer:
        """Return a producer that fills up to `num_open` blocks at the same time. Scratch blocks are never posted."""
        return Producer(self, context, num_open, num_scratch)

    def consumer(self, context: Context, version: int = 0) -> Consumer:
        """Return a consumer whose first batch is for update number `version`."""
        return Consumer(self, context, version)
