"""A handshake on its way over a non-blocking socket; the same at both ends."""

from __future__ import annotations

import os
import select
import socket
import time

from srl.transports.handshake import ClientHandshake, HandshakeError, ServerHandshake
from srl.transports.records import Session

GONE = "went away in the handshake: it may hold another secret, run or protocol, or have stopped"


class Unreachable(HandshakeError):
    """There is no way to it, or nobody at its end."""


class Greeting:
    """Reads only the bytes that the handshake wants: at most 70 from a client, 102 from a server."""

    def __init__(
        self,
        sock: socket.socket,
        handshake: ClientHandshake | ServerHandshake,
        timeout: float,
        connect_timeout: float | None = None,
    ) -> None:
        """`connect_timeout`: TCP itself is still at work, and has so many seconds."""
        self.socket = sock
        self.deadline = time.monotonic() + timeout
        self._connect_by = None if connect_timeout is None else time.monotonic() + connect_timeout
        self._handshake = handshake
        self._read = b""
        if self._connect_by is None:
            self._begin()

    def _begin(self) -> None:
        if isinstance(self._handshake, ClientHandshake):
            self._send(self._handshake.hello)

    def _connected(self) -> bool:
        if self._connect_by is None:
            return True
        if not is_connected(self.socket, 0.0):
            if time.monotonic() > self._connect_by:
                raise Unreachable("cannot be reached: nothing came back")
            return False
        self._connect_by = None
        self._begin()
        return True

    def progress(self) -> Session | None:
        """The session once both ends have proved themselves; never blocks. Raises HandshakeError, also when late."""
        if not self._connected():
            return None
        while self._handshake.keys is None:
            try:
                data = self.socket.recv(self._handshake.wanted - len(self._read))
            except BlockingIOError:
                if time.monotonic() > self.deadline:
                    raise HandshakeError("did not finish the handshake in time") from None
                return None
            except OSError as error:
                raise HandshakeError(f"{GONE} ({error})") from error
            if not data:
                raise HandshakeError(GONE)
            self._read += data
            if len(self._read) == self._handshake.wanted:
                self._send(self._handshake.feed(self._read))
                self._read = b""
        return Session.of(self._handshake.keys)

    def _send(self, data: bytes) -> None:
        try:
            # So few bytes always fit into the buffer of a new connection.
            if data and self.socket.send(data) != len(data):
                raise HandshakeError("takes no data")
        except OSError as error:
            raise HandshakeError(f"{GONE} ({error})") from error


def is_connected(sock: socket.socket, wait: float) -> bool:
    """Has a connect that was begun come to its end? Waits so many seconds for it; HandshakeError if it failed."""
    poller = select.poll()
    poller.register(sock, select.POLLOUT)
    if not poller.poll(wait * 1000):
        return False
    failure = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if failure:
        raise Unreachable(f"cannot be reached: {os.strerror(failure)}")
    return True
