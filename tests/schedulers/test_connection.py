"""An agent treats a controller that died differently from one that cannot be reached."""

from __future__ import annotations

import msgspec
import pytest
from support.fake_controller import ACCEPTED, FakeChannel, connection_to

from srl.api.control import Notice, Ready
from srl.api.transport import ChannelClosed, PeerUnresponsive
from srl.api.worker import WorkerId
from srl.schedulers.hosts.messages import AgentHeartbeat, Refused, WorkerReport

PLACE = WorkerId("actors", 0, 0)


def test_after_a_closed_connection_reports_wait_for_the_next_controller() -> None:
    successor = FakeChannel(ACCEPTED)
    connection = connection_to(FakeChannel(ChannelClosed("is gone")), successor)
    assert list(connection.receive()) == []
    assert connection.channel is None
    assert not connection.report(WorkerReport(PLACE, Ready()))
    assert not connection.send(AgentHeartbeat([]))
    assert connection.reconnect(lambda: AgentHeartbeat([PLACE]))
    connection.repeat_reports()
    assert connection.channel is successor
    assert successor.sent == [AgentHeartbeat([PLACE]), WorkerReport(PLACE, Ready(), 1)]


def test_reports_that_a_dead_controller_had_not_recorded_are_repeated_to_the_next() -> None:
    dying, successor = FakeChannel(), FakeChannel(ACCEPTED)
    connection = connection_to(dying, successor)
    reports = [WorkerReport(PLACE, Notice(text), number) for number, text in enumerate("abcd", 1)]
    for report in reports[:3]:
        assert connection.report(msgspec.structs.replace(report, number=0))
    assert dying.sent == reports[:3]  # it received all of them, but recorded only the first
    connection.discard(1)
    dying.received.append(ChannelClosed("is gone"))
    assert list(connection.receive()) == []
    assert not connection.report(WorkerReport(PLACE, Notice("d")))
    assert connection.reconnect(lambda: AgentHeartbeat([]))
    connection.repeat_reports()
    assert successor.sent == [AgentHeartbeat([]), *reports[1:]]
    connection.discard(4)
    connection.repeat_reports()
    assert successor.sent == [AgentHeartbeat([]), *reports[1:]]


def test_without_a_headless_time_no_report_is_kept() -> None:
    connection = connection_to(channel := FakeChannel(), headless=0.0)
    connection.report(WorkerReport(PLACE, Ready()))
    connection.repeat_reports()
    assert channel.sent == [WorkerReport(PLACE, Ready(), 1)]


def test_a_silent_controller_may_have_replaced_the_workers_so_the_agent_ends() -> None:
    connection = connection_to(FakeChannel(PeerUnresponsive("has not answered for 11 s")))
    with pytest.raises(ChannelClosed, match="not answered"):
        list(connection.receive())


def test_without_a_headless_time_the_agent_ends_with_its_connection() -> None:
    connection = connection_to(FakeChannel(ChannelClosed("is gone")), headless=0.0)
    with pytest.raises(ChannelClosed, match="is gone"):
        list(connection.receive())


def test_the_agent_ends_if_the_controller_has_replaced_its_workers() -> None:
    connection = connection_to(FakeChannel(ChannelClosed("reset")), FakeChannel(Refused("join again")))
    assert list(connection.receive()) == []
    with pytest.raises(ChannelClosed, match="replaced the workers of this host"):
        connection.reconnect(lambda: AgentHeartbeat([]))
