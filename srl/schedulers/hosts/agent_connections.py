"""Connections to a run's hosts: they admit hosts, detect lost ones (which `host_loss` handles), and tell each host
where to get parameters."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Union, get_args

from srl.api.scheduler import OrphanWorker
from srl.api.transport import Channel, ChannelClosed, Listener, Message
from srl.base.clock import ObservedTime
from srl.base.files import explain_os_error
from srl.base.tree import Array
from srl.schedulers.hosts.messages import (
    AGENT_TIMEOUT,
    AGENTS,
    FROZEN_TIMEOUT,
    HEARTBEAT_SECONDS,
    AgentSettings,
    ControllerHeartbeat,
    FollowParameters,
    FromAgent,
    Join,
    JoinAccepted,
    LogText,
    Messages,
    Refused,
    Rejoin,
    RelayAddress,
    RunEnded,
    WorkerExited,
    WorkerReport,
    codec,
    own_version,
)
from srl.schedulers.hosts.placement import HostCapacity
from srl.transports.join_ticket import Identity, JoinFile
from srl.transports.tcp_channel import PeerActivity, peer_activity
from srl.transports.tls import PREFIX, TlsTransport
from srl.workers.wait_set import WaitSet

FROM_AGENT = get_args(FromAgent)
FAN_OUT = 4  # maximum number of hosts that get parameters from the same host
JOIN_SECONDS = 10.0
LEAVE_SECONDS = 3.0
MAX_NAME = 200


@dataclass
class Silence:
    """Time for which an agent has sent nothing. The kernel of a host whose agent is frozen still acknowledges what it
    receives; if the network is partitioned or the host is down, nothing does."""

    seconds: float = 0.0
    unanswered: bool = False  # whether the host's kernel has failed to answer during this time

    def check(self, passed: float, peer: PeerActivity, serving: bool) -> None:
        """Raise ChannelClosed if the host is lost. `passed`: time since the last check; `serving`: whether the agent
        has started, so that it should send heartbeats."""
        self.seconds = min(self.seconds + passed, peer.data_age)
        # An acknowledgment may precede the data that was lost, so only new data ends an interruption.
        self.unanswered = not peer.answers or (self.unanswered and self.seconds > passed)
        if self.seconds > AGENT_TIMEOUT:
            raise ChannelClosed(f"it has sent nothing for {AGENT_TIMEOUT:.0f} s")
        if self.seconds > FROZEN_TIMEOUT and serving and not self.unanswered:
            raise ChannelClosed(f"its agent is frozen: the host answers, but has sent nothing for {self.seconds:.0f} s")


@dataclass
class Host:
    """A host that joined."""

    name: str
    channel: Channel
    capacity: HostCapacity
    clock_offset_ns: int  # controller's clock minus this host's clock
    silence: Silence = field(default_factory=Silence)
    relay: str = ""  # address at which other hosts get parameters from this one; empty until known
    follows: dict[str, str] = field(default_factory=dict)  # policy -> address from which this host gets its parameters
    rows: Any = None  # rows in the gauge table of the workers in this host's heartbeats, in the same order
    state_versions: dict[str, int] = field(default_factory=dict)
    """Policy -> version of the committed state that this host has."""
    expected_states: dict[str, int] = field(default_factory=dict)
    """Policy -> version of the committed state that this host will send, because it came from another controller."""
    last_report: int = 0  # number of the last report received
    recorded: int = 0  # number of the last report on disk


@dataclass(frozen=True)
class HostJoined:
    host: str


@dataclass(frozen=True)
class HostReturned:
    """The return of a host, with its workers, after the previous controller died."""

    host: str
    workers: Sequence[OrphanWorker]


@dataclass(frozen=True)
class JoinRefused:
    """The refusal of a host."""

    text: str


@dataclass(frozen=True)
class HostLost:
    host: str
    reason: str


@dataclass(frozen=True)
class AgentMessage:
    """A message from a host, except those about joining and relays."""

    host: str
    message: Any
    arrays: Sequence[Array]


ConnectionEvent = Union[HostJoined, HostReturned, JoinRefused, HostLost, AgentMessage]


def listen_for_agents(
    run: str, identity: Identity, join_file: Path, host: str = "127.0.0.1", port: int = 0
) -> tuple[Listener, JoinFile]:
    """Return a listener for agents, and the join file that tells them about it."""
    transport = TlsTransport(identity, AGENTS, host, port, codec=codec)
    listener = transport.listen("the controller", Messages)
    try:
        return listener, JoinFile(join_file, identity, run, listener.address.removeprefix(PREFIX))
    except OSError as error:
        listener.close()
        raise OSError(error.errno, f"cannot write the join file {join_file}: {explain_os_error(error)}") from error


def relay_tree(source: str, hosts: Sequence[str]) -> dict[str, str]:
    """Return, for each host, the one from which it gets a policy's parameters. Each serves at most FAN_OUT others."""
    line = [source, *sorted(host for host in hosts if host != source)]
    return {host: line[(number - 1) // FAN_OUT] for number, host in enumerate(line) if number}


def _host_of(address: str) -> str:
    return address.rpartition(":")[0]


def _is_name(text: str) -> bool:
    return 0 < len(text) <= MAX_NAME and text.isprintable() and "/" not in text


class AgentConnections:
    """Connections to the agents of all hosts.

    `first_messages` returns the messages that a new host receives as soon as it is accepted. `takeover` is given by a
    controller that takes over a run, and maps each agent (by its relay's address) to the number of its last known
    report. The run's hosts bring its secret, so no other host is admitted before `end_takeover`.
    """

    def __init__(
        self,
        settings: AgentSettings,
        policies: Sequence[str],
        listener: Listener,
        first_messages: Callable[[], Iterable[tuple[Message, Sequence[Array]]]] = tuple,
        takeover: Mapping[str, int] | None = None,
    ) -> None:
        self.hosts: dict[str, Host] = {}
        self._settings = settings
        self._policies = list(policies)
        self._listener = listener
        self.refused = listener.refused
        self.seen: dict[str, int] = {}  # policy -> newest version of its parameters on a host that has returned
        self._first_messages = first_messages
        self._takeover = takeover
        self._connecting: dict[int, tuple[Channel, float]] = {}
        self._waiting: list[tuple[Channel, Join, int]] = []  # new hosts, held until the takeover ends
        self._wait_set = WaitSet()
        self._wait_set.watch(listener)
        self._sources: dict[str, str] = {}
        self._checks = ObservedTime(time.monotonic(), max_gap=1.0)
        self._events: list[ConnectionEvent] = []

    def poll(self, timeout: float) -> list[ConnectionEvent]:
        ready = self._wait_set.wait(0.0 if self._events else timeout)
        now = time.monotonic()
        while (channel := self._listener.accept()) is not None:
            self._wait_set.watch(channel)
            self._connecting[id(channel)] = (channel, now + JOIN_SECONDS)
        for key, (channel, deadline) in list(self._connecting.items()):
            self._receive_join(key, channel, now > deadline)
        heartbeat = now - self._checks.last > HEARTBEAT_SECONDS
        for host in list(self.hosts.values()):
            if heartbeat or host.channel.fileno() in ready:
                self._receive(host)
        if heartbeat:
            passed = self._checks.passed(now)
            for host in list(self.hosts.values()):
                self._check_silence(host, passed)
                self.send(host.name, ControllerHeartbeat(host.recorded))
        events, self._events = self._events, []
        return events

    def _receive_join(self, key: int, channel: Channel, late: bool) -> None:
        try:
            received = channel.receive()
            if received is None and not late:
                return
            if received is None or not isinstance(received[0], (Join, Rejoin)):
                raise ChannelClosed("did not join")
        except ChannelClosed:
            channel.close()
            del self._connecting[key]
            return
        del self._connecting[key]
        message = received[0]
        join = message.join if isinstance(message, Rejoin) else message
        clock_offset_ns = time.monotonic_ns() - join.now_ns
        if not all(map(_is_name, (join.host, join.version, *join.labels))):
            self.refused["name"] += 1
            self._refuse(
                channel, "the name, version or a label of this host contains characters that cannot be printed"
            )
        elif join.version != own_version():
            text = (
                f"host {join.host} has srl {join.version}, but this run has srl {own_version()}; install the same "
                "version on all hosts"
            )
            self._refuse(channel, text)
            self._events.append(JoinRefused(text))
        elif isinstance(message, Join):
            if self._takeover is None:
                self._admit(channel, join, clock_offset_ns)
            else:  # neither the run's secret nor its hosts' names are known yet
                self._waiting.append((channel, join, clock_offset_ns))
        elif self._takeover is None or message.run != self._settings.run or join.host in self.hosts:
            self._refuse(channel, "the workers of this host were replaced; it has to join again without them")
        else:
            self._settings = replace(self._settings, secret=message.secret)
            self._admit(channel, join, clock_offset_ns, message)

    def _admit(self, channel: Channel, join: Join, clock_offset_ns: int, rejoin: Rejoin | None = None) -> None:
        name = self._unique(join.host)
        has_controller = _host_of(channel.peer) == _host_of(self._listener.address)
        capacity = HostCapacity(
            name, join.cpus, join.gpus, join.memory_mb, labels=tuple(join.labels), has_controller=has_controller
        )
        self.hosts[name] = host = Host(name, channel, capacity, clock_offset_ns)
        self.send(name, JoinAccepted(name, self._policies, self._settings))
        if rejoin is None:
            for message, arrays in self._first_messages():
                self.send(name, message, arrays)
        elif name in self.hosts:
            host.relay, host.expected_states = rejoin.relay, rejoin.states
            for policy, version in rejoin.versions.items():
                self.seen[policy] = max(version, self.seen.get(policy, -1))
            host.last_report = host.recorded = (self._takeover or {}).get(host.relay, 0)
            self._events.append(HostReturned(name, rejoin.workers))
            self._update_relays()
        self._receive(host)  # messages that arrived with the join trigger no further event

    def _refuse(self, channel: Channel, text: str) -> None:
        with contextlib.suppress(ChannelClosed):
            channel.send(Refused(text))
        channel.close()

    def _unique(self, host: str) -> str:
        host = "".join(c if c.isalnum() or c in "._-" else "-" for c in host)[:64] or "host"
        names = (host, *(f"{host}-{number}" for number in range(2, len(self.hosts) + 3)))
        return next(name for name in names if name not in self.hosts)

    def _receive(self, host: Host) -> None:
        try:
            while (received := host.channel.receive()) is not None:
                message, arrays, _ = received
                if isinstance(message, RelayAddress):
                    host.relay = message.address
                    self._events.append(HostJoined(host.name))
                    self._update_relays()
                elif isinstance(message, (WorkerReport, WorkerExited)):
                    if message.number > host.last_report:  # others are repeats of known reports
                        host.last_report = message.number
                        self._events.append(AgentMessage(host.name, message, arrays))
                elif isinstance(message, LogText) and not _is_name(message.name):
                    raise ChannelClosed(f"sent a log named {message.name!r}")
                elif isinstance(message, FROM_AGENT):
                    self._events.append(AgentMessage(host.name, message, arrays))
                else:
                    raise ChannelClosed(f"sent {type(message).__name__}, which is not a message of an agent")
            host.channel.flush()
        except ChannelClosed as error:
            self._lose(host, str(error))

    def _check_silence(self, host: Host, passed: float) -> None:
        try:
            host.silence.check(passed, peer_activity(host.channel.fileno()), serving=bool(host.relay))
        except ChannelClosed as error:
            self._lose(host, str(error))

    def send(self, name: str, message: Any, arrays: Sequence[Array] = ()) -> None:
        """Send a message to a host if it is connected; never blocks."""
        host = self.hosts.get(name)
        if host is not None:
            try:
                host.channel.send(message, arrays)
            except ChannelClosed as error:
                self._lose(host, str(error))

    def _lose(self, host: Host, reason: str) -> None:
        if self.hosts.pop(host.name, None) is not None:
            host.channel.close()
            if self._takeover is not None:  # if it returns again, reports up to this one are known
                self._takeover = {**self._takeover, host.relay: host.last_report}
            self._events.append(HostLost(host.name, reason))
            self._update_relays()

    def capacities(self) -> list[HostCapacity]:
        """Return the capacities of the hosts that can run workers."""
        return [host.capacity for host in self.hosts.values() if host.relay]

    def reports(self) -> dict[str, int]:
        """Return the number of each agent's last report, keyed by the address of its relay."""
        return {host.relay: host.last_report for host in self.hosts.values()}

    def reports_recorded(self, reports: Mapping[str, int]) -> None:
        """Mark these reports as written to disk, so that agents need not repeat them to the next controller."""
        for host in self.hosts.values():
            host.recorded = reports.get(host.relay, host.recorded)

    def end_takeover(self) -> None:
        """Admit the new hosts that were waiting, and from now on refuse hosts that return with workers."""
        self._takeover = None
        waiting, self._waiting = self._waiting, []
        for channel, join, clock_offset_ns in waiting:
            self._admit(channel, join, clock_offset_ns)

    def set_source(self, policy: str, host: str) -> None:
        """Set the host that trains a policy, from which other hosts get its parameters."""
        self._sources[policy] = host
        self._update_relays()

    def _update_relays(self) -> None:
        ready = [host.name for host in self.hosts.values() if host.relay]
        for policy, source in self._sources.items():
            if source not in ready:
                continue  # until the trainer has a new host
            parents = relay_tree(source, ready)
            for name in ready:
                address = self.hosts[parents[name]].relay if name in parents else ""
                host = self.hosts.get(name)
                if host is not None and host.follows.get(policy) != address:
                    host.follows[policy] = address
                    self.send(name, FollowParameters(policy, address))

    def close(self) -> list[LogText]:
        """End the run on all hosts and wait until they have left. Return the last pieces of their logs."""
        for name in list(self.hosts):
            self.send(name, RunEnded())
        deadline = time.monotonic() + LEAVE_SECONDS
        while self.hosts and time.monotonic() < deadline:
            self._wait_set.wait(0.05)
            for host in list(self.hosts.values()):
                self._receive(host)
        messages = [event.message for event in self._events if isinstance(event, AgentMessage)]
        connecting = [channel for channel, _ in self._connecting.values()]
        waiting = [channel for channel, _, _ in self._waiting]
        for channel in (*connecting, *waiting, *(host.channel for host in self.hosts.values())):
            channel.close()
        self.hosts.clear()
        self._listener.close()
        self._wait_set.close()
        return [message for message in messages if isinstance(message, LogText)]
