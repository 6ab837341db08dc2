"""Endpoints of runs that span hosts: one name, reached by socket from the same host and over TCP from others."""

from __future__ import annotations

import select

from srl.api.transport import Channel, Listener

PREFIX = "host:"


class EitherListener:
    """Two listeners as one. Its address tells both, and on which host the near one is."""

    def __init__(self, host: str, near: Listener, far: Listener) -> None:
        self.address = f"{PREFIX}{host};{near.address};{far.address}"
        self._listeners = (near, far)
        self._poll = select.epoll()
        for listener in self._listeners:
            self._poll.register(listener.fileno(), select.EPOLLIN)

    def accept(self) -> Channel | None:
        for listener in self._listeners:
            channel = listener.accept()
            if channel is not None:
                return channel
        return None

    def fileno(self) -> int:
        return self._poll.fileno()

    def close(self) -> None:
        self._poll.close()
        for listener in self._listeners:
            listener.close()


def nearest_way(address: str, host: str) -> str:
    """The plain address under which a worker of `host` reaches an endpoint."""
    if not address.startswith(PREFIX):
        return address
    home, near, far = address.removeprefix(PREFIX).split(";")
    return near if home == host else far
