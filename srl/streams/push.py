"""The push stream: full blocks from producers to consumers, by index on a host, by value between hosts."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from srl.api.block import Block, BlockSpec
from srl.api.status import StreamStatus
from srl.api.streams import OpenBlock, PostedBlock
from srl.api.transport import Channel, ChannelClosed
from srl.api.worker import Context
from srl.streams.admission import Admission
from srl.streams.arena import Arena
from srl.streams.push_messages import Decline, Grant, Messages, Offer, Post, Release, Want

AHEAD = 1
"""Admissions that a producer asks for before it needs them, so that a full block is followed by the next at once."""
HOLD_POLLS = 64
"""Polls after which an admission that was not used goes back: its producer may wait for another stream, whose admission
somebody holds who waits for this one. Counted in polls, not in seconds, so that inline runs repeat."""
PATIENCE_POLLS = 8
"""Polls for which a complete batch waits for a block that was admitted earlier, and would be too old for the next."""


@dataclass(frozen=True)
class PushStream:
    """An edge from actors to trainers. Both ends are made from this one description."""

    name: str
    spec: BlockSpec
    batch_blocks: int
    """Blocks that one consumer takes for one update."""
    capacity: int = 2
    """Full blocks that may wait, for each producer; never less than one producer alone needs to complete a batch."""
    full: Literal["block", "drop_oldest"] = "block"
    """When they wait: producers pause, or the oldest blocks give way."""
    max_lag: int | None = 1
    """Policy versions by which a sample may be behind the update that uses it; None: any."""
    remote: bool = False
    """Reach consumers over TCP, as if they were on another host."""
    consumers: int = 1
    """How many there are. Each waits for a whole batch, so a producer needs room for one batch of each."""

    @property
    def prefix(self) -> str:
        return f"push/{self.name}/"

    def producer(self, context: Context, num_open: int, num_spare: int = 0) -> Producer:
        """The end that fills up to `num_open` blocks at the same time. Spare blocks are never posted."""
        return Producer(self, context, num_open, num_spare)

    def consumer(self, context: Context) -> Consumer:
        return Consumer(self, context)


class _Link:
    """A producer's view of one consumer."""

    def __init__(self, name: str, channel: Channel) -> None:
        self.name = name
        self.channel = channel
        self.wanted = 0
        self.grants: deque[Grant] = deque()
        self.num_held = 0  # polls since the oldest of them could have been used
        self.posted: set[int] = set()


class Producer:
    def __init__(self, stream: PushStream, context: Context, num_open: int, num_spare: int = 0) -> None:
        self._stream = stream
        self._context = context
        self._num_open = num_open
        self._num_spare = num_spare
        room = max(stream.capacity, stream.batch_blocks * stream.consumers)
        self.arena = Arena.create(stream.name, stream.spec, num_open + room + num_spare)
        self._free = deque(range(self.arena.num_blocks))  # the block used last comes first: it is still in the cache
        self._links: dict[str, _Link] = {}
        self._open: dict[int, OpenBlock] = {}
        self._sequence = 0
        self.num_lost = 0
        """Full blocks that a consumer took down with it."""

    def poll(self) -> None:
        self._connect()
        for link in list(self._links.values()):
            try:
                while (received := link.channel.receive()) is not None:
                    message = received[0]
                    if isinstance(message, Grant):
                        link.wanted -= 1
                        link.grants.append(message)
                    elif isinstance(message, Release):
                        if message.block not in link.posted:
                            raise ChannelClosed(f"{link.name} gave back block {message.block}, which it did not have")
                        link.posted.remove(message.block)
                        self._free.appendleft(message.block)
                self._give_back_unused(link)
                link.channel.flush()
            except ChannelClosed:
                self._lose(link)
        self._ask()

    def _give_back_unused(self, link: _Link) -> None:
        link.num_held = link.num_held + 1 if link.grants else 0
        if link.num_held > HOLD_POLLS:
            link.num_held = 0
            link.channel.send(Decline(link.grants.popleft().ticket))

    def _connect(self) -> None:
        for name, address in self._context.names.lookup(self._stream.prefix).items():
            known = self._links.get(name)
            if known is not None or address.startswith("tcp:") != self._stream.remote:
                continue
            try:
                channel = self._context.connect(address, Messages)
            except ChannelClosed:
                continue  # registered, but dying or not yet there: the next poll tries again
            memory = self.arena.memory if channel.shares_memory else None
            try:
                channel.send(
                    Offer(self._context.place.name, self.arena.num_blocks, self._context.place.incarnation),
                    memory=memory,
                )
            except ChannelClosed:
                channel.close()
                continue
            self._context.wake_on(channel)
            self._links[name] = _Link(name, channel)

    def _ask(self) -> None:
        """Keep every consumer informed of how many blocks could be started."""
        for link in list(self._links.values()):
            missing = self._num_open + AHEAD - len(self._open) - len(link.grants) - link.wanted
            if missing > 0:
                try:
                    link.channel.send(Want(missing))
                    link.wanted += missing
                except ChannelClosed:
                    self._lose(link)

    def _lose(self, link: _Link) -> None:
        link.channel.close()
        del self._links[link.name]
        self.num_lost += len(link.posted)
        self._free.extend(link.posted)
        for opened in self._open.values():
            if opened.consumer == link.name:
                opened.alive = False

    def open(self) -> OpenBlock | None:
        if not self._free:
            return None
        candidates = [link for link in self._links.values() if link.grants]
        if not candidates:
            return None
        link = min(candidates, key=lambda link: link.grants[0].ticket)
        grant = link.grants.popleft()
        link.num_held = 0
        index = self._free.popleft()
        opened = OpenBlock(self.arena.blocks[index], grant.min_version, grant.ticket, link.name)
        self._open[index] = opened
        return opened

    def spare(self) -> Block:
        """A block to write into without recording; it stays with whoever asked."""
        if self._num_spare == 0:
            raise ValueError(f"stream {self._stream.name}: this producer was made with too few spare blocks")
        self._num_spare -= 1
        return self.arena.blocks[self._free.pop()]

    def post(self, opened: OpenBlock) -> None:
        index = opened.block.index
        link = self._links.get(opened.consumer)
        if not opened.alive or link is None:
            self.discard(opened)
            return
        del self._open[index]
        self._sequence += 1
        oldest = int(opened.block.arrays["version"][:-1].min())
        message = Post(index, opened.ticket, self._sequence, oldest)
        # Also over TCP the block counts as posted until it is given back: that is what bounds what waits over there.
        link.posted.add(index)
        arrays: list[Any] = [] if link.channel.shares_memory else list(opened.block.arrays.values())
        try:
            link.channel.send(message, arrays)
        except ChannelClosed:
            self._lose(link)

    def discard(self, opened: OpenBlock) -> None:
        if self._open.pop(opened.block.index, None) is not opened:
            raise ValueError(f"stream {self._stream.name}: block {opened.block.index} is not open any more")
        self._free.appendleft(opened.block.index)
        link = self._links.get(opened.consumer)
        if opened.alive and link is not None:
            try:
                link.channel.send(Decline(opened.ticket))
            except ChannelClosed:
                self._lose(link)

    def close(self) -> None:
        for link in self._links.values():
            link.channel.close()
        self._links.clear()
        self.arena.close()


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
            self._context.wake_on(channel)
            self._sources.append(_Source(channel))
        for source in list(self._sources):
            try:
                while (received := source.channel.receive()) is not None:
                    self._handle(source, *received)
                source.channel.flush()
            except ChannelClosed:
                self._lose(source)
        self._grant()

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
