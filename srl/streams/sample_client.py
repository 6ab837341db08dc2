"""The client of a sample stream: asks all replay workers for their parts of an update's minibatches."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from srl.api.streams import Filled, Inserted, Sampled
from srl.api.transport import ChannelClosed, Message
from srl.api.worker import Context
from srl.base.state import NotResumable, State
from srl.base.tree import Array
from srl.streams.messages import (
    AttachSampler,
    Draw,
    DrawReply,
    Fill,
    FillReply,
    PriorityFeedback,
    Published,
    SampleMessage,
)
from srl.streams.peers import PeerLink, connect_peers

if TYPE_CHECKING:
    from srl.streams.sample import SampleStream

CONNECT_SECONDS = 0.02  # between two attempts to connect to replay workers that are being replaced
NUM_REMEMBERED = 4  # draws to which feedback may still come


@dataclass(eq=False)
class _ShardLink(PeerLink):
    """A client's connection to one replay worker."""

    announced: int = -1  # newest version that it knows
    facts: Inserted | None = None  # of this round
    lags: Array | None = None
    new: Mapping[str, Array] = field(default_factory=dict)
    part: Mapping[str, Array] | None = None  # of this round; None: not yet
    num_steps: int = 0  # minibatches that it was asked for, and units in each
    count: int = 0

    @property
    def index(self) -> int:
        return int(self.name.rpartition("/")[2])


class Client:
    """Implementation of :class:`srl.api.streams.SampleClient`.

    A round has a tag: all replay workers insert the blocks of the update, then all draw. If a worker is lost, the round
    starts again once its replacement is connected; answers with another tag are ignored. What the memories have
    inserted, they do not insert again.
    """

    def __init__(self, stream: SampleStream, context: Context, rank: int, size: int) -> None:
        self._stream = stream
        self._context = context
        self._attach = AttachSampler(context.worker_id.name, rank, size, context.worker_id.incarnation)
        self._links: dict[str, _ShardLink] = {}
        self._version = -1
        self._update = 0
        self._tag = 0
        self._phase: Literal["idle", "requested", "filling", "filled", "drawing"] = "idle"
        self._next_attempt = 0.0
        self._drawn: dict[int, list[_ShardLink]] = {}  # tag -> where its units came from

    @property
    def is_connected(self) -> bool:
        return sorted(link.index for link in self._links.values()) == list(range(self._stream.shards))

    @property
    def _shards(self) -> list[_ShardLink]:
        return sorted(self._links.values(), key=lambda link: link.index)

    def advance(self, version: int) -> None:
        self._version = max(self._version, version)
        for link in self._shards:
            if link.announced < self._version:
                link.announced = self._version
                self._send(link, Published(self._version))

    def fill(self, update: int) -> None:
        self._update = update
        self._phase = "requested"
        self._begin()

    def _begin(self) -> None:
        """Start a round, if all replay workers are connected."""
        if self._phase != "requested" or not self.is_connected:
            return
        self._tag += 1
        self._phase = "filling"
        for link in self._shards:
            link.facts = link.lags = link.part = None
        for link in self._shards:
            self._send(link, Fill(self._tag, self._update))

    def draw(self, num_steps: int, counts: Sequence[int]) -> None:
        if self._phase == "filled":  # otherwise a replay worker was lost, and the round has started again
            self._phase = "drawing"
            self._tag += 1
            for link, count in zip(self._shards, counts, strict=True):
                link.num_steps, link.count = num_steps, count
                link.part = None if count else {}
                if count:
                    self._send(link, Draw(self._tag, num_steps, count))

    def poll(self) -> Filled | Sampled | None:
        self._connect()
        for link in self._shards:
            try:
                while (received := link.channel.receive()) is not None:
                    self._handle(link, received[0], received[1])
                link.channel.flush()
            except ChannelClosed:
                self._lose(link)
        self._begin()
        links = self._shards
        if self._phase == "filling" and all(link.facts is not None for link in links):
            self._phase = "filled"
            facts = tuple(link.facts for link in links if link.facts is not None)
            lags = np.concatenate([link.lags for link in links if link.lags is not None])
            paths = set.intersection(*(set(link.new) for link in links))
            return Filled(
                facts, lags, {path: np.concatenate([link.new[path] for link in links]) for path in sorted(paths)}
            )
        if self._phase == "drawing" and all(link.part is not None for link in links):
            return self._sampled(links)
        return None

    def _sampled(self, links: list[_ShardLink]) -> Sampled:
        if any(link.count and not link.part for link in links):
            self._phase = "filled"  # a memory is empty: the caller may draw something else
            return Sampled(None, self._tag)
        self._phase = "idle"
        self._drawn[self._tag] = links
        for tag in list(self._drawn)[:-NUM_REMEMBERED]:
            del self._drawn[tag]
        return Sampled(tuple(link.part or {} for link in links), self._tag)

    def _connect(self) -> None:
        if self._context.threads and time.monotonic() < self._next_attempt:
            return
        self._next_attempt = time.monotonic() + CONNECT_SECONDS
        prefix, remote, links = self._stream.prefix, self._stream.remote, self._links
        connect_peers(self._context, prefix, remote, links, _ShardLink, self._lose, SampleMessage, self._attach, None)
        self.advance(self._version)

    def _handle(self, link: _ShardLink, message: Any, arrays: list[Array]) -> None:
        if not isinstance(message, (FillReply, DrawReply)):
            raise ChannelClosed(f"{link.name} sent a {type(message).__name__}, which replay workers do not send")
        if message.tag != self._tag:
            return  # the answer to an abandoned request
        if isinstance(message, FillReply):
            self._accept_facts(link, message, arrays)
            return
        if len(message.paths) != len(arrays):
            raise ChannelClosed(f"{link.name} sent {len(arrays)} arrays for {len(message.paths)} paths")
        for path, array in zip(message.paths, arrays, strict=True):
            self._check(link, path, array, self._stream.leading(path, link.num_steps, link.count))
        link.part = dict(zip(message.paths, arrays, strict=True))

    def _accept_facts(self, link: _ShardLink, message: FillReply, arrays: list[Array]) -> None:
        count = (message.facts.num_decisions,)
        if len(arrays) != 1 + len(message.paths) or arrays[0].shape != count or arrays[0].dtype != np.int64:
            raise ChannelClosed(f"{link.name} did not send the lags of its new decisions")
        for path, array in zip(message.paths, arrays[1:], strict=True):
            self._check(link, path, array, count)
        link.facts, link.lags = message.facts, arrays[0]
        link.new = dict(zip(message.paths, arrays[1:], strict=True))

    def _check(self, link: _ShardLink, path: str, array: Array, leading: tuple[int, ...]) -> None:
        if not self._stream.fits(path, array, leading):
            kind = self._stream.kind(path)
            raise ChannelClosed(f"{link.name} sent {path} as {array.dtype}{array.shape}, expected {leading} x {kind}")

    def feedback(self, sampled: Sampled, priorities: Sequence[Array]) -> None:
        for link, part in zip(self._drawn.pop(sampled.tag, []), priorities, strict=False):
            if self._links.get(link.name) is link and part.size:
                self._send(link, PriorityFeedback(sampled.tag), (part,))

    def _send(self, link: _ShardLink, message: Message, arrays: Sequence[Array] = ()) -> None:
        try:
            link.channel.send(message, arrays)
        except ChannelClosed:
            self._lose(link)

    def _lose(self, link: _ShardLink) -> None:
        link.channel.close()
        if self._links.get(link.name) is link:
            del self._links[link.name]
        if self._phase != "idle":
            self._phase = "requested"

    def state(self) -> State:
        raise NotResumable("a trainer that draws from replay workers cannot be saved with its batches")

    def restore(self, state: State) -> bool:
        raise NotResumable("a trainer that draws from replay workers cannot be restored with its batches")

    def close(self) -> None:
        for link in self._links.values():
            link.channel.close()
        self._links.clear()
