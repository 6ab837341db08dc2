"""A wish to end that is not lost.

Python answers Ctrl-C with a KeyboardInterrupt wherever the program happens to be, and some of these places swallow it:
callbacks of the import system and of the garbage collector, destructors, a library's bare `except`. So who may be
interrupted while it loads and prepares also notes that it was asked to, and looks at the note before it goes on.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

WISHES = (signal.SIGINT, signal.SIGTERM)

_asked: list[signal.Signals] = []


def die_at_once() -> None:
    """For as long as there is nothing to clean up, Ctrl-C ends this process as the kernel does; unless who started us
    wants it to be ignored."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def remembered() -> Iterator[None]:
    """Within, SIGINT and SIGTERM raise KeyboardInterrupt, and `asked` knows of them if nobody heard it."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals are for the main thread
        return
    present = {number: signal.getsignal(number) for number in WISHES}
    # Who ignores them is left alone, and who has a handler that Python does not know.
    before = {number: handler for number, handler in present.items() if handler not in (signal.SIG_IGN, None)}
    for number in before:
        signal.signal(number, _remember)
    try:
        yield
    finally:
        _asked.clear()
        for number, handler in before.items():
            signal.signal(number, handler)


def asked() -> signal.Signals | None:
    """By which signal we were asked to end, if we were."""
    return _asked[0] if _asked else None


def heed() -> None:
    """End here, if we were asked to."""
    if _asked:
        raise KeyboardInterrupt


def _remember(number: int, frame: FrameType | None) -> None:
    _asked.append(signal.Signals(number))
    raise KeyboardInterrupt
