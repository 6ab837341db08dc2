"""What an idle worker sleeps on: the endpoints at which something may arrive."""

from __future__ import annotations

import contextlib
import os
import select

from srl.api.transport import Channel, Listener


class Doorbells:
    """An epoll set. Endpoints that were closed have left it by themselves; so does the kernel's own book-keeping."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll.register(self._bell, select.EPOLLIN)

    def watch(self, endpoint: Channel | Listener) -> None:
        self.watch_fd(endpoint.fileno())

    def watch_fd(self, fd: int) -> None:
        if fd < 0:
            return  # in process: there is nothing to sleep on
        try:
            self._epoll.register(fd, select.EPOLLIN)
        except FileExistsError:
            self._epoll.modify(fd, select.EPOLLIN)

    def ring(self) -> None:
        """Wake the sleeper; safe from any thread."""
        os.eventfd_write(self._bell, 1)

    def wait(self, timeout: float) -> None:
        """Sleep until something arrives, at most `timeout` seconds."""
        for fd, _ in self._epoll.poll(timeout):
            if fd == self._bell:
                with contextlib.suppress(BlockingIOError):
                    os.eventfd_read(self._bell)

    def close(self) -> None:
        self._epoll.close()
        os.close(self._bell)
