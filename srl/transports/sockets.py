"""TCP sockets: listening, accepting, and connecting without blocking."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable, Iterator

from srl.api.transport import ChannelClosed
from srl.transports.endpoints import Refusals
from srl.transports.handshake import HandshakeError, is_connected


def listen(name: str, host: str, port: int, backlog: int) -> socket.socket:
    """Return a non-blocking socket that listens. Raises OSError that says what `name` should listen at instead."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        sock = socket.create_server((host, port), family=family, backlog=backlog)
    except OSError as error:
        raise OSError(error.errno, f"{name} cannot listen: {_explain(error, host, port)}") from error
    sock.setblocking(False)
    return sock


def accept(
    listener: socket.socket, limit: int, refusals: Refusals, make_room: Callable[[], None]
) -> Iterator[tuple[socket.socket, str]]:
    """Yield up to `limit` waiting connections as non-blocking sockets, with the addresses of their peers. If this
    process has no descriptor left, call `make_room` and stop."""
    for _ in range(limit):
        try:
            sock, address = listener.accept()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                refusals.add("limit", f"no file descriptor left for a connection: {error}")
                make_room()
            return
        sock.setblocking(False)
        yield sock, f"{address[0]}:{address[1]}"


def _explain(error: OSError, host: str, port: int) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} of {host} is in use; choose another, or 0 for any free one"
    if error.errno == errno.EACCES:
        return f"port {port} is reserved; choose one above 1023, or 0 for any free one"
    return f"{host} is not an address of this host ({error.strerror}); choose one of `ip address`"


def check_bind_host(host: str) -> None:
    if host in ("", "0.0.0.0", "::"):
        raise ValueError(f"{host!r} means every interface; give the address at which others reach this host")


def dial(address: str, host: str, port: int, wait: float) -> tuple[socket.socket, bool]:
    """Return a socket, and whether it is connected after `wait` seconds: a host that does not answer must not block a
    worker. Raises ChannelClosed, whose text names `address`."""
    try:
        family, kind, protocol, _, target = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        sock = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError) as error:  # a name that cannot be encoded for DNS raises UnicodeError
        raise ChannelClosed(f"nothing listens at {address}: {error}") from error
    try:
        sock.setblocking(False)
        failure = sock.connect_ex(target)
        if failure not in (0, errno.EINPROGRESS):
            raise HandshakeError(os.strerror(failure))
        connected = is_connected(sock, wait)
        if connected and sock.getsockname() == sock.getpeername():  # raises OSError if it has already been closed
            # A free local port can connect to itself: TCP's simultaneous open, not a listener.
            raise HandshakeError("the socket connected to itself: nothing listens at this port")
        return sock, connected
    except (OSError, OverflowError) as error:  # a port above 65535 overflows
        sock.close()
        raise ChannelClosed(f"nothing listens at {address}: {error}") from error
