"""A scheduler takes over the hosts of another one that died. The scheduler is real, the agents are fake."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.fake_agents import SECRET, FakeHosts, join_message
from support.idle_worker import IdleConfig
from support.waiting import PATIENCE, until

from srl.api.experiment import Resources
from srl.api.scheduler import Died, OrphanWorker
from srl.api.transport import Channel, ChannelClosed
from srl.api.worker import WorkerId
from srl.base.meter import WORDS, Counter
from srl.schedulers.hosts.messages import (
    USAGE,
    AgentHeartbeat,
    AgentSettings,
    CommittedState,
    JoinAccepted,
    Rejoin,
    StartWorker,
    StateStored,
    WorkerExited,
)

ACTOR, OTHER, LOST = (WorkerId("actors", index, 3) for index in range(3))
TRAINER = WorkerId("trainers", 0, 101)


@dataclass(frozen=True)
class CommittingConfig(IdleConfig):
    def committed_policy(self) -> str:
        return "policy"


def received(channel: Channel, *kinds: type[Any]) -> Any:
    """Return the next message of these kinds that has arrived."""
    channel.flush()
    while (found := channel.receive()) is not None:
        if isinstance(found[0], kinds):
            return found[0]
    return None


class Takeover(FakeHosts):
    """The new scheduler waits in a thread for the fake hosts."""

    def __init__(self, logs: Path) -> None:
        super().__init__(logs, AgentSettings("run", SECRET), takeover={})
        self.thread = ThreadPoolExecutor(1)

    def poll(self) -> None:
        """The thread does it."""

    def find_orphans(self, *hosts: str) -> Future[list[OrphanWorker]]:
        return self.thread.submit(self.scheduler.find_orphans, hosts, PATIENCE)

    def rejoin(self, host: str, *worker_ids: WorkerId, state: int = -1, version: int = -1) -> Channel:
        """A host returns with these workers, a committed state of this version, and parameters of this version."""
        orphans = [OrphanWorker(worker_id, True, {}) for worker_id in worker_ids]
        versions = {"policy": state}, {"policy": version}
        rejoin = Rejoin(join_message(host), "run", SECRET, f"tcp:{host}:1", orphans, *versions)
        channel = self.connect(rejoin)
        self.channels.append(channel)
        self.receive(channel, JoinAccepted)
        return channel

    def adopt(self, worker_id: WorkerId) -> None:
        self.scheduler.adopt(worker_id, IdleConfig(), Resources(), 0)

    def died(self, worker_id: WorkerId) -> Died:
        found: Died = until(
            lambda: next(
                (e for e in self.scheduler.poll(0.0) if isinstance(e, Died) and e.worker_id == worker_id), None
            )
        )
        return found

    def close(self) -> None:
        self.thread.shutdown()
        super().close()


@pytest.fixture
def takeover(tmp_path: Path) -> Iterator[Takeover]:
    made = Takeover(tmp_path)
    yield made
    made.close()


def send_heartbeat(channel: Channel, *worker_ids: WorkerId, progress: int) -> None:
    words = np.zeros((len(worker_ids), WORDS), np.int64)
    words[:, Counter.PROGRESS] = progress
    channel.send(AgentHeartbeat(list(worker_ids)), [words, np.zeros((len(worker_ids), len(USAGE)))])


def test_messages_about_workers_take_effect_once_the_workers_are_adopted(takeover: Takeover) -> None:
    orphans = takeover.find_orphans("a", "b")
    first = takeover.rejoin("a", ACTOR, LOST)
    send_heartbeat(first, ACTOR, LOST, progress=7)
    first.send(WorkerExited(LOST, "killed", clean=False, number=1), [np.zeros((1, WORDS), np.int64)])
    first.send(CommittedState("policy", 5, {}, ["parameters"]), [np.zeros(3, np.float32)])
    assert takeover.receive(first, StateStored) == StateStored("policy", 5)  # so everything before it has arrived
    send_heartbeat(takeover.rejoin("b", OTHER), OTHER, progress=8)
    assert {worker.worker_id for worker in orphans.result()} == {ACTOR, LOST, OTHER}
    for worker_id in (ACTOR, LOST, OTHER):
        takeover.adopt(worker_id)
    takeover.thread.submit(takeover.scheduler.finish_takeover, PATIENCE).result()
    assert [takeover.scheduler.meter(worker_id).get(Counter.PROGRESS) for worker_id in (ACTOR, OTHER)] == [7, 8]
    assert takeover.died(LOST).reason == "killed"


def test_a_host_that_returned_and_is_lost_again_takes_its_workers_along(takeover: Takeover) -> None:
    orphans = takeover.find_orphans("b")
    lost = takeover.rejoin("a", LOST)
    lost.send(JoinAccepted("a", [], AgentSettings("run", b"")))  # not a message of an agent
    with pytest.raises(ChannelClosed):
        until(lambda: lost.flush() and lost.receive() and False)
    lost_later = takeover.rejoin("c", ACTOR)
    takeover.rejoin("b", OTHER)
    assert {worker.worker_id for worker in orphans.result()} == {ACTOR, OTHER}
    lost_later.close()
    until(lambda: takeover.scheduler.hosts() == ["b"], lambda: takeover.scheduler.poll(0.0))
    for worker_id in (ACTOR, OTHER):
        takeover.adopt(worker_id)
    assert takeover.died(ACTOR) == Died(ACTOR, "its host was lost again", blameless=True)


def test_a_lost_trainer_starts_once_the_newest_state_of_any_host_has_arrived(takeover: Takeover) -> None:
    orphans = takeover.find_orphans("a", "b")
    newest, older = takeover.rejoin("a", ACTOR, state=5), takeover.rejoin("b", OTHER, state=4)
    orphans.result()
    takeover.scheduler.start(TRAINER, CommittingConfig(), Resources(node="b"), 0)
    older.send(CommittedState("policy", 4, {}, ["parameters"]), [np.zeros(3, np.float32)])
    until(lambda: takeover.memory.commits["policy"].version == 4, lambda: takeover.scheduler.poll(0.0))
    assert isinstance(until(lambda: received(older, StartWorker, StateStored)), StateStored)
    newest.send(CommittedState("policy", 5, {}, ["parameters"]), [np.ones(3, np.float32)])
    wait = lambda: takeover.scheduler.poll(0.0)  # noqa: E731
    first = until(lambda: received(older, StartWorker, CommittedState), wait)
    assert isinstance(first, CommittedState)
    assert first.version == 5
    assert until(lambda: received(older, StartWorker), wait).worker_id == TRAINER


def test_a_lost_trainer_does_not_wait_for_the_state_of_a_host_that_is_lost_again(takeover: Takeover) -> None:
    orphans = takeover.find_orphans("a", "b")
    newest, older = takeover.rejoin("a", ACTOR, state=5), takeover.rejoin("b", OTHER)
    orphans.result()
    takeover.scheduler.start(TRAINER, CommittingConfig(), Resources(node="b"), 0)
    newest.close()
    assert until(lambda: received(older, StartWorker), lambda: takeover.scheduler.poll(0.0)).worker_id == TRAINER


def test_a_trainer_whose_newest_state_was_lost_counts_on_from_the_versions_that_actors_have(takeover: Takeover) -> None:
    """Actors do not adopt a lower version. The trainer would learn from decisions of parameters that it never had."""
    takeover.memory.commits["policy"].write(5, {"parameters": np.ones(3, np.float32)}, {"steps": 50})
    orphans = takeover.find_orphans("a", "b")
    takeover.rejoin("a", ACTOR, version=9)
    other = takeover.rejoin("b", OTHER, version=7)
    orphans.result()
    takeover.scheduler.start(TRAINER, CommittingConfig(), Resources(node="b"), 0)
    wait = lambda: takeover.scheduler.poll(0.0)  # noqa: E731
    state = until(lambda: received(other, StartWorker, CommittedState), wait)
    assert (state.version, state.floor, state.metadata) == (5, 9, {"steps": 50})
    assert until(lambda: received(other, StartWorker), wait).worker_id == TRAINER


def test_a_takeover_fails_if_no_host_reconnects(takeover: Takeover) -> None:
    with pytest.raises(ConnectionError, match="no host of the run reconnected"):
        takeover.scheduler.find_orphans(["a"], 0.0)
