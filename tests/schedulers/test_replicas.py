"""Past versions for hosts that join later than others. The scheduler is real, the agents are fake."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support.fake_agents import SECRET, FakeHosts, join_message

from srl.base.tree import Array
from srl.populations.opponent_pool import OpponentPool, PoolConfig, refill
from srl.schedulers.hosts.messages import (
    AgentSettings,
    CommittedState,
    ControllerHeartbeat,
    FollowParameters,
    StateStored,
    TaggedParameters,
)

POOL = PoolConfig("uniform", every=10, size=3)


def vector(version: int) -> Array:
    return np.full(2, version, np.float32)


class SelfPlay(FakeHosts):
    def __init__(self, logs: Path) -> None:
        super().__init__(
            logs, AgentSettings("run", SECRET), retention=lambda store: OpponentPool(POOL, store).refresh()
        )

    def first_versions(self) -> list[tuple[int, str]]:
        """Versions and tags that a host gets when it joins, before any other message."""
        channel = self.join(join_message("host"))
        found = []
        kinds = (TaggedParameters, FollowParameters, ControllerHeartbeat)
        while isinstance(message := self.receive(channel, *kinds), TaggedParameters):
            found.append((message.version, message.tag))
        return found


@pytest.fixture
def run(tmp_path: Path) -> Iterator[SelfPlay]:
    made = SelfPlay(tmp_path)
    yield made
    made.close()


def test_hosts_of_a_resumed_run_get_its_opponents_and_then_its_newest_version(run: SelfPlay) -> None:
    store = run.scheduler.parameters()["policy"]
    assert refill(store, [(4, vector(4)), (9, vector(9))]) == 2
    store.push(12, vector(12))
    assert run.first_versions() == [(4, "past-0"), (9, "past-1"), (12, "")]


def test_a_host_that_joins_late_gets_the_versions_that_the_others_have_kept(run: SelfPlay) -> None:
    assert run.first_versions() == []
    trainer = run.channels[0]
    for version in (0, 5, 10, 20, 31, 33):
        trainer.send(CommittedState("policy", version, {}, ["parameters"]), [vector(version)])
        assert run.receive(trainer, StateStored) == StateStored("policy", version)
    assert run.first_versions() == [(0, "past-0"), (20, "past-2"), (31, "past-1"), (33, "")]
    assert run.memory.parameters["policy"].version == -1, "reserved for evaluated versions"
