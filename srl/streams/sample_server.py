"""The server of a sample stream: receives the requests of trainers for a replay worker, and sends its answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from srl.api.streams import DrawRequest, Feedback, FillRequest, Inserted, NewTargetsOf, RowsRequest, SampleRequest
from srl.api.transport import Channel, ChannelClosed, Message
from srl.api.worker import Context
from srl.base.state import NotResumable, State
from srl.base.tree import Array
from srl.base.wire import MAX_BYTES
from srl.streams.messages import (
    AttachReanalyzer,
    AttachSampler,
    Draw,
    DrawReply,
    FetchRows,
    Fill,
    FillReply,
    NewTargets,
    PriorityFeedback,
    Published,
    RowsReply,
    SampleMessage,
)

if TYPE_CHECKING:
    from srl.streams.sample import SampleStream

NUM_REMEMBERED = 4  # draws to which feedback may still come


@dataclass(eq=False)
class _ClientLink:
    """A server's connection to one trainer."""

    channel: Channel
    attached: AttachSampler | AttachReanalyzer | None = None
    shapes: dict[int, tuple[int, int]] = field(default_factory=dict)  # tag of a draw -> shape of its priorities
    rows: dict[int, int] = field(default_factory=dict)  # tag of a request for rows -> how many it was given


class Server:
    """Implementation of :class:`srl.api.streams.SampleServer`."""

    def __init__(self, stream: SampleStream, context: Context) -> None:
        self._stream = stream
        self._context = context
        self._index = context.worker_id.index
        name = f"{stream.prefix}{context.worker_id.name}"
        self._listener = context.listen(name, SampleMessage, remote=stream.remote)
        context.wake_on(self._listener)
        self._links: list[_ClientLink] = []
        self._published = -1
        self._max_units = MAX_BYTES // max(1, stream.unit_nbytes())

    @property
    def published(self) -> int:
        return self._published

    def poll(self) -> list[SampleRequest]:
        while (channel := self._listener.accept()) is not None:
            self._context.wake_on(channel)
            self._links.append(_ClientLink(channel))
        found: list[SampleRequest] = []
        for link in list(self._links):
            try:
                while (received := link.channel.receive()) is not None:
                    request = self._handle(link, received[0], received[1])
                    if request is not None:
                        found.append(request)
                link.channel.flush()
            except ChannelClosed:
                self._lose(link)
        return found

    def _handle(self, link: _ClientLink, message: Any, arrays: list[Array]) -> SampleRequest | None:
        if isinstance(message, AttachSampler | AttachReanalyzer):
            self._attach(link, message)
            return None
        client = link.attached
        if client is None:
            raise ChannelClosed(f"{link.channel.peer} sent a request before it said who it is")
        if isinstance(client, AttachReanalyzer):
            return self._handle_reanalyzer(link, client, message, arrays)
        if isinstance(message, Published):
            self._published = max(self._published, message.version)
        elif isinstance(message, Fill):
            return FillRequest(message.update, self._index % client.size == client.rank, message.tag, link)
        elif isinstance(message, Draw):
            if message.num_steps * message.count > self._max_units:
                raise ChannelClosed(f"{client.client} asked for more than fits into a message")
            link.shapes[message.tag] = message.num_steps, message.count
            for tag in list(link.shapes)[:-NUM_REMEMBERED]:
                del link.shapes[tag]
            return DrawRequest(message.num_steps, message.count, message.tag, link)
        elif isinstance(message, PriorityFeedback):
            shape = link.shapes.pop(message.tag, None)  # None: too late
            if len(arrays) != 1 or arrays[0].dtype.kind != "f" or (shape is not None and arrays[0].shape != shape):
                raise ChannelClosed(f"{client.client} sent priorities of units that it was not given")
            return None if shape is None else Feedback(message.tag, link, arrays[0])
        else:
            raise ChannelClosed(f"{client.client} sent a {type(message).__name__}, which trainers do not send")
        return None

    def _handle_reanalyzer(
        self, link: _ClientLink, client: AttachReanalyzer, message: Any, arrays: list[Array]
    ) -> SampleRequest | None:
        if isinstance(message, FetchRows):
            return RowsRequest(message.count, message.tag, link)
        if not isinstance(message, NewTargets):
            raise ChannelClosed(f"{client.client} sent a {type(message).__name__}, which reanalyze workers do not send")
        count = link.rows.pop(message.tag, -1)
        named = list(zip(message.names, arrays, strict=False))
        fits = all(self._stream.fits(f"decision/{name}", array, (count,)) for name, array in named)
        if not fits or len(arrays) != len(message.names) or not all(np.isfinite(array).all() for array in arrays):
            raise ChannelClosed(f"{client.client} sent targets of rows that it was not given, or of another shape")
        return NewTargetsOf(message.tag, link, message.version, dict(named))

    def hand_out(self, request: RowsRequest, observation: Mapping[str, Array]) -> None:
        assert isinstance(request.client, _ClientLink)
        given = request.client.rows
        given[request.tag] = len(next(iter(observation.values()), ()))
        for tag in list(given)[:-NUM_REMEMBERED]:
            del given[tag]
        self._send(request.client, RowsReply(request.tag, list(observation)), tuple(observation.values()))

    def _attach(self, link: _ClientLink, message: AttachSampler | AttachReanalyzer) -> None:
        if isinstance(message, AttachSampler) and not 0 <= message.rank < message.size:
            raise ChannelClosed(f"{message.client} has rank {message.rank} of {message.size}")
        for other in list(self._links):
            if other.attached is not None and other.attached.client == message.client:
                if other.attached.incarnation > message.incarnation:
                    raise ChannelClosed(f"{message.client} has been replaced")
                self._lose(other)  # its channel may still be open, because its host is frozen
        link.attached = message

    def is_waiting(self, client: object) -> bool:
        return client in self._links

    def report(self, request: FillRequest, facts: Inserted, lags: Array, new: Mapping[str, Array]) -> None:
        self._send(request.client, FillReply(request.tag, facts, list(new)), (lags, *new.values()))

    def reply(self, request: DrawRequest, arrays: Mapping[str, Array]) -> None:
        self._send(request.client, DrawReply(request.tag, list(arrays)), tuple(arrays.values()))

    def _send(self, link: object, message: Message, arrays: Sequence[Array]) -> None:
        assert isinstance(link, _ClientLink)
        if link in self._links:
            try:
                link.channel.send(message, arrays)
            except ChannelClosed:
                self._lose(link)

    def _lose(self, link: _ClientLink) -> None:
        link.channel.close()
        if link in self._links:
            self._links.remove(link)

    def state(self) -> State:
        raise NotResumable("a replay worker cannot be saved with the requests in progress")

    def restore(self, state: State) -> bool:
        raise NotResumable("a replay worker cannot be restored with the requests in progress")

    def close(self) -> None:
        for link in self._links:
            link.channel.close()
        self._links.clear()
        self._listener.close()
