"""The request stream: rows of lanes to policies, decisions back; answered inline, on the host, or over TCP."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Union

import numpy as np

from srl.api.block import STATE, BlockSpec
from srl.api.parameters import ParameterStore
from srl.api.policy import Policy
from srl.api.status import StreamStatus
from srl.api.streams import Answer, Cell, RequestBatch, StreamEnd
from srl.api.transport import Channel, ChannelClosed, Message
from srl.api.worker import Context
from srl.base.meter import Counter, Meter, Phase
from srl.base.tree import Array, from_leaves
from srl.streams.arena import Arena
from srl.streams.connecting import newly_connected
from srl.streams.rows import (
    OBSERVATION,
    decision_paths,
    flat_decision,
    gather,
    input_paths,
    tree_of,
    without_root,
    write_decision,
    write_row,
)


class Attach(Message, frozen=True):
    """Client: these are my blocks."""

    client: str
    num_blocks: int


class Ask(Message, frozen=True):
    """Client: decide for these rows of these blocks. Over TCP the observations follow, all cells joined."""

    tag: int
    blocks: list[int]
    rows: list[int]
    min_version: int


class Reply(Message, frozen=True):
    """Server: decided by this version. On a host the decisions lie in the blocks; over TCP they follow."""

    tag: int
    version: int


Messages = Union[Attach, Ask, Reply]


@dataclass(frozen=True)
class RequestStream:
    """An edge between actors and policy workers."""

    name: str
    spec: BlockSpec
    remote: bool = False
    """Reach servers over TCP, as if they were on another host."""
    max_batch: int = 0
    """Most lanes in one batch; 0: everything that waits."""

    @property
    def prefix(self) -> str:
        return f"request/{self.name}/"

    def end(self, side: Literal["source", "target"]) -> StreamEnd:
        return StreamEnd(self.name, "request", side, "tcp" if self.remote else "host")

    def client(self, context: Context, arena: Arena) -> Client:
        return Client(self, context, arena)

    def server(self, context: Context) -> Server:
        return Server(self, context)


class InlineClient:
    """Answers at once with a policy of its own."""

    def __init__(self, policy: Policy, parameters: ParameterStore, meter: Meter) -> None:
        self.policy = policy
        self._parameters = parameters
        self._meter = meter
        self._waiting: deque[tuple[int, Sequence[Cell], int]] = deque()

    def post(self, tag: int, cells: Sequence[Cell], min_version: int) -> bool:
        if not self.may_answer(min_version):
            self._waiting.append((tag, cells, min_version))
            return False
        policy = self.policy
        self._meter.enter(Phase.INFERENCE)
        rows = gather(cells)
        decision = flat_decision(policy.act(from_leaves(rows.observation), tree_of(rows.state), rows.first))
        if len(cells) == 1:
            write_row(cells[0], decision, policy.version)
        else:
            write_decision(cells, decision, policy.version)
        return True

    def may_answer(self, min_version: int) -> bool:
        """Whether the policy, with the newest parameters, is new enough."""
        refresh(self.policy, self._parameters)
        return self.policy.version >= max(0, min_version)

    def flush(self) -> None:
        """Nothing to send."""

    def poll(self) -> list[int]:
        """Requests that had to wait for newer parameters."""
        waiting, self._waiting = self._waiting, deque()
        return [tag for tag, cells, min_version in waiting if self.post(tag, cells, min_version)]

    def close(self) -> None:
        """Nothing is held."""


def refresh(policy: Policy, parameters: ParameterStore) -> None:
    """Load the newest parameters if there are newer ones."""
    if parameters.version > policy.version:
        newest = parameters.pull(newer_than=policy.version)
        if newest is not None:
            policy.load(newest[1], newest[0])


class _Server:
    """A client's view of one policy worker."""

    def __init__(self, name: str, channel: Channel) -> None:
        self.name = name
        self.channel = channel
        self.pending: dict[int, tuple[Sequence[Cell], int]] = {}

    def distance(self) -> tuple[bool, int]:
        """Whom to ask first: those of our own host, and of these the least busy."""
        return not self.channel.shares_memory, len(self.pending)


class Client:
    """Asks policy workers: each request goes to the one with the fewest open, those of other hosts only where there is
    none on this. A dead one's requests go to others."""

    def __init__(self, stream: RequestStream, context: Context, arena: Arena) -> None:
        self._stream = stream
        self._context = context
        self._arena = arena
        self._attach = Attach(context.place.name, arena.num_blocks)
        self._servers: dict[str, _Server] = {}
        self._queue: deque[tuple[int, Sequence[Cell], int]] = deque()
        self._inputs = input_paths(stream.spec)
        self._decisions = decision_paths(stream.spec)

    def post(self, tag: int, cells: Sequence[Cell], min_version: int) -> bool:
        self._queue.append((tag, cells, min_version))
        return False

    def flush(self) -> None:
        self._connect()
        while self._queue and self._servers:
            tag, cells, min_version = self._queue.popleft()
            server = min(self._servers.values(), key=_Server.distance)
            message = Ask(tag, [cell.block.index for cell in cells], [cell.row for cell in cells], min_version)
            arrays: list[Array] = []
            if not server.channel.shares_memory:
                arrays = gather(cells).arrays(self._inputs)
            server.pending[tag] = (cells, min_version)
            try:
                server.channel.send(message, arrays)
            except ChannelClosed:
                self._lose(server)

    def _connect(self) -> None:
        stream = self._stream
        for name, channel in newly_connected(
            self._context, stream.prefix, stream.remote, self._servers, Messages, self._attach, self._arena
        ):
            self._servers[name] = _Server(name, channel)

    def poll(self) -> list[int]:
        answered: list[int] = []
        for server in list(self._servers.values()):
            try:
                while (received := server.channel.receive()) is not None:
                    message, arrays, _ = received
                    if not isinstance(message, Reply) or message.tag not in server.pending:
                        raise ChannelClosed(f"{server.name} answered what it was not asked")
                    cells, _ = server.pending.pop(message.tag)
                    if arrays:
                        write_decision(cells, dict(zip(self._decisions, arrays, strict=True)), message.version)
                    answered.append(message.tag)
                server.channel.flush()
            except ChannelClosed:
                self._lose(server)
        if self._queue:
            self.flush()
        return answered

    def _lose(self, server: _Server) -> None:
        server.channel.close()
        del self._servers[server.name]
        for tag, (cells, min_version) in server.pending.items():
            self._queue.append((tag, cells, min_version))

    def close(self) -> None:
        for server in self._servers.values():
            server.channel.close()
        self._servers.clear()


@dataclass
class _Asker:
    """A server's view of one client."""

    channel: Channel
    arena: Arena | None = None
    client: str = ""


@dataclass(frozen=True)
class _Origin:
    """Where a part of a batch came from."""

    asker: _Asker
    tag: int
    cells: tuple[Cell, ...]
    lanes: int
    min_version: int
    arrays: tuple[Array, ...] = ()


class Server:
    """Takes everything that waits as one batch: the longer a batch computes, the larger the next one."""

    def __init__(self, stream: RequestStream, context: Context) -> None:
        self._stream = stream
        self._context = context
        self._listener = context.listen(f"{stream.prefix}{context.place.name}", Messages, remote=stream.remote)
        context.wake_on(self._listener)
        self._askers: list[_Asker] = []
        self._waiting: deque[_Origin] = deque()
        self._inputs = input_paths(stream.spec)
        self._decisions = decision_paths(stream.spec)
        self._batches = 0
        self._lanes = 0

    def poll(self, version: int | None) -> RequestBatch | None:
        while (channel := self._listener.accept()) is not None:
            self._context.wake_on(channel)
            self._askers.append(_Asker(channel))
        for asker in list(self._askers):
            try:
                while (received := asker.channel.receive()) is not None:
                    self._handle(asker, *received)
                asker.channel.flush()
            except ChannelClosed:
                self._lose(asker)
        return None if version is None else self._batch(version)

    def _handle(self, asker: _Asker, message: Any, arrays: list[Array], memory: Any) -> None:
        if isinstance(message, Attach):
            asker.client = message.client
            if memory is not None:
                asker.arena = Arena(self._stream.spec, memory)
                memory.close()
            return
        if not isinstance(message, Ask) or not message.blocks or len(message.blocks) != len(message.rows):
            raise ChannelClosed(f"{asker.channel.peer} asked for nothing that can be answered")
        if asker.arena is not None:
            blocks = asker.arena.blocks
            rows = self._stream.spec.rows
            if not all(0 <= b < len(blocks) for b in message.blocks) or not all(0 <= r < rows for r in message.rows):
                raise ChannelClosed(f"{asker.channel.peer} asked for a row that it does not have")
            cells = tuple(Cell(blocks[b], r) for b, r in zip(message.blocks, message.rows, strict=True))
            lanes = len(cells) * self._stream.spec.lanes
            self._waiting.append(_Origin(asker, message.tag, cells, lanes, message.min_version))
            return
        lanes = len(message.blocks) * self._stream.spec.lanes
        specs = [spec for path, spec in self._stream.spec.arrays() if path in self._inputs]
        wanted = [((lanes, *spec.shape), spec.dtype) for spec in specs] + [((lanes,), "bool")]
        if [(array.shape, array.dtype.name) for array in arrays] != wanted:
            raise ChannelClosed(f"{asker.channel.peer} sent observations of another shape than {wanted}")
        self._waiting.append(_Origin(asker, message.tag, (), lanes, message.min_version, tuple(arrays)))

    def _batch(self, version: int) -> RequestBatch | None:
        chosen: list[_Origin] = []
        held: list[_Origin] = []
        lanes = 0
        while self._waiting:
            origin = self._waiting.popleft()
            full = self._stream.max_batch and chosen and lanes + origin.lanes > self._stream.max_batch
            if version < max(0, origin.min_version) or full:
                held.append(origin)
            else:
                chosen.append(origin)
                lanes += origin.lanes
        self._waiting.extend(held)
        if not chosen:
            return None
        self._batches += 1
        self._lanes += lanes
        parts = [self._arrays(origin) for origin in chosen]
        *joined, first = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        roots: dict[str, dict[str, Array]] = {OBSERVATION: {}, STATE: {}}
        for path, array in zip(self._inputs, joined, strict=True):
            roots[path.partition("/")[0]][without_root(path)] = array
        return RequestBatch(roots[OBSERVATION], first, tuple(chosen), roots[STATE])

    def _arrays(self, origin: _Origin) -> list[Array]:
        if origin.arrays:
            return list(origin.arrays)
        return gather(origin.cells).arrays(self._inputs)

    def reply(self, batch: RequestBatch, answer: Answer) -> None:
        start = 0
        for origin in batch.origins:
            assert isinstance(origin, _Origin)
            end = start + origin.lanes
            try:
                if origin.cells:
                    write_decision(origin.cells, answer.decision, answer.version, start)
                    origin.asker.channel.send(Reply(origin.tag, answer.version))
                else:
                    arrays = [answer.decision[path][start:end] for path in self._decisions]
                    origin.asker.channel.send(Reply(origin.tag, answer.version), arrays)
            except ChannelClosed:
                self._lose(origin.asker)
            start = end

    def _lose(self, asker: _Asker) -> None:
        asker.channel.close()
        if asker in self._askers:
            self._askers.remove(asker)
        self._waiting = deque(origin for origin in self._waiting if origin.asker is not asker)

    def status(self) -> StreamStatus:
        mean = self._lanes / max(1, self._batches)
        return StreamStatus(self._stream.name, "request", 0.0, self._batches, self._batches, 0, mean)

    def publish(self, meter: Meter) -> None:
        meter.set(Counter.BATCHES, self._batches)
        meter.set(Counter.BATCHED_LANES, self._lanes)

    def close(self) -> None:
        for asker in self._askers:
            asker.channel.close()
        self._askers.clear()
        self._listener.close()
