"""The worker contract: a config builds a worker in a context, and the worker computes in small pieces."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self, runtime_checkable

from srl.api.control import Instruction, OptionValue
from srl.api.parameters import ParameterStore
from srl.api.streams import StreamEnd
from srl.api.trainer import TrainerGroup
from srl.api.transport import Channel, Listener, Message, NameService
from srl.base.meter import Meter
from srl.base.shared_memory import KeptMemory
from srl.base.snapshot import Snapshot
from srl.base.state import State


@dataclass(frozen=True)
class WorkerId:
    """Identity of a worker."""

    group: str
    index: int
    incarnation: int  # 0 at first; a replacement has the next one

    @property
    def name(self) -> str:
        return f"{self.group}/{self.index}"


class Context(Protocol):
    """Services for one worker: its only way to reach the rest of the run."""

    worker_id: WorkerId
    seed: int  # differs between incarnations
    meter: Meter
    names: NameService
    threads: bool
    """Whether the worker may start background threads; false in runs that must be reproducible bit for bit."""

    def listen(self, name: str, messages: Any, *, remote: bool = False) -> Listener:
        """Open an endpoint and register it. `remote`: reachable from other hosts, over TCP."""

    def connect(self, address: str, messages: Any) -> Channel:
        """Connect to an endpoint. Raises ChannelClosed if nothing listens there."""

    def parameters(self, policy: str) -> ParameterStore:
        """Return the parameter store of a policy on this host."""

    def commits(self, policy: str) -> Snapshot:
        """Return the memory for the committed state of a policy's trainer, which outlives the trainer's process."""

    def kept_memory(self, policy: str, shard: int) -> KeptMemory | None:
        """Return the memory of one part (`shard`: 0, 1, ...) of a policy's replay, which outlives the worker's process:
        a replacement on the same host finds what was written. None if the worker should use memory of its own, because
        nothing would outlive its process."""

    def report(self, message: Message) -> None:
        """Send a message of `srl.api.control` to the controller; never blocks."""

    def trainer_group(self, policy: str, size: int) -> TrainerGroup:
        """Return this worker's rank among the `size` trainers of a policy, and a rendezvous, new after each restart."""

    def wait_for_controller(self, timeout: float) -> None:
        """Process messages of the controller, then wait up to `timeout` seconds for the next event; for `build`."""

    def waker(self) -> Callable[[], None]:
        """Return a function that wakes this worker, for background threads."""

    def wake_on(self, endpoint: Channel | Listener) -> None:
        """Wake this worker when something arrives at `endpoint`, until it is closed."""


@dataclass(frozen=True)
class PollResult:
    """Result of a poll."""

    worked: bool  # if false, the worker sleeps until something wakes it
    finished: bool = False  # this worker's part of the run is done: it is not polled again


WORKED = PollResult(worked=True)
IDLE = PollResult(worked=False)
FINISHED = PollResult(worked=True, finished=True)


class RunBroken(RuntimeError):
    """An error that would occur again after a restart: the run ends and shows this message."""


def checked(worker: object, result: object) -> PollResult:
    """Return the result of a poll. Raises RunBroken if it is none."""
    if not isinstance(result, PollResult):
        raise RunBroken(f"{type(worker).__name__}.poll must return WORKED, IDLE or FINISHED, found {result!r}")
    return result


@runtime_checkable
class Worker(Protocol):
    """A part of a run that its process polls in a loop."""

    def poll(self) -> PollResult:
        """Do one small piece of work. Never sleeps, and never waits for another worker."""

    def close(self) -> None:
        """Release all resources."""


@runtime_checkable
class ResumableWorker(Protocol):
    """A worker that can be saved between two polls for an exact resume. Others start over in a resumed run."""

    def state(self) -> State:
        """Return everything that determines what the worker does next. Raises NotResumable if that is not possible."""

    def restore(self, state: State) -> bool:
        """Continue from a saved state, in a worker that was just built. False: a peer is not connected yet; retry."""


@runtime_checkable
class InstructedWorker(Protocol):
    """A worker that handles instructions of the controller, for example new values of its options
    (`WorkerConfig.with_option`). For other workers they have no effect."""

    def instruct(self, message: Instruction) -> None:
        """Handle an instruction; called between two polls."""


class WorkerConfig(ABC):
    """Base class of worker configs: frozen dataclasses of plain data. Only `build` is required."""

    @abstractmethod
    def build(self, context: Any) -> Worker:
        """Return the worker. An error here ends the run if a replacement would fail the same way (ValueError,
        TypeError, LookupError, ImportError, RunBroken, MemoryError)."""

    def committed_policy(self) -> str:
        """Return the policy whose trainer state this worker commits, or an empty string. Such a worker finds the last
        commit wherever it starts, and other hosts get that policy's parameters from its host."""
        return ""

    def resized(self, count: int) -> Self:
        """Return the config for a group of `count` workers. Raises ValueError if that number is not possible."""
        return self

    def with_target_steps(self, target_steps: int) -> Self:
        """Return the config for a run of another length."""
        return self

    def with_option(self, name: str, value: OptionValue) -> Self | None:
        """Return the config with another value of an option that may change during the run, or None if the worker has
        no such option. Raises ValueError if the value is invalid."""
        return None

    def changeable(self) -> Sequence[str]:
        """Return the names of the options that may change during the run, for messages."""
        return ()

    def evaluates(self) -> bool:
        """Return whether the worker evaluates policies, so that it handles `Evaluate`."""
        return False

    def sizes(self) -> Mapping[str, float]:
        """Return sizes for advice on speed, by option: `lanes` and `ring`, or `horizon`, `batch`, `num_minibatches`."""
        return {}

    def ends(self) -> Sequence[StreamEnd]:
        """Return this worker's stream endpoints, from which `Experiment.edges` is computed."""
        return ()
