"""Parameters between hosts: each takes them from one other and hands them to a few, however many workers it has."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Union

from srl.api.parameters import ParameterStore
from srl.api.transport import Channel, ChannelClosed, Listener, Message, Transport
from srl.base.tree import Array

RETRY_SECONDS = 0.5


class Subscribe(Message, frozen=True):
    """Below: tell me of versions newer than this."""

    policy: str
    version: int


class Newest(Message, frozen=True):
    """Above: here are parameters; they follow."""

    policy: str
    version: int


class Took(Message, frozen=True):
    """Below: I have them; send what is newest by now."""

    policy: str
    version: int


Messages: Any = Union[Subscribe, Newest, Took]


@dataclass
class _Below:
    """A host that takes versions from us."""

    channel: Channel
    has: dict[str, int] = field(default_factory=dict)
    under_way: set[str] = field(default_factory=set)


@dataclass
class _Above:
    """The host that we take one policy's versions from."""

    address: str
    channel: Channel | None = None
    retry_at: float = 0.0


class ParameterRelay:
    """One for each host. A version is sent only after the former one was taken: a slow host skips versions and
    delays nobody. `on_new` is called when versions came from another host."""

    def __init__(
        self,
        transport: Transport,
        stores: Mapping[str, ParameterStore],
        watch: Callable[[Channel | Listener], None],
        on_new: Callable[[], None],
    ) -> None:
        self._transport = transport
        self._stores = stores
        self._watch = watch
        self._on_new = on_new
        self._listener = transport.listen("parameters", Messages)
        self.address = self._listener.address
        self._watch(self._listener)
        self._below: list[_Below] = []
        self._above: dict[str, _Above] = {}
        self._newest: dict[str, tuple[int, Array]] = {}

    def follow(self, policy: str, address: str) -> None:
        """Take a policy's versions from there; empty: they are made on this host."""
        known = self._above.get(policy)
        if known is not None and known.address == address:
            return
        if known is not None and known.channel is not None:
            known.channel.close()
        self._above.pop(policy, None)
        if address:
            self._above[policy] = _Above(address)

    def offer(self, policy: str, version: int, parameters: Array) -> None:
        """Hand a version on; the array must not change any more."""
        if policy not in self._newest or self._newest[policy][0] < version:
            self._newest[policy] = (version, parameters)
            for below in list(self._below):
                self._send(below, policy)

    def _send(self, below: _Below, policy: str) -> None:
        version, parameters = self._newest.get(policy, (-1, None))
        if parameters is None or policy in below.under_way or below.has.get(policy, version) >= version:
            return
        try:
            below.channel.send(Newest(policy, version), [parameters])
            below.under_way.add(policy)
        except ChannelClosed:
            self._drop(below)

    def poll(self) -> None:
        while (channel := self._listener.accept()) is not None:
            self._watch(channel)
            self._below.append(_Below(channel))
        for below in list(self._below):
            try:
                self._hear_below(below)
            except ChannelClosed:
                self._drop(below)
        fresh = False
        for policy, above in self._above.items():
            try:
                fresh |= self._hear_above(policy, above)
            except ChannelClosed:
                if above.channel is not None:
                    above.channel.close()
                above.channel, above.retry_at = None, time.monotonic() + RETRY_SECONDS
        if fresh:
            self._on_new()

    def _hear_below(self, below: _Below) -> None:
        while (received := below.channel.receive()) is not None:
            message = received[0]
            if not isinstance(message, (Subscribe, Took)) or message.policy not in self._stores:
                raise ChannelClosed(f"{below.channel.peer} asked for parameters that are not there")
            below.has[message.policy] = message.version
            below.under_way.discard(message.policy)
            self._send(below, message.policy)
        below.channel.flush()

    def _hear_above(self, policy: str, above: _Above) -> bool:
        if above.channel is None:
            if time.monotonic() < above.retry_at:
                return False
            above.channel = self._transport.connect(above.address, Messages)
            above.channel.send(Subscribe(policy, self._stores[policy].version))
            self._watch(above.channel)
        fresh = False
        while (received := above.channel.receive()) is not None:
            message, arrays, _ = received
            if not isinstance(message, Newest) or message.policy != policy or len(arrays) != 1:
                raise ChannelClosed(f"{above.channel.peer} sent something else than parameters")
            if message.version > self._stores[policy].version:
                self._stores[policy].push(message.version, arrays[0])
                fresh = True
            above.channel.send(Took(policy, message.version))
            self.offer(policy, message.version, arrays[0])
        above.channel.flush()
        return fresh

    def _drop(self, below: _Below) -> None:
        below.channel.close()
        if below in self._below:
            self._below.remove(below)

    def close(self) -> None:
        self._listener.close()
        for below in list(self._below):
            self._drop(below)
        for above in self._above.values():
            if above.channel is not None:
                above.channel.close()
        self._above.clear()
