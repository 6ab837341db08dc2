"""The two kinds of stream: a push stream carries full blocks to trainers, a request stream carries rows to policies.

No method here blocks. `state` and `restore` serve exact resume, which only single-threaded runs support: a stream
endpoint is restored in a new run of the same graph, before any worker polls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol, runtime_checkable

from srl.api.block import Block, BlockMemory
from srl.api.policy import Policy
from srl.api.status import StreamStatus
from srl.base.state import State
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


class ResumableEnd(Protocol):
    """The part of the contract that all stream endpoints share."""

    def state(self) -> State:
        """Return everything under way here, unread messages included. Raises NotResumable if the run has processes."""

    def restore(self, state: State) -> bool:
        """Continue from the state of another end. False: a peer is not connected yet; poll nothing and call again."""

    def close(self) -> None:
        """Disconnect from all peers and release the memory."""


@dataclass
class OpenBlock:
    """A block that its producer fills."""

    block: Block
    min_version: int
    """The oldest policy version that may choose actions in it."""
    tickets: dict[str, int]
    """Admission ticket of each consumer that will get it, by the consumer's name: one, except in a broadcast."""
    alive: bool = True
    """False when all consumers that admitted it are gone: give it back with `discard`."""


@runtime_checkable
class PushProducer(ResumableEnd, Protocol):
    """The end of a push stream that fills blocks."""

    memory: BlockMemory
    """All blocks of this producer. A request client uses the same memory, so that rows are not copied."""

    def poll(self) -> None:
        """Process what consumers sent: admissions, released blocks, departures."""

    def open(self) -> OpenBlock | None:
        """Return a free block that may be filled now, or None: no consumer, no room, or the staleness bound."""

    def open_blocks(self) -> Mapping[int, OpenBlock]:
        """Return the blocks that are open now, by their index: how a restored actor finds those it was filling."""

    def scratch_block(self) -> Block:
        """Return a block that is never posted, for rows that need a decision but are not recorded."""

    def post(self, opened: OpenBlock) -> None:
        """Send a full block to its consumers; the producer must not touch it afterwards."""

    def discard(self, opened: OpenBlock) -> None:
        """Give an unfinished block and its admission back."""


@dataclass(frozen=True)
class PostedBlock:
    """A full block at its consumer; the arrays stay valid until `release`."""

    producer: str
    sequence: int
    ticket: int
    oldest_version: int
    """The oldest version that chose actions in it, except for the last row, which only bootstraps."""
    block: Block
    incarnation: int = 0
    """Incarnation of the producer. With its name and the sequence number it identifies the block."""

    @property
    def label(self) -> str:
        return f"{self.producer}.{self.incarnation}:{self.sequence}"


@runtime_checkable
class PushConsumer(ResumableEnd, Protocol):
    """The end of a push stream that takes batches of blocks."""

    @property
    def waits_for_late_block(self) -> bool:
        """Whether `take` holds a complete batch back for a late block: poll again soon, even if nothing arrives."""

    def poll(self) -> None:
        """Process what producers sent, and admit blocks."""

    def take(self, update: int) -> list[PostedBlock] | None:
        """Return the blocks for update number `update`, oldest admission first, or None until all have arrived. No
        block is older than the stream's bound allows for that update."""

    def release(self, blocks: Sequence[PostedBlock]) -> None:
        """Give blocks back to their producers."""

    def advance(self, version: int) -> None:
        """Admit what the staleness bound allows now that parameters of this version are published."""

    def status(self) -> StreamStatus:
        """Return counts and fill level, for the status of the run."""


class Cell(NamedTuple):
    """One row of one block: the lanes of a block at one time."""

    block: Block
    row: int


@runtime_checkable
class RequestClient(ResumableEnd, Protocol):
    """The end of a request stream that asks for decisions. Observations are in the cells already; decisions and
    versions are written beside them."""

    def post(self, tag: int, cells: Sequence[Cell], min_version: int) -> bool:
        """Request decisions; only `min_version` or newer may answer. Returns True if the decisions are already written;
        otherwise `poll` will return the tag."""

    def local_policy(self, min_version: int) -> Policy | None:
        """Return the policy if it runs in this process and has parameters of `min_version` or newer, else None. The
        caller may then call it directly instead of posting cells."""

    def flush(self) -> None:
        """Send queued requests."""

    def poll(self) -> list[int]:
        """Return the tags of the requests answered since the last call."""


@dataclass(frozen=True)
class Answer:
    """Decisions [B, ...] by block path for one batch, in the order of its lanes."""

    decision: dict[str, Array]
    version: int


@runtime_checkable
class RequestServer(ResumableEnd, Protocol):
    """The end of a request stream that answers. It counts batches and lanes in the worker's meter."""

    def poll(self, version: int | None) -> RequestBatch | None:
        """Return, as one batch, all waiting requests that `version` is new enough to answer. With None, receive
        requests but return none yet."""

    def reply(self, batch: RequestBatch, answer: Answer) -> None:
        """Send the decisions for a batch back to its clients."""


@dataclass(frozen=True)
class RequestBatch:
    """Rows from many clients, concatenated into one batch: one array [B, ...] per path, owned by the server."""

    observation: dict[str, Array]
    first: Array  # [B]
    requests: tuple[object, ...]
    """The requests in this batch, in the form of the server that made it."""
    state: dict[str, Array] = field(default_factory=dict)
    """Recurrent state, one array per path; invalid where `first` is true."""
