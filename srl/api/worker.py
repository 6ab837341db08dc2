"""The worker contract: a config builds a worker in a context, and the worker computes in small pieces."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self, runtime_checkable

from srl.api.parameters import ParameterStore
from srl.api.streams import StreamEnd
from srl.api.trainer import TrainerGroup
from srl.api.transport import Channel, Listener, Message, NameService
from srl.base.meter import Meter
from srl.base.snapshot import Snapshot
from srl.base.state import State


@dataclass(frozen=True)
class WorkerId:
    """Identity of a worker. A replacement has the same group and index and the next incarnation."""

    group: str
    index: int
    incarnation: int

    @property
    def name(self) -> str:
        return f"{self.group}/{self.index}"


class Context(Protocol):
    """Services for one worker: its only way to reach the rest of the run."""

    worker_id: WorkerId
    seed: int
    """Seed of this incarnation; others have different ones."""
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

    def report(self, message: Message) -> None:
        """Send a message of `srl.api.control` to the controller; never blocks."""

    def trainer_group(self, policy: str, size: int) -> TrainerGroup:
        """Return this worker's rank among the `size` trainers of a policy, and a rendezvous that changes each
        time the trainers are restarted."""

    def wait_for_controller(self, timeout: float) -> None:
        """Process messages of the controller, then wait up to `timeout` seconds for the next event. For a worker that
        waits for another one while it is built."""

    def waker(self) -> Callable[[], None]:
        """Return a function with which background threads wake this worker."""

    def wake_on(self, endpoint: Channel | Listener) -> None:
        """Wake this worker when something arrives at `endpoint`, until it is closed."""


@dataclass(frozen=True)
class PollResult:
    """Result of a poll. After one that did no work, the worker sleeps until something wakes it."""

    worked: bool
    finished: bool = False
    """Whether this worker's part of the run is done, so that it need not be polled again."""


WORKED = PollResult(worked=True)
IDLE = PollResult(worked=False)
FINISHED = PollResult(worked=True, finished=True)


class RunBroken(RuntimeError):
    """An error that would occur again after a restart: the run ends and shows this message."""


@runtime_checkable
class Worker(Protocol):
    """A part of a run that its process polls in a loop."""

    def poll(self) -> PollResult:
        """Do one small piece of work. Never sleeps, and never waits for another worker."""

    def close(self) -> None:
        """Release all resources."""


@runtime_checkable
class ResumableWorker(Protocol):
    """A worker that can be saved between two polls, with everything under way, for an exact resume. A worker without
    these methods starts from the beginning when its run is resumed."""

    def state(self) -> State:
        """Return everything that determines what the worker does next. Raises NotResumable if that is not possible."""

    def restore(self, state: State) -> bool:
        """Continue from a saved state; this worker was just built and never polled. False: a worker that it was
        connected to is not there yet; call again."""


class WorkerConfig(ABC):
    """Base class of worker configs: frozen dataclasses of plain data, which are sent to the worker's process as JSON.

    A subclass implements `build`. The other methods have defaults that suit a worker without special needs.
    """

    @abstractmethod
    def build(self, context: Any) -> Worker:
        """Return the worker. An error here ends the run if a replacement would fail the same way (ValueError,
        TypeError, LookupError, ImportError, RunBroken, MemoryError)."""

    def committed_policy(self) -> str:
        """Return the policy whose trainer state this worker commits, or an empty string. Such a worker finds the last
        commit wherever it starts, and its host is the root of that policy's parameter distribution."""
        return ""

    def resized(self, count: int) -> Self:
        """Return the config for a group of `count` workers whose workers depend on the group's size
        (RestartRule.together). Raises ValueError if that number is not possible."""
        return self

    def with_target_steps(self, target_steps: int) -> Self:
        """Return the config for a run of another length; the same config if the length does not matter to it."""
        return self

    def sizes(self) -> Mapping[str, int]:
        """Return the sizes that matter for speed, by the names of the options: `lanes` and `ring` of an actor,
        `horizon` and `batch` (and `num_minibatches`) of a trainer."""
        return {}

    def ends(self) -> Sequence[StreamEnd]:
        """Return this worker's stream endpoints, from which `Experiment.edges` is computed."""
        return ()
