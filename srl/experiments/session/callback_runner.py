"""Calls of the user's callbacks, in a thread of their own so that none delays the run."""

from __future__ import annotations

import contextlib
import inspect
import json
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

from srl.api.control import OptionValue
from srl.base.errors import nearest, traceback_of
from srl.base.object_names import load_object, load_part
from srl.callbacks.callback import Callback
from srl.controller.controller import Controller
from srl.controller.supervision import evaluators
from srl.experiments.options.sections import CALLBACKS
from srl.experiments.options.setting_texts import parse_callback
from srl.experiments.options.train_options import TrainOptions

EVENTS = ("on_start", "on_update", "on_episode", "on_evaluation", "on_checkpoint", "on_end")
SLOW_SECONDS = 1.0
"""Duration of a call that is reported."""
MAX_WAITING = 100_000  # calls; further ones are dropped and counted
END_SECONDS = 30.0
"""Time for the calls that are still waiting when the run ends."""
LAST_SECONDS = 30.0
"""Time for the calls of `on_end` after that."""
WAIT_SECONDS = 0.25
"""Time between looks at the calls that are waiting when the run ends."""


def load_callback(text: str) -> Callback:
    """Return the callback that an option names: `NAME,OPTION=VALUE,...`. Raises ValueError if there is none."""
    name, options = parse_callback(text)
    if name not in CALLBACKS and ":" not in name:
        raise ValueError(f"no callback {name!r} (name your own as path/file.py:Class){nearest(name, CALLBACKS)}")
    found = load_part(name) if name in CALLBACKS else load_object(name)
    if isinstance(found, Callback) and not options:
        return found
    if not (isinstance(found, type) and issubclass(found, Callback)):
        raise ValueError(f"{name} is no callback: derive the class from srl.Callback")
    if name in CALLBACKS:
        _check_numbers(name, found, options)
    known = inspect.signature(found).parameters
    for option in options:
        if option not in known and not any(one.kind is one.VAR_KEYWORD for one in known.values()):
            raise ValueError(f"callback {name} has no option {option!r}{nearest(option, known)}")
    try:
        return found(**{option: _as_tuples(value) for option, value in options.items()})
    except TypeError as error:
        raise ValueError(f"callback {name} cannot be made: {error}") from error


def _check_numbers(name: str, kind: type[Any], options: Mapping[str, Any]) -> None:
    for field in fields(kind):
        value, default = options.get(field.name), field.default
        if isinstance(value, str) and isinstance(default, (int, float)):
            raise ValueError(f"callback {name}: {field.name} must be a number, found {value!r}")


def split_callbacks(callbacks: Any, options: dict[str, Any]) -> tuple[list[Callback], dict[str, tuple[str, ...]]]:
    """Return the callbacks that are objects, and those that are names as the option `callbacks`, if there are any. A
    single callback may be given without a list, and among the `options` as `callback`, as in other libraries."""
    given = [*_listed(callbacks), *_listed(options.pop("callback", ()))]
    names = tuple(callback for callback in given if isinstance(callback, str))
    return [c for c in given if not isinstance(c, str)], {"callbacks": names} if names else {}


def _listed(callbacks: Any) -> Sequence[Any]:
    return callbacks if isinstance(callbacks, (list, tuple)) else (callbacks,)


def check_callbacks(options: TrainOptions, callbacks: Sequence[Any]) -> None:
    """Raise ValueError if a callback cannot be used in this run."""
    for callback in (*map(load_callback, options.run.callbacks), *callbacks):
        if not isinstance(callback, Callback):
            raise ValueError(f"{callback!r} is no callback: pass an object of a class that derives from srl.Callback")
        for name in dir(callback):
            if name.startswith("on_") and name not in EVENTS and callable(getattr(type(callback), name, None)):
                kind = type(callback).__name__
                raise ValueError(f"{kind}.{name} is never called by a run{nearest(name, EVENTS)}")
    if callbacks and options.workers.scheduler == "slurm":
        raise ValueError("a Slurm job makes its own callbacks: pass names, such as 'package.module:Class', not objects")


def _as_tuples(value: Any) -> Any:
    return tuple(map(_as_tuples, value)) if isinstance(value, list) else value


CALLBACK = "callback"
"""Kind of the events of callbacks in system.jsonl."""


class LiveRun:
    """Implementation of :class:`srl.callbacks.callback.RunControl`. Callbacks run in another thread, so the session
    carries out their requests between two rounds of supervision."""

    def __init__(self, path: Path, controller: Controller) -> None:
        self.notify = partial(controller.add_message, event=CALLBACK)
        self.path = path
        self.name = path.name
        self.steps = 0
        self.figures: deque[dict[str, float]] = deque()
        self._controller = controller
        self._requests: deque[Callable[[], object]] = deque()

    def log(self, **figures: float) -> None:
        self.figures.append({name: float(value) for name, value in figures.items()})

    def stop(self, reason: str) -> None:
        self._requests.append(lambda: self._controller.stop("finished", reason))

    def fail(self, reason: str) -> None:
        self._requests.append(lambda: self._controller.fail(reason))

    def save_checkpoint(self) -> None:
        self._controller.save_requested = True

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
        # By identity: callbacks that are dataclasses have no hash, and may be equal.
        self._keys = {id(c): f"{type(c).__name__}-{index}" for index, c in enumerate(callbacks)}
        self._concerned = {event: [c for c in callbacks if _overrides(c, event)] for event in EVENTS}
        self._reported: set[tuple[str, str]] = set()  # callbacks and events with slow or failed calls
        self.lost: dict[str, int] = {}  # callback and event -> number of calls that were never made
        self._failed = False
        self._states: dict[str, str] = {}  # callback -> its state as JSON, which later calls do not change
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
                self._lose(callback, event)

    def states(self) -> dict[str, dict[str, Any]]:
        """Return the states of the callbacks after their last calls, by class and position."""
        return {key: json.loads(text) for key, text in dict(self._states).items()}

    def restore(self, states: Mapping[str, Mapping[str, Any]]) -> None:
        """Restore the states of an earlier part of the run. Raises ValueError if a callback cannot use its own."""
        for callback in self._callbacks:
            if (key := self._keys[id(callback)]) in states:
                try:
                    callback.restore(states[key])
                except Exception as error:
                    name = f"{type(callback).__name__}.restore"
                    raise ValueError(f"callback {name} failed:\n{traceback_of(error)}") from error

    def close(self, report: Any, waiting: Callable[[], None] = lambda: None) -> None:
        """Make the calls that are waiting, for a bounded time, and then those of `on_end`. `waiting` is called
        repeatedly in the meantime."""
        if self._thread is None:
            self.call("on_end", report)
            return
        self._wait(waiting)
        for callback, event, _ in list(self._taken()):  # they would delay the end
            self._lose(callback, event)
        for callback in self._concerned["on_end"]:
            self._waiting.put((callback, "on_end", report))
        self._waiting.put(None)
        self._thread.join(LAST_SECONDS)
        if self._thread.is_alive():
            self._notify(f"callback {self._current} did not return within {LAST_SECONDS:.0f} s")
            for callback, event, _ in list(self._taken()):
                self._lose(callback, event)
        if self.lost:
            self._notify(f"callbacks were too slow: {sum(self.lost.values()):,} calls were not made")

    def _wait(self, waiting: Callable[[], None]) -> None:
        """Wait until all calls so far have been made, for a bounded time."""
        deadline, told = time.monotonic() + END_SECONDS, False
        while (left := self._waiting.unfinished_tasks) and time.monotonic() < deadline:
            time.sleep(WAIT_SECONDS)
            if self._waiting.unfinished_tasks and not told:
                told = True
                calls = f"{left:,} calls are" if left > 1 else "1 call is"
                self._notify(
                    f"waiting for callbacks, at most {END_SECONDS:.0f} s: {calls} left, {self._current} is running"
                )
            waiting()

    def _taken(self) -> Iterator[tuple[Callback, str, Any]]:
        """Take the calls that are waiting, so that they are not made."""
        with contextlib.suppress(queue.Empty):
            while True:
                if (item := self._waiting.get_nowait()) is not None:
                    yield item

    def _lose(self, callback: Callback, event: str) -> None:
        name = f"{type(callback).__name__}.{event}"
        self.lost[name] = self.lost.get(name, 0) + 1

    def _work(self) -> None:
        while (item := self._waiting.get()) is not None:
            self._call(*item)
            self._waiting.task_done()

    def _call(self, callback: Callback, event: str, argument: Any) -> None:
        if self._failed and event != "on_end":
            return
        key, name = self._keys[id(callback)], type(callback).__name__
        self._current = f"{name}.{event}"
        began = time.monotonic()
        try:
            getattr(callback, event)(argument)
            taken = time.monotonic() - began
            if taken > SLOW_SECONDS and (key, event) not in self._reported:
                self._reported.add((key, event))
                self._notify(f"callback {self._current} is slow: it took {taken:.1f} s")
            if _overrides(callback, "state"):
                self._current = f"{name}.state"
                self._states[key] = json.dumps(callback.state())
        except BaseException as error:  # also SystemExit, which would end the thread without a word
            if self._thread is None and isinstance(error, KeyboardInterrupt):
                raise  # Ctrl-C
            self._report(key, traceback_of(error))

    def _report(self, key: str, text: str) -> None:
        if not self._only_warn:
            self._failed = True
            self.run.fail(f"callback {self._current} failed:\n{text}")
        elif (key, self._current) not in self._reported:
            self._reported.add((key, self._current))
            self._notify(f"callback {self._current} failed; the run continues:\n{text}")


def _overrides(callback: Callback, method: str) -> bool:
    return getattr(type(callback), method) is not getattr(Callback, method)
