"""The set of endpoints on which an idle worker waits."""

from __future__ import annotations

import contextlib
import os
import select

from srl.api.transport import Channel, Listener


class WaitSet:
    """An epoll set. The kernel removes closed endpoints from it.

    A second set, nested in the first, reports endpoints that were full and can send again. It is edge-triggered:
    otherwise, endpoints that are not full would wake the worker constantly.
    """

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._writable = select.epoll()
        self._epoll.register(self._writable, select.EPOLLIN)
        self._event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll.register(self._event, select.EPOLLIN)

    def watch(self, endpoint: Channel | Listener) -> None:
        self.watch_fd(endpoint.fileno())

    def watch_fd(self, fd: int) -> None:
        if fd < 0:
            return  # an in-process endpoint, which has no descriptor
        for epoll, events in ((self._epoll, select.EPOLLIN), (self._writable, select.EPOLLOUT | select.EPOLLET)):
            try:
                epoll.register(fd, events)
            except FileExistsError:
                epoll.modify(fd, events)

    def fileno(self) -> int:
        """Return a descriptor that is readable when `wait` would return at once."""
        return self._epoll.fileno()

    def wake(self) -> None:
        """End the current `wait`, or the next one. Safe from any thread."""
        os.eventfd_write(self._event, 1)

    def wait(self, timeout: float) -> set[int]:
        """Sleep up to `timeout` seconds, until something arrives or can be sent again. Return the ready descriptors."""
        ready = {fd for fd, _ in self._epoll.poll(timeout)}
        for fd in list(ready):
            if fd == self._writable.fileno():
                ready.update(fd for fd, _ in self._writable.poll(0))
            elif fd == self._event:
                with contextlib.suppress(BlockingIOError):
                    os.eventfd_read(self._event)
        return ready

    def close(self) -> None:
        self._epoll.close()
        self._writable.close()
        os.close(self._event)
