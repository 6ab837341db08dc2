"""Opponents for hosts that join later than others. The scheduler is real, the agents are played by hand."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support.fake_agents import SECRET, PlayedHosts, hello

from srl.base.tree import Array
from srl.populations.pool import Pool, PoolConfig, refill
from srl.schedulers.hosts.fleet import Hosting
from srl.schedulers.hosts.messages import Beat, Follow, Kept, State, Tagged

POOL = PoolConfig("uniform", every=10, size=3)


def vector(version: int) -> Array:
    return np.full(2, version, np.float32)


class SelfPlay(PlayedHosts):
    def __init__(self, logs: Path) -> None:
        super().__init__(logs, Hosting("run", SECRET, keep_up=lambda store: Pool(POOL, store).refresh()))

    def given(self) -> list[tuple[int, str]]:
        """A host joins: version and tag of what it gets before it is told anything else."""
        channel = self.join(hello("host"))
        given = []
        while isinstance(message := self.hear(channel, Tagged, Follow, Beat), Tagged):
            given.append((message.version, message.tag))
        return given


@pytest.fixture
def run(tmp_path: Path) -> Iterator[SelfPlay]:
    made = SelfPlay(tmp_path)
    yield made
    made.close()


def test_hosts_of_a_run_that_is_resumed_get_its_opponents_and_then_its_newest_version(run: SelfPlay) -> None:
    store = run.scheduler.parameters()["policy"]
    assert refill(store, [(4, vector(4)), (9, vector(9))]) == 2
    store.push(12, vector(12))
    assert run.given() == [(4, "past-0"), (9, "past-1"), (12, "")]


def test_a_host_that_joins_late_gets_what_the_others_have_kept(run: SelfPlay) -> None:
    assert run.given() == []
    trainer = run.channels[0]
    for version in (0, 5, 10, 20, 31, 33):
        trainer.send(State("policy", version, {}, ["parameters"]), [vector(version)])
        assert run.hear(trainer, Kept) == Kept("policy", version)
    assert run.given() == [(0, "past-0"), (20, "past-2"), (31, "past-1"), (33, "")]
    assert run.memory.parameters["policy"].version == -1, "kept for what is evaluated"
