"""Messages between a controller and the agents of its hosts."""

from __future__ import annotations

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


class Join(Message, frozen=True):
    """Agent: this host joins the run."""

    host: str
    version: str  # version of srl
    now_ns: int  # monotonic clock of the host
    cpus: float
    gpus: float
    memory_mb: int
    labels: list[str] = []  # names besides the host's own that the `node` of a group's resources may match


class Rejoin(Message, frozen=True):
    """Agent: the previous controller died, and these workers still ran. `WorkerExited` follows if one died since."""

    join: Join
    run: str
    secret: bytes  # secret of the run, which agents that join later need as well
    relay: str
    workers: list[OrphanWorker]


class JoinAccepted(Message, frozen=True):
    """Controller: this host is part of the run."""

    run: str
    host: str  # name of the host in this run, unique among its hosts
    secret: bytes
    policies: list[str]
    preload: list[str]
    path: list[str]
    encrypt: bool
    headless: float = 0.0  # seconds for which workers continue after the controller's process has died


class Refused(Message, frozen=True):
    """Controller: this host cannot join; `text` is the reason."""

    text: str


class RelayAddress(Message, frozen=True):
    """Agent: other hosts get parameters from this host at `address`."""

    address: str


class FollowParameters(Message, frozen=True):
    """Controller: get the parameters of a policy from `address`; empty if its trainer is on this host."""

    policy: str
    address: str


class StartWorker(Message, frozen=True):
    """Controller: start a worker."""

    worker_id: WorkerId
    config: Any
    niceness: int
    seed: int


class SendToWorkers(Message, frozen=True):
    """Controller: pass `message` on to these workers."""

    worker_ids: list[WorkerId]
    message: ToWorker


class KillWorker(Message, frozen=True):
    """Controller: kill a worker."""

    worker_id: WorkerId


class SignalWorker(Message, frozen=True):
    """Controller: send a signal to a worker's process."""

    worker_id: WorkerId
    number: int


class DumpStacks(Message, frozen=True):
    """Controller: report the stack traces of a worker."""

    worker_id: WorkerId


class StackDump(Message, frozen=True):
    """Agent: stack traces of a worker."""

    worker_id: WorkerId
    text: str


class WorkerReport(Message, frozen=True):
    """Agent: a worker sent `message`."""

    worker_id: WorkerId
    message: FromWorker
    number: int = 0
    """Number of the report. The agent repeats a report to the next controller until one has recorded it."""


class WorkerExited(Message, frozen=True):
    """Agent: a worker died. The message carries its last gauges [1, WORDS]."""

    worker_id: WorkerId
    reason: str
    clean: bool
    blameless: bool = False
    number: int = 0


class AgentHeartbeat(Message, frozen=True):
    """Agent: it is alive. The message carries the workers' gauges [workers, WORDS] and usage [workers, USAGE]."""

    worker_ids: list[WorkerId] | None = None  # None: the same workers as in the last heartbeat


class ControllerHeartbeat(Message, frozen=True):
    """Controller: it is alive."""

    recorded: int = 0  # number of the last report that is on disk, where the next controller finds it


class LogText(Message, frozen=True):
    """Agent: text that was appended to a log."""

    name: str
    text: bytes


class CommittedState(Message, frozen=True):
    """State that a trainer committed, with its arrays. Agent: store it. Controller: continue from it."""

    policy: str
    version: int
    facts: dict[str, Any]
    keys: list[str]


class StateStored(Message, frozen=True):
    """Controller: the committed state of this version is stored."""

    policy: str
    version: int


class TaggedParameters(Message, frozen=True):
    """Parameters, with their array. Agent: they were evaluated on this host. Controller: other hosts keep them."""

    policy: str
    version: int
    tag: str  # empty for the newest version


class HostLeaving(Message, frozen=True):
    """Agent: this host was preempted. Its workers are about to end, and it takes no others."""


class RunEnded(Message, frozen=True):
    """Controller: the run has ended."""


SentByBoth = Union[CommittedState, TaggedParameters]
WorkerEvent = Union[WorkerReport, WorkerExited, StackDump]
FromAgent = Union[Join, Rejoin, RelayAddress, WorkerEvent, AgentHeartbeat, LogText, HostLeaving, SentByBoth]
WorkerCommand = Union[StartWorker, SendToWorkers, KillWorker, SignalWorker, DumpStacks]
JoinAnswer = Union[JoinAccepted, Refused]
FromController = Union[
    JoinAnswer, FollowParameters, WorkerCommand, StateStored, ControllerHeartbeat, RunEnded, SentByBoth
]
Messages: Any = Union[FromAgent, FromController]


def codec(messages: Any) -> Codec:
    """Return the codec for connections of agents, which carry the complete states of trainers."""
    return Codec(messages, MAX_STATE_BYTES)


def own_version() -> str:
    return srl.__version__
