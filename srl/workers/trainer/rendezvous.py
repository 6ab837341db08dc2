"""Where data-parallel trainers of several hosts meet: a few values that rank 0 keeps for all, over our own channels.

torch's own TCP store would do without a secret, and asks the name server about every address. What ranks say to each
other once they have met (gloo, NCCL) is theirs.
"""

from __future__ import annotations

import select
import threading
import time
from typing import Any, Union

import psutil

from srl.api.transport import Channel, ChannelClosed, Listener, Message
from srl.api.worker import Context
from srl.workers.doorbells import Doorbells

WAIT_SECONDS = 0.05


class Put(Message, frozen=True):
    """A guest: remember this."""

    key: str
    value: bytes


class Fetch(Message, frozen=True):
    """A guest: tell me as soon as you know."""

    key: str


class Value(Message, frozen=True):
    key: str
    value: bytes


Messages: Any = Union[Put, Fetch, Value]


class HostedMeeting:
    """Rank 0's end. A thread of its own serves the guests, because meeting blocks: torch has no other way."""

    def __init__(self, listener: Listener, timeout: float) -> None:
        self._listener = listener
        self._timeout = timeout
        self._values: dict[str, bytes] = {}
        self._known = threading.Condition()
        self._guests: list[tuple[Channel, list[str]]] = []
        self._bells = Doorbells()
        self._bells.watch(listener)
        self._open = True
        self._thread = threading.Thread(target=self._serve, name="meeting", daemon=True)
        self._thread.start()

    def set(self, key: str, value: bytes) -> None:
        with self._known:
            self._values[key] = value
            self._known.notify_all()
        self._bells.ring()

    def get(self, key: str) -> bytes:
        with self._known:
            if not self._known.wait_for(lambda: key in self._values, self._timeout):
                raise TimeoutError(f"nobody came to the meeting with {key!r} within {self._timeout:.0f} s")
            return self._values[key]

    def _serve(self) -> None:
        while self._open:
            self._bells.wait(1.0)
            while (channel := self._listener.accept()) is not None:
                self._bells.watch(channel)
                self._guests.append((channel, []))
            for guest in list(self._guests):
                try:
                    self._attend(*guest)
                except ChannelClosed:
                    guest[0].close()
                    self._guests.remove(guest)
        for channel, _ in self._guests:
            channel.close()
        self._listener.close()
        self._bells.close()

    def _attend(self, channel: Channel, wanted: list[str]) -> None:
        while (received := channel.receive()) is not None:
            message = received[0]
            if isinstance(message, Put):
                self.set(message.key, message.value)
            elif isinstance(message, Fetch):
                wanted.append(message.key)
        for key in [key for key in wanted if key in self._values]:
            channel.send(Value(key, self._values[key]))
            wanted.remove(key)
        channel.flush()

    def close(self) -> None:
        if self._open:
            self._open = False
            self._bells.ring()
            self._thread.join()


class VisitedMeeting:
    """The end of all other ranks."""

    def __init__(self, channel: Channel, timeout: float) -> None:
        self._channel = channel
        self._timeout = timeout

    def set(self, key: str, value: bytes) -> None:
        self._channel.send(Put(key, value))

    def get(self, key: str) -> bytes:
        self._channel.send(Fetch(key))
        deadline = time.monotonic() + self._timeout
        while time.monotonic() < deadline:
            self._channel.flush()
            received = self._channel.receive()
            if received is None:
                select.select([self._channel], [], [], WAIT_SECONDS)
            elif isinstance(received[0], Value) and received[0].key == key:
                return received[0].value
        raise TimeoutError(f"rank 0 did not tell {key!r} within {self._timeout:.0f} s")

    def close(self) -> None:
        self._channel.close()


def meet(context: Context, policy: str, timeout: float) -> HostedMeeting | VisitedMeeting:
    """The meeting of this generation of a policy's trainers; all but rank 0 wait until that has opened it."""
    name = f"meeting/{policy}/{context.place.incarnation}"
    if context.place.index == 0:
        return HostedMeeting(context.listen(name, Messages), timeout)
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        address = context.names.lookup(name).get(name)
        if address is not None:
            try:
                return VisitedMeeting(context.connect(address, Messages), timeout)
            except ChannelClosed:
                pass
        context.hear(WAIT_SECONDS)
    raise TimeoutError(f"rank 0 of {policy} did not open its meeting within {timeout:.0f} s")


def interface_of(address: str) -> str:
    """The network interface with this address: gloo would guess, and may find the loopback."""
    for name, addresses in psutil.net_if_addrs().items():
        if any(found.address == address for found in addresses):
            return str(name)
    return ""
