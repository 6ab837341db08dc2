"""A bound on how long foreign code may take."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class DeadlineExceeded(BaseException):
    """Says where the code was. No Exception, since foreign code that catches those must not catch this."""


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Interrupt the body after `seconds`. Only the main thread can be interrupted, and only Python code: elsewhere the
    body runs without a bound. A timer of the caller (as pytest-timeout's) goes on afterwards."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def expire(number: int, frame: FrameType | None) -> None:
        where = f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame is not None else "an unknown place"
        raise DeadlineExceeded(where)

    begun = time.monotonic()
    handler = signal.signal(signal.SIGALRM, expire)
    delay, interval = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        if delay:
            signal.setitimer(signal.ITIMER_REAL, max(delay - (time.monotonic() - begun), 1e-3), interval)
