"""The main loop of a worker process: builds and polls the worker, and reads the controller's messages."""

from __future__ import annotations

import contextlib
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from types import FrameType
from typing import Any

from srl.api.control import Failure, InjectFault, Instruction, Names, Ready, Stop
from srl.api.transport import Channel, ChannelClosed
from srl.api.worker import InstructedWorker, RunBroken, Worker, WorkerConfig, checked
from srl.base.errors import traceback_of, user_traceback
from srl.base.meter import Counter, Meter, Phase
from srl.names.table import NameView
from srl.workers.context import WorkerContext
from srl.workers.fault_injection import Faults

LEFT = 83  # exit code of a worker that has finished or was stopped; not 0, because user code may exit with 0
PREEMPTED = 84  # exit code of a worker that closed after SIGTERM; the controller replaces it
CONTROL_SECONDS = 0.02
IDLE_SECONDS = 0.1
LESS_MEMORY = "use fewer --lanes, a shorter --horizon or fewer --actors, or allow this host more memory (`ulimit -v`)"


class WorkerProcess:
    """Process that runs one worker until it finishes, is stopped, or loses its controller."""

    def __init__(self, config: WorkerConfig, context: WorkerContext, control: Channel, names: NameView) -> None:
        self._config = config
        self._context = context
        self._control = control
        self._names = names
        self._stopping = self._preempted = False
        self._instructions: list[Instruction] = []  # not passed to the worker yet
        self._control_read = 0.0
        self._faults = Faults(context.meter)
        self._shows_compilation = False
        context.read_control = self._read_control

    def run(self) -> int:
        """Run the worker and return the exit code of the process."""
        signal.signal(signal.SIGTERM, self._on_signal)
        meter = self._context.meter
        meter.reset()
        try:
            worker = self._config.build(self._context)
        except (ValueError, TypeError, LookupError, ImportError, RunBroken) as error:
            # A replacement would fail in the same way, because it has the same config.
            return self._fail(error, fatal=True)
        except MemoryError as error:
            return self._fail(MemoryError(f"{error}; {LESS_MEMORY}"), fatal=True)
        except Exception as error:
            return self._fail(error, fatal=False)
        try:
            self._shows_compilation = show_compilation(meter)
            self._context.report(Ready())
            meter.enter(Phase.OTHER)
            while not self._stopping:
                if self._instructions:
                    self._instruct(worker)
                result = checked(worker, worker.poll())
                if result.finished:
                    break
                if not result.worked:
                    meter.enter(Phase.WAITING)
                    self._context.wait_set.wait(IDLE_SECONDS)
                    meter.enter(Phase.OTHER)
                    self._read_control()
                elif time.monotonic() - self._control_read > CONTROL_SECONDS:
                    self._read_control()
            worker.close()
        except RunBroken as error:
            return self._fail(error, fatal=True)
        except Exception as error:
            return self._fail(error, fatal=False)
        return PREEMPTED if self._preempted else LEFT

    def _read_control(self) -> None:
        self._control_read = time.monotonic()
        self._shows_compilation = self._shows_compilation or show_compilation(self._context.meter)
        while (received := self._control.receive()) is not None:
            message = received[0]
            if isinstance(message, Names):
                self._names.replace(message.entries)
            elif isinstance(message, Stop):
                self._stopping = True
            elif isinstance(message, InjectFault):
                self._faults.add(message)
            elif isinstance(message, Instruction):
                self._instructions.append(message)
        self._control.flush()
        if self._faults:
            self._faults.apply()

    def _instruct(self, worker: Worker) -> None:
        instructions, self._instructions = self._instructions, []
        if isinstance(worker, InstructedWorker):
            for message in instructions:
                worker.instruct(message)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._stopping = self._preempted = True
        self._context.wait_set.wake()

    def _fail(self, error: BaseException, fatal: bool) -> int:
        with contextlib.suppress(OSError):  # the disk may be full
            print(traceback.format_exc(), flush=True)
        text = failure_text(error, fatal)
        try:
            self._context.report(Failure(text or repr(error), fatal))
            self._control.flush()
        except ChannelClosed:
            pass
        return 1


def failure_text(error: BaseException, fatal: bool) -> str:
    """Return the report of an error in a worker: its traceback, or only the message if that is the reason for the end
    of the run and no error in the user's code."""
    if fatal and (isinstance(error, RunBroken) or not user_traceback(error)):
        return str(error)
    return traceback_of(error)


def show_compilation(meter: Meter) -> bool:
    """From now on, show in a meter whether Numba compiles functions in this process, which it does once per
    installation. Return False if Numba is not imported yet."""
    if not hasattr(sys.modules.get("numba"), "njit"):
        return False
    from numba.core import event

    class Compilation(event.Listener):
        """Called under Numba's lock, also for the functions that a function calls."""

        depth = 0

        def on_start(self, found: object) -> None:
            self.depth += 1
            meter.set(Counter.COMPILING, 1)

        def on_end(self, found: object) -> None:
            self.depth -= 1
            meter.set(Counter.COMPILING, int(self.depth > 0))

    event.register("numba:compile", Compilation())  # type: ignore[no-untyped-call]
    return True


def limit_threads() -> None:
    """Limit torch to one thread: several workers' spinning threads on shared cores are ten times slower."""
    torch: Any = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(1)


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Limit torch to one thread within this context, for inference on small batches in the user's own process."""
    torch: Any = sys.modules.get("torch")
    before = torch.get_num_threads() if torch is not None else 1
    limit_threads()
    try:
        yield
    finally:
        if torch is not None:
            torch.set_num_threads(before)
