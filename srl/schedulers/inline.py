"""The inline scheduler: all workers in one thread, polled in turn. Two runs with the same seed are bit-identical."""

from __future__ import annotations

import contextlib
import importlib
import tempfile
import time
import traceback
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from srl.api.control import Failure, Instruction, Names, Ready, Register, Stop, ToWorker
from srl.api.experiment import Resources
from srl.api.parameters import ParameterStore
from srl.api.scheduler import Died, Event, Scheduler, WorkerMessage
from srl.api.worker import InstructedWorker, ResumableWorker, RunBroken, Worker, WorkerConfig, WorkerId, checked
from srl.base.meter import Meter, Phase
from srl.base.state import NotResumable, State, part, under
from srl.base.tree import Array
from srl.names.table import NameView
from srl.schedulers.local.run_memory import RunMemory
from srl.schedulers.local.strays import MarkedCalls
from srl.transports.inproc import InprocTransport
from srl.workers.context import WorkerContext
from srl.workers.process import failure_text, limit_threads

T = TypeVar("T")
POLL_SECONDS = 0.01
"""Interval at which `poll` returns to the controller, which saves checkpoints and handles signals. It does not affect
results: workers are polled in the same order whatever its value."""


@dataclass
class _Entry:
    worker: Worker
    context: WorkerContext
    names: NameView
    finished: bool = False


class InlineScheduler(Scheduler):
    inline = True

    def __init__(self, memory: RunMemory) -> None:
        # Set before the first worker is built, because the number of threads affects the last bits of its parameters.
        with contextlib.suppress(ImportError):
            importlib.import_module("torch")
        limit_threads()
        self._transport = InprocTransport()
        self._calls = MarkedCalls()  # of code that may belong to environments
        self._memory = memory
        self._entries: dict[WorkerId, _Entry] = {}
        self._meters: dict[WorkerId, Meter] = {}
        self._events: deque[Event] = deque()
        self._saved: dict[str, State] = {}  # states of workers not yet restored
        self._runtime = tempfile.TemporaryDirectory(prefix="srl-inline-")

    def start(self, worker_id: WorkerId, config: WorkerConfig, resources: Resources, seed: int) -> None:
        meter = self._meters[worker_id] = Meter.unshared()
        meter.reset()
        send = partial(self._receive, worker_id)
        names = NameView(lambda name, address: send(Register(name, address)))
        context = WorkerContext(
            worker_id,
            seed,
            meter,
            names,
            self._transport,
            dict(self._memory.parameters),
            self._memory.commits,
            send,
            False,
            Path(self._runtime.name),
            replays=self._memory.replays,
        )
        try:
            with self._calls:
                worker = config.build(context)
        except Exception as error:
            print(traceback.format_exc())
            send(Failure(failure_text(error, fatal=True) or repr(error), fatal=True))
            context.wait_set.close()
            return
        self._entries[worker_id] = _Entry(worker, context, names)
        send(Ready())

    def _receive(self, worker_id: WorkerId, message: Any) -> None:
        self._events.append(WorkerMessage(worker_id, message))

    def send(self, worker_ids: Sequence[WorkerId], message: ToWorker) -> None:
        for worker_id in worker_ids:
            entry = self._entries.get(worker_id)
            if entry is None:
                continue
            if isinstance(message, Names):
                entry.names.replace(message.entries)
            elif isinstance(message, Stop):
                self._end(worker_id, "stopped", clean=True)
            elif isinstance(message, Instruction) and isinstance(entry.worker, InstructedWorker):
                with self._calls:
                    self._attempt(worker_id, partial(entry.worker.instruct, message))

    def kill(self, worker_id: WorkerId) -> None:
        if worker_id in self._entries:
            self._end(worker_id, "killed", clean=False)

    def _end(self, worker_id: WorkerId, reason: str, clean: bool) -> None:
        entry = self._entries.pop(worker_id)
        entry.worker.close()
        entry.context.wait_set.close()
        self._events.append(Died(worker_id, reason, clean))

    def state(self) -> dict[str, Array]:
        found: dict[str, Array] = {}
        for worker_id, entry in self._entries.items():
            if isinstance(entry.worker, ResumableWorker):
                try:
                    found.update(under(worker_id.name, entry.worker.state()))
                except NotResumable as error:
                    raise type(error)(f"{worker_id.name}: {error}") from error
        return found

    def restore(self, state: State) -> None:
        """Set the workers' states. No worker is polled until all are restored."""
        names = {"/".join(key.split("/")[:2]) for key in state}
        self._saved = {name: part(state, name) for name in names}

    def poll(self, timeout: float) -> list[Event]:
        for worker_id in [worker_id for worker_id, entry in self._entries.items() if entry.finished]:
            self._end(worker_id, "finished", clean=True)
        until = time.monotonic() + POLL_SECONDS
        with self._calls:
            while not self._events:  # the controller must handle a new name or a failure before the workers continue
                self._poll_all()
                if time.monotonic() >= until:
                    break
        events = list(self._events)
        self._events.clear()
        return events

    def _poll_all(self) -> None:
        restoring = bool(self._saved)
        for worker_id, entry in list(self._entries.items()):
            if restoring:
                self._restore_one(worker_id, entry)
            elif not entry.finished:
                self._poll_one(worker_id, entry)

    def _restore_one(self, worker_id: WorkerId, entry: _Entry) -> None:
        saved = self._saved.get(worker_id.name)
        if saved is None:
            return
        try:
            if not isinstance(entry.worker, ResumableWorker):
                raise NotResumable(f"{type(entry.worker).__name__} has no `state` and `restore`")
            if entry.worker.restore(saved):
                del self._saved[worker_id.name]
        except Exception as error:
            print(traceback.format_exc())
            self._receive(worker_id, Failure(f"cannot restore {worker_id.name}: {error}", fatal=True))
            self._end(worker_id, str(error), clean=False)

    def _poll_one(self, worker_id: WorkerId, entry: _Entry) -> None:
        entry.context.meter.enter(Phase.OTHER)
        result = self._attempt(worker_id, lambda: checked(entry.worker, entry.worker.poll()))
        if result is not None:
            entry.context.meter.enter(Phase.WAITING)
            entry.finished = (
                result.finished
            )  # it ends at the next poll; until then, the run can be saved with all workers

    def _attempt(self, worker_id: WorkerId, call: Callable[[], T]) -> T | None:
        """Return the result of a call of a worker, or None if it failed, which ends the worker."""
        try:
            return call()
        except Exception as error:
            fatal = isinstance(error, RunBroken)
            self._receive(worker_id, Failure(failure_text(error, fatal), fatal))
            self._end(worker_id, str(error), clean=False)
            return None

    def meter(self, worker_id: WorkerId) -> Meter:
        return self._meters[worker_id]

    def parameters(self) -> Mapping[str, ParameterStore]:
        return self._memory.parameters

    def close(self) -> None:
        for worker_id in list(self._entries):
            self._end(worker_id, "closed", clean=True)
        self._calls.kill_strays()
        self._runtime.cleanup()
