"""Messages between a controller and the agents of its hosts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Union

import srl
from srl.api.control import FromWorker, ToWorker
from srl.api.scheduler import OrphanWorker
from srl.api.transport import Message
from srl.api.worker import WorkerId
from srl.base.wire import Codec

AGENTS = "agents"
"""Run name in the handshake of agents, which do not know the name of the run yet."""
MAX_STATE_BYTES = 1 << 34
HEARTBEAT_SECONDS = 0.25
AGENT_TIMEOUT = 15.0  # seconds without a message from an agent after which its host counts as lost
CONTROLLER_TIMEOUT = 12.0
"""Seconds without a message from the controller after which an agent ends its workers. Less than AGENT_TIMEOUT, so that
they have ended when the controller replaces them."""
USAGE = ("pid", "cpu_percent", "rss_mb", "stopped")  # columns of the usage array of a heartbeat


# From an agent


class Join(Message, frozen=True):
    """A host joins the run."""

    host: str
    version: str  # version of srl
    now_ns: int  # monotonic clock of the host
    cpus: float
    gpus: float
    memory_mb: int
    labels: list[str] = []  # names besides the host's own that the `node` of a group's resources may match


class Rejoin(Message, frozen=True):
    """The previous controller died, and these workers still ran. `WorkerExited` follows if one has died since."""

    join: Join
    run: str
    secret: bytes  # secret of the run, which agents that join later need as well
    relay: str
    workers: list[OrphanWorker]


class RelayAddress(Message, frozen=True):
    """Other hosts get parameters from this host at `address`."""

    address: str


class AgentHeartbeat(Message, frozen=True):
    """The agent is alive. The message carries gauges [workers, WORDS] and usage [workers, USAGE] of its workers."""

    worker_ids: list[WorkerId] | None = None  # None: the same workers as in the last heartbeat


class WorkerReport(Message, frozen=True):
    """A worker sent `message`."""

    worker_id: WorkerId
    message: FromWorker
    number: int = 0
    """Number of the report. The agent repeats a report to the next controller until one has recorded it."""


class WorkerExited(Message, frozen=True):
    """A worker died. The message carries its last gauges [1, WORDS]."""

    worker_id: WorkerId
    reason: str
    clean: bool
    blameless: bool = False
    number: int = 0


class StackDump(Message, frozen=True):
    worker_id: WorkerId
    text: str


class LogText(Message, frozen=True):
    """Text that was appended to a log."""

    name: str
    text: bytes


class HostLeaving(Message, frozen=True):
    """This host was preempted. Its workers are about to end, and it takes no others."""


# From the controller


@dataclass(frozen=True)
class AgentSettings:
    """Settings of a run that every agent receives when it joins."""

    run: str
    secret: bytes = field(repr=False)
    preload: tuple[str, ...] = ()
    path: tuple[str, ...] = ()
    encrypt: bool = False
    headless: float = 0.0  # seconds for which agents and workers continue after the controller's process has died


class JoinAccepted(Message, frozen=True):
    """The host is part of the run."""

    host: str  # name of the host in this run, unique among its hosts
    policies: list[str]
    settings: AgentSettings


class Refused(Message, frozen=True):
    """The host cannot join; `text` is the reason."""

    text: str


class FollowParameters(Message, frozen=True):
    """Get the parameters of a policy from `address`; empty if its trainer is on this host."""

    policy: str
    address: str


class StartWorker(Message, frozen=True):
    worker_id: WorkerId
    config: Any
    niceness: int
    seed: int


class SendToWorkers(Message, frozen=True):
    """Pass `message` on to these workers."""

    worker_ids: list[WorkerId]
    message: ToWorker


class KillWorker(Message, frozen=True):
    worker_id: WorkerId


class SignalWorker(Message, frozen=True):
    worker_id: WorkerId
    number: int


class DumpStacks(Message, frozen=True):
    """Request a `StackDump` of a worker."""

    worker_id: WorkerId


class StateStored(Message, frozen=True):
    """The controller has stored the committed state of this version."""

    policy: str
    version: int


class ControllerHeartbeat(Message, frozen=True):
    """The controller is alive."""

    recorded: int = 0  # number of the last report that is on disk, where the next controller finds it


class RunEnded(Message, frozen=True):
    """The agent ends."""


# From both


class CommittedState(Message, frozen=True):
    """State that a trainer committed, with its arrays: an agent uploads it, and a replacement continues from it."""

    policy: str
    version: int
    metadata: dict[str, Any]
    keys: list[str]


class TaggedParameters(Message, frozen=True):
    """Parameters, from an agent that has evaluated them, or from the controller for a host that joins late."""

    policy: str
    version: int
    tag: str  # empty for the newest version


SentByBoth = Union[CommittedState, TaggedParameters]
WorkerEvent = Union[WorkerReport, WorkerExited, StackDump]
FromAgent = Union[Join, Rejoin, RelayAddress, WorkerEvent, AgentHeartbeat, LogText, HostLeaving, SentByBoth]
WorkerCommand = Union[StartWorker, SendToWorkers, KillWorker, SignalWorker, DumpStacks]
JoinAnswer = Union[JoinAccepted, Refused, FollowParameters]
FromController = Union[JoinAnswer, WorkerCommand, StateStored, ControllerHeartbeat, RunEnded, SentByBoth]
Messages: Any = Union[FromAgent, FromController]


def codec(messages: Any) -> Codec:
    """Return the codec for connections of agents, which carry the complete states of trainers."""
    return Codec(messages, MAX_STATE_BYTES)


def own_version() -> str:
    return srl.__version__
