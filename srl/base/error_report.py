"""Whose error is it? Ours is one clear line; of a user's own code, its traceback is what helps."""

from __future__ import annotations

import os
import sysconfig
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

from srl.base.text import HEAD

DEBUG = "SRL_DEBUG"
"""Environment variable; 1: errors are shown with the whole traceback, whoever's they are."""
OURS = Path(__file__).parents[1]
STANDARD = Path(sysconfig.get_paths()["stdlib"])
INSTALLED = ("site-packages", "dist-packages")


def debugging() -> bool:
    return os.environ.get(DEBUG, "") not in ("", "0")


def explained(error: BaseException) -> str:
    """What to tell a user: the part of the traceback that he can do something about, and a line that begins `srl: `."""
    notes = getattr(error, "__notes__", ())  # what was tried in another process brings its traceback along
    foreign = foreign_trace(error) or "".join(f"{note.rstrip()}\n" for note in notes)
    return f"{whole_trace(error) if debugging() else foreign}srl: {_line(error, bool(foreign))}"


def whole_trace(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


def foreign_trace(error: BaseException) -> str:
    """The traceback from the first frame of code that is not ours; empty where the error is our own message.

    Where our message stands for an error of the user's (`raise ... from`), that one counts, unless the message brings
    his traceback along.
    """
    if HEAD in str(error):
        return ""
    for each in _chain(error):
        frames = list(_frames(each.__traceback__))
        owners = [_owner(frame) for frame in frames]
        if "user" in owners:
            return _formatted(each, frames[owners.index("user")])
    frames = list(_frames(error.__traceback__))
    owners = [owner for owner in map(_owner, frames) if owner != "standard"]
    if owners[-1:] == ["installed"] and not isinstance(error, (OSError, MemoryError)):
        last = max((i for i, frame in enumerate(frames) if _owner(frame) == "srl"), default=-1)
        return _formatted(error, frames[last + 1])
    return ""


def _line(error: BaseException, traced: bool) -> str:
    kind = type(error)
    text = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    if isinstance(error, KeyError) and " " not in text:  # a key that is not there says nothing by itself
        text = repr(text)
        return f"KeyError: {text}" if traced else f"KeyError: {text} ({DEBUG}=1 shows where)"
    if (traced and not kind.__module__.startswith("srl.")) or not text:
        return f"{kind.__name__}: {text}".removesuffix(": ")
    return text


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


def _frames(trace: TracebackType | None) -> Iterator[TracebackType]:
    while trace is not None:
        yield trace
        trace = trace.tb_next


def _owner(frame: TracebackType) -> str:
    """srl | standard | installed | user"""
    name = frame.tb_frame.f_code.co_filename
    if name.startswith("<"):  # importlib's own frames, and what dataclasses generate
        return "standard"
    path = Path(name)
    if path.is_relative_to(OURS):
        return "srl"
    if any(part in INSTALLED for part in path.parts):
        return "installed"
    return "standard" if path.is_relative_to(STANDARD) else "user"


def _formatted(error: BaseException, begin: TracebackType) -> str:
    lines = [f"{HEAD}\n", *traceback.format_tb(begin)]
    return "".join([*lines, *traceback.format_exception_only(error)])
