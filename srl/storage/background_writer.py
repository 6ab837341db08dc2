"""Who writes checkpoints while somebody else has to look after workers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor


class BackgroundWriter:
    """A disk may take half a minute to take what it is given. Whoever supervises workers must not wait for it: hosts
    that hear nothing for so long believe that their controller is gone. `beside` gives the work to a thread, one piece
    after the other; without it all is done at once, as a run of one thread wants it."""

    def __init__(self, beside: bool) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="scribe") if beside else None
        self._orders: deque[Future[None]] = deque()

    @property
    def busy(self) -> bool:
        """Errors that nobody expected are raised here, and in `finish`."""
        while self._orders and self._orders[0].done():
            self._orders.popleft().result()
        return bool(self._orders)

    def begin(self, work: Callable[[], None]) -> None:
        if self._thread is None:
            work()
        else:
            self._orders.append(self._thread.submit(work))

    def finish(self) -> None:
        """Wait until all is written."""
        while self._orders:
            self._orders.popleft().result()

    def close(self) -> None:
        if self._thread is not None:
            self._thread.shutdown()
