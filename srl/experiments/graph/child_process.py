"""Child processes that run user code once, so that a crash or a hang does not affect this process."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import msgspec

from srl.base.errors import debugging, full_traceback, user_traceback
from srl.base.object_names import load_object
from srl.base.process import STOP_SIGNALS, signal_on_parent_death
from srl.environments.failures import EnvironmentBroken
from srl.schedulers.local.strays import kill_strays, mark_process, new_mark

UNFORKABLE = ("jax", "tensorflow")
"""Libraries with threads that do not exist in a forked process, which would wait for them forever."""


class _Result(msgspec.Struct):
    value: Any = None
    error: str = ""  # import path of the error's class
    text: str = ""
    trace: str = ""  # traceback of user code, or the full one while debugging


def may_fork() -> bool:
    """Return whether this process can be forked safely."""
    if threading.active_count() > 1 or any(name in sys.modules for name in UNFORKABLE):
        return False
    torch: Any = sys.modules.get("torch")
    return torch is None or not torch.cuda.is_initialized()


def in_child(work: Callable[[], Any], timeout: float, what: str) -> Any:
    """Run `work` in a forked process and return its result, which must be plain data. Raises the error that `work`
    raised, or EnvironmentBroken if its process died or hung."""
    sys.stdout.flush()
    sys.stderr.flush()
    reading, writing = os.pipe()
    parent = os.getpid()
    mark = new_mark()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        mark_process(mark)
        _run(work, writing, parent)
    with contextlib.suppress(OSError):  # the child does the same; either may be first
        os.setpgid(pid, pid)
    os.close(writing)
    try:
        content = _read(reading, timeout)
    finally:
        os.close(reading)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)  # it is done or hangs; this also ends its children
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        kill_strays(mark)
    if content is None:
        raise EnvironmentBroken(f"{what} did not finish within {timeout:.0f} s (set by --hang-timeout)")
    try:
        result = msgspec.msgpack.decode(content, type=_Result)
    except msgspec.DecodeError:
        how = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"exited with code {status}"
        raise EnvironmentBroken(f"{what} ended the process it ran in, which {how}") from None
    if result.error:
        error = _error(result)
        if result.trace:
            error.add_note(result.trace)
        raise error
    return result.value


def _run(work: Callable[[], Any], writing: int, parent: int) -> None:
    try:
        os.setpgid(0, 0)
        for number in STOP_SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        signal_on_parent_death(signal.SIGKILL)
        if os.getppid() != parent:
            return
        try:
            result = _Result(work())
        except Exception as error:
            kind = type(error)
            text = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
            trace = full_traceback(error) if debugging() else user_traceback(error)
            result = _Result(None, f"{kind.__module__}:{kind.__qualname__}", text, trace)
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(msgspec.msgpack.encode(result))
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(0)


def _read(descriptor: int, timeout: float) -> bytes | None:
    """Read until the other end closes. Returns None on timeout."""
    deadline = time.monotonic() + timeout
    content = b""
    while select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))[0]:
        part = os.read(descriptor, 1 << 16)
        if not part:
            return content
        content += part
    return None


def _error(result: _Result) -> Exception:
    try:
        error = load_object(result.error)(result.text)
    except Exception:
        error = None  # its class cannot be built from a message
    return error if isinstance(error, Exception) else EnvironmentBroken(result.text or result.error)
