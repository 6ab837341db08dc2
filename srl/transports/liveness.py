"""How the death of a peer's whole host is noticed, when nobody is left there to close the connection."""

from __future__ import annotations

import socket
import struct
import time

from srl.api.transport import PeerSilent

DEAD_AFTER = 10.0
CHECK_INTERVAL = 1.0
MIN_UNANSWERED = 3
TCP_INFO = struct.Struct("<2x2B52xI")  # of struct tcp_info: retransmits, probes, milliseconds since the last ack


class Liveness:
    """Keepalive covers an idle connection; this covers one whose data is not acknowledged any more.

    TCP_USER_TIMEOUT would do it in the kernel, but it also kills a peer that is alive and too busy to read: its window
    is closed, and the kernel counts that time as well. So we ask the kernel for the last sign of life instead.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._next_check = time.monotonic() + CHECK_INTERVAL
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 4)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 2)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, MIN_UNANSWERED)

    def check(self, peer: str) -> None:
        """Raises PeerSilent if the peer's host is dead. Looks once a second at most."""
        now = time.monotonic()
        if now < self._next_check:
            return
        self._next_check = now + CHECK_INTERVAL
        info = self._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO.size)
        num_retransmits, num_probes, silent_ms = TCP_INFO.unpack(info)
        if max(num_retransmits, num_probes) >= MIN_UNANSWERED and silent_ms > DEAD_AFTER * 1000:
            raise PeerSilent(f"{peer} has not answered for {silent_ms / 1000:.0f} s; its host is gone")
