"""Views of a running experiment: a live picture on a terminal, a line from time to time in a log."""

from __future__ import annotations

import logging
from types import TracebackType
from typing import Protocol

from rich.console import Console
from rich.live import Live

from srl.api.status import RunStatus
from srl.base.clock import Clock, SystemClock
from srl.terminal.formatting import count, duration, figure, percent, rate, short
from srl.terminal.frame import frame, remaining

logger = logging.getLogger(__name__)


class View(Protocol):
    """Watches a run. Never raises and never slows the run down, however often it is told of it."""

    def update(self, status: RunStatus, force: bool = False) -> None:
        """`force` draws now, for the last snapshot; otherwise only when it is time to."""
        ...

    def __enter__(self) -> View: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class LiveView:
    """A picture that stays in its place; it has no thread, it is drawn inside `update`."""

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
    """A line per interval, and one for each event; made for files and CI."""

    def __init__(self, console: Console, interval: float = 5.0, clock: Clock | None = None) -> None:
        self._console = console
        self._interval = interval
        self._clock = clock or SystemClock()
        self._next = float("-inf")
        self._messages: list[str] = []
        self._diagnosis = ("", "")

    def update(self, status: RunStatus, force: bool = False) -> None:
        try:
            for message in new_messages(self._messages, status.messages):
                self._print(f"{duration(status.elapsed):>7}  {message}")
            self._messages = list(status.messages)
            now = self._clock.now()
            if now < self._next and not force:
                return
            self._next = now + self._interval
            self._print(log_line(status))
            diagnosis = (status.bottleneck, status.advice)
            if status.bottleneck and _kind(diagnosis) != _kind(self._diagnosis):
                self._diagnosis = diagnosis
                self._print(f"{'':>7}  bottleneck {status.bottleneck}; try: {status.advice}")
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


def view_for(console: Console) -> View:
    """The live picture where someone can look at it, else lines."""
    return LiveView(console) if console.is_terminal and not console.is_dumb_terminal else LogView(console)


def log_line(status: RunStatus) -> str:
    """`12.3 s  steps 524,288/1,000,000 (52 %)  return 312.4  env 210k/s train 205k/s lag 1.0`"""
    steps = f"steps {count(status.steps)}"
    if status.target_steps:
        steps += f"/{count(status.target_steps)} ({percent(min(1.0, status.steps / status.target_steps))})"
    parts = [f"{duration(status.elapsed):>7}", steps]
    if status.state != "running":
        parts.insert(1, status.state)
    if status.return_mean is not None:
        parts.append(f"return {figure(status.return_mean)}")
    if status.evaluation is not None:
        parts.append(f"eval {figure(status.evaluation.return_mean)} at {short(status.evaluation.step)}")
    parts.append(f"env {rate(status.env_fps)} train {rate(status.train_fps)} lag {status.lag_mean:.1f}")
    if status.restarts:
        parts.append(f"restarts {status.restarts}")
    if status.lane_failures:
        parts.append(f"failed lanes {status.lane_failures}")
    left = remaining(status)
    if left:
        parts.append(f"{left} left")
    return "  ".join(parts)


def new_messages(former: list[str], present: list[str]) -> list[str]:
    """What came since. A snapshot holds the last few messages: what the former ended with, the present begins with."""
    for start in range(len(former) + 1):
        known = former[start:]
        if present[: len(known)] == known:
            return present[len(known) :]
    return present


def _kind(diagnosis: tuple[str, str]) -> tuple[str, str]:
    """Without its figures, which change with every snapshot."""
    return diagnosis[0].split(":")[0], diagnosis[1]
