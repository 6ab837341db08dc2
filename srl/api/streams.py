"""The two kinds of edge: a push stream carries full blocks to trainers, a request stream carries rows to policies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol, runtime_checkable

from srl.api.block import Block
from srl.api.status import StreamStatus
from srl.base.tree import Array


@dataclass(frozen=True)
class StreamEnd:
    """One end of a stream, as the config of a worker describes it."""

    stream: str
    kind: Literal["push", "request", "parameters"]
    side: Literal["source", "target"]
    """A source sends blocks, asks for decisions or publishes parameters; a target receives, answers or pulls."""
    where: Literal["inline", "host", "tcp"] = "host"
    """`inline`: both ends are in one worker. `host`: shared memory on one host, TCP between hosts. `tcp`: TCP only."""


@dataclass
class OpenBlock:
    """A block that its producer fills. `min_version` is the oldest policy version that may decide in it.

    `alive` turns false when all consumers that admitted it are gone: give it back with `discard`.
    """

    block: Block
    min_version: int
    tickets: dict[str, int]
    """The admission of each consumer that will get it, by the consumer's name: one, but for a broadcast."""
    alive: bool = True


@runtime_checkable
class PushProducer(Protocol):
    """Where blocks come from. Nothing here blocks."""

    def poll(self) -> None:
        """Take in what consumers sent: admissions, blocks given back, departures."""

    def open(self) -> OpenBlock | None:
        """A free block that may be filled now, or None: no consumer, no room, or the staleness bound says wait."""

    def post(self, opened: OpenBlock) -> None:
        """Hand a full block over; the producer must not touch it afterwards."""

    def discard(self, opened: OpenBlock) -> None:
        """Give an unfinished block and its admission back."""

    def close(self) -> None: ...


@dataclass(frozen=True)
class PostedBlock:
    """A full block at its consumer; the arrays stay valid until `release`."""

    producer: str
    sequence: int
    ticket: int
    oldest_version: int
    block: Block
    incarnation: int = 0
    """Of the producer: with its name and the sequence number no other block is called the same."""

    @property
    def label(self) -> str:
        return f"{self.producer}.{self.incarnation}:{self.sequence}"


@runtime_checkable
class PushConsumer(Protocol):
    """Where blocks go. Nothing here blocks."""

    def poll(self) -> None: ...

    def take(self, update: int) -> list[PostedBlock] | None:
        """The blocks for update number `update`, oldest admission first, or None until all are here. None of them is
        older than the stream's bound allows for that update."""

    def release(self, blocks: Sequence[PostedBlock]) -> None:
        """Give blocks back to their producers."""

    def advance(self, version: int) -> None:
        """Parameters of this version are published: admit what the staleness bound allows now."""

    def status(self) -> StreamStatus: ...

    def close(self) -> None: ...


class Cell(NamedTuple):
    """One row of one block: the lanes of a block at one time."""

    block: Block
    row: int


@runtime_checkable
class RequestClient(Protocol):
    """Asks for decisions. Observations lie in the cells already; decisions and versions are written beside them."""

    def post(self, tag: int, cells: Sequence[Cell], min_version: int) -> bool:
        """Ask; parameters older than `min_version` may not answer. True if the answer is there already; otherwise
        `poll` will name the tag."""

    def flush(self) -> None:
        """Send what was queued."""

    def poll(self) -> list[int]:
        """Tags of the requests answered since the last call."""

    def close(self) -> None: ...


@dataclass(frozen=True)
class Answer:
    """What a server gives back for one batch: decisions [B, ...] by path, in the order of the batch's lanes."""

    decision: dict[str, Array]
    version: int


@runtime_checkable
class RequestServer(Protocol):
    def poll(self, version: int | None) -> RequestBatch | None:
        """Everything that waits, as one batch, as far as parameters of `version` may answer it. With None requests
        are only taken in, to be answered later."""

    def reply(self, batch: RequestBatch, answer: Answer) -> None: ...

    def status(self) -> StreamStatus: ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class RequestBatch:
    """Lanes of many clients. `observation` has one array [B, ...] for each path; they are the server's own."""

    observation: dict[str, Array]
    first: Array  # [B]
    origins: tuple[object, ...]
    """Whom to answer; belongs to the server that made the batch."""
    state: dict[str, Array] = field(default_factory=dict)
    """What a recurrent policy remembers of these lanes, in the same way; void where `first`."""
