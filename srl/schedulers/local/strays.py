"""Processes that workers started and left behind, whatever session, parent or environment variables they have.

A limit that nothing uses (RLIMIT_RTTIME, for threads with real-time priority) holds the mark of the run and the worker:
every process inherits it through `fork`, `exec` and `setsid`, and any process of the user can read it. An environment
variable holds it too, for hosts whose administrator has set that limit.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import platform
import resource
import secrets
import sys
from collections.abc import Callable, Iterator
from typing import Any

import psutil

MARK = "SRL_WORKER"
"""Variable that holds the mark, in decimal."""
WORKER_BITS = 24
_BASE = 1 << 62  # microseconds: no limit in practice, and no value that anyone would choose
_MAX_SEARCHES = 20
# Threads have priorities of their own for input and output, which their processes inherit. This one has the effect of
# the default, 0, but differs from it: class 2, level 4.
_DEFAULT_PRIORITY, _MARKED_PRIORITY = 0, 2 << 13 | 4
_PRIORITY_CALLS = {"x86_64": (251, 252), "aarch64": (30, 31)}  # numbers of ioprio_set and ioprio_get
_OF_PROCESS = 1


def new_mark() -> int:
    """Return a mark for the processes of a zygote or of an inline run."""
    return _BASE | secrets.randbits(62 - WORKER_BITS) << WORKER_BITS


def worker_marks(mark: int) -> Iterator[int]:
    """Yield marks below this one, for the processes of one worker each."""
    while True:  # when numbers repeat, the workers with the first marks have ended
        yield from (mark | number for number in range(1, 1 << WORKER_BITS))


def mark_process(mark: int) -> None:
    """Mark this process and those that it will start."""
    os.environ[MARK] = str(mark)
    _set_limit(mark)


def kill_strays(mark: int, spared: Callable[[psutil.Process], bool] = lambda process: False) -> None:
    """Kill all processes with this mark, or with that of a worker below it, except this one and `spared` ones."""
    if not mark & _BASE:
        raise ValueError("every process without a mark would match an empty one")
    killed: set[psutil.Process] = set()
    for _ in range(_MAX_SEARCHES):  # they may start others while they are searched
        found = [process for process in _marked(mark) if process not in killed and not spared(process)]
        if not found:
            return
        for process in found:
            with contextlib.suppress(psutil.Error):
                process.kill()
        killed.update(found)


def _marked(mark: int) -> Iterator[psutil.Process]:
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.pid != os.getpid() and (
                _below(_limit_of(process.pid), mark) or _below(_variable_of(process), mark)
            ):
                yield process


def _below(found: int, mark: int) -> bool:
    whole_run = not mark & ((1 << WORKER_BITS) - 1)
    return found == mark or (whole_run and found > 0 and found >> WORKER_BITS == mark >> WORKER_BITS)


def _limit_of(pid: int) -> int:
    with contextlib.suppress(PermissionError):
        return resource.prlimit(pid, resource.RLIMIT_RTTIME)[0]
    return 0


def _variable_of(process: psutil.Process) -> int:
    with contextlib.suppress(psutil.AccessDenied, ValueError):
        return int(process.environ().get(MARK, "0"))
    return 0


def _set_limit(value: int) -> None:
    with contextlib.suppress(ValueError, OSError):  # an administrator has set a lower one
        resource.setrlimit(resource.RLIMIT_RTTIME, (value, resource.getrlimit(resource.RLIMIT_RTTIME)[1]))


class MarkedCalls:
    """Context for calls of an environment's code in the user's own process. What these calls start, also in threads of
    their own, can be killed. What the user's code starts elsewhere, also in other threads meanwhile, is spared."""

    def __init__(self) -> None:
        self._mark = new_mark()
        self._depth = 0
        self._limit = resource.getrlimit(resource.RLIMIT_RTTIME)[0]

    def __enter__(self) -> None:
        self._depth += 1
        if self._depth == 1 and _priority(0) == _DEFAULT_PRIORITY:  # otherwise marked threads look like others
            _set_priority(_MARKED_PRIORITY)
            _set_limit(self._mark)

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if not self._depth:
            _set_limit(self._limit)
            if _priority(0) == _MARKED_PRIORITY:
                _set_priority(_DEFAULT_PRIORITY)

    def kill_strays(self) -> None:
        """Kill the processes that the calls have left. Helpers of Python, which its other users need, are spared."""
        helpers = (
            _helper("resource_tracker", "_resource_tracker", "_pid"),
            _helper("forkserver", "_forkserver", "_forkserver_pid"),
        )
        kill_strays(
            self._mark,
            lambda process: process.pid in helpers or _priority(process.pid) != _MARKED_PRIORITY,
        )


def _helper(module: str, name: str, attribute: str) -> Any:
    return getattr(getattr(sys.modules.get(f"multiprocessing.{module}"), name, None), attribute, None)


@functools.cache
def _c_library() -> Any:
    return ctypes.CDLL(None)


def _priority(task: int) -> int:
    """Return the priority of a process, or of this thread for 0; -1 if the kernel does not tell it."""
    calls = _PRIORITY_CALLS.get(platform.machine())
    return int(_c_library().syscall(calls[1], _OF_PROCESS, task)) if calls else -1


def _set_priority(priority: int) -> None:
    _c_library().syscall(_PRIORITY_CALLS[platform.machine()][0], _OF_PROCESS, 0, priority)
