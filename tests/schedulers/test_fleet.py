"""Who is let into a run. The controller's end is real, the agents are played by hand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import srl
from srl.api.transport import Channel, ChannelClosed
from srl.api.worker import Place
from srl.schedulers.agent_messages import AGENTS, Begin, Follow, Join, Messages, Refused, Relay, Welcome, codec
from srl.schedulers.fleet import Fleet, Hosting, Joined, Lost, News, Turned
from srl.testing.contexts import until
from srl.transports.tcp import TcpTransport

JOIN_SECRET = b"another secret of 32 bytes ....."
SECRET = b"a secret of thirty-two bytes ..."


class Controller:
    def __init__(self) -> None:
        self.transport = TcpTransport(JOIN_SECRET, AGENTS, encrypt=True, codec=codec)
        listener = self.transport.listen("the controller", Messages)
        self.address = listener.address
        self.fleet = Fleet(Hosting("run", SECRET), ["policy"], listener)
        self.news: list[News] = []

    def poll(self) -> None:
        self.news += self.fleet.poll(0.0)

    def dial(self, join: Join) -> Channel:
        channel = self.transport.connect(self.address, Messages)
        channel.send(join)
        return channel

    def hear(self, channel: Channel, kind: type[Any]) -> Any:
        def next_of_kind() -> Any:
            channel.flush()
            while (received := channel.receive()) is not None:
                if isinstance(received[0], kind):
                    return received[0]
            return None

        return until(next_of_kind, self.poll)

    def join(self, name: str) -> Channel:
        channel = self.dial(hello(name))
        welcome = self.hear(channel, Welcome)
        channel.send(Relay(f"tcp:{welcome.host}:1"))
        until(lambda: Joined(welcome.host) in self.news, self.poll)
        return channel


def hello(name: str, version: str | None = None) -> Join:
    return Join(name, version or srl.__version__, 0, 2.0, 0.0, 1000)


@pytest.fixture
def controller() -> Iterator[Controller]:
    made = Controller()
    yield made
    made.fleet.close()


def test_an_agent_is_given_a_name_of_its_own_and_the_runs_secret(controller: Controller) -> None:
    channels = [controller.dial(hello("node")) for _ in range(2)]
    welcomes = [controller.hear(channel, Welcome) for channel in channels]
    assert {welcome.host for welcome in welcomes} == {"node", "node-2"}
    assert {welcome.secret for welcome in welcomes} == {SECRET}
    for channel in channels:
        channel.close()


def test_another_version_is_refused_with_both_versions_named(controller: Controller) -> None:
    channel = controller.dial(hello("node", "0.0.9"))
    refused = controller.hear(channel, Refused)
    assert "0.0.9" in refused.text
    assert hello("node").version in refused.text
    assert controller.news == [Turned(refused.text)]
    channel.close()


def test_a_host_that_closes_is_lost_and_the_others_get_parameters_elsewhere(controller: Controller) -> None:
    channels = {name: controller.join(name) for name in ("a", "b", "c")}
    controller.fleet.lead({"policy": "b"})
    assert controller.hear(channels["a"], Follow) == Follow("policy", "tcp:b:1")
    assert controller.hear(channels["c"], Follow) == Follow("policy", "tcp:b:1")
    channels["b"].close()
    until(lambda: any(isinstance(news, Lost) and news.host == "b" for news in controller.news), controller.poll)
    controller.fleet.lead({"policy": "c"})
    assert controller.hear(channels["a"], Follow) == Follow("policy", "tcp:c:1")
    assert controller.hear(channels["c"], Follow) == Follow("policy", "")
    for channel in channels.values():
        channel.close()


def test_who_does_not_join_or_speaks_out_of_turn_is_turned_away(controller: Controller) -> None:
    stranger = controller.transport.connect(controller.address, Messages)
    stranger.send(Relay("tcp:x:1"))
    mutineer = controller.join("a")
    mutineer.send(Begin(Place("actors", 0, 0), {}, 0, 0))  # only a controller may say that
    until(lambda: any(isinstance(news, Lost) for news in controller.news), controller.poll)
    for channel in (stranger, mutineer):
        with pytest.raises(ChannelClosed):
            until(lambda channel=channel: channel.flush() and channel.receive() and False, controller.poll)  # type: ignore[misc]
        channel.close()
    assert controller.fleet.hosts == {}
