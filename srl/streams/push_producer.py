"""The producer's end of a push stream: owns the memory of the blocks, fills what consumers have admitted."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from srl.api.block import Block
from srl.api.streams import OpenBlock
from srl.api.transport import ChannelClosed, Message
from srl.api.worker import Context
from srl.base.tree import Array
from srl.streams.arena import Arena
from srl.streams.connecting import newly_connected
from srl.streams.push_messages import Decline, Grant, Messages, Offer, Post, Release, Terms, Want
from srl.streams.routes import ROUTES, Link

if TYPE_CHECKING:
    from srl.streams.push import PushStream

AHEAD = 1
"""Admissions that a producer asks for before it needs them, so that a full block is followed by the next at once."""
HOLD_POLLS = 64
"""Polls after which an admission that was not used goes back: its producer may wait for another stream, whose admission
somebody holds who waits for this one. Counted in polls, not in seconds, so that inline runs repeat."""


class Producer:
    def __init__(self, stream: PushStream, context: Context, num_open: int, num_spare: int = 0) -> None:
        self._stream = stream
        self._context = context
        self._num_open = num_open
        self._num_spare = num_spare
        self._choose = ROUTES[stream.route]
        self._shares = stream.route == "broadcast"  # a block may be with several consumers
        self.arena = Arena.create(stream.name, stream.spec, num_open + stream.room + num_spare)
        self._offer = Offer(context.place.name, self.arena.num_blocks, context.place.incarnation)
        self._free = deque(range(self.arena.num_blocks))  # the block used last comes first: it is still in the cache
        self._links: dict[str, Link] = {}
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
                        if not (self._shares and self._is_held(message.block)):
                            self._free.appendleft(message.block)
                    elif isinstance(message, Terms):
                        link.terms = message
                self._give_back_unused(link)
                link.channel.flush()
            except ChannelClosed:
                self._lose(link)
        self._ask()

    def _give_back_unused(self, link: Link) -> None:
        link.num_held = link.num_held + 1 if link.grants else 0
        if link.num_held > HOLD_POLLS:
            link.num_held = 0
            link.channel.send(Decline(link.grants.popleft().ticket))

    def _connect(self) -> None:
        stream = self._stream
        for name, channel in newly_connected(
            self._context, stream.prefix, stream.remote, self._links, Messages, self._offer, self.arena
        ):
            self._links[name] = Link(name, channel)

    def _ask(self) -> None:
        """Keep every consumer informed of how many blocks could be started."""
        for link in list(self._links.values()):
            missing = self._num_open + AHEAD - len(self._open) - len(link.grants) - link.wanted
            if missing > 0:
                link.wanted += missing
                self._send(link, Want(missing))

    def _lose(self, link: Link) -> None:
        link.channel.close()
        del self._links[link.name]
        self.num_lost += len(link.posted)
        self._free.extend(index for index in link.posted if not self._is_held(index))
        for opened in self._open.values():
            if opened.tickets.pop(link.name, None) is not None and not opened.tickets:
                opened.alive = False

    def _is_held(self, index: int) -> bool:
        return any(index in link.posted for link in self._links.values())

    def open(self) -> OpenBlock | None:
        if not self._free:
            return None
        links = self._choose(self._links.values())
        if not links:
            return None
        min_version, tickets = 0, {}
        for link in links:
            grant = link.grants.popleft()
            link.num_held = 0
            min_version = max(min_version, grant.min_version)
            tickets[link.name] = grant.ticket
        index = self._free.popleft()
        opened = self._open[index] = OpenBlock(self.arena.blocks[index], min_version, tickets)
        return opened

    def spare(self) -> Block:
        """A block to write into without recording; it stays with whoever asked."""
        if self._num_spare == 0:
            raise ValueError(f"stream {self._stream.name}: this producer was made with too few spare blocks")
        self._num_spare -= 1
        return self.arena.blocks[self._free.pop()]

    def post(self, opened: OpenBlock) -> None:
        if not opened.alive:
            self.discard(opened)
            return
        index = opened.block.index
        del self._open[index]
        self._sequence += 1
        oldest = int(opened.block.arrays["version"][:-1].min())
        # Also over TCP the block counts as posted until it is given back: that is what bounds what waits over there.
        takers = [link for name in opened.tickets if not (link := self._links[name]).is_full]
        for link in takers:  # before anything is sent: who turns out to be gone must not free what others get
            link.posted.add(index)
        for link in takers:
            arrays = () if link.channel.shares_memory else tuple(opened.block.arrays.values())
            self._send(link, Post(index, opened.tickets.pop(link.name), self._sequence, oldest), arrays)
        if not takers:
            self._free.appendleft(index)
        self._decline(opened)

    def discard(self, opened: OpenBlock) -> None:
        if self._open.pop(opened.block.index, None) is not opened:
            raise ValueError(f"stream {self._stream.name}: block {opened.block.index} is not open any more")
        self._free.appendleft(opened.block.index)
        self._decline(opened)

    def _decline(self, opened: OpenBlock) -> None:
        """Its admissions go back to who gave them and does not get the block."""
        for name, ticket in opened.tickets.items():
            self._send(self._links[name], Decline(ticket))

    def _send(self, link: Link, message: Message, arrays: Sequence[Array] = ()) -> None:
        try:
            link.channel.send(message, arrays)
        except ChannelClosed:
            self._lose(link)

    def close(self) -> None:
        for link in self._links.values():
            link.channel.close()
        self._links.clear()
        self.arena.close()
