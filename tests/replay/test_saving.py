"""Replay that its own worker saves: what a later worker finds, and what happens when it cannot be saved."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from replay.reference import spec_of
from replay.test_memory import chain_of, flow
from support.waiting import until

from srl.api.control import Notice
from srl.api.worker import RunBroken
from srl.replay.memory import ReplayMemory
from srl.replay.saved import MANIFEST
from srl.replay.saving import NOT_SAVED, ReplaySaving
from srl.replay.storage import Arena
from srl.testing.contexts import World

POLICY = "policy"
NEVER = 1e6  # seconds: only when the worker ends


class Host:
    """A host on which workers keep replay."""

    def __init__(self) -> None:
        self.world = World()

    def start(self, saving: ReplaySaving, index: int = 0, shards: int = 1) -> None:
        context = self.world.context("trainers", index)
        self.saver = saving.open(context, POLICY, shards)
        self.memory = ReplayMemory(flow(40), spec_of(2, 1), 0, arena=Arena(context.kept_memory(POLICY, index)))

    def insert(self, num_blocks: int) -> None:
        for arrays, step in chain_of([1.0] * 2 * num_blocks, 2):
            self.memory.insert(arrays, "track", step)

    @property
    def drawn(self) -> list[float]:
        """Observations in many draws."""
        batch: Any = self.memory.draw(40 if self.memory.size else 0, 0.0).batch
        return np.unique(batch.observation).tolist()

    def notices(self) -> list[str]:
        self.saver.poll()
        return [notice.text for notice in self.world.reported(Notice)]

    def close(self) -> None:
        self.saver.close()
        self.world.close()
        self.__dict__.clear()  # mappings hold descriptors


@pytest.fixture
def hosts() -> Iterator[Callable[[], Host]]:
    made: list[Host] = []

    def make() -> Host:
        made.append(Host())
        return made[-1]

    yield make
    for host in made:
        if host.__dict__:
            host.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a policy in the run directory, which the first worker makes."""
    (tmp_path / "replay").mkdir()
    return tmp_path / "replay" / POLICY


def test_a_worker_on_another_host_continues_with_what_was_saved(hosts: Callable[[], Host], folder: Path) -> None:
    saving = ReplaySaving(str(folder), NEVER)
    one = hosts()
    one.start(saving)
    one.insert(3)
    one.close()
    other = hosts()
    other.start(saving)
    assert other.drawn == [0, 1, 2, 3, 4, 5]
    assert other.notices() == []


def test_a_replacement_on_the_same_host_keeps_what_is_in_its_memory(hosts: Callable[[], Host], folder: Path) -> None:
    saving = ReplaySaving(str(folder), NEVER)
    host = hosts()
    host.start(saving)
    host.insert(1)
    host.saver.close()
    host.insert(3)  # by a worker that is killed before it saves
    host.start(saving)
    assert host.drawn == [0, 1, 2, 3, 4, 5]


def test_what_is_new_is_saved_while_the_worker_runs(hosts: Callable[[], Host], folder: Path) -> None:
    host = hosts()
    host.start(ReplaySaving(str(folder), 0.01))
    host.insert(2)
    until(lambda: list((folder / "0").glob("*-blocks-*2.safetensors")))


def test_a_disk_that_fails_is_reported_once_and_then_written_again(hosts: Callable[[], Host], folder: Path) -> None:
    host = hosts()
    folder.touch()  # not a directory
    host.start(ReplaySaving(str(folder), 0.01))
    host.insert(2)
    until(host.notices)
    assert "the replay was not saved" in host.notices()[0]
    assert len(host.notices()) == 1
    folder.unlink()
    until(lambda: len(host.notices()) == 2)
    assert host.notices()[1] == "the replay is saved again"
    assert (folder / "0" / MANIFEST).exists()


def test_a_damaged_file_costs_its_blocks_and_is_reported(hosts: Callable[[], Host], folder: Path) -> None:
    saving = ReplaySaving(str(folder), NEVER)
    one = hosts()
    one.start(saving)
    one.insert(3)
    one.close()
    blocks = next((folder / "0").glob("*blocks*"))
    blocks.write_bytes(blocks.read_bytes()[:-1])
    other = hosts()
    other.start(saving)
    assert "is skipped" in other.notices()[0]
    assert other.drawn == []


def test_shards_of_a_larger_group_are_removed(hosts: Callable[[], Host], folder: Path) -> None:
    saving = ReplaySaving(str(folder), NEVER)
    host = hosts()
    host.start(saving, 1, 2)
    host.insert(1)
    host.saver.close()
    assert (folder / "1" / MANIFEST).exists()
    host.start(saving, 0, 1)
    assert not (folder / "1").exists()


def test_a_host_without_the_run_directory_is_refused(hosts: Callable[[], Host], tmp_path: Path) -> None:
    host = hosts()
    with pytest.raises(RunBroken, match="--root that all hosts share"):
        host.start(ReplaySaving(str(tmp_path / "elsewhere" / POLICY), NEVER))
    host.start(NOT_SAVED)
    host.insert(1)
