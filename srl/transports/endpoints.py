"""Parts that transports share: the count of refused peers, and a listener with two addresses."""

from __future__ import annotations

import logging
import select
from collections import Counter

from srl.api.transport import Channel, Listener

logger = logging.getLogger(__name__)

DUAL_PREFIX = "host:"


class Refusals:
    """Counts of a transport's refused peers and frames, by reason. The first refusal for each reason is logged as a
    warning, the others at debug level, so that an attack cannot flood the log."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def add(self, reason: str, detail: str) -> None:
        self.counts[reason] += 1
        logger.log(logging.WARNING if self.counts[reason] == 1 else logging.DEBUG, "refused (%s): %s", reason, detail)


class DualListener:
    """Two listeners as one: workers on the same host use `near`, workers on other hosts use `far`."""

    def __init__(self, host: str, near: Listener, far: Listener) -> None:
        self.address = f"{DUAL_PREFIX}{host};{near.address};{far.address}"
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


def address_from(host: str, address: str) -> str:
    """Return the address that a worker on `host` should connect to: for a dual address, one of the two."""
    if not address.startswith(DUAL_PREFIX):
        return address
    home, near, far = address.removeprefix(DUAL_PREFIX).split(";")
    return near if home == host else far
