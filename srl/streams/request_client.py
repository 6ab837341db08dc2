"""Clients of request streams: they request decisions from a policy in the same process, or from policy workers."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from srl.api.block import BlockMemory
from srl.api.parameters import ParameterStore
from srl.api.policy import Policy
from srl.api.streams import Cell
from srl.api.transport import ChannelClosed
from srl.api.worker import Context
from srl.base.meter import Meter, Phase
from srl.base.state import State, pack, part, under, unpack
from srl.base.tree import Array
from srl.streams.messages import AttachClient, Relax, Reply, Request, RequestMessage
from srl.streams.peers import PeerLink, connect_peers, restore_unread, unread_messages
from srl.streams.rows import (
    cells_from,
    decide,
    decision_paths,
    gather,
    indices_of,
    input_paths,
    write_decision,
)

if TYPE_CHECKING:
    from srl.streams.request import RequestStream


class _Asked(NamedTuple):
    """An unanswered request."""

    tag: int
    cells: Sequence[Cell]
    min_version: int


def _to_plain(requests: Sequence[_Asked]) -> list[list[object]]:
    return [[tag, indices_of(cells), min_version] for tag, cells, min_version in requests]


def _from_plain(memory: BlockMemory, plain: list[list[object]]) -> list[_Asked]:
    return [_Asked(tag, cells_from(memory, cells), min_version) for tag, cells, min_version in plain]  # type: ignore[arg-type]


def _relaxed(requests: Iterable[_Asked], tag: int, min_version: int) -> list[_Asked]:
    return [asked._replace(min_version=min_version) if asked.tag == tag else asked for asked in requests]


def refresh(policy: Policy, parameters: ParameterStore) -> None:
    """Load the newest parameters into the policy, if it does not have them yet."""
    if parameters.version > policy.version:
        newest = parameters.pull(newer_than=policy.version)
        if newest is not None:
            policy.load(newest[1], newest[0])


class InlineClient:
    """Client with a policy in this process, which answers at once (:class:`srl.api.streams.RequestClient`)."""

    def __init__(self, policy: Policy, parameters: ParameterStore, memory: BlockMemory, meter: Meter) -> None:
        self._policy = policy
        self._parameters = parameters
        self._memory = memory
        self._meter = meter
        self._waiting: list[_Asked] = []

    def post(self, tag: int, cells: Sequence[Cell], min_version: int) -> bool:
        policy = self.local_policy(min_version)
        if policy is None:
            self._waiting.append(_Asked(tag, cells, min_version))
            return False
        self._meter.enter(Phase.INFERENCE)
        write_decision(cells, decide(policy, gather(cells)), policy.version)
        return True

    def local_policy(self, min_version: int) -> Policy | None:
        refresh(self._policy, self._parameters)
        return self._policy if self._policy.version >= max(0, min_version) else None

    def relax(self, tag: int, min_version: int) -> None:
        self._waiting = _relaxed(self._waiting, tag, min_version)

    def flush(self) -> None:
        """Do nothing, because nothing is queued here."""

    def poll(self) -> list[int]:
        """Answer the requests that had to wait for newer parameters."""
        waiting, self._waiting = self._waiting, []
        return [asked.tag for asked in waiting if self.post(*asked)]

    def state(self) -> State:
        return {"fields": pack({"waiting": _to_plain(self._waiting)}), **under("policy", self._policy.state())}

    def restore(self, state: State) -> bool:
        self._waiting = _from_plain(self._memory, unpack(state["fields"])["waiting"])
        self._policy.restore(part(state, "policy"))
        return True

    def close(self) -> None:
        """Do nothing, because nothing is held."""


@dataclass(eq=False)
class _ServerLink(PeerLink):
    """A client's connection to one policy worker."""

    pending: dict[int, _Asked] = field(default_factory=dict)

    def distance(self) -> tuple[bool, int]:
        """Return a sort key: servers on this host come first, then those with the fewest pending requests."""
        return not self.channel.shares_memory, len(self.pending)


class Client:
    """Client of policy workers (:class:`srl.api.streams.RequestClient`). Each request goes to the server with the
    fewest pending requests, on another host only if this one has none. A dead server's requests go to others."""

    def __init__(self, stream: RequestStream, context: Context, memory: BlockMemory) -> None:
        self._stream = stream
        self._context = context
        self._memory = memory
        self._attach = AttachClient(context.worker_id.name, len(memory.blocks))
        self._links: dict[str, _ServerLink] = {}
        self._queue: deque[_Asked] = deque()
        self._inputs = input_paths(stream.spec)
        self._decisions = decision_paths(stream.spec)

    def post(self, tag: int, cells: Sequence[Cell], min_version: int) -> bool:
        self._queue.append(_Asked(tag, cells, min_version))
        return False

    def local_policy(self, min_version: int) -> Policy | None:
        return None

    def relax(self, tag: int, min_version: int) -> None:
        self._queue = deque(_relaxed(self._queue, tag, min_version))
        for link in list(self._links.values()):
            if tag in link.pending:
                link.pending[tag] = link.pending[tag]._replace(min_version=min_version)
                try:
                    link.channel.send(Relax(tag, min_version))
                except ChannelClosed:
                    self._lose(link)

    def flush(self) -> None:
        self._connect()
        while self._queue and self._links:
            asked = self._queue.popleft()
            tag, cells, min_version = asked
            link = min(self._links.values(), key=_ServerLink.distance)
            message = Request(tag, [cell.block.index for cell in cells], [cell.row for cell in cells], min_version)
            arrays: list[Array] = []
            if not link.channel.shares_memory:
                arrays = gather(cells).arrays(self._inputs)
            link.pending[tag] = asked
            try:
                link.channel.send(message, arrays)
            except ChannelClosed:
                self._lose(link)

    def _connect(self) -> None:
        stream, attach, memory = self._stream, self._attach, self._memory
        prefix, remote, links = stream.prefix, stream.remote, self._links
        connect_peers(self._context, prefix, remote, links, _ServerLink, self._lose, RequestMessage, attach, memory)

    def poll(self) -> list[int]:
        answered: list[int] = []
        for link in list(self._links.values()):
            try:
                while (received := link.channel.receive()) is not None:
                    message, arrays, _ = received
                    if not isinstance(message, Reply) or message.tag not in link.pending:
                        raise ChannelClosed(f"{link.name} replied to a request that it was never sent")
                    asked = link.pending.pop(message.tag)
                    if arrays:
                        write_decision(asked.cells, dict(zip(self._decisions, arrays, strict=True)), message.version)
                    answered.append(message.tag)
                link.channel.flush()
            except ChannelClosed:
                self._lose(link)
        if self._queue:
            self.flush()
        return answered

    def _lose(self, link: _ServerLink) -> None:
        link.channel.close()
        del self._links[link.name]
        self._queue.extend(link.pending.values())

    def state(self) -> State:
        servers = {
            link.name: {"pending": _to_plain(list(link.pending.values())), "unread": unread_messages(link.channel)}
            for link in self._links.values()
        }
        return {"fields": pack({"servers": servers, "queue": _to_plain(self._queue)})}

    def restore(self, state: State) -> bool:
        fields = unpack(state["fields"])
        self._connect()
        if not set(fields["servers"]) <= set(self._links):
            return False
        for name, saved in fields["servers"].items():
            link = self._links[name]
            link.pending = {asked.tag: asked for asked in _from_plain(self._memory, saved["pending"])}
            restore_unread(link.channel, saved["unread"])
        self._queue = deque(_from_plain(self._memory, fields["queue"]))
        return True

    def close(self) -> None:
        for link in self._links.values():
            link.channel.close()
        self._links.clear()
