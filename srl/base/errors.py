"""User-facing error messages: suggestions for misspelled names, report summaries, tracebacks limited to user code."""

from __future__ import annotations

import functools
import os
import re
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

DEBUG = "SRL_DEBUG"  # environment variable; if it is 1, every error is shown with its full traceback
TRACEBACK_HEAD = "Traceback (most recent call last):"
PROMPTS = ("<stdin>", "<console>", "<python-input", "<ipython-input")  # file names of code that was typed in
MAX_LISTED = 20
SRL_DIRECTORY = Path(__file__).parents[1]
STANDARD_LIBRARY = Path(os.__file__).parent
INSTALLED = ("site-packages", "dist-packages")


class WrongValue(ValueError):
    """A value of the user's code that SRL refuses. The message says all, so reports show no traceback of SRL."""


def nearest(word: str, valid: Iterable[str]) -> str:
    """Return the ending of a message about an unknown `word`: `; did you mean 'cartpole'?`, or `; valid ones: a, b, c`
    if no valid word is similar."""
    names = sorted(set(valid))
    if not names:
        return "; there are none"
    listed = ", ".join(names[:MAX_LISTED])
    more = f" and {len(names) - MAX_LISTED} more" if len(names) > MAX_LISTED else ""
    return did_you_mean(word, names) or f"; valid ones: {listed}{more}"


def did_you_mean(word: str, valid: Iterable[str], cutoff: float = 0.6, prefix: str = "") -> str:
    """Return `; did you mean 'cartpole'?`, with `prefix` before the name; empty if no name is similar."""
    from difflib import get_close_matches  # only a misspelled word needs it

    folded = {_fold(name): name for name in sorted(set(valid), reverse=True)}
    close = get_close_matches(_fold(word), folded, n=1, cutoff=cutoff)
    return f"; did you mean {prefix + folded[close[0]]!r}?" if close else ""


def _fold(name: str) -> str:
    return name.lower().replace("-", "_")


def last_line(text: str, otherwise: str, limit: int | None = 300) -> str:
    """Return the last line of a traceback or log, which describes the error; `otherwise` if the text is empty."""
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return lines[-1][:limit] if lines else otherwise


def in_one_line(report: str) -> str:
    """Join the first line of a report (its subject) and the last one (the error)."""
    lines = [line for line in report.strip().splitlines() if line.strip()]
    first = lines[0].removesuffix(TRACEBACK_HEAD).strip() if lines else ""
    return " ".join([first, *(lines[-1:] if len(lines) > 1 else [])]).strip()[:300]


def innermost(stacks: str) -> str:
    """Return the place that the stack dump of a process (by Python's fault handler, most recent call first) shows for
    its current thread: ` at file:line in function`, in the user's code if it is there; empty without a stack."""
    lines = stacks.rpartition("Current thread")[2].partition("\n\n")[0].splitlines()
    frames = [found.groups() for line in lines if (found := re.fullmatch(r'\s+File "(.*)", line (\d+) in (.*)', line))]
    own = [frame for frame in frames if owner_of(frame[0]) == "user"]
    for path, line, function in (own or frames)[:1]:
        return f" at {path}:{line} in {function}"
    return ""


def end_of_log(log: Path, limit: int = 4000) -> str:
    """Return the last `limit` characters of a log file, or an empty string if it cannot be read."""
    try:
        return log.read_text(errors="replace").strip()[-limit:]
    except OSError:
        return ""


def last_log_line(log: Path) -> str:
    """Return the last line that an ended process wrote to its log file."""
    return last_line(end_of_log(log), "its log is empty")


def raised(error: BaseException) -> str:
    """Describe an exception and the line that raised it, in the user's code if it passed through it."""
    if isinstance(error, WrongValue):
        return str(error)
    trace = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in trace if owner_of(frame.filename) == "user"] or list(trace)
    return f"{error!r} at {own[-1].filename}:{own[-1].lineno}" if own else f"{error!r}"


def debugging() -> bool:
    return os.environ.get(DEBUG, "") not in ("", "0")


def explain(error: BaseException) -> str:
    """Return the text to show the user: the traceback through their code, if any, and a line starting with `srl: `."""
    notes = getattr(error, "__notes__", ())  # an error from another process carries its traceback as a note
    user = user_traceback(error) or "".join(f"{note.rstrip()}\n" for note in notes)
    return f"{full_traceback(error) if debugging() else user}srl: {_message(error, bool(user))}"


def short_traceback(function: Callable[P, T]) -> Callable[P, T]:
    """Return a function of the library whose errors show the caller's lines only, unless they passed through code of
    the user or of another package, or SRL_DEBUG is set."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            if debugging() or any(_owner(frame) not in ("srl", "standard") for frame in _frames(error.__traceback__)):
                raise
            raise error.with_traceback(None) from error.__cause__

    return call


def full_traceback(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


def traceback_of(error: BaseException) -> str:
    """Return the traceback for a report: its frames outside SRL if it passed through the user's code, else all; none
    for a wrong value, or if the message contains the traceback of its cause."""
    if not debugging() and isinstance(error, WrongValue):
        return str(error)
    if not debugging() and TRACEBACK_HEAD in str(error):
        return "".join(traceback.format_exception_only(error))
    return full_traceback(error) if debugging() else user_traceback(error) or full_traceback(error)


def user_traceback(error: BaseException) -> str:
    """Return the frames outside SRL, from the first one of the user's code, or an empty string if SRL itself reports
    the error. If SRL raised its error from one in the user's code (`raise ... from`), return the traceback of that one,
    unless SRL's message already contains a traceback.
    """
    if TRACEBACK_HEAD in str(error):
        return ""
    for each in _causes(error):
        frames = list(_frames(each.__traceback__))
        owners = [_owner(frame) for frame in frames]
        if "user" in owners:
            return _format(each, frames[owners.index("user")])
    frames = list(_frames(error.__traceback__))
    owners = [owner for owner in map(_owner, frames) if owner != "standard"]
    if owners[-1:] == ["installed"] and not isinstance(error, (OSError, MemoryError)):
        last = max((i for i, frame in enumerate(frames) if _owner(frame) == "srl"), default=-1)
        return _format(error, frames[last + 1])
    return ""


def _message(error: BaseException, traced: bool) -> str:
    kind = type(error)
    text = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    if isinstance(error, KeyError) and " " not in text:  # a bare key explains nothing
        text = repr(text)
        return f"KeyError: {text}" if traced else f"KeyError: {text} ({DEBUG}=1 shows where)"
    if (traced and not kind.__module__.startswith("srl.")) or not text:
        return f"{kind.__name__}: {text}".removesuffix(": ")
    return text


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


def _frames(trace: TracebackType | None) -> Iterator[TracebackType]:
    while trace is not None:
        yield trace
        trace = trace.tb_next


def _owner(frame: TracebackType) -> str:
    code, module = frame.tb_frame.f_code, frame.tb_frame.f_globals.get("__name__")
    if code.co_filename == "<string>" and module == "__main__":
        return "user"  # `python -c`
    return owner_of(code.co_filename)


def owner_of(name: str) -> str:
    """Return the origin of the code in a file: srl, standard, installed or user."""
    if name.startswith(PROMPTS):
        return "user"
    if name.startswith("<"):  # frames of importlib, and code that dataclasses generate
        return "standard"
    path = Path(name)
    if path.is_relative_to(SRL_DIRECTORY):
        return "srl"
    if any(part in INSTALLED for part in path.parts):
        return "installed"
    return "standard" if path.is_relative_to(STANDARD_LIBRARY) else "user"


def _format(error: BaseException, first: TracebackType) -> str:
    frames = [frame for frame in traceback.extract_tb(first) if owner_of(frame.filename) != "srl"]
    lines = [f"{TRACEBACK_HEAD}\n", *traceback.format_list(frames)]
    return "".join([*lines, *traceback.format_exception_only(error)])
