"""The consumer's end of a push stream: admits blocks, collects batches, gives the blocks back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from srl.api.block import Block
from srl.api.status import StreamStatus
from srl.api.streams import PostedBlock
from srl.api.transport import Channel, ChannelClosed
from srl.api.worker import Context
from srl.streams.admission import Admission
from srl.streams.arena import Arena
from srl.streams.push_messages import Decline, Grant, Messages, Offer, Post, Release, Terms, Want

if TYPE_CHECKING:
    from srl.streams.push import PushStream

PATIENCE_POLLS = 8
"""Polls for which a complete batch waits for a block that was admitted earlier, and would be too old for the next."""


class _Source:
    """A consumer's view of one producer."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.producer = channel.peer
        self.incarnation = 0
        self.arena: Arena | None = None
        self.wanted = 0
        self.tickets: set[int] = set()
        self.last_sequence = 0


class Consumer:
    def __init__(self, stream: PushStream, context: Context) -> None:
        self._stream = stream
        self._context = context
        self._listener = context.listen(f"{stream.prefix}{context.place.name}", Messages, remote=stream.remote)
        context.wake_on(self._listener)
        self.admission = Admission(stream.batch_blocks, stream.max_lag, pauses=stream.full == "block")
        self._sources: list[_Source] = []
        self._queue: list[tuple[PostedBlock, _Source]] = []
        self._turn = context.place.index  # each consumer begins with another producer
        self._held: dict[int, _Source] = {}
        self._waited = 0  # polls of the present batch, since it was complete
        self._posted = 0
        self._consumed = 0
        self._dropped = 0

    def poll(self) -> None:
        while (channel := self._listener.accept()) is not None:
            self._accept(channel)
        for source in list(self._sources):
            try:
                while (received := source.channel.receive()) is not None:
                    self._handle(source, *received)
                source.channel.flush()
            except ChannelClosed:
                self._lose(source)
        self._grant()

    def _accept(self, channel: Channel) -> None:
        self._context.wake_on(channel)
        if self._stream.route == "broadcast":
            try:
                channel.send(Terms(self._stream.full == "block", self._stream.batch_blocks + self._stream.capacity))
            except ChannelClosed:
                channel.close()
                return
        self._sources.append(_Source(channel))

    def _handle(self, source: _Source, message: Any, arrays: list[Any], memory: Any) -> None:
        if isinstance(message, Want):
            source.wanted += message.count
        elif isinstance(message, Offer):
            source.producer, source.incarnation = message.producer, message.incarnation
            if memory is not None:
                source.arena = Arena(self._stream.spec, memory)
                memory.close()
        elif isinstance(message, Decline):
            source.tickets.discard(message.ticket)
            self.admission.returned(message.ticket)
        elif isinstance(message, Post):
            self._arrive(source, message, arrays)

    def _arrive(self, source: _Source, message: Post, arrays: list[Any]) -> None:
        if message.sequence <= source.last_sequence or message.ticket not in source.tickets:
            raise ChannelClosed(f"{source.producer} posted a block twice, or one that was never admitted")
        block = self._block(source, message, arrays)
        source.last_sequence = message.sequence
        source.tickets.remove(message.ticket)
        self.admission.arrived(message.ticket)
        posted = PostedBlock(
            source.producer, message.sequence, message.ticket, message.oldest_version, block, source.incarnation
        )
        self._queue.append((posted, source))
        self._posted += 1
        if self._stream.full == "drop_oldest" and len(self._queue) > self._stream.capacity * len(self._sources):
            self._drop(min(self._queue, key=lambda item: item[0].ticket))

    def _block(self, source: _Source, message: Post, arrays: list[Any]) -> Block:
        if source.arena is not None:
            if not 0 <= message.block < source.arena.num_blocks:
                raise ChannelClosed(f"{source.producer} posted block {message.block}, which it does not have")
            return source.arena.blocks[message.block]
        spec = self._stream.spec
        named = dict(zip((path for path, _ in spec.arrays()), arrays, strict=False))
        for path, leaf in spec.arrays():
            wanted = (spec.rows, spec.lanes, *leaf.shape)
            if path not in named or named[path].shape != wanted or named[path].dtype.name != leaf.dtype:
                raise ChannelClosed(f"{source.producer} posted a block without {path} of shape {wanted}")
        return Block(message.block, named)

    def _grant(self) -> None:
        """Admit blocks, one for each waiting producer in turn."""
        while waiting := sorted((s for s in self._sources if s.wanted > 0), key=lambda source: source.producer):
            source = waiting[self._turn % len(waiting)]
            granted = self.admission.grant()
            if granted is None:
                return
            self._turn += 1
            ticket, min_version = granted
            source.wanted -= 1
            source.tickets.add(ticket)
            try:
                source.channel.send(Grant(ticket, min_version))
            except ChannelClosed:
                self._lose(source)

    def _lose(self, source: _Source) -> None:
        """What a dead producer had posted stays good: we hold its memory. What it was filling is admitted anew."""
        source.channel.close()
        if source in self._sources:
            self._sources.remove(source)
        while source.tickets:
            self.admission.returned(source.tickets.pop())

    def _drop(self, item: tuple[PostedBlock, _Source]) -> None:
        self._queue.remove(item)
        self.admission.dropped()
        self._dropped += 1
        self._release(item[0], item[1])

    def take(self, update: int) -> list[PostedBlock] | None:
        for item in [item for item in self._queue if self.admission.stale(item[0].oldest_version, update)]:
            self._drop(item)
        wanted = self._stream.batch_blocks
        if len(self._queue) < wanted or self._is_worth_waiting(update):
            self._grant()
            return None
        self._waited = 0
        self._queue.sort(key=lambda item: item[0].ticket)
        taken, self._queue = self._queue[:wanted], self._queue[wanted:]
        for posted, source in taken:
            self._held[id(posted)] = source
        self.admission.consumed(wanted)
        self._consumed += wanted
        return [posted for posted, _ in taken]

    def _is_worth_waiting(self, update: int) -> bool:
        """Somebody was overtaken, and his work would be lost. He is waited for until the others have made a whole
        batch more, and for some polls at most, because he may hang."""
        self._waited += 1
        patient = len(self._queue) < 2 * self._stream.batch_blocks and self._waited <= PATIENCE_POLLS
        return patient and self.admission.endangered(update) > 0

    @property
    def hesitates(self) -> bool:
        """A batch is complete and waits for somebody: the next polls should come soon, whatever arrives."""
        return self._waited > 0

    def release(self, blocks: Sequence[PostedBlock]) -> None:
        for posted in blocks:
            self._release(posted, self._held.pop(id(posted)))

    def _release(self, posted: PostedBlock, source: _Source) -> None:
        if source in self._sources:
            try:
                source.channel.send(Release(posted.block.index))
            except ChannelClosed:
                self._lose(source)

    def advance(self, version: int) -> None:
        self.admission.version = version
        self._grant()

    def status(self) -> StreamStatus:
        room = max(1, self._stream.capacity * max(1, len(self._sources)))
        filled = min(1.0, len(self._queue) / room)
        return StreamStatus(self._stream.name, "push", filled, self._posted, self._consumed, self._dropped)

    def close(self) -> None:
        for source in self._sources:
            source.channel.close()
        self._sources.clear()
        self._listener.close()
