"""Who is let into a run. The controller's end is real, the agents are played by hand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest
from support.fake_agents import SECRET, Played, hello

from srl.api.control import Notice
from srl.api.transport import Channel, ChannelClosed
from srl.api.worker import Place
from srl.schedulers.hosts.fleet import Fleet, Hosting, Joined, JoinRefused, Lost, News, Word
from srl.schedulers.hosts.messages import (
    Beat,
    Begin,
    Follow,
    Heard,
    Messages,
    Refused,
    Rejoin,
    Relay,
    Welcome,
)
from srl.testing.contexts import until


class Controller(Played):
    def __init__(self, attach: Mapping[str, int] | None = None) -> None:
        super().__init__()
        self.fleet = Fleet(Hosting("run", SECRET, attach=attach), ["policy"], self.listener)
        self.news: list[News] = []

    def poll(self) -> None:
        self.news += self.fleet.poll(0.0)

    def join(self, name: str) -> Channel:
        channel = self.dial(hello(name))
        welcome = self.hear(channel, Welcome)
        channel.send(Relay(f"tcp:{welcome.host}:1"))
        until(lambda: Joined(welcome.host) in self.news, self.poll)
        return channel


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
    assert controller.news == [JoinRefused(refused.text)]
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


def heard(number: int) -> Heard:
    return Heard(Place("trainers", 0, 0), Notice(f"update {number}"), number)


def test_news_that_a_predecessor_wrote_down_are_known_and_those_that_died_with_it_are_heard() -> None:
    relay = "tcp:a:1"
    successor = Controller(attach={relay: 2})
    channel = successor.dial(Rejoin(hello("a"), "run", SECRET, relay, []))
    successor.hear(channel, Welcome)
    for number in (1, 2, 3, 4):  # the agent was not told yet that the first two are safe
        channel.send(heard(number))
    until(lambda: successor.fleet.told() == {relay: 4}, successor.poll)
    assert [news.message for news in successor.news if isinstance(news, Word)] == [heard(3), heard(4)]
    assert successor.hear(channel, Beat) == Beat(safe=2)
    successor.fleet.written_down({relay: 4})
    until(lambda: successor.hear(channel, Beat) == Beat(safe=4), successor.poll)
    channel.close()
    successor.fleet.close()


def test_a_newcomer_waits_for_the_run_s_own_hosts_and_is_given_the_secret_that_they_bring() -> None:
    theirs = bytes(reversed(SECRET))
    successor = Controller(attach={})
    newcomer = successor.dial(hello("a"))  # by the name of a host that is about to come back
    returner = successor.dial(Rejoin(hello("a"), "run", theirs, "tcp:a:1", []))
    assert successor.hear(returner, Welcome).host == "a"
    assert list(successor.fleet.hosts) == ["a"]
    successor.fleet.close_to_returners()
    welcome = successor.hear(newcomer, Welcome)
    assert (welcome.host, welcome.secret) == ("a-2", theirs)
    for channel in (newcomer, returner):
        channel.close()
    successor.fleet.close()


def test_what_a_host_repeats_when_it_comes_back_again_is_known() -> None:
    successor = Controller(attach={})
    for last in (1, 2):
        channel = successor.dial(Rejoin(hello("a"), "run", SECRET, "tcp:a:1", []))
        successor.hear(channel, Welcome)
        for number in range(1, last + 1):
            channel.send(heard(number))
        until(lambda last=last: successor.fleet.told() == {"tcp:a:1": last}, successor.poll)  # type: ignore[misc]
        channel.close()
        until(lambda: not successor.fleet.hosts, successor.poll)
    assert [news.message for news in successor.news if isinstance(news, Word)] == [heard(1), heard(2)]
    successor.fleet.close()


def test_who_comes_back_too_late_finds_its_workers_replaced() -> None:
    successor = Controller(attach={})
    successor.fleet.close_to_returners()
    channel = successor.dial(Rejoin(hello("a"), "run", SECRET, "tcp:a:1", []))
    assert "replaced" in successor.hear(channel, Refused).text
    channel.close()
    successor.fleet.close()
