"""Rendezvous of data-parallel trainers on several hosts: a small key-value store that rank 0 serves over our channels.

`torch.distributed.TCPStore` would do the same without authentication (docs/decisions/0013-rendezvous.md). After the
rendezvous, the ranks communicate through torch (gloo, NCCL).
"""

from __future__ import annotations

import select
import threading
import time
from typing import Any, Union

import psutil

from srl.api.transport import Channel, ChannelClosed, Listener, Message
from srl.api.worker import Context
from srl.workers.wait_set import WaitSet

WAIT_SECONDS = 0.05


class Put(Message, frozen=True):
    """Request from a client to store a value."""

    key: str
    value: bytes


class Fetch(Message, frozen=True):
    """Request from a client for a value, which the server sends as soon as it has it."""

    key: str


class Value(Message, frozen=True):
    """Value from the server."""

    key: str
    value: bytes


Messages: Any = Union[Put, Fetch, Value]


class RendezvousServer:
    """Rendezvous server on rank 0. A thread serves the other ranks, because torch blocks while it connects them."""

    def __init__(self, listener: Listener, timeout: float) -> None:
        self._listener = listener
        self._timeout = timeout
        self._values: dict[str, bytes] = {}
        self._known = threading.Condition()
        self._clients: list[tuple[Channel, list[str]]] = []
        self._wait_set = WaitSet()
        self._wait_set.watch(listener)
        self._open = True
        self._thread = threading.Thread(target=self._serve, name="rendezvous", daemon=True)
        self._thread.start()

    def set(self, key: str, value: bytes) -> None:
        with self._known:
            self._values[key] = value
            self._known.notify_all()
        self._wait_set.wake()

    def get(self, key: str) -> bytes:
        with self._known:
            if not self._known.wait_for(lambda: key in self._values, self._timeout):
                raise TimeoutError(f"rendezvous timed out after {self._timeout:.0f} s waiting for key {key!r}")
            return self._values[key]

    def _serve(self) -> None:
        while self._open:
            self._wait_set.wait(1.0)
            while (channel := self._listener.accept()) is not None:
                self._wait_set.watch(channel)
                self._clients.append((channel, []))
            for client in list(self._clients):
                try:
                    self._answer(*client)
                except ChannelClosed:
                    client[0].close()
                    self._clients.remove(client)
        for channel, _ in self._clients:
            channel.close()
        self._listener.close()
        self._wait_set.close()

    def _answer(self, channel: Channel, wanted: list[str]) -> None:
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
            self._wait_set.wake()
            self._thread.join()


class RendezvousClient:
    """Rendezvous client, on all other ranks."""

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
        raise TimeoutError(f"rendezvous timed out after {self._timeout:.0f} s waiting for key {key!r} from rank 0")

    def close(self) -> None:
        self._channel.close()


def join_rendezvous(context: Context, policy: str, timeout: float) -> RendezvousServer | RendezvousClient:
    """Join the rendezvous that rank 0 of a policy's trainers opens after every restart. Return this rank's store."""
    name = f"rendezvous/{policy}/{context.worker_id.incarnation}"
    if context.worker_id.index == 0:
        return RendezvousServer(context.listen(name, Messages), timeout)
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        address = context.names.lookup(name).get(name)
        if address is not None:
            try:
                return RendezvousClient(context.connect(address, Messages), timeout)
            except ChannelClosed:
                pass
        context.wait_for_controller(WAIT_SECONDS)
    raise TimeoutError(f"rendezvous timed out after {timeout:.0f} s waiting for rank 0 of {policy} to open it")


def interface_of(address: str) -> str:
    """Return the name of the network interface with this address. Unless told, gloo chooses one by the host's name."""
    for name, addresses in psutil.net_if_addrs().items():
        if any(found.address == address for found in addresses):
            return str(name)
    return ""
