"""Views of a run in progress: a live frame in a terminal, a line every few seconds in a log."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Protocol

from rich.console import Console
from rich.live import Live

from srl.api.status import RunStatus
from srl.base.clock import Clock, SystemClock
from srl.terminal.formatting import count, duration, figure, percent, rate, return_of, short
from srl.terminal.frame import frame, remaining
from srl.terminal.report import print_report

logger = logging.getLogger(__name__)


class View(Protocol):
    """Shows a run. `update` never raises and never slows the run down, however often it is called."""

    def update(self, status: RunStatus, force: bool = False) -> None:
        """Draw the status if the interval has passed, or in any case with `force`, for the last status."""
        ...

    def __enter__(self) -> View: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class LiveView:
    """A frame that is redrawn in place. It has no thread: `update` draws it."""

    def __init__(self, console: Console, refresh_hz: float = 4.0, clock: Clock | None = None) -> None:
        self._console = console
        self._interval = 1 / min(4.0, refresh_hz)
        self._clock = clock or SystemClock()
        self._next = float("-inf")
        self._live: Live | None = None
        self.frames = 0

    def update(self, status: RunStatus, force: bool = False) -> None:
        now = self._clock.now()
        if self._live is None or (now < self._next and not force):
            return
        self._next = now + self._interval
        try:
            width, height = self._console.size
            self._live.update(frame(status, width, height - 1), refresh=True)
            self.frames += 1
        except Exception:
            logger.debug("the live view could not be drawn", exc_info=True)

    def __enter__(self) -> LiveView:
        try:
            live = Live(console=self._console, auto_refresh=False, vertical_overflow="crop")
            live.start()
            self._live = live
        except Exception:
            logger.debug("the live view could not be started", exc_info=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        live, self._live = self._live, None
        try:
            if live is not None:
                live.stop()
        except Exception:
            logger.debug("the live view could not be stopped", exc_info=True)


class LogView:
    """A line per interval and per event, for log files and CI."""

    def __init__(
        self, console: Console, interval: float = 5.0, clock: Clock | None = None, name_runs: bool = False
    ) -> None:
        self._console = console
        self._name_runs = name_runs
        self._interval = interval
        self._clock = clock or SystemClock()
        self._forget("")

    def _forget(self, run: str) -> None:
        """Start with another run, as in a sweep."""
        self._run = run
        self._next = float("-inf")
        self._messages: list[str] = []
        self._diagnosis = ("", "")

    def update(self, status: RunStatus, force: bool = False) -> None:
        try:
            if status.run != self._run:
                self._forget(status.run)
            name = f"{status.run}  " if self._name_runs else ""
            for message in new_messages(self._messages, status.messages):
                self._print(f"{name}{duration(status.elapsed):>7}  {message}")
            self._messages = list(status.messages)
            now = self._clock.now()
            if now < self._next and not force:
                return
            self._next = now + self._interval
            self._print(f"{name}{log_line(status)}")
            diagnosis = (status.bottleneck, status.advice)
            if status.bottleneck and _kind(diagnosis) != _kind(self._diagnosis):
                self._diagnosis = diagnosis
                self._print(f"{name}{'':>7}  bottleneck {status.bottleneck}; try: {status.advice}")
        except Exception:
            logger.debug("a line could not be logged", exc_info=True)

    def _print(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    def __enter__(self) -> LogView:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None


def view_for(console: Console, name_runs: bool = False) -> View:
    """Return a live frame for a terminal, lines for everything else; with `name_runs` each line begins with its run."""
    live = console.is_terminal and not console.is_dumb_terminal
    return LiveView(console) if live else LogView(console, name_runs=name_runs)


def log_line(status: RunStatus) -> str:
    """`12.3 s  steps 524,288/1,000,000 (52 %)  return 312.4  env 210k/s train 205k/s lag 1.0`"""
    steps = f"steps {count(status.steps)}"
    if status.target_steps:
        steps += f"/{count(status.target_steps)} ({percent(min(1.0, status.steps / status.target_steps))})"
    parts = [f"{duration(status.elapsed):>7}", steps]
    if status.state != "running":
        parts.insert(1, status.state)
    if status.return_mean is not None:
        parts.append(f"return {return_of(status)}")
    for name, policy in status.policies.items():
        if (evaluation := policy.evaluation) is not None:
            label = f"eval {name}" if len(status.policies) > 1 else "eval"
            parts.append(f"{label} {figure(evaluation.return_mean)} at {short(evaluation.step)}")
    parts.append(f"env {rate(status.env_fps)} train {rate(status.train_fps)} lag {status.lag_mean:.1f}")
    if status.restarts:
        parts.append(f"restarts {status.restarts}")
    if status.lane_failures:
        parts.append(f"failed lanes {status.lane_failures}")
    left = remaining(status)
    if left:
        parts.append(f"{left} left")
    return "  ".join(parts)


@contextmanager
def watching(
    console: Console | None = None, name_runs: bool = False
) -> Iterator[tuple[Callable[[RunStatus], None], Callable[[RunStatus], None]]]:
    """Show a run from its first status to the report at its end.

    Yields two functions: one takes every status, the other the last one, from which the report is made on exit."""
    console = console or Console()
    view = view_for(console, name_runs)
    last: list[RunStatus] = []
    try:
        with view:
            yield view.update, last.append
    finally:
        if last:
            print_report(console, last[0])


def new_messages(previous: list[str], current: list[str]) -> list[str]:
    """Return the messages that were added. A status holds only the last few: the current list begins with the end of
    the previous one."""
    for start in range(len(previous) + 1):
        known = previous[start:]
        if current[: len(known)] == known:
            return current[len(known) :]
    return current


def _kind(diagnosis: tuple[str, str]) -> tuple[str, str]:
    """The diagnosis without its percentages, which change with every status."""
    return diagnosis[0].split(":")[0], diagnosis[1]
