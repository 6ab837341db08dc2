"""The inline scheduler: all workers in one thread, polled in turn. Two runs with one seed are bit-equal."""

from __future__ import annotations

import contextlib
import importlib
import tempfile
import traceback
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from srl.api.control import Failure, Names, Ready, Register, Stop, ToWorker
from srl.api.experiment import Resources
from srl.api.parameters import ParameterStore
from srl.api.scheduler import Died, Event, Scheduler, WorkerMessage
from srl.api.worker import Place, ResumableWorker, Worker, WorkerConfig
from srl.base.meter import Meter, Phase
from srl.base.state import NotResumable, State, part, under
from srl.base.tree import Array
from srl.names.table import NameView
from srl.schedulers.local.run_memory import RunMemory
from srl.transports.inproc import InprocTransport
from srl.workers.context import WorkerContext
from srl.workers.errors import RunBroken
from srl.workers.process import limit_threads

ROUNDS = 64
"""Polls of every worker between two looks at the controller's affairs."""


@dataclass
class _Resident:
    worker: Worker
    context: WorkerContext
    names: NameView
    finished: bool = False


class InlineScheduler(Scheduler):
    inline = True

    def __init__(self, memory: RunMemory) -> None:
        # Before the first worker is built: the number of threads decides the last bits, also of the first parameters.
        with contextlib.suppress(ImportError):
            importlib.import_module("torch")
        limit_threads()
        self._transport = InprocTransport()
        self._memory = memory
        self._residents: dict[Place, _Resident] = {}
        self._meters: dict[Place, Meter] = {}
        self._events: deque[Event] = deque()
        self._saved: dict[str, State] = {}  # of workers that are not restored yet
        self._runtime = tempfile.TemporaryDirectory(prefix="srl-inline-")

    def start(self, place: Place, config: WorkerConfig, resources: Resources, seed: int) -> None:
        meter = self._meters[place] = Meter.unshared()
        meter.reset()
        say = self._sayer(place)
        names = NameView(lambda name, address: say(Register(name, address)))
        context = WorkerContext(
            place,
            seed,
            meter,
            names,
            self._transport,
            dict(self._memory.parameters),
            self._memory.commits,
            say,
            False,
            Path(self._runtime.name),
        )
        try:
            worker = config.build(context)
        except Exception as error:
            print(traceback.format_exc())
            self._events.append(WorkerMessage(place, Failure(str(error), fatal=True)))
            context.bells.close()
            return
        self._residents[place] = _Resident(worker, context, names)
        self._events.append(WorkerMessage(place, Ready()))

    def _sayer(self, place: Place) -> Callable[[Any], None]:
        return lambda message: self._events.append(WorkerMessage(place, message))

    def send(self, places: Sequence[Place], message: ToWorker) -> None:
        for place in places:
            resident = self._residents.get(place)
            if resident is None:
                continue
            if isinstance(message, Names):
                resident.names.replace(message.entries)
            elif isinstance(message, Stop):
                self._end(place, "stopped", clean=True)

    def kill(self, place: Place) -> None:
        if place in self._residents:
            self._end(place, "killed", clean=False)

    def _end(self, place: Place, reason: str, clean: bool) -> None:
        resident = self._residents.pop(place)
        resident.worker.close()
        resident.context.bells.close()
        self._events.append(Died(place, reason, clean))

    def state(self) -> dict[str, Array]:
        """All that is under way, between two rounds of polls. Raises NotResumable, naming the worker."""
        found: dict[str, Array] = {}
        for place, resident in self._residents.items():
            if isinstance(resident.worker, ResumableWorker):
                try:
                    found.update(under(place.name, resident.worker.state()))
                except NotResumable as error:
                    raise type(error)(f"{place.name}: {error}") from error
        return found

    def restore(self, state: State) -> None:
        """Go on from a state; before the first worker is started. None of them works until all are restored."""
        names = {"/".join(key.split("/")[:2]) for key in state}
        self._saved = {name: part(state, name) for name in names}

    def poll(self, timeout: float) -> list[Event]:
        for place in [place for place, resident in self._residents.items() if resident.finished]:
            self._end(place, "finished", clean=True)
        for _ in range(ROUNDS):
            if self._events:
                break  # a name, a failure: the controller must see it before the workers go on
            restoring = bool(self._saved)
            for place, resident in list(self._residents.items()):
                if restoring:
                    self._restore_one(place, resident)
                elif not resident.finished:
                    self._poll_one(place, resident)
        events = list(self._events)
        self._events.clear()
        return events

    def _restore_one(self, place: Place, resident: _Resident) -> None:
        saved = self._saved.get(place.name)
        if saved is None:
            return
        try:
            if not isinstance(resident.worker, ResumableWorker):
                raise NotResumable(f"{type(resident.worker).__name__} has no `state` and `restore`")
            if resident.worker.restore(saved):
                del self._saved[place.name]
        except Exception as error:
            print(traceback.format_exc())
            self._events.append(WorkerMessage(place, Failure(f"{place.name} cannot be restored: {error}", fatal=True)))
            self._end(place, str(error), clean=False)

    def _poll_one(self, place: Place, resident: _Resident) -> None:
        resident.context.meter.enter(Phase.OTHER)
        try:
            result = resident.worker.poll()
        except Exception as error:
            fatal = isinstance(error, RunBroken)
            text = str(error) if fatal else traceback.format_exc()
            self._events.append(WorkerMessage(place, Failure(text, fatal)))
            self._end(place, str(error), clean=False)
            return
        resident.context.meter.enter(Phase.WAITING)
        resident.finished = result.finished  # it leaves after this round: until then the run can be saved as a whole

    def meter(self, place: Place) -> Meter:
        return self._meters[place]

    def parameters(self) -> Mapping[str, ParameterStore]:
        return self._memory.parameters

    def close(self) -> None:
        for place in list(self._residents):
            self._end(place, "closed", clean=True)
        self._runtime.cleanup()
