"""Messages between a controller and the agents on its hosts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Union

import srl
from srl.api.control import FromWorker, ToWorker
from srl.api.scheduler import OrphanWorker
from srl.api.transport import Message
from srl.api.worker import WorkerId
from srl.base.wire import Codec

AGENTS = "agents"  # scope of the connections between agents and their controller
MAX_STATE_BYTES = 1 << 34
HEARTBEAT_SECONDS = 0.25
AGENT_TIMEOUT = 15.0  # seconds without data from an agent after which its host counts as lost
FROZEN_TIMEOUT = 4.5  # the same, if the host's kernel has answered all the time: then its agent is frozen
CONTROLLER_TIMEOUT = 12.0
"""Seconds without data from the controller after which an agent ends its workers. Less than AGENT_TIMEOUT, so that
they are gone by the time the controller replaces them."""
USAGE = ("pid", "cpu_percent", "rss_mb", "stopped")  # columns of a heartbeat's usage array


# From an agent


class Join(Message, frozen=True):
    """Request to join the run."""

    host: str
    version: str  # version of srl
    now_ns: int  # the host's monotonic clock
    cpus: float
    gpus: float
    memory_mb: int
    labels: list[str] = []  # names, besides the host's own, that `Resources.node` may match


class Rejoin(Message, frozen=True):
    """Request to rejoin the run with workers that outlived the previous controller. `WorkerExited` follows for those
    that have died since."""

    join: Join
    run: str
    secret: bytes  # the run's secret, which the new controller passes on to agents that join later
    relay: str
    workers: list[OrphanWorker]
    states: dict[str, int] = {}
    """Policy -> version of the committed state that this host has, and sends next."""
    versions: dict[str, int] = {}
    """Policy -> version of the newest parameters that this host has; while there was no controller, their state may
    have been lost with the trainer's host."""


class RelayAddress(Message, frozen=True):
    """Address at which other hosts get parameters from this one."""

    address: str


class AgentHeartbeat(Message, frozen=True):
    """Sign of life from an agent, with its workers' gauges [workers, WORDS] and usage [workers, USAGE]."""

    worker_ids: list[WorkerId] | None = None  # None: the same workers as in the last heartbeat


class WorkerReport(Message, frozen=True):
    """Message from a worker."""

    worker_id: WorkerId
    message: FromWorker
    number: int = 0
    """Number of the report. The agent repeats a report to each new controller until one has recorded it."""


class WorkerExited(Message, frozen=True):
    """Death of a worker, with its last gauges [1, WORDS]."""

    worker_id: WorkerId
    reason: str
    clean: bool
    blameless: bool = False
    number: int = 0


class StackDump(Message, frozen=True):
    worker_id: WorkerId
    text: str


class LogText(Message, frozen=True):
    """Text appended to a log."""

    name: str
    text: bytes


class HostNotice(Message, frozen=True):
    """An event on this host, for people to read."""

    text: str


class HostLeaving(Message, frozen=True):
    """Notice that this host is being preempted: its workers are about to end, and it accepts no others."""


# From the controller


@dataclass(frozen=True)
class AgentSettings:
    """Run settings that every agent receives when it joins."""

    run: str
    secret: bytes = field(repr=False)
    preload: tuple[str, ...] = ()
    path: tuple[str, ...] = ()
    encrypt: bool = False
    headless: float = 0.0  # seconds that agents and workers keep running after the controller's process has died
    replay_dir: str = ""  # directory of each host for replay on disk; empty: replay is in memory
    proof: bytes = field(default=b"", repr=False)  # proof of a join ticket that never expires, for hosts that return


class JoinAccepted(Message, frozen=True):
    """Acceptance of a host into the run."""

    host: str  # the host's unique name in this run
    policies: list[str]
    settings: AgentSettings


class Refused(Message, frozen=True):
    """Refusal of a host; `text` is the reason."""

    text: str


class FollowParameters(Message, frozen=True):
    """Command to get a policy's parameters from `address`, which is empty if the policy's trainer is on this host."""

    policy: str
    address: str


class StartWorker(Message, frozen=True):
    worker_id: WorkerId
    config: Any
    niceness: int
    seed: int


class SendToWorkers(Message, frozen=True):
    """Message to pass on to these workers."""

    worker_ids: list[WorkerId]
    message: ToWorker


class KillWorker(Message, frozen=True):
    worker_id: WorkerId


class SignalWorker(Message, frozen=True):
    worker_id: WorkerId
    number: int


class DisturbHost(Message, frozen=True):
    """Request for a fault of this host, for `srl chaos`."""

    worker_id: WorkerId
    fault: str
    seconds: float


class DumpStacks(Message, frozen=True):
    """Request for a worker's `StackDump`."""

    worker_id: WorkerId


class StateStored(Message, frozen=True):
    """Confirmation that the controller has stored this version's committed state."""

    policy: str
    version: int


class ControllerHeartbeat(Message, frozen=True):
    """Sign of life from the controller."""

    recorded: int = 0  # number of the last report on disk, where a new controller would find it


class RunEnded(Message, frozen=True):
    """Notice that the run has ended, upon which the agent ends."""


# From both


class CommittedState(Message, frozen=True):
    """State committed by a trainer, with its arrays. Agents upload it; the controller sends it to a host before a
    trainer starts there."""

    policy: str
    version: int
    metadata: dict[str, Any]
    keys: list[str]
    floor: int = -1
    """Version that workers have although its state was lost; the trainer counts on from a higher one. -1: none."""


class TaggedParameters(Message, frozen=True):
    """Parameters that an agent has evaluated, or that the controller sends to a host that joins late."""

    policy: str
    version: int
    tag: str  # empty for the newest version


SentByBoth = Union[CommittedState, TaggedParameters]
WorkerEvent = Union[WorkerReport, WorkerExited, StackDump]
FromAgent = Union[Join, Rejoin, RelayAddress, WorkerEvent, AgentHeartbeat, LogText, HostNotice, HostLeaving, SentByBoth]
WorkerCommand = Union[StartWorker, SendToWorkers, KillWorker, SignalWorker, DisturbHost, DumpStacks]
JoinAnswer = Union[JoinAccepted, Refused, FollowParameters]
FromController = Union[JoinAnswer, WorkerCommand, StateStored, ControllerHeartbeat, RunEnded, SentByBoth]
Messages: Any = Union[FromAgent, FromController]


def codec(messages: Any) -> Codec:
    """Return the codec for agent connections, which carry complete trainer states."""
    return Codec(messages, MAX_STATE_BYTES)


def own_version() -> str:
    return srl.__version__
