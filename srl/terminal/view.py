"""Views of a run in progress: a live frame in a terminal, a line every few seconds in a log."""

from __future__ import annotations

import importlib
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import msgspec
from rich.console import Console
from rich.live import Live

from srl.api.status import RunStatus
from srl.base.clock import Clock, SystemClock
from srl.terminal.formatting import count, duration, figure, has_return, percent, rate, return_of, short
from srl.terminal.frame import frame, remaining
from srl.terminal.notebook import in_notebook, status_html
from srl.terminal.report import print_report

logger = logging.getLogger(__name__)
TEXT, JSON = "text", "json"
LOGGED = (
    "state", "steps", "target_steps", "updates", "episodes", "return_mean", "length_mean", "facts", "env_fps",
    "train_fps", "lag_mean", "lag_max", "restarts", "lane_failures", "skipped_updates", "bottleneck", "advice",
)  # fmt: skip
"""Figures of a status in a JSON line."""
MAX_NAMED = 3  # workers that have not started, in a line


class RunConsole(Console):
    """A console for a run, which continues without output when its reader is gone, such as `head` in a pipe."""

    def on_broken_pipe(self) -> None:
        """Discard all further output, where rich would end the process."""
        self.quiet = True
        discard = os.open(os.devnull, os.O_WRONLY)
        os.dup2(discard, self.file.fileno())
        os.close(discard)


class View:
    """Base class of views. `update` and `close` never raise, and `update` is cheap between redraws."""

    def __init__(self, console: Console, interval: float, clock: Clock | None = None) -> None:
        self._console = console
        self._interval = interval
        self._clock = clock or SystemClock()
        self._next = float("-inf")

    def update(self, status: RunStatus) -> None:
        try:
            self._show_events(status)
            if (now := self._clock.now()) >= self._next:
                self._next = now + self._interval
                self._show(status)
        except Exception:
            logger.debug("the status could not be shown", exc_info=True)

    def _show_events(self, status: RunStatus) -> None:
        """Show events, which do not wait for the interval."""

    def _show(self, status: RunStatus) -> None:
        raise NotImplementedError

    def close(self) -> None:
        pass


class LiveView(View):
    """A frame that `update` redraws in place, without a thread."""

    def __init__(self, console: Console, interval: float = 0.25, clock: Clock | None = None) -> None:
        super().__init__(console, interval, clock)
        self._live = Live(console=console, auto_refresh=False, vertical_overflow="crop")

    def _show(self, status: RunStatus) -> None:
        self._live.start()  # has an effect only once
        width, height = self._console.size
        self._live.update(frame(status, width, height - 1), refresh=True)

    def close(self) -> None:
        try:
            self._live.stop()
        except Exception:
            logger.debug("the live view could not be stopped", exc_info=True)


class LogView(View):
    """One line per interval and per event, for log files and CI. With `name_runs`, lines begin with the run's name."""

    def __init__(
        self, console: Console, interval: float = 5.0, clock: Clock | None = None, name_runs: bool = False
    ) -> None:
        super().__init__(console, interval, clock)
        self._name_runs = name_runs
        self._run = ""
        self._messages: list[str] = []
        self._diagnosis = ("", "")

    def _show_events(self, status: RunStatus) -> None:
        if status.run != self._run:  # the next run of a sweep
            self._run, self._messages, self._diagnosis, self._next = status.run, [], ("", ""), float("-inf")
        for message in new_messages(self._messages, status.messages):
            self._print(f"{duration(status.elapsed):>7}  {message}")
        self._messages = list(status.messages)

    def _show(self, status: RunStatus) -> None:
        self._print(log_line(status))
        diagnosis = (status.bottleneck, status.advice)
        if status.advice and _kind(diagnosis) != _kind(self._diagnosis):
            self._diagnosis = diagnosis
            self._print(f"{'':>7}  bottleneck {status.bottleneck}; try: {status.advice}")

    def _print(self, line: str) -> None:
        name = f"{self._run}  " if self._name_runs else ""
        self._console.print(f"{name}{line}", markup=False, highlight=False, soft_wrap=True)


class JsonView(View):
    """One JSON object per interval, event and end of a run, for programs that collect logs."""

    def __init__(self, console: Console, interval: float = 5.0, clock: Clock | None = None) -> None:
        super().__init__(console, interval, clock)
        self._messages: list[str] = []

    def _show_events(self, status: RunStatus) -> None:
        for message in new_messages(self._messages, status.messages):
            self._print("message", status, {"text": message})
        self._messages = list(status.messages)

    def _show(self, status: RunStatus) -> None:
        self._print("status", status, {name: getattr(status, name) for name in LOGGED})

    def show_end(self, status: RunStatus) -> None:
        figures = {name: getattr(status, name) for name in LOGGED}
        self._print("end", status, {"reason": status.reason, "path": status.path, **figures})

    def _print(self, kind: str, status: RunStatus, content: dict[str, Any]) -> None:
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        row = {"time": now, "kind": kind, "run": status.run, "elapsed": round(status.elapsed, 3), **content}
        line = msgspec.json.encode(row).decode()
        self._console.print(line, markup=False, highlight=False, soft_wrap=True, emoji=False)


class NotebookView(View):
    """A cell output that `update` replaces in place."""

    def __init__(self, interval: float = 0.5, clock: Clock | None = None) -> None:
        super().__init__(Console(), interval, clock)
        self._output: Any = None

    def _show(self, status: RunStatus) -> None:
        display: Any = importlib.import_module("IPython.display")
        html = display.HTML(status_html(status))
        if self._output is None:
            self._output = display.display(html, display_id=True)
        else:
            self._output.update(html)

    def show_last(self, status: RunStatus) -> None:
        """Show the end of a run, whenever the last update was."""
        self._next = float("-inf")
        self.update(status)


def view_for(console: Console, name_runs: bool = False, log_format: str = TEXT) -> View:
    """Return a live view for a terminal or a notebook, a log view for anything else or if JSON is wanted."""
    if log_format == JSON:
        return JsonView(console)
    if in_notebook():
        return NotebookView()
    live = console.is_terminal and not console.is_dumb_terminal
    return LiveView(console) if live else LogView(console, name_runs=name_runs)


def log_line(status: RunStatus) -> str:
    """Format as `12.3 s  steps 524,288/1,000,000 (52 %)  return 312.4  env 210k/s train 205k/s lag 1.0`."""
    steps = f"steps {count(status.steps)}"
    if status.target_steps:
        steps += f"/{count(status.target_steps)} ({percent(min(1.0, status.steps / status.target_steps))})"
    parts = [f"{duration(status.elapsed):>7}", steps]
    if status.state != "running":
        parts.insert(1, status.state)
    if waiting := _starting(status):
        parts.append(waiting)
    if status.bottleneck and (not status.advice or status.seconds_to_first_update is None):  # what the run waits for
        parts.append(status.bottleneck)
    if has_return(status):
        parts.append(f"return {return_of(status)}")
    for name, policy in status.policies.items():
        if (evaluation := policy.evaluation) is not None:
            label = f"eval {name}" if len(status.policies) > 1 else "eval"
            parts.append(f"{label} {figure(evaluation.return_mean)} at {short(evaluation.step)}")
    if status.settings.recorded:
        parts.append(f"train {rate(status.train_fps)}")
    else:
        parts.append(f"env {rate(status.env_fps)} train {rate(status.train_fps)} lag {status.lag_mean:.1f}")
    if status.restarts:
        parts.append(f"restarts {status.restarts}")
    if status.lane_failures:
        parts.append(f"failed lanes {status.lane_failures}")
    if status.refused:
        parts.append(f"refused connections {sum(status.refused.values())}")
    if left := remaining(status):
        parts.append(f"{left} left")
    return "  ".join(parts)


def _starting(status: RunStatus) -> str:
    """Return the workers that have not started, with their memory, while the run waits for them."""
    workers = [worker for worker in status.workers if worker.state == "starting"]
    if status.state != "starting" or not workers:
        return ""
    names = [f"{one.name} ({one.rss_mb:,.0f} MB)" if one.rss_mb else one.name for one in workers[:MAX_NAMED]]
    more = f" and {len(workers) - MAX_NAMED} more" if len(workers) > MAX_NAMED else ""
    return f"waiting for {', '.join(names)}{more}"


@contextmanager
def watching(
    console: Console | None = None, name_runs: bool = False, log_format: str = TEXT
) -> Iterator[tuple[Callable[[RunStatus], None], Callable[[RunStatus], None]]]:
    """Show a run from its first status to its final report.

    Yields two functions: call the first with every status, the second with the last one, which is reported on exit."""
    console = console or RunConsole()
    view = view_for(console, name_runs, log_format)
    last: list[RunStatus] = []
    try:
        yield view.update, last.append
    finally:
        view.close()
        if last and isinstance(view, NotebookView):
            view.show_last(last[0])
        elif last and isinstance(view, JsonView):
            view.show_end(last[0])
        elif last:
            print_report(console, last[0])


def new_messages(previous: list[str], current: list[str]) -> list[str]:
    """Return the new messages. A status holds only the last few, so `current` begins with the end of `previous`."""
    for start in range(len(previous) + 1):
        known = previous[start:]
        if current[: len(known)] == known:
            return current[len(known) :]
    return current


def _kind(diagnosis: tuple[str, str]) -> tuple[str, str]:
    """Return the diagnosis without its percentages, which change with every status."""
    return diagnosis[0].split(":")[0], diagnosis[1]
