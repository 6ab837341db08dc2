"""A scheduler takes over the hosts of another that died. The scheduler is real, the agents are played by hand."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from support.fake_agents import SECRET, PlayedHosts, hello
from support.idle_worker import IdleConfig
from support.waiting import PATIENCE

from srl.api.experiment import Resources
from srl.api.scheduler import Died, OrphanWorker
from srl.api.transport import Channel, ChannelClosed
from srl.api.worker import Place
from srl.base.meter import WORDS, Counter
from srl.schedulers.hosts.fleet import Hosting
from srl.schedulers.hosts.messages import USAGE, Beat, Gone, Kept, Rejoin, State, Welcome
from srl.testing.contexts import until

ACTOR, OTHER, LOST = (Place("actors", index, 3) for index in range(3))


class Successor(PlayedHosts):
    """Its scheduler waits in a thread of its own for the hosts that are played."""

    def __init__(self, logs: Path) -> None:
        super().__init__(logs, Hosting("run", SECRET, attach={}))
        self.thread = ThreadPoolExecutor(1)

    def poll(self) -> None:
        """The thread does it."""

    def gather(self, *hosts: str) -> Future[list[OrphanWorker]]:
        return self.thread.submit(self.scheduler.find_orphans, hosts, PATIENCE)

    def back(self, host: str, *places: Place) -> Channel:
        """A host returns with these workers."""
        held = [OrphanWorker(place, True, {}) for place in places]
        channel = self.dial(Rejoin(hello(host), "run", SECRET, f"tcp:{host}:1", held))
        self.channels.append(channel)
        self.hear(channel, Welcome)
        return channel

    def adopt(self, place: Place) -> None:
        self.scheduler.adopt(place, IdleConfig(), Resources(), 0)

    def died(self, place: Place) -> Died:
        found: Died = until(
            lambda: next((e for e in self.scheduler.poll(0.0) if isinstance(e, Died) and e.place == place), None)
        )
        return found

    def close(self) -> None:
        self.thread.shutdown()
        super().close()


@pytest.fixture
def successor(tmp_path: Path) -> Iterator[Successor]:
    made = Successor(tmp_path)
    yield made
    made.close()


def figures(channel: Channel, *places: Place, progress: int) -> None:
    words = np.zeros((len(places), WORDS), np.int64)
    words[:, Counter.PROGRESS] = progress
    channel.send(Beat(list(places)), [words, np.zeros((len(places), len(USAGE)))])


def test_what_a_host_tells_while_others_are_awaited_counts_once_its_workers_are_adopted(successor: Successor) -> None:
    gathered = successor.gather("a", "b")
    first = successor.back("a", ACTOR, LOST)
    figures(first, ACTOR, LOST, progress=7)
    first.send(Gone(LOST, "killed", clean=False, number=1), [np.zeros((1, WORDS), np.int64)])
    first.send(State("policy", 5, {}, ["parameters"]), [np.zeros(3, np.float32)])
    assert successor.hear(first, Kept) == Kept("policy", 5)  # all of it was heard
    figures(successor.back("b", OTHER), OTHER, progress=8)
    assert {held.place for held in gathered.result()} == {ACTOR, LOST, OTHER}
    for place in (ACTOR, LOST, OTHER):
        successor.adopt(place)
    successor.thread.submit(successor.scheduler.finish_adoption, PATIENCE).result()
    assert [successor.scheduler.meter(place).get(Counter.PROGRESS) for place in (ACTOR, OTHER)] == [7, 8]
    assert successor.died(LOST).reason == "killed"


def test_a_host_that_came_back_and_is_lost_again_takes_its_workers_along(successor: Successor) -> None:
    gathered = successor.gather("b")
    lost = successor.back("a", LOST)
    lost.send(Welcome("run", "a", b"", [], [], [], False))  # an agent must not say that
    with pytest.raises(ChannelClosed):
        until(lambda: lost.flush() and lost.receive() and False)
    doomed = successor.back("c", ACTOR)
    successor.back("b", OTHER)
    assert {held.place for held in gathered.result()} == {ACTOR, OTHER}
    doomed.close()
    until(lambda: successor.scheduler.hosts() == ["b"], lambda: successor.scheduler.poll(0.0))
    for place in (ACTOR, OTHER):
        successor.adopt(place)
    assert successor.died(ACTOR) == Died(ACTOR, "its host was lost again", blameless=True)
