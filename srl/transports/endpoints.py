"""Parts that transports share: the count of refused peers, and a listener with two addresses."""

from __future__ import annotations

import logging
import select
from collections import Counter
from collections.abc import Callable

from srl.api.transport import Channel, ChannelClosed, Listener

logger = logging.getLogger(__name__)

DUAL_PREFIX = "host:"


class Refusals:
    """Counts of refused peers and frames, by reason. Those of a listener also count for its transport. The first
    refusal for each reason is logged as a warning, the others at debug level, so that an attack cannot flood the log.
    """

    def __init__(self, transport: Refusals | None = None, on_add: Callable[[], None] = lambda: None) -> None:
        self.counts: Counter[str] = Counter()
        self._transport = transport
        self._on_add = on_add

    def add(self, reason: str, detail: str) -> None:
        self.counts[reason] += 1
        if self._transport is not None:
            self._transport.add(reason, detail)
            return
        self._on_add()
        logger.log(logging.WARNING if self.counts[reason] == 1 else logging.DEBUG, "refused (%s): %s", reason, detail)


class DualListener:
    """Two listeners as one: workers on the same host use `near`, workers on other hosts use `far`."""

    def __init__(self, host: str, near: Listener, far: Listener) -> None:
        self.address = f"{DUAL_PREFIX}{host};{near.address};{far.address}"
        self._listeners = (near, far)
        self._poll = select.epoll()
        for listener in self._listeners:
            self._poll.register(listener.fileno(), select.EPOLLIN)

    @property
    def refused(self) -> Counter[str]:
        return self._listeners[0].refused + self._listeners[1].refused

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


def address_from(host: str, address: str) -> str:
    """Return the address that a worker on `host` should connect to: for a dual address, one of the two."""
    if not address.startswith(DUAL_PREFIX):
        return address
    parts = address.removeprefix(DUAL_PREFIX).split(";")
    if len(parts) != 3:
        raise ChannelClosed(f"expected an address like {DUAL_PREFIX}name;unix:path;tcp:host:port, found {address!r}")
    home, near, far = parts
    return near if home == host else far
