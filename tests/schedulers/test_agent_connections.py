"""Hosts that join, return and are lost. The fleet is real, the agents are fake."""

from __future__ import annotations

import math
import socket
from collections.abc import Iterator, Mapping, Sequence

import msgspec
import pytest
from support.fake_agents import SECRET, FakeAgents, join_message
from support.waiting import until

from srl.api.control import Notice
from srl.api.transport import Channel, ChannelClosed
from srl.api.worker import WorkerId
from srl.schedulers.hosts.agent_connections import (
    AgentConnections,
    AgentMessage,
    ConnectionEvent,
    HostJoined,
    HostLost,
    JoinRefused,
    Silence,
)
from srl.schedulers.hosts.messages import (
    AgentHeartbeat,
    AgentSettings,
    ControllerHeartbeat,
    FollowParameters,
    Join,
    JoinAccepted,
    LogText,
    Messages,
    Refused,
    Rejoin,
    RelayAddress,
    StartWorker,
    WorkerReport,
)
from srl.transports.tcp_channel import PeerActivity, TcpInfo, peer_activity

RELAY = "tcp:a:1"


class Controller(FakeAgents):
    def __init__(self, takeover: Mapping[str, int] | None = None, bind: str = "127.0.0.1") -> None:
        super().__init__(bind)
        self.agents = AgentConnections(AgentSettings("run", SECRET), ["policy"], self.listener, takeover=takeover)
        self.events: list[ConnectionEvent] = []

    def poll(self) -> None:
        self.events += self.agents.poll(0.0)

    def join(self, name: str) -> Channel:
        channel = self.connect(join_message(name))
        accepted = self.receive(channel, JoinAccepted)
        channel.send(RelayAddress(f"tcp:{accepted.host}:1"))
        until(lambda: HostJoined(accepted.host) in self.events, self.poll)
        return channel

    def rejoin(self, secret: bytes = SECRET) -> Channel:
        """The host `a` returns."""
        return self.connect(Rejoin(join_message("a"), "run", secret, RELAY, []))


@pytest.fixture
def controller() -> Iterator[Controller]:
    made = Controller()
    yield made
    made.agents.close()


def test_an_agent_gets_a_unique_name_and_the_secret_of_the_run(controller: Controller) -> None:
    channels = [controller.connect(join_message("node")) for _ in range(2)]
    answers = [controller.receive(channel, JoinAccepted) for channel in channels]
    assert {accepted.host for accepted in answers} == {"node", "node-2"}
    assert {accepted.settings.secret for accepted in answers} == {SECRET}
    for channel in channels:
        channel.close()


@pytest.mark.parametrize(("bind", "expected"), [("127.0.0.1", True), ("127.0.0.2", False)])
def test_an_agent_with_the_address_of_the_controller_is_on_its_host(bind: str, expected: bool) -> None:
    """Connections to 127.0.0.2 come from 127.0.0.1, as if from another host."""
    controller = Controller(bind=bind)
    channel = controller.join("a")
    assert [capacity.has_controller for capacity in controller.agents.capacities()] == [expected]
    channel.close()
    controller.agents.close()


def test_a_host_with_another_version_is_refused_and_both_versions_are_named(controller: Controller) -> None:
    channel = controller.connect(join_message("node", "0.0.9"))
    refused = controller.receive(channel, Refused)
    assert "0.0.9" in refused.text
    assert join_message("node").version in refused.text
    assert controller.events == [JoinRefused(refused.text)]
    channel.close()


@pytest.mark.parametrize(
    "join",
    [
        msgspec.structs.replace(join_message("node"), host="a\0b"),
        msgspec.structs.replace(join_message("node"), labels=["fast", "\0"]),
        join_message("node", version="1\n2"),
        join_message(""),
    ],
)
def test_a_host_whose_names_cannot_be_printed_is_refused_and_counted(controller: Controller, join: Join) -> None:
    channel = controller.connect(join)
    assert "cannot be printed" in controller.receive(channel, Refused).text
    assert controller.agents.refused == {"name": 1}
    assert (controller.events, controller.agents.hosts) == ([], {})
    channel.close()


@pytest.mark.parametrize("name", ["a\0b", "../status", ""])
def test_a_host_that_sends_a_log_with_a_malformed_name_is_lost(controller: Controller, name: str) -> None:
    channel = controller.join("a")
    channel.send(LogText(name, b"text"))
    until(lambda: any(isinstance(event, HostLost) for event in controller.events), controller.poll)
    channel.close()


def test_when_a_host_is_lost_the_others_get_parameters_elsewhere(controller: Controller) -> None:
    channels = {name: controller.join(name) for name in ("a", "b", "c")}
    controller.agents.set_source("policy", "b")
    assert controller.receive(channels["a"], FollowParameters) == FollowParameters("policy", "tcp:b:1")
    assert controller.receive(channels["c"], FollowParameters) == FollowParameters("policy", "tcp:b:1")
    channels["b"].close()
    until(lambda: any(isinstance(e, HostLost) and e.host == "b" for e in controller.events), controller.poll)
    controller.agents.set_source("policy", "c")
    assert controller.receive(channels["a"], FollowParameters) == FollowParameters("policy", "tcp:c:1")
    assert controller.receive(channels["c"], FollowParameters) == FollowParameters("policy", "")
    for channel in channels.values():
        channel.close()


def test_a_peer_that_breaks_the_protocol_is_disconnected(controller: Controller) -> None:
    not_joined = controller.transport.connect(controller.address, Messages)
    not_joined.send(RelayAddress("tcp:x:1"))
    joined = controller.join("a")
    joined.send(StartWorker(WorkerId("actors", 0, 0), {}, 0, 0))  # a message of controllers
    until(lambda: any(isinstance(event, HostLost) for event in controller.events), controller.poll)
    for channel in (not_joined, joined):
        with pytest.raises(ChannelClosed):
            until(lambda channel=channel: channel.flush() and channel.receive() and False, controller.poll)  # type: ignore[misc]
        channel.close()
    assert controller.agents.hosts == {}


def report(number: int) -> WorkerReport:
    return WorkerReport(WorkerId("trainers", 0, 0), Notice(f"update {number}"), number)


def test_repeated_reports_are_dropped_if_the_previous_controller_recorded_them() -> None:
    successor = Controller(takeover={RELAY: 2})
    channel = successor.rejoin()
    successor.receive(channel, JoinAccepted)
    for number in (1, 2, 3, 4):  # the agent does not know yet that the first two are recorded
        channel.send(report(number))
    until(lambda: successor.agents.reports() == {RELAY: 4}, successor.poll)
    assert [event.message for event in successor.events if isinstance(event, AgentMessage)] == [report(3), report(4)]
    assert successor.receive(channel, ControllerHeartbeat) == ControllerHeartbeat(2)
    successor.agents.reports_recorded({RELAY: 4})
    until(lambda: successor.receive(channel, ControllerHeartbeat) == ControllerHeartbeat(4), successor.poll)
    channel.close()
    successor.agents.close()


def test_a_new_host_waits_for_the_hosts_of_the_run_and_gets_the_secret_that_they_bring() -> None:
    secret = bytes(reversed(SECRET))
    successor = Controller(takeover={})
    new = successor.connect(join_message("a"))  # the name of a host that is about to return
    returned = successor.rejoin(secret)
    assert successor.receive(returned, JoinAccepted).host == "a"
    assert list(successor.agents.hosts) == ["a"]
    successor.agents.end_takeover()
    accepted = successor.receive(new, JoinAccepted)
    assert (accepted.host, accepted.settings.secret) == ("a-2", secret)
    for channel in (new, returned):
        channel.close()
    successor.agents.close()


def test_repeated_reports_of_a_host_that_returns_twice_are_dropped() -> None:
    successor = Controller(takeover={})
    for last in (1, 2):
        channel = successor.rejoin()
        successor.receive(channel, JoinAccepted)
        for number in range(1, last + 1):
            channel.send(report(number))
        until(lambda last=last: successor.agents.reports() == {RELAY: last}, successor.poll)  # type: ignore[misc]
        channel.close()
        until(lambda: not successor.agents.hosts, successor.poll)
    assert [event.message for event in successor.events if isinstance(event, AgentMessage)] == [report(1), report(2)]
    successor.agents.close()


def test_a_host_that_returns_too_late_is_refused_because_its_workers_were_replaced() -> None:
    successor = Controller(takeover={})
    successor.agents.end_takeover()
    channel = successor.rejoin()
    assert "replaced" in successor.receive(channel, Refused).text
    channel.close()
    successor.agents.close()


def lost_after(answers: Sequence[tuple[float, bool]], serving: bool = True, data_age: float = math.inf) -> float:
    """Seconds until a silent host is lost whose kernel answers or not, as `answers` says from each time on."""
    silence, now = Silence(), 0.0
    while now < 60.0:
        now += 0.25
        answering = [answering for since, answering in answers if since < now][-1]
        try:
            silence.check(0.25, PeerActivity(min(now, data_age), answering), serving)
        except ChannelClosed:
            return now
    return math.inf


@pytest.mark.parametrize(
    ("answers", "seconds"),
    [
        pytest.param([(0, True)], 4.75, id="frozen agent"),
        pytest.param([(0, True), (1, False)], 15.25, id="partition"),
        pytest.param([(0, True), (1, False), (4, True)], 15.25, id="partition that heals, without data yet"),
    ],
)
def test_a_host_whose_kernel_answers_is_lost_sooner_than_one_that_may_be_partitioned(
    answers: list[tuple[float, bool]], seconds: float
) -> None:
    assert lost_after(answers) == seconds


def test_an_agent_that_starts_or_sends_one_long_message_is_not_frozen() -> None:
    assert lost_after([(0, True)], serving=False) == 15.25
    assert lost_after([(0, True)], data_age=0.1) == math.inf


def test_new_data_ends_a_partition() -> None:
    silence = Silence(seconds=3.0, unanswered=True)
    silence.check(0.25, PeerActivity(0.1, True), serving=True)
    assert silence == Silence(0.1, unanswered=False)


@pytest.mark.parametrize(
    ("info", "answers"),
    [
        (TcpInfo(0, 0, 0, 9000, 9000), True),  # nothing was sent to it
        (TcpInfo(0, 0, 2, 9000, 300), True),
        (TcpInfo(0, 0, 2, 9000, 2000), False),  # on a slow link, before the first retransmission
        (TcpInfo(1, 0, 2, 9000, 2000), False),
        (TcpInfo(0, 1, 0, 9000, 2000), False),
        (TcpInfo(0, 1, 0, 9000, 300), True),  # its window is full, because it is frozen
    ],
)
def test_a_host_answers_if_its_kernel_acknowledges_what_is_sent(info: TcpInfo, answers: bool) -> None:
    assert PeerActivity.of(info) == PeerActivity(9.0, answers)


def test_the_activity_of_a_connection_is_read_from_the_kernel() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        accepted = server.accept()[0]
        with accepted:
            client.sendall(b"x")
            assert accepted.recv(1) == b"x"
            assert peer_activity(client.fileno()).answers
            assert peer_activity(accepted.fileno()).data_age < 60.0


def test_an_agent_that_sends_nothing_although_its_host_answers_is_lost_and_not_heard_again(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    channels = {name: controller.join(name) for name in ("frozen", "busy")}
    monkeypatch.setattr("srl.schedulers.hosts.agent_connections.FROZEN_TIMEOUT", 0.7)

    def lost() -> list[str]:
        channels["busy"].send(AgentHeartbeat())
        return [event.reason for event in controller.events if isinstance(event, HostLost)]

    (reason,) = until(lost, controller.poll)
    assert "its agent is frozen" in reason
    assert list(controller.agents.hosts) == ["busy"]
    channels["frozen"].send(report(1))  # as after SIGCONT
    with pytest.raises(ChannelClosed):
        until(lambda: channels["frozen"].receive() and False, controller.poll)
    assert AgentMessage("frozen", report(1), []) not in controller.events
    for channel in channels.values():
        channel.close()
