"""The worker contract: something that computes in small pieces, built whole by its config and its context."""

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
class Place:
    """Which worker of the graph this is. A replacement has the same group and index and the next incarnation."""

    group: str
    index: int
    incarnation: int

    @property
    def name(self) -> str:
        return f"{self.group}/{self.index}"


class Context(Protocol):
    """What surrounds a worker; all that it may know of the world."""

    place: Place
    seed: int
    """Of this incarnation alone."""
    meter: Meter
    names: NameService
    threads: bool
    """May this worker have background threads? Not where runs must repeat bit for bit."""

    def listen(self, name: str, messages: Any, *, remote: bool = False) -> Listener:
        """Open an endpoint and register it. `remote`: reachable from other hosts, over TCP."""

    def connect(self, address: str, messages: Any) -> Channel: ...

    def parameters(self, policy: str) -> ParameterStore: ...

    def commits(self, policy: str) -> Snapshot:
        """Where a trainer's committed state lies: it outlives the trainer's process."""

    def report(self, message: Message) -> None:
        """Tell the controller; never blocks."""

    def trainer_group(self, policy: str, size: int) -> TrainerGroup:
        """The data-parallel trainers of a policy, and where they meet: another place for every generation of them."""

    def hear(self, timeout: float) -> None:
        """Take in what the controller says; for those few who must wait for another worker before they are built."""

    def bell(self) -> Callable[[], None]:
        """A function for background threads that wakes this worker's next poll."""

    def wake_on(self, endpoint: Channel | Listener) -> None:
        """Sleep no longer than until something arrives here. Closed endpoints leave by themselves."""


@dataclass(frozen=True)
class PollResult:
    """What a poll did. A worker that found nothing to do sleeps on its doorbells until something arrives."""

    worked: bool
    finished: bool = False
    """This worker's part of the run is done: there is nothing left to poll for."""


WORKED = PollResult(worked=True)
IDLE = PollResult(worked=False)
FINISHED = PollResult(worked=True, finished=True)


@runtime_checkable
class Worker(Protocol):
    def poll(self) -> PollResult:
        """One small piece of work; never sleeps, never waits for another worker."""

    def close(self) -> None: ...


@runtime_checkable
class ResumableWorker(Protocol):
    """A worker that can be saved between two polls with all that it has under way, as an exact resume needs it. Both
    raise NotResumable where that is not possible. A worker without these begins anew when its run is resumed."""

    def state(self) -> State: ...

    def restore(self, state: State) -> bool:
        """Become what another one was; this worker was just built and never polled. False: somebody that it was
        connected with is not there yet, call again."""


class WorkerConfig(ABC):
    """Base of the description of a worker: a frozen dataclass of plain data, sent to the worker's process as JSON.

    A subclass implements `build`. The other methods have defaults that suit a worker without special needs.
    """

    @abstractmethod
    def build(self, context: Any) -> Worker:
        """Return the worker. An error here ends the run if a replacement would fail the same way (ValueError,
        TypeError, LookupError, ImportError)."""

    def committed_policy(self) -> str:
        """Return the policy whose trainer state this worker commits, or an empty string. Such a worker finds the last
        commit wherever it starts, and its host leads the distribution of that policy's parameters."""
        return ""

    def resized(self, count: int) -> Self:
        """Return the config for a group of `count` workers whose members depend on their number (RestartRule.together).
        Raises ValueError if that number is not possible."""
        return self

    def with_target_steps(self, target_steps: int) -> Self:
        """Return the config for a run of another length; the same config if the length does not matter to it."""
        return self

    def sizes(self) -> Mapping[str, int]:
        """Return the sizes that matter for speed, by the names of the options: `lanes` and `ring` of an actor,
        `horizon` and `batch` (and `num_minibatches`) of a trainer."""
        return {}

    def ends(self) -> Sequence[StreamEnd]:
        """Return the ends of streams that this worker holds, from which `Experiment.edges` is made."""
        return ()
