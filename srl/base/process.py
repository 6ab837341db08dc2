"""The current process: recorded stop requests, parent death, and available cores.

On Ctrl-C, Python raises KeyboardInterrupt at an arbitrary point in the program. Some code swallows it: import system
and garbage collector callbacks, destructors, a library's bare `except`. The signal is therefore also recorded, and code
that loads or prepares a run checks the record before it continues. Code that must not stop halfway runs in
`uninterrupted`.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_PR_SET_PDEATHSIG = 1

_requests: list[signal.Signals] = []
_uninterrupted = 0  # number of `uninterrupted` blocks that the main thread is in
_postponed = False  # whether a signal arrived in them


def end_at_once_on_interrupt() -> None:
    """Let Ctrl-C end this process without cleanup, for use before there is anything to clean up. A process started with
    SIGINT ignored keeps ignoring it."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def start_ticks(pid: int) -> int:
    """Return when a process started, in ticks since the machine did. Raises OSError if it has ended."""
    stat = Path(f"/proc/{pid}/stat").read_text()
    return int(stat.rpartition(")")[2].split()[19])  # the name, in parentheses, may contain spaces


def boot_id() -> str:
    """Return an id of this start of the machine, or "" if the kernel has none."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ""


@contextmanager
def recorded_stop_requests() -> Iterator[None]:
    """Make SIGINT and SIGTERM raise KeyboardInterrupt within this context, and record them for `stop_request`."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread can handle signals
        return
    handlers = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    # Ignored signals stay ignored, and handlers that Python did not install (None) stay in place.
    before = {number: handler for number, handler in handlers.items() if handler not in (signal.SIG_IGN, None)}
    for number in before:
        signal.signal(number, _record)
    try:
        yield
    finally:
        _requests.clear()
        for number, handler in before.items():
            signal.signal(number, handler)


def stop_request() -> signal.Signals | None:
    """Return the first recorded stop signal, or None."""
    return _requests[0] if _requests else None


def raise_stop_request() -> None:
    """Raise KeyboardInterrupt if a stop signal was recorded."""
    if _requests:
        raise KeyboardInterrupt


def _record(number: int, frame: FrameType | None) -> None:
    _requests.append(signal.Signals(number))
    interrupt()


def interrupt() -> None:
    """Raise KeyboardInterrupt in a signal handler, or after the `uninterrupted` block that the signal interrupts."""
    global _postponed
    if _uninterrupted:
        _postponed = True
    else:
        raise KeyboardInterrupt


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Postpone `interrupt` to the end of this block, so that the block never stops halfway. It must be short: a user
    waits for its end. In other threads, which no signal interrupts, this does nothing."""
    global _uninterrupted, _postponed
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _uninterrupted += 1
    try:
        yield
    finally:
        _uninterrupted -= 1
        if _postponed and not _uninterrupted:
            _postponed = False
            raise KeyboardInterrupt


def signal_on_parent_death(number: int) -> None:
    """Ask the Linux kernel to send this process a signal when its parent dies. The kernel does not report a parent that
    is already dead: check for that after this call."""
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)


def num_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


@contextmanager
def stop_signals(stop: Callable[[str], object]) -> Iterator[None]:
    """Call `stop` with the name of the signal on SIGTERM or Ctrl-C. A second signal interrupts the process. In other
    threads than the main one, signals are left as they are."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    asked = False

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            interrupt()
        asked = True
        stop(signal.Signals(number).name)

    before = {number: signal.signal(number, handle) for number in STOP_SIGNALS}
    if earlier := stop_request():
        handle(earlier, None)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
