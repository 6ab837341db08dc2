"""The server of a request stream: collects all clients' waiting requests into one batch."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from srl.api.block import POSITION, STATE, BlockMemory
from srl.api.streams import Answer, Cell, RequestBatch
from srl.api.transport import Channel, ChannelClosed
from srl.api.worker import Context
from srl.base.meter import Counter
from srl.base.state import State, pack, unpack
from srl.base.tree import Array
from srl.streams.messages import AttachClient, Relax, Reply, Request, RequestMessage
from srl.streams.peers import receive_attach, restore_unread, unread_messages
from srl.streams.rows import (
    OBSERVATION,
    cells_from,
    decision_paths,
    gather,
    indices_of,
    input_paths,
    without_root,
    write_decision,
)

if TYPE_CHECKING:
    from srl.streams.request import RequestStream


@dataclass(eq=False)
class _ClientLink:
    """A server's connection to one client."""

    channel: Channel
    memory: BlockMemory | None = None
    client: str = ""


@dataclass(frozen=True)
class _Waiting:
    """An unanswered request: cells in shared memory, or the arrays that the message carried."""

    link: _ClientLink
    tag: int
    cells: tuple[Cell, ...]
    lanes: int
    min_version: int
    arrays: tuple[Array, ...] = ()


class Server:
    """Server that takes all waiting requests as one batch: the longer one batch takes, the more requests the next one
    collects (:class:`srl.api.streams.RequestServer`)."""

    def __init__(self, stream: RequestStream, context: Context) -> None:
        self._stream = stream
        self._context = context
        name = f"{stream.prefix}{context.worker_id.name}"
        self._listener = context.listen(name, RequestMessage, remote=stream.remote)
        context.wake_on(self._listener)
        self._links: list[_ClientLink] = []
        self._waiting: deque[_Waiting] = deque()
        self._inputs = input_paths(stream.spec)
        self._decisions = decision_paths(stream.spec)
        self._batches = 0
        self._lanes = 0

    def poll(self, version: int | None) -> RequestBatch | None:
        self._accept()
        for link in list(self._links):
            try:
                while (received := link.channel.receive()) is not None:
                    self._handle(link, *received)
                link.channel.flush()
            except ChannelClosed:
                self._lose(link)
        return None if version is None else self._batch(version)

    def _accept(self) -> None:
        while (channel := self._listener.accept()) is not None:
            self._context.wake_on(channel)
            self._links.append(_ClientLink(channel))

    def _handle(self, link: _ClientLink, message: Any, arrays: list[Array], memory: Any) -> None:
        if isinstance(message, AttachClient):
            self._attach(link, message, memory)
            return
        if isinstance(message, Relax):
            for index, waiting in enumerate(self._waiting):
                if waiting.link is link and waiting.tag == message.tag:
                    self._waiting[index] = replace(waiting, min_version=message.min_version)
            return
        if not isinstance(message, Request) or not message.blocks or len(message.blocks) != len(message.rows):
            raise ChannelClosed(f"{link.channel.peer} sent a request without cells")
        spec = self._stream.spec
        lanes = len(message.blocks) * spec.lanes
        if link.memory is not None:
            blocks = link.memory.blocks
            if not all(0 <= b < len(blocks) for b in message.blocks) or not all(
                0 <= r < spec.rows for r in message.rows
            ):
                raise ChannelClosed(f"{link.channel.peer} requested a decision for a row outside its memory")
            cells = tuple(Cell(blocks[b], r) for b, r in zip(message.blocks, message.rows, strict=True))
            self._waiting.append(_Waiting(link, message.tag, cells, lanes, message.min_version))
            return
        inputs = [leaf for path, leaf in spec.arrays() if path in self._inputs]
        wanted = [((lanes, *leaf.shape), leaf.dtype) for leaf in inputs] + [((lanes,), "bool")]
        if [(array.shape, array.dtype.name) for array in arrays] != wanted:
            raise ChannelClosed(f"{link.channel.peer} sent observations of the wrong shape, expected {wanted}")
        self._waiting.append(_Waiting(link, message.tag, (), lanes, message.min_version, tuple(arrays)))

    def _attach(self, link: _ClientLink, message: AttachClient, memory: Any) -> None:
        link.client = message.client
        if memory is not None:
            link.memory = BlockMemory(self._stream.spec, memory)
            memory.close()

    def _batch(self, version: int) -> RequestBatch | None:
        chosen: list[_Waiting] = []
        postponed: list[_Waiting] = []
        lanes = 0
        while self._waiting:
            request = self._waiting.popleft()
            full = self._stream.max_batch and chosen and lanes + request.lanes > self._stream.max_batch
            if version < max(0, request.min_version) or full:
                postponed.append(request)
            else:
                chosen.append(request)
                lanes += request.lanes
        self._waiting.extend(postponed)
        if not chosen:
            return None
        self._count(self._batches + 1, self._lanes + lanes)
        parts = [self._arrays(request) for request in chosen]
        *joined, first = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        roots: dict[str, dict[str, Array]] = {OBSERVATION: {}, STATE: {}, POSITION: {}}
        for path, array in zip(self._inputs, joined, strict=True):
            roots[path.partition("/")[0]][without_root(path)] = array
        return RequestBatch(roots[OBSERVATION], first, tuple(chosen), roots[STATE], roots[POSITION].get(""))

    def _count(self, batches: int, lanes: int) -> None:
        self._batches, self._lanes = batches, lanes
        self._context.meter.set(Counter.BATCHES, batches)
        self._context.meter.set(Counter.BATCHED_LANES, lanes)

    def _arrays(self, request: _Waiting) -> list[Array]:
        if request.arrays:
            return list(request.arrays)
        return gather(request.cells).arrays(self._inputs)

    def reply(self, batch: RequestBatch, answer: Answer) -> None:
        start = 0
        for request in batch.requests:
            assert isinstance(request, _Waiting)
            end = start + request.lanes
            message = Reply(request.tag, answer.version)
            try:
                if request.cells:
                    write_decision(request.cells, answer.decision, answer.version, start)
                    request.link.channel.send(message)
                else:
                    arrays = [answer.decision[path][start:end] for path in self._decisions]
                    request.link.channel.send(message, arrays)
            except ChannelClosed:
                self._lose(request.link)
            start = end

    def _lose(self, link: _ClientLink) -> None:
        link.channel.close()
        if link in self._links:
            self._links.remove(link)
        self._waiting = deque(request for request in self._waiting if request.link is not link)

    def state(self) -> State:
        links = [{"client": link.client, "unread": unread_messages(link.channel)} for link in self._links]
        waiting = [[r.link.client, r.tag, indices_of(r.cells), r.lanes, r.min_version] for r in self._waiting]
        return {"fields": pack({"links": links, "waiting": waiting, "counts": [self._batches, self._lanes]})}

    def restore(self, state: State) -> bool:
        fields = unpack(state["fields"])
        self._accept()
        for link in self._links:
            received = receive_attach(link.channel, AttachClient)
            if received is not None:
                self._attach(link, *received)
        connected = {link.client: link for link in self._links if link.memory is not None}
        if not {saved["client"] for saved in fields["links"]} <= set(connected):
            return False
        self._links = [connected[saved["client"]] for saved in fields["links"]]
        for saved in fields["links"]:
            restore_unread(connected[saved["client"]].channel, saved["unread"])
        self._waiting.clear()
        for client, tag, cells, lanes, min_version in fields["waiting"]:
            link = connected[client]
            assert link.memory is not None
            self._waiting.append(_Waiting(link, tag, tuple(cells_from(link.memory, cells)), lanes, min_version))
        self._count(*fields["counts"])
        return True

    def close(self) -> None:
        for link in self._links:
            link.channel.close()
        self._links.clear()
        self._listener.close()
