"""Hosts that join, return and are lost. The fleet is real, the agents are fake."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

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
)
from srl.schedulers.hosts.messages import (
    AgentSettings,
    ControllerHeartbeat,
    FollowParameters,
    JoinAccepted,
    Messages,
    Refused,
    Rejoin,
    RelayAddress,
    StartWorker,
    WorkerReport,
)

RELAY = "tcp:a:1"


class Controller(FakeAgents):
    def __init__(self, takeover: Mapping[str, int] | None = None) -> None:
        super().__init__()
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


def test_a_host_with_another_version_is_refused_and_both_versions_are_named(controller: Controller) -> None:
    channel = controller.connect(join_message("node", "0.0.9"))
    refused = controller.receive(channel, Refused)
    assert "0.0.9" in refused.text
    assert join_message("node").version in refused.text
    assert controller.events == [JoinRefused(refused.text)]
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
