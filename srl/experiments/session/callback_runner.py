"""Calls of the user's callbacks, in a thread of their own so that none delays the run."""

from __future__ import annotations

import queue
import re
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from srl.api.control import OptionValue
from srl.base.object_names import load_part
from srl.callbacks.callback import Callback
from srl.controller.controller import Controller
from srl.controller.supervision import evaluators
from srl.experiments.options.keywords import parse_pairs
from srl.experiments.options.train_options import TrainOptions

EVENTS = ("on_start", "on_update", "on_episode", "on_evaluation", "on_checkpoint", "on_end")
SLOW_SECONDS = 1.0
"""Duration of a call that is reported."""
MAX_WAITING = 100_000  # calls; further ones are dropped and counted
END_SECONDS = 30.0
"""Time for the calls that are still waiting when the run ends."""


def load_callback(text: str) -> Callback:
    """Return the callback that an option names: `NAME,OPTION=VALUE,...`. Raises ValueError if there is none."""
    name, *pairs = re.split(r",(?=\w+=)", text)
    found = load_part(name)
    if isinstance(found, Callback) and not pairs:
        return found
    try:
        callback = found(**{option: _as_tuples(value) for option, value in parse_pairs(pairs).items()})
    except TypeError as error:
        raise ValueError(f"callback {name} cannot be made: {error}") from error
    if not isinstance(callback, Callback):
        raise ValueError(f"{name} is no callback: derive the class from srl.Callback")
    return callback


def split_callbacks(callbacks: Sequence[Callback | str]) -> tuple[list[Callback], dict[str, tuple[str, ...]]]:
    """Return the callbacks that are objects, and those that are names as the option `callbacks`, if there are any."""
    names = tuple(callback for callback in callbacks if isinstance(callback, str))
    return [c for c in callbacks if not isinstance(c, str)], {"callbacks": names} if names else {}


def check_callbacks(options: TrainOptions, callbacks: Sequence[Any]) -> None:
    """Raise ValueError if a callback cannot be used in this run."""
    for name in options.run.callbacks:
        load_callback(name)
    for callback in callbacks:
        if not isinstance(callback, Callback):
            raise ValueError(f"{callback!r} is no callback: pass an object of a class that derives from srl.Callback")
    if callbacks and options.workers.scheduler == "slurm":
        raise ValueError("a Slurm job makes its own callbacks: pass names, such as 'package.module:Class', not objects")


def _as_tuples(value: Any) -> Any:
    return tuple(map(_as_tuples, value)) if isinstance(value, list) else value


class LiveRun:
    """Implementation of :class:`srl.callbacks.callback.RunControl`. Callbacks run in another thread, so the session
    carries out their requests between two rounds of supervision."""

    def __init__(self, path: Path, controller: Controller) -> None:
        self.path = path
        self.name = path.name
        self.steps = 0
        self.save_now = False
        self.figures: deque[dict[str, float]] = deque()
        self._controller = controller
        self._requests: deque[Callable[[], object]] = deque()

    def log(self, **figures: float) -> None:
        self.figures.append({name: float(value) for name, value in figures.items()})

    def stop(self, reason: str) -> None:
        self._requests.append(lambda: self._controller.stop("finished", reason))

    def fail(self, reason: str) -> None:
        self._requests.append(lambda: self._controller.stop("failed", reason))

    def save_checkpoint(self) -> None:
        self.save_now = True

    def evaluate(self) -> None:
        evaluators(self._controller.changes.groups.values())  # raises ValueError here, where the user sees it
        self._requests.append(self._controller.evaluate)

    def change(self, name: str, value: OptionValue) -> None:
        if self._controller.changes.check(name, value):
            self._requests.append(lambda: self._controller.change_option(name, value, strict=True))

    def carry_out(self) -> None:
        """Carry out the requests so far."""
        while self._requests:
            self._requests.popleft()()


class CallbackRunner:
    """Calls callbacks one after another, in the order of events. Without a thread, `call` returns after the call."""

    def __init__(
        self,
        callbacks: Sequence[Callback],
        run: LiveRun,
        threaded: bool,
        notify: Callable[[str], None],
        only_warn: bool = False,
    ) -> None:
        """`only_warn`: a callback that raises is only reported; otherwise it ends the run."""
        self.run = run
        self._callbacks = list(callbacks)
        self._notify = notify
        self._only_warn = only_warn
        self._concerned = {event: [c for c in callbacks if _overrides(c, event)] for event in EVENTS}
        self._reported: set[tuple[Callback, str]] = set()  # slow or failed calls
        self._dropped = 0
        self._failed = False
        self._states: dict[str, dict[str, Any]] = {}
        self._waiting: queue.Queue[tuple[Callback, str, Any] | None] = queue.Queue()
        self._current = ""
        for callback in callbacks:
            callback.run = run
        self._thread: threading.Thread | None = None
        if threaded and callbacks:
            self._thread = threading.Thread(target=self._work, name="srl-callbacks", daemon=True)
            self._thread.start()

    def handles(self, event: str) -> bool:
        """Return whether a callback handles this event."""
        return bool(self._concerned[event])

    def call(self, event: str, argument: Any) -> None:
        for callback in self._concerned[event]:
            if self._thread is None:
                self._call(callback, event, argument)
            elif self._waiting.qsize() < MAX_WAITING:
                self._waiting.put((callback, event, argument))
            else:
                self._dropped += 1

    def states(self) -> dict[str, dict[str, Any]]:
        """Return the states of the callbacks after their last calls, by class and position."""
        return dict(self._states)

    def restore(self, states: Mapping[str, Mapping[str, Any]]) -> None:
        for key, callback in zip(map(self._key, self._callbacks), self._callbacks, strict=True):
            if key in states:
                callback.restore(states[key])

    def close(self) -> None:
        """Wait until the calls so far have returned, for a bounded time."""
        if self._thread is not None:
            self._waiting.put(None)
            self._thread.join(END_SECONDS)
            if self._thread.is_alive():
                left = self._waiting.qsize()
                self._notify(
                    f"callback {self._current} did not return within {END_SECONDS:.0f} s; {left} calls are lost"
                )
        if self._dropped:
            self._notify(f"callbacks were too slow: {self._dropped:,} calls were dropped")

    def _key(self, callback: Callback) -> str:
        return f"{type(callback).__name__}-{self._callbacks.index(callback)}"

    def _work(self) -> None:
        while (item := self._waiting.get()) is not None:
            self._call(*item)

    def _call(self, callback: Callback, event: str, argument: Any) -> None:
        if self._failed and event != "on_end":
            return
        self._current = f"{type(callback).__name__}.{event}"
        began = time.monotonic()
        try:
            getattr(callback, event)(argument)
            if _overrides(callback, "state"):
                self._states[self._key(callback)] = callback.state()
        except Exception:
            self._report(callback, event, traceback.format_exc())
        taken = time.monotonic() - began
        if taken > SLOW_SECONDS and (callback, event) not in self._reported:
            self._reported.add((callback, event))
            self._notify(f"callback {self._current} is slow: it took {taken:.1f} s")

    def _report(self, callback: Callback, event: str, text: str) -> None:
        if not self._only_warn:
            self._failed = True
            self.run.fail(f"callback {self._current} failed:\n{text}")
        elif (callback, event) not in self._reported:
            self._reported.add((callback, event))
            self._notify(f"callback {self._current} failed; the run continues:\n{text}")


def _overrides(callback: Callback, method: str) -> bool:
    return getattr(type(callback), method) is not getattr(Callback, method)
