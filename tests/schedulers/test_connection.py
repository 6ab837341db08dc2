"""An agent and a controller that dies, or cannot be reached: not the same."""

from __future__ import annotations

import msgspec
import pytest
from support.fake_controller import WELCOME, Line, line_to

from srl.api.control import Notice, Ready
from srl.api.transport import ChannelClosed, PeerSilent
from srl.api.worker import Place
from srl.schedulers.hosts.messages import Beat, Heard, Refused

PLACE = Place("actors", 0, 0)


def test_after_a_closed_connection_news_wait_for_the_next_controller() -> None:
    successor = Line(WELCOME)
    line = line_to(Line(ChannelClosed("is gone")), successor)
    assert list(line.receive()) == []
    assert line.channel is None
    assert not line.tell(Heard(PLACE, Ready()))
    assert not line.send(Beat([]))
    assert line.redial(lambda: Beat([PLACE]))
    line.repeat_news()
    assert line.channel is successor
    assert successor.sent == [Beat([PLACE]), Heard(PLACE, Ready(), 1)]


def test_a_controller_may_die_with_what_it_was_just_told_so_the_next_one_hears_it_too() -> None:
    dying, successor = Line(), Line(WELCOME)
    line = line_to(dying, successor)
    news = [Heard(PLACE, Notice(text), number) for number, text in enumerate("abcd", 1)]
    for one in news[:3]:
        assert line.tell(msgspec.structs.replace(one, number=0))
    assert dying.sent == news[:3]  # it took them all, but wrote only the first of them down
    line.forget(1)
    dying.received.append(ChannelClosed("is gone"))
    assert list(line.receive()) == []
    assert not line.tell(Heard(PLACE, Notice("d")))
    assert line.redial(lambda: Beat([]))
    line.repeat_news()
    assert successor.sent == [Beat([]), *news[1:]]
    line.forget(4)
    line.repeat_news()
    assert successor.sent == [Beat([]), *news[1:]]


def test_without_a_headless_time_nothing_is_kept() -> None:
    line = line_to(channel := Line(), headless=0.0)
    line.tell(Heard(PLACE, Ready()))
    line.repeat_news()
    assert channel.sent == [Heard(PLACE, Ready(), 1)]


def test_who_is_silent_may_have_replaced_our_workers() -> None:
    line = line_to(Line(PeerSilent("has not answered for 11 s")))
    with pytest.raises(ChannelClosed, match="not answered"):
        list(line.receive())


def test_without_a_headless_time_a_closed_connection_is_the_end() -> None:
    line = line_to(Line(ChannelClosed("is gone")), headless=0.0)
    with pytest.raises(ChannelClosed, match="is gone"):
        list(line.receive())


def test_a_controller_that_has_replaced_our_workers_says_so() -> None:
    line = line_to(Line(ChannelClosed("reset")), Line(Refused("join anew")))
    assert list(line.receive()) == []
    with pytest.raises(ChannelClosed, match="replaced our workers"):
        line.redial(lambda: Beat([]))
