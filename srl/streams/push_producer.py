"""The producer of a push stream: owns the memory of the blocks and fills those that consumers have admitted."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from srl.api.block import Block, BlockMemory, Episodes
from srl.api.streams import OpenBlock
from srl.api.transport import ChannelClosed, Message
from srl.api.worker import Context
from srl.base.state import State, pack, part, unpack
from srl.base.tree import Array
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
from srl.streams.peers import connect_peers, restore_unread, unread_messages
from srl.streams.routes import ROUTES, ConsumerLink

if TYPE_CHECKING:
    from srl.streams.push import PushStream

GRANTS_AHEAD = 1  # admissions requested in advance, so that the next block can start without a wait
UNUSED_GRANT_POLLS = 4
"""Number of polls after which an unused admission is returned. This avoids a deadlock: the producer may be waiting for
another stream, whose admission is held by a producer that waits for this one. Counted in polls, not in seconds, so that
inline runs are reproducible."""


class Producer:
    """Implementation of :class:`srl.api.streams.PushProducer`."""

    def __init__(self, stream: PushStream, context: Context, num_open: int, num_scratch: int = 0) -> None:
        self._stream = stream
        self._context = context
        self._num_open = num_open
        self._num_scratch = num_scratch
        self._choose = ROUTES[stream.route]
        self._shares = stream.route == "broadcast"  # several consumers may hold a block
        self.memory = BlockMemory.create(stream.name, stream.spec, num_open + stream.room + num_scratch)
        num_blocks = len(self.memory.blocks)
        # With several consumers, each must be able to complete a batch while the others hold as much as they may.
        others = 0 if self._shares else stream.consumers - 1
        self._max_held = (num_blocks - num_scratch - stream.batch_blocks) // others if others else None
        self._attach = AttachProducer(context.worker_id.name, num_blocks, context.worker_id.incarnation)
        self._free = deque(range(num_blocks))  # the most recently used block comes first: it is still in the cache
        self._links: dict[str, ConsumerLink] = {}
        self._open: dict[int, OpenBlock] = {}
        self._sequence = 0
        self.num_lost = 0  # full blocks that were lost with a consumer that died

    def poll(self) -> None:
        self._connect()
        for link in list(self._links.values()):
            try:
                while (received := link.channel.receive()) is not None:
                    message = received[0]
                    if isinstance(message, BlockGrant):
                        link.wanted -= 1
                        link.grants.append(message)
                    elif isinstance(message, Release):
                        if message.block not in link.posted:
                            raise ChannelClosed(f"{link.name} released block {message.block}, which it did not hold")
                        link.posted.remove(message.block)
                        if not (self._shares and self._is_posted(message.block)):
                            self._free.appendleft(message.block)
                    elif isinstance(message, ConsumerTerms):
                        link.terms = message
                self._decline_unused(link)
                link.channel.flush()
            except ChannelClosed:
                self._lose(link)
        self._ask()

    def _decline_unused(self, link: ConsumerLink) -> None:
        link.polls_unused = link.polls_unused + 1 if link.grants else 0
        if link.polls_unused > UNUSED_GRANT_POLLS:
            link.polls_unused = 0
            link.channel.send(BlockDecline(link.grants.popleft().ticket))

    def _connect(self) -> None:
        stream, attach, memory = self._stream, self._attach, self.memory
        prefix, remote, links = stream.prefix, stream.remote, self._links
        connect_peers(self._context, prefix, remote, links, ConsumerLink, self._lose, PushMessage, attach, memory)

    def _ask(self) -> None:
        """Ask every consumer to admit as many blocks as this producer could start."""
        for link in list(self._links.values()):
            missing = self._num_open + GRANTS_AHEAD - len(self._open) - len(link.grants) - link.wanted
            if missing > 0:
                link.wanted += missing
                self._send(link, BlockRequest(missing))

    def _lose(self, link: ConsumerLink) -> None:
        link.channel.close()
        del self._links[link.name]
        self.num_lost += len(link.posted)
        self._free.extend(index for index in link.posted if not self._is_posted(index))
        for opened in self._open.values():
            if opened.tickets.pop(link.name, None) is not None and not opened.tickets:
                opened.alive = False

    def _is_posted(self, index: int) -> bool:
        return any(index in link.posted for link in self._links.values())

    def open(self) -> OpenBlock | None:
        if not self._free:
            return None
        links = self._choose(self._links.values() if self._max_held is None else self._not_ahead(self._max_held))
        if not links:
            return None
        min_version, tickets = 0, {}
        for link in links:
            grant = link.grants.popleft()
            link.polls_unused = 0
            min_version = max(min_version, grant.min_version)
            tickets[link.name] = grant.ticket
        index = self._free.popleft()
        opened = self._open[index] = OpenBlock(self.memory.blocks[index], min_version, tickets)
        return opened

    def _not_ahead(self, max_held: int) -> list[ConsumerLink]:
        """Return the consumers that hold, or will get, fewer than `max_held` blocks."""
        filling = Counter(name for opened in self._open.values() for name in opened.tickets)
        return [link for link in self._links.values() if len(link.posted) + filling[link.name] < max_held]

    def open_blocks(self) -> Mapping[int, OpenBlock]:
        return self._open

    def scratch_block(self) -> Block:
        if self._num_scratch == 0:
            raise ValueError(f"stream {self._stream.name}: this producer was made with too few scratch blocks")
        self._num_scratch -= 1
        return self.memory.blocks[self._free.pop()]

    def post(self, opened: OpenBlock, episodes: Episodes | None = None) -> None:
        if not opened.alive:
            self.discard(opened)
            return
        index = opened.block.index
        del self._open[index]
        self._sequence += 1
        # Even over TCP, a block counts as posted until it is released: this bounds the number waiting at the consumer.
        receivers = [link for name in opened.tickets if not (link := self._links[name]).is_full]
        for link in receivers:  # before any send: a consumer that is gone must not free a block that others will get
            link.posted.add(index)
        for link in receivers:
            arrays = () if link.channel.shares_memory else tuple(opened.block.arrays.values())
            ticket = opened.tickets.pop(link.name)
            message = Post(index, ticket, self._sequence, episodes, opened.track, opened.first_step)
            self._send(link, message, arrays)
        if not receivers:
            self._free.appendleft(index)
        self._decline(opened)

    def discard(self, opened: OpenBlock) -> None:
        if self._open.pop(opened.block.index, None) is not opened:
            raise ValueError(f"stream {self._stream.name}: block {opened.block.index} is not open any more")
        self._free.appendleft(opened.block.index)
        self._decline(opened)

    def _decline(self, opened: OpenBlock) -> None:
        """Return the admissions of the consumers that do not receive the block."""
        for name, ticket in opened.tickets.items():
            self._send(self._links[name], BlockDecline(ticket))

    def _send(self, link: ConsumerLink, message: Message, arrays: Sequence[Array] = ()) -> None:
        try:
            link.channel.send(message, arrays)
        except ChannelClosed:
            self._lose(link)

    def state(self) -> State:
        links = {
            link.name: {
                "wanted": link.wanted,
                "grants": [[grant.ticket, grant.min_version] for grant in link.grants],
                "polls_unused": link.polls_unused,
                "posted": sorted(link.posted),
                "terms": None if link.terms is None else [link.terms.waited_for, link.terms.room],
                "unread": unread_messages(link.channel),
            }
            for link in self._links.values()
        }
        opened = [
            [o.block.index, o.min_version, o.tickets, o.alive, o.track, o.first_step] for o in self._open.values()
        ]
        fields = {"links": links, "open": opened, "free": list(self._free), "sequence": self._sequence}
        blocks = {
            f"block/{block.index}/{path}": array.copy()
            for block in self.memory.blocks
            if block.index not in self._free
            for path, array in block.arrays.items()
        }
        return {"fields": pack(fields), **blocks}

    def restore(self, state: State) -> bool:
        fields = unpack(state["fields"])
        self._connect()
        if not set(fields["links"]) <= set(self._links):
            return False
        blocks = self.memory.blocks
        for block in blocks:
            for path, values in part(state, f"block/{block.index}").items():
                block.arrays[path][...] = values
        self._free = deque(fields["free"])
        self._sequence = fields["sequence"]
        self._open = {index: OpenBlock(blocks[index], *rest) for index, *rest in fields["open"]}
        for name, saved in fields["links"].items():
            link = self._links[name]
            link.wanted, link.polls_unused = saved["wanted"], saved["polls_unused"]
            link.grants = deque(BlockGrant(*grant) for grant in saved["grants"])
            link.posted = set(saved["posted"])
            link.terms = None if saved["terms"] is None else ConsumerTerms(*saved["terms"])
            restore_unread(link.channel, saved["unread"])
        return True

    def close(self) -> None:
        for link in self._links.values():
            link.channel.close()
        self._links.clear()
        self.memory.close()
