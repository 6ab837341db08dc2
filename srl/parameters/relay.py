"""Distribution of parameters between hosts: each host receives them from one other and sends them to a few."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Union

from srl.api.parameters import ParameterStore
from srl.api.transport import Channel, ChannelClosed, Listener, Message, Transport
from srl.base.tree import Array

RETRY_SECONDS = 0.5


class Subscribe(Message, frozen=True):
    """Request from a receiver for versions newer than this."""

    policy: str
    version: int


class Newest(Message, frozen=True):
    """Newest version from a sender, with its parameters attached."""

    policy: str
    version: int


class Received(Message, frozen=True):
    """Confirmation from a receiver that this version has arrived, so the newest one may follow."""

    policy: str
    version: int


Messages: Any = Union[Subscribe, Newest, Received]


@dataclass
class _Receiver:
    """A host that receives versions from this one."""

    channel: Channel
    has: dict[str, int] = field(default_factory=dict)
    under_way: set[str] = field(default_factory=set)


@dataclass
class _Source:
    """The host from which this one receives a policy's versions."""

    address: str
    channel: Channel | None = None
    retry_at: float = 0.0


class ParameterRelay:
    """One host's relay. It sends a version only after the previous one has arrived, so a slow host skips versions
    instead of delaying the others. `on_new` is called when versions have arrived from another host."""

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
        # Every relay has its own name: a port may be used again by the relay of another host of this machine.
        self._listener = transport.listen(f"parameters.{secrets.token_hex(8)}", Messages)
        self.address = self._listener.address
        self._watch(self._listener)
        self._receivers: list[_Receiver] = []
        self._sources: dict[str, _Source] = {}
        self._newest: dict[str, tuple[int, Array]] = {}

    def follow(self, policy: str, address: str) -> None:
        """Receive a policy's versions from `address`, which is empty if the policy's trainer is on this host."""
        known = self._sources.get(policy)
        if known is not None and known.address == address:
            return
        if known is not None and known.channel is not None:
            known.channel.close()
        self._sources.pop(policy, None)
        if address:
            self._sources[policy] = _Source(address)

    def offer(self, policy: str, version: int, parameters: Array) -> None:
        """Send a version to all receivers; the array must not change afterwards."""
        if policy not in self._newest or self._newest[policy][0] < version:
            self._newest[policy] = (version, parameters)
            for receiver in list(self._receivers):
                self._send(receiver, policy)

    def _send(self, receiver: _Receiver, policy: str) -> None:
        version, parameters = self._newest.get(policy, (-1, None))
        if parameters is None or policy in receiver.under_way or receiver.has.get(policy, version) >= version:
            return
        try:
            receiver.channel.send(Newest(policy, version), [parameters])
            receiver.under_way.add(policy)
        except ChannelClosed:
            self._drop(receiver)

    def poll(self) -> None:
        while (channel := self._listener.accept()) is not None:
            self._watch(channel)
            self._receivers.append(_Receiver(channel))
        for receiver in list(self._receivers):
            try:
                self._serve(receiver)
            except ChannelClosed:
                self._drop(receiver)
        fresh = False
        for policy, source in self._sources.items():
            try:
                fresh |= self._receive(policy, source)
            except ChannelClosed:
                if source.channel is not None:
                    source.channel.close()
                source.channel, source.retry_at = None, time.monotonic() + RETRY_SECONDS
        if fresh:
            self._on_new()

    def _serve(self, receiver: _Receiver) -> None:
        while (received := receiver.channel.receive()) is not None:
            message = received[0]
            if not isinstance(message, (Subscribe, Received)) or message.policy not in self._stores:
                raise ChannelClosed(f"{receiver.channel.peer} requested the parameters of an unknown policy")
            receiver.has[message.policy] = message.version
            receiver.under_way.discard(message.policy)
            self._send(receiver, message.policy)
        receiver.channel.flush()

    def _receive(self, policy: str, source: _Source) -> bool:
        if source.channel is None:
            if time.monotonic() < source.retry_at:
                return False
            source.channel = self._transport.connect(source.address, Messages)
            source.channel.send(Subscribe(policy, self._stores[policy].version))
            self._watch(source.channel)
        fresh = False
        while (received := source.channel.receive()) is not None:
            message, arrays, _ = received
            if not isinstance(message, Newest) or message.policy != policy or len(arrays) != 1:
                raise ChannelClosed(f"{source.channel.peer} sent a message other than parameters")
            if message.version > self._stores[policy].version:
                self._stores[policy].push(message.version, arrays[0])
                fresh = True
            source.channel.send(Received(policy, message.version))
            self.offer(policy, message.version, arrays[0])
        source.channel.flush()
        return fresh

    def _drop(self, receiver: _Receiver) -> None:
        receiver.channel.close()
        if receiver in self._receivers:
            self._receivers.remove(receiver)

    def close(self) -> None:
        self._listener.close()
        for receiver in list(self._receivers):
            self._drop(receiver)
        for source in self._sources.values():
            if source.channel is not None:
                source.channel.close()
        self._sources.clear()
