"""Foreign code tried in a process of its own: if it kills its process or hangs, we live to tell."""

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
from srl.environments.errors import EnvironmentBroken

UNFORKABLE = ("jax", "tensorflow")
"""Libraries with threads of their own, which a forked process would wait for in vain."""


class _Answer(msgspec.Struct):
    result: Any = None
    error: str = ""
    """Where the class of the error is found."""
    text: str = ""
    trace: str = ""
    """Of code that is not ours, or of all while debugging."""


def may_fork() -> bool:
    """Is this process such that a copy of it works?"""
    if threading.active_count() > 1 or any(name in sys.modules for name in UNFORKABLE):
        return False
    torch: Any = sys.modules.get("torch")
    return torch is None or not torch.cuda.is_initialized()


def in_child(work: Callable[[], Any], timeout: float, what: str) -> Any:
    """What `work` returns (plain data), or its error raised here. EnvironmentBroken if its process ended or hung."""
    sys.stdout.flush()
    sys.stderr.flush()
    reading, writing = os.pipe()
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        _live(work, writing, parent)
    with contextlib.suppress(OSError):  # whoever comes first, we or the child
        os.setpgid(pid, pid)
    os.close(writing)
    try:
        content = _read(reading, timeout)
    finally:
        os.close(reading)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)  # it has nothing more to say, or hangs; what it started ends with it
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if content is None:
        raise EnvironmentBroken(f"{what} hung for {timeout:.0f} s (the bound is --hang-timeout)")
    try:
        answer = msgspec.msgpack.decode(content, type=_Answer)
    except msgspec.DecodeError:
        how = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"exited with code {status}"
        raise EnvironmentBroken(f"{what} ended the process it ran in, which {how}") from None
    if answer.error:
        error = _error(answer)
        if answer.trace:
            error.add_note(answer.trace)
        raise error
    return answer.result


def _live(work: Callable[[], Any], writing: int, parent: int) -> None:
    try:
        os.setpgid(0, 0)
        for number in STOP_SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        signal_on_parent_death(signal.SIGKILL)
        if os.getppid() != parent:
            return
        try:
            answer = _Answer(work())
        except Exception as error:
            kind = type(error)
            text = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
            trace = full_traceback(error) if debugging() else user_traceback(error)
            answer = _Answer(None, f"{kind.__module__}:{kind.__qualname__}", text, trace)
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(msgspec.msgpack.encode(answer))
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(0)


def _read(descriptor: int, timeout: float) -> bytes | None:
    """Everything until the other end closes; None if that takes too long."""
    deadline = time.monotonic() + timeout
    content = b""
    while select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))[0]:
        part = os.read(descriptor, 1 << 16)
        if not part:
            return content
        content += part
    return None


def _error(answer: _Answer) -> Exception:
    try:
        error = load_object(answer.error)(answer.text)
    except Exception:
        error = None  # it cannot be made of a text
    return error if isinstance(error, Exception) else EnvironmentBroken(answer.text or answer.error)
