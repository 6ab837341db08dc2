"""The consumer of a push stream: admits blocks, collects batches, and returns the blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from msgspec import convert, to_builtins

from srl.api.block import Block, BlockMemory, Episodes
from srl.api.status import StreamStatus
from srl.api.streams import PostedBlock
from srl.api.transport import Channel, ChannelClosed
from srl.api.worker import Context
from srl.base.state import State, pack, unpack
from srl.streams.admission import Admission
from srl.streams.messages import (
    AttachProducer,
    BlockDecline,
    BlockGrant,
    BlockRequest,
    ConsumerTerms,
    Post,
    PushMessage,
    Release,
)
from srl.streams.peers import receive_attach, restore_unread, unread_messages

if TYPE_CHECKING:
    from srl.streams.push import PushStream

LATE_BLOCK_POLLS = 8  # polls that a complete batch waits for a late block, which would be too old for the next batch


class _ProducerLink:
    """A consumer's connection to one producer."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.producer = channel.peer
        self.incarnation = 0
        self.memory: BlockMemory | None = None
        self.wanted = 0
        self.tickets: set[int] = set()
        self.last_sequence = 0


class Consumer:
    """Implementation of :class:`srl.api.streams.PushConsumer`. `version` is the number of updates done so far."""

    def __init__(self, stream: PushStream, context: Context, version: int = 0) -> None:
        self._stream = stream
        self._context = context
        self._listener = context.listen(f"{stream.prefix}{context.worker_id.name}", PushMessage, remote=stream.remote)
        context.wake_on(self._listener)
        self._admission = Admission(stream.batch_blocks, stream.max_lag, pauses=stream.full == "block", version=version)
        self._links: list[_ProducerLink] = []
        self._queue: list[tuple[PostedBlock, _ProducerLink]] = []
        self._next = context.worker_id.index  # producer to admit next; each consumer starts with a different one
        self._taken: dict[int, _ProducerLink] = {}
        self._waited = 0  # polls since the current batch was complete
        self._posted = 0
        self._consumed = 0
        self._dropped = 0

    def poll(self) -> None:
        while (channel := self._listener.accept()) is not None:
            self._accept(channel)
        for link in list(self._links):
            try:
                while (received := link.channel.receive()) is not None:
                    self._handle(link, *received)
                link.channel.flush()
            except ChannelClosed:
                self._lose(link)
        self._grant()

    def _accept(self, channel: Channel) -> None:
        self._context.wake_on(channel)
        if self._stream.route == "broadcast":
            room = self._stream.batch_blocks + self._stream.capacity
            try:
                channel.send(ConsumerTerms(self._stream.full == "block", room))
            except ChannelClosed:
                channel.close()
                return
        self._links.append(_ProducerLink(channel))

    def _handle(self, link: _ProducerLink, message: Any, arrays: list[Any], memory: Any) -> None:
        if isinstance(message, BlockRequest):
            link.wanted += message.count
        elif isinstance(message, AttachProducer):
            self._attach(link, message, memory)
        elif isinstance(message, BlockDecline):
            link.tickets.discard(message.ticket)
            self._admission.returned(message.ticket)
        elif isinstance(message, Post):
            self._arrive(link, message, arrays)

    def _attach(self, link: _ProducerLink, message: AttachProducer, memory: Any) -> None:
        link.producer, link.incarnation = message.producer, message.incarnation
        others = [other for other in self._links if other.producer == link.producer]
        if any(other.incarnation > link.incarnation for other in others):
            if memory is not None:
                memory.close()
            raise ChannelClosed(f"{link.producer} has been replaced")
        for other in others:
            if other.incarnation < link.incarnation:  # its channel may still be open, because its host is frozen
                self._lose(other)
        if memory is not None:
            link.memory = BlockMemory(self._stream.spec, memory)
            memory.close()

    def _arrive(self, link: _ProducerLink, message: Post, arrays: list[Any]) -> None:
        if message.sequence <= link.last_sequence or message.ticket not in link.tickets:
            raise ChannelClosed(f"{link.producer} posted a block twice, or one that was never admitted")
        block = self._block(link, message, arrays)
        link.last_sequence = message.sequence
        link.tickets.remove(message.ticket)
        self._admission.arrived(message.ticket)
        oldest = int(block.version[:-1].min())
        posted = PostedBlock(
            link.producer,
            message.sequence,
            message.ticket,
            oldest,
            block,
            link.incarnation,
            message.episodes,
            message.track,
            message.first_step,
        )
        self._queue.append((posted, link))
        self._posted += 1
        if self._stream.full == "drop_oldest" and len(self._queue) > self._stream.capacity * len(self._links):
            self._drop(min(self._queue, key=lambda item: item[0].ticket))

    def _block(self, link: _ProducerLink, message: Post, arrays: list[Any]) -> Block:
        if link.memory is not None:
            if not 0 <= message.block < len(link.memory.blocks):
                raise ChannelClosed(f"{link.producer} posted block {message.block}, which it does not have")
            return link.memory.blocks[message.block]
        spec = self._stream.spec
        named = dict(zip((path for path, _ in spec.arrays()), arrays, strict=False))
        for path, leaf in spec.arrays():
            wanted = (spec.rows, spec.lanes, *leaf.shape)
            if path not in named or named[path].shape != wanted or named[path].dtype.name != leaf.dtype:
                raise ChannelClosed(f"{link.producer} posted a block without {path} of shape {wanted}")
        return Block(message.block, named)

    def _grant(self) -> None:
        """Admit blocks, one for each waiting producer in turn."""
        while waiting := sorted((link for link in self._links if link.wanted > 0), key=lambda link: link.producer):
            link = waiting[self._next % len(waiting)]
            granted = self._admission.grant()
            if granted is None:
                return
            self._next += 1
            ticket, min_version = granted
            link.wanted -= 1
            link.tickets.add(ticket)
            try:
                link.channel.send(BlockGrant(ticket, min_version))
            except ChannelClosed:
                self._lose(link)

    def _lose(self, link: _ProducerLink) -> None:
        """Remove a producer that is gone. The blocks it posted stay valid, because the consumer has mapped its memory.
        The admissions of blocks it was filling are granted again."""
        link.channel.close()
        if link in self._links:
            self._links.remove(link)
        while link.tickets:
            self._admission.returned(link.tickets.pop())

    def _drop(self, item: tuple[PostedBlock, _ProducerLink]) -> None:
        self._queue.remove(item)
        self._admission.dropped()
        self._dropped += 1
        self._release(item[0], item[1])

    def take(self, update: int) -> list[PostedBlock] | None:
        for item in [item for item in self._queue if self._admission.stale(item[0].oldest_version, update)]:
            self._drop(item)
        wanted = self._stream.batch_blocks
        if len(self._queue) < wanted or self._is_worth_waiting(update):
            self._grant()
            return None
        self._waited = 0
        self._queue.sort(key=lambda item: item[0].ticket)
        taken, self._queue = self._queue[:wanted], self._queue[wanted:]
        for posted, link in taken:
            self._taken[id(posted)] = link
        self._admission.consumed(wanted)
        self._consumed += wanted
        return [posted for posted, _ in taken]

    def _is_worth_waiting(self, update: int) -> bool:
        """Return whether a complete batch should wait for a slow producer, whose block would otherwise be lost. It
        waits until the others have filled one more batch, but only for a few polls, because the producer may hang."""
        self._waited += 1
        may_wait = len(self._queue) < 2 * self._stream.batch_blocks and self._waited <= LATE_BLOCK_POLLS
        return may_wait and self._admission.endangered(update) > 0

    @property
    def waits_for_late_block(self) -> bool:
        return self._waited > 0

    def release(self, blocks: Sequence[PostedBlock]) -> None:
        for posted in blocks:
            self._release(posted, self._taken.pop(id(posted)))

    def _release(self, posted: PostedBlock, link: _ProducerLink) -> None:
        if link in self._links:
            try:
                link.channel.send(Release(posted.block.index))
            except ChannelClosed:
                self._lose(link)

    def advance(self, version: int) -> None:
        self._admission.version = version
        self._grant()

    def skip_to(self, update: int) -> None:
        """Continue with the blocks of update number `update`. Blocks that have arrived count for it."""
        self._admission.used = update * self._stream.batch_blocks

    def status(self) -> StreamStatus:
        filled = min(1.0, len(self._queue) / self._stream.batch_blocks)
        return StreamStatus(self._stream.name, "push", filled, self._posted, self._consumed, self._dropped)

    def state(self) -> State:
        links = [
            {
                "producer": link.producer,
                "wanted": link.wanted,
                "tickets": sorted(link.tickets),
                "last_sequence": link.last_sequence,
                "unread": unread_messages(link.channel),
            }
            for link in self._links
        ]
        queue = [
            {
                "producer": p.producer,
                "block": p.block.index,
                "episodes": to_builtins(p.episodes),
                "rest": [p.sequence, p.ticket, p.oldest_version, p.incarnation, p.track, p.first_step],
            }
            for p, _ in self._queue
        ]
        fields = {
            "links": links,
            "queue": queue,
            "next": self._next,
            "waited": self._waited,
            "counts": [self._posted, self._consumed, self._dropped],
            "admission": self._admission.state(),
        }
        return {"fields": pack(fields)}

    def restore(self, state: State) -> bool:
        fields = unpack(state["fields"])
        self._accept_attached()
        connected = {link.producer: link for link in self._links if link.memory is not None}
        if not {saved["producer"] for saved in fields["links"]} <= set(connected):
            return False
        for saved in fields["links"]:
            link = connected[saved["producer"]]
            link.wanted, link.last_sequence = saved["wanted"], saved["last_sequence"]
            link.tickets = set(saved["tickets"])
            restore_unread(link.channel, saved["unread"])
        self._links = [connected[saved["producer"]] for saved in fields["links"]]
        self._queue = []
        for saved in fields["queue"]:
            link = connected[saved["producer"]]
            assert link.memory is not None
            block = link.memory.blocks[saved["block"]]
            episodes = convert(saved["episodes"], Episodes | None)
            sequence, ticket, oldest, incarnation, track, first_step = saved["rest"]
            posted = PostedBlock(
                link.producer, sequence, ticket, oldest, block, incarnation, episodes, track, first_step
            )
            self._queue.append((posted, link))
        self._next, self._waited = fields["next"], fields["waited"]
        self._posted, self._consumed, self._dropped = fields["counts"]
        self._admission.restore(fields["admission"])
        return True

    def _accept_attached(self) -> None:
        """Accept producers and their memory, but no other messages."""
        while (channel := self._listener.accept()) is not None:
            self._context.wake_on(channel)
            self._links.append(_ProducerLink(channel))
        for link in self._links:
            received = receive_attach(link.channel, AttachProducer)
            if received is not None:
                self._attach(link, *received)

    def close(self) -> None:
        for link in self._links:
            link.channel.close()
        self._links.clear()
        self._listener.close()
