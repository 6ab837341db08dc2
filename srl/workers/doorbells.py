"""What an idle worker sleeps on: the endpoints at which something may arrive."""

from __future__ import annotations

import contextlib
import os
import select

from srl.api.transport import Channel, Listener


class Doorbells:
    """An epoll set. Endpoints that were closed have left it by themselves; so does the kernel's own book-keeping.

    A second set inside the first rings when an endpoint that was full takes more: by the edge, because an endpoint
    that is not full would ring for ever.
    """

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._room = select.epoll()
        self._epoll.register(self._room, select.EPOLLIN)
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll.register(self._bell, select.EPOLLIN)

    def watch(self, endpoint: Channel | Listener) -> None:
        self.watch_fd(endpoint.fileno())

    def watch_fd(self, fd: int) -> None:
        if fd < 0:
            return  # in process: there is nothing to sleep on
        for bells, events in ((self._epoll, select.EPOLLIN), (self._room, select.EPOLLOUT | select.EPOLLET)):
            try:
                bells.register(fd, events)
            except FileExistsError:
                bells.modify(fd, events)

    def fileno(self) -> int:
        """Readable when somebody rings: for those who sleep elsewhere."""
        return self._epoll.fileno()

    def ring(self) -> None:
        """Wake the sleeper; safe from any thread."""
        os.eventfd_write(self._bell, 1)

    def wait(self, timeout: float) -> set[int]:
        """Sleep until something arrives, or can leave that could not before, at most `timeout` seconds. Returns the
        descriptors of both kinds."""
        ready = {fd for fd, _ in self._epoll.poll(timeout)}
        for fd in list(ready):
            if fd == self._room.fileno():
                ready.update(fd for fd, _ in self._room.poll(0))
            elif fd == self._bell:
                with contextlib.suppress(BlockingIOError):
                    os.eventfd_read(self._bell)
        return ready

    def close(self) -> None:
        self._epoll.close()
        self._room.close()
        os.close(self._bell)
