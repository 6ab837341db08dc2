"""The three kinds of stream between workers: a push stream carries full blocks to trainers or replay workers, a request
stream carries rows to policies, a sample stream carries batches of remembered experience to trainers and feedback back.
(Parameters travel through the parameter service, `srl/api/parameters.py`.)

No method here blocks. `state` and `restore` serve exact resume, which only single-threaded runs support: a stream
endpoint is restored in a new run of the same graph, before any worker polls. It connects to its peers in `restore`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, runtime_checkable

from srl.api.block import Block, BlockMemory, Episodes
from srl.api.policy import Policy
from srl.api.status import StreamStatus
from srl.api.transport import Message
from srl.base.meter import Counter
from srl.base.state import State
from srl.base.tree import Array


@dataclass(frozen=True)
class StreamEnd:
    """One endpoint of a stream, as the config of a worker describes it."""

    stream: str
    kind: Literal["push", "request", "sample", "parameters"]
    side: Literal["source", "target"]
    """A source sends blocks, requests decisions or batches, or publishes parameters; a target receives, answers or
    pulls."""
    where: Literal["inline", "host", "tcp"] = "host"
    """`inline`: within one worker. `host`: shared memory on one host, TCP between hosts. `tcp`: TCP only."""


class StreamEndpoint(Protocol):
    """The methods that all stream endpoints share."""

    def state(self) -> State:
        """Return everything in progress, unread messages included. Raises NotResumable if the run has processes."""

    def restore(self, state: State) -> bool:
        """Continue from a saved state. False: a peer is not connected yet; poll nothing and call again."""

    def close(self) -> None:
        """Disconnect from all peers and release the memory."""


@dataclass
class OpenBlock:
    """A block that its producer fills."""

    block: Block
    min_version: int  # the oldest policy version that may choose actions in it
    tickets: dict[str, int]  # consumer -> admission ticket; one, except in a broadcast
    alive: bool = True  # false when all consumers that admitted it are gone: `discard` it
    track: int = 0  # the producer's number for the lanes in it
    first_step: int = 0  # number of row 0 in the track. Row T of a block is row 0 of the next one, if none is missing


@runtime_checkable
class PushProducer(StreamEndpoint, Protocol):
    """The endpoint of a push stream that fills blocks."""

    memory: BlockMemory  # all blocks of this producer; a request client uses it too, so that rows are not copied

    def poll(self) -> None:
        """Process messages of consumers: admissions, released blocks, departures."""

    def open(self) -> OpenBlock | None:
        """Return a free block to fill; None without a consumer, without room, or because of the staleness bound."""

    def open_blocks(self) -> Mapping[int, OpenBlock]:
        """Return the open blocks by index, so that a restored actor finds those it was filling."""

    def scratch_block(self) -> Block:
        """Return a block that is never posted, for rows that are not recorded."""

    def post(self, opened: OpenBlock, episodes: Episodes | None = None) -> None:
        """Send a full block to its consumers; the producer must not touch it afterwards. `episodes` are those that
        ended in it."""

    def discard(self, opened: OpenBlock) -> None:
        """Return an unfinished block and its admission."""


@dataclass(frozen=True)
class PostedBlock:
    """A full block at its consumer; the arrays stay valid until `release`."""

    producer: str
    sequence: int
    ticket: int
    oldest_version: int  # the oldest version that chose actions in it, except for the last row, which only bootstraps
    block: Block
    incarnation: int = 0  # of the producer
    episodes: Episodes | None = None  # that ended in it
    track: int = 0  # the producer's number for the lanes in it
    first_step: int = 0  # number of row 0 in the track; that of the next block is larger by T, if no row is missing

    @property
    def label(self) -> str:
        """Text that identifies the block within its run."""
        return f"{self.producer}.{self.incarnation}:{self.sequence}"


@runtime_checkable
class PushConsumer(StreamEndpoint, Protocol):
    """The endpoint of a push stream that takes batches of blocks."""

    @property
    def waits_for_late_block(self) -> bool:
        """Whether `take` holds a complete batch back for a late block, which the next update could not use: poll again
        soon, even if nothing arrives."""

    def poll(self) -> None:
        """Process messages from producers, and admit blocks."""

    def take(self, update: int) -> list[PostedBlock] | None:
        """Return the blocks for update number `update`, oldest admission first, or None until all have arrived. No
        block is older than the stream's bound allows for that update."""

    def release(self, blocks: Sequence[PostedBlock]) -> None:
        """Return blocks to their producers."""

    def advance(self, version: int) -> None:
        """Admit what the staleness bound allows once parameters of this version are published."""

    def skip_to(self, update: int) -> None:
        """Continue with the blocks of update number `update`. Blocks that have arrived count for it."""

    def status(self) -> StreamStatus: ...


class Cell(NamedTuple):
    """One row of one block: the lanes of a block at one time."""

    block: Block
    row: int


@runtime_checkable
class RequestClient(StreamEndpoint, Protocol):
    """The endpoint of a request stream that requests decisions, which are written beside the observations."""

    def post(self, tag: int, cells: Sequence[Cell], min_version: int) -> bool:
        """Request decisions of `min_version` or newer. Return whether they are written; if not, `poll` returns the tag
        once they are."""

    def relax(self, tag: int, min_version: int) -> None:
        """Allow an older version to answer a pending request, because no consumer waits for its block."""

    def local_policy(self, min_version: int) -> Policy | None:
        """Return the policy, to call instead of posting, if it runs in this process with `min_version` or newer."""

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
class RequestServer(StreamEndpoint, Protocol):
    """The endpoint of a request stream that answers. It counts batches and lanes in the worker's meter."""

    def poll(self, version: int | None) -> RequestBatch | None:
        """Return all waiting requests that `version` is new enough to answer, as one batch. With `version=None`, only
        receive."""

    def reply(self, batch: RequestBatch, answer: Answer) -> None:
        """Send the decisions for a batch back to its clients."""


@dataclass(frozen=True)
class RequestBatch:
    """Rows from many clients, concatenated into one batch: one array [B, ...] per path, owned by the server."""

    observation: dict[str, Array]
    first: Array  # [B]
    requests: tuple[object, ...]  # in the form of the server that made the batch
    state: dict[str, Array] = field(default_factory=dict)  # recurrent state by path; invalid where `first` is true
    position: Array | None = None  # [B]: positions of the lanes, if the algorithm `explores_by_lane`


class Inserted(Message, frozen=True):
    """Facts about a replay memory after it has inserted the blocks of one update."""

    update: int
    before: int  # decisions inserted before this update's blocks, and with them
    collected: int
    size: int  # decisions that can be drawn
    mass: float  # sum of their priorities; without priorities, the size
    num_decisions: int = 0
    """New decisions. Of this and the fields below, only one client learns, the one that reports them."""
    samples: tuple[str, ...] = ()  # labels of the blocks
    episodes: dict[str, Episodes] = {}  # actor -> episodes that ended in the blocks


@dataclass(frozen=True)
class Filled:
    """All replay memories have inserted the blocks of an update: `draw` now."""

    facts: tuple[Inserted, ...]  # of each memory
    lags: Array  # lag of each new decision that this client reports, in policy versions
    new: Mapping[str, Array]  # observations of these decisions by path, if the dataflow `keeps_new`


@dataclass(frozen=True)
class Sampled:
    """Arrays of the K minibatches of one update from each replay memory, by path; None if a memory gave none."""

    parts: tuple[Mapping[str, Array], ...] | None
    tag: int


@runtime_checkable
class SampleClient(StreamEndpoint, Protocol):
    """The endpoint of a sample stream that asks for batches. A request that is lost with a replay worker is repeated:
    `poll` then returns another `Filled`."""

    @property
    def is_connected(self) -> bool:
        """Whether all replay workers are connected."""

    def advance(self, version: int) -> None:
        """Tell the replay workers the newest durable version, which admits blocks."""

    def fill(self, update: int) -> None:
        """Ask the replay workers to insert the blocks of an update, if they have not."""

    def draw(self, num_steps: int, counts: Sequence[int]) -> None:
        """Ask for `num_steps` minibatches, with `counts[i]` units of each from replay worker i."""

    def poll(self) -> Filled | Sampled | None:
        """Return the answer to `fill` or `draw`, once it is complete."""

    def feedback(self, sampled: Sampled, priorities: Sequence[Array]) -> None:
        """Return priorities [K, counts[i]] of drawn units to replay worker i."""


@dataclass(frozen=True)
class FillRequest:
    """A client waits for the blocks of an update to be inserted."""

    update: int
    reports: bool  # whether this client reports the new decisions, their lags and episodes
    tag: int
    client: object  # in the form of the server


@dataclass(frozen=True)
class DrawRequest:
    """A client waits for minibatches."""

    num_steps: int
    count: int  # units in each
    tag: int
    client: object  # in the form of the server


@dataclass(frozen=True)
class Feedback:
    """Priorities [K, count] of the units of an answered `DrawRequest` of the same client and tag."""

    tag: int
    client: object
    priorities: Array


@dataclass(frozen=True)
class RowsRequest:
    """A reanalyze worker waits for rows with old targets."""

    count: int  # rows at most
    tag: int
    client: object  # in the form of the server


@dataclass(frozen=True)
class NewTargetsOf:
    """New targets of the rows of an answered `RowsRequest` of the same client and tag: arrays [N, ...] by name."""

    tag: int
    client: object
    version: int
    targets: Mapping[str, Array]


SampleRequest: TypeAlias = FillRequest | DrawRequest | Feedback | RowsRequest | NewTargetsOf


@runtime_checkable
class SampleServer(StreamEndpoint, Protocol):
    """The endpoint of a sample stream that answers, in a replay worker."""

    @property
    def published(self) -> int:
        """Newest durable version that a client has announced; -1 before the first."""

    def poll(self) -> list[SampleRequest]:
        """Return what clients have sent since the last call."""

    def is_waiting(self, client: object) -> bool:
        """Return whether a client is still connected."""

    def report(self, request: FillRequest, facts: Inserted, lags: Array, new: Mapping[str, Array]) -> None:
        """Answer a request to insert blocks, with lags and observations of new decisions as in `Filled`."""

    def reply(self, request: DrawRequest, arrays: Mapping[str, Array]) -> None:
        """Answer a request for minibatches; without arrays if the memory is empty."""

    def hand_out(self, request: RowsRequest, observation: Mapping[str, Array]) -> None:
        """Answer a request for rows with their observations [N, ...] by path; without arrays if no targets are old."""


@runtime_checkable
class SampleRelay(StreamEndpoint, Protocol):
    """The two endpoints of a buffer worker, between two sample streams: it answers trainers with what a replay worker
    answers, and changes drawn batches on the way. It counts its progress in the worker's meter."""

    @property
    def num_trainers(self) -> int:
        """Number of trainers whose requests are passed on."""

    def poll(self) -> bool:
        """Pass on what trainers and the replay worker have sent. Return whether there was anything."""


@dataclass
class Batch:
    """The data of one update. `data` is valid until the batch is given back."""

    update: int  # number of the update
    data: Any  # a Trajectory or a batch from replay
    lags: Array  # lag of each new decision behind this update, in policy versions
    samples: tuple[str, ...] = ()  # labels of the blocks
    episodes: dict[str, Episodes] = field(default_factory=dict)  # actor -> episodes that ended in its blocks
    priorities: Array | None = None  # feedback to the replay, set after the update
    drawn: Any = None  # in the form of the source that made the batch
    gauges: Mapping[Counter, int] = field(default_factory=dict)  # of the replay, when the batch was made

    @cached_property
    def lag_totals(self) -> tuple[int, int, int]:
        """Sum, number and maximum of the lags."""
        return int(self.lags.sum()), len(self.lags), int(self.lags.max(initial=0))


@runtime_checkable
class BatchSource(Protocol):
    """Source of a trainer's batches, one for each update in turn. No method blocks."""

    def poll(self) -> Batch | None:
        """Return the batch of the next update, or None if data is missing."""

    def give_back(self, batch: Batch) -> None:
        """Give back a used batch, so that its memory can be reused and the replay gets its feedback."""

    def status(self) -> StreamStatus: ...

    def state(self) -> State: ...

    def restore(self, state: State) -> bool:
        """Continue from a saved state. False: a peer is not connected yet; poll nothing and call again."""

    def close(self) -> None: ...


@runtime_checkable
class StreamBatchSource(BatchSource, Protocol):
    """Source of batches from a stream, which a thread may own. `poll` is `receive`, then `take`."""

    @property
    def is_urgent(self) -> bool:
        """Whether to poll again soon, even if nothing arrives."""

    def receive(self) -> None:
        """Process messages of other workers, without making a batch."""

    def take(self) -> Batch | None:
        """Return the batch of the next update from what has been received, or None if data is missing."""
