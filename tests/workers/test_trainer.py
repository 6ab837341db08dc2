"""The trainer worker: commits before it publishes, continues from its commit, stops if values are not finite."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from support.counting import CountingConfig
from support.stages import Stage, fill
from support.waiting import until

from srl.api.control import Done, Notice, UpdateRecord
from srl.api.spaces import Box, Discrete
from srl.api.worker import FINISHED, IDLE, WORKED, PollResult, RunBroken
from srl.base.meter import Counter
from srl.workers.trainer.worker import TrainerWorker, TrainerWorkerConfig


class Training:
    """A trainer, and a producer that fills every admitted block; a block holds four decisions."""

    def __init__(self, stage: Stage, **options: Any) -> None:
        self.stage = stage
        self.threads = options.pop("threads", False)
        options = dict({"skip": (), "target_steps": 1000, "max_lag": 0, "size": 1, "journal": False}, **options)
        self.stream = stage.stream(batch_blocks=2, max_lag=options["max_lag"])
        self.config = TrainerWorkerConfig(
            "policy",
            CountingConfig(options["skip"]),
            Box((3,)),
            Discrete(2),
            self.stream,
            options["target_steps"],
            seed=0,
            size=options["size"],
            journal=options["journal"],
        )
        self.producer = stage.producer(self.stream, num_open=2)
        self.worker: TrainerWorker | None = None

    def start(self, incarnation: int = 0, index: int = 0) -> TrainerWorker:
        self.context = self.stage.world.context("trainers", index, incarnation, threads=self.threads)
        self.worker = self.config.build(self.context)
        return self.worker

    def produce(self) -> None:
        self.producer.poll()
        while (opened := self.producer.open()) is not None:
            fill(opened, 1, max(0, self.stage.world.stores["policy"].version))
            self.producer.post(opened)

    def poll(self) -> PollResult:
        assert self.worker is not None
        self.produce()
        return self.worker.poll()

    def train_to(self, version: int) -> None:
        until(lambda: self.stage.world.stores["policy"].version >= version, self.poll)

    def kill(self) -> None:
        """Close the sockets without a message, as the kernel does."""
        assert self.worker is not None
        self.worker.close()
        self.worker = None


@pytest.fixture
def training(inproc: Stage) -> Iterator[Callable[..., Training]]:
    made: list[Training] = []

    def make(**options: Any) -> Training:
        made.append(Training(inproc, **options))
        return made[-1]

    yield make
    for one in made:
        if one.worker is not None:
            one.worker.close()
        one.__dict__.clear()  # pytest holds on to it: let the mappings go now


def test_the_first_version_is_published_before_any_data(inproc: Stage, training: Callable[..., Training]) -> None:
    one = training()
    worker = one.start()
    assert inproc.world.stores["policy"].version == 0
    assert inproc.world.commits["policy"].version == 0
    assert worker.poll() == IDLE


def test_every_update_is_committed_and_published(inproc: Stage, training: Callable[..., Training]) -> None:
    one = training()
    one.start()
    one.train_to(3)
    version, parameters = inproc.world.stores["policy"].pull() or (0, np.zeros(1))
    assert (version, parameters.tolist()) == (3, [3.0])
    committed = inproc.world.commits["policy"].read()
    assert committed is not None
    assert committed[0] == 3
    assert committed[1]["counters"].tolist() == [3, 3]
    assert committed[2]["steps"] == 3 * 8
    meter = one.context.meter
    assert (meter.get(Counter.VERSION), meter.get(Counter.LEARNED)) == (3, 24)
    assert (meter.get(Counter.LAG_COUNT), meter.get(Counter.LAG_SUM), meter.get(Counter.LAG_MAX)) == (24, 0, 0)
    assert meter.get(Counter.FIRST_UPDATE_NS) > 0
    worker = one.worker
    assert worker is not None
    worker.poll()
    records = inproc.world.reported(UpdateRecord)
    assert [(record.update, record.steps, record.metrics) for record in records] == [
        (update, 8 * update, {"applied": float(update)}) for update in (1, 2, 3)
    ]


def test_the_last_update_of_a_finished_trainer_is_reported(inproc: Stage, training: Callable[..., Training]) -> None:
    one = training(target_steps=24)
    one.start()
    until(lambda: one.poll() == FINISHED)
    assert [record.update for record in inproc.world.reported(UpdateRecord)] == [1, 2, 3]


def test_an_update_is_committed_before_it_is_published(inproc: Stage, training: Callable[..., Training]) -> None:
    """A trainer killed between the two loses nothing, and no decision was made by a version that is not kept."""
    one = training()
    one.start()
    store, commits = inproc.world.stores["policy"], inproc.world.commits["policy"]
    seen: list[tuple[int, int, int]] = []
    push = store.push

    def watched(version: int, parameters: Any, tags: tuple[str, ...] = ()) -> None:
        seen.append((version, commits.version, store.version))
        push(version, parameters, tags)

    one.context.stores["policy"].push = watched  # type: ignore[method-assign]
    one.train_to(4)
    assert seen == [(version, version, version - 1) for version in range(1, 5)]


def test_a_trainer_killed_between_commit_and_publication_publishes_after_its_restart(
    inproc: Stage, training: Callable[..., Training]
) -> None:
    one = training()
    one.start()
    store = inproc.world.stores["policy"]
    one.train_to(2)
    push = store.push

    def killed(version: int, parameters: Any, tags: tuple[str, ...] = ()) -> None:
        raise KeyboardInterrupt

    store.push = killed  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        until(lambda: False, one.poll)
    store.push = push  # type: ignore[method-assign]
    assert (inproc.world.commits["policy"].version, store.version) == (3, 2)
    one.kill()
    one.start(incarnation=1)
    assert store.version == 3
    one.train_to(5)
    committed = inproc.world.commits["policy"].read()
    assert committed is not None
    assert (committed[1]["counters"].tolist(), committed[2]["steps"]) == ([5, 5], 40)


@pytest.mark.parametrize("threads", [False, True])
def test_a_new_incarnation_continues_from_the_last_commit(host: Stage, threads: bool) -> None:
    one = Training(host, threads=threads, target_steps=64)
    versions = []
    for incarnation in range(3):
        one.start(incarnation)
        store = host.world.stores["policy"]
        versions.append(store.version)
        if incarnation < 2:
            one.train_to(store.version + 2)
            one.kill()
    results: list[PollResult] = []
    until(lambda: FINISHED in results, lambda: results.append(one.poll()))
    assert versions[0] == 0
    assert versions[2] > versions[1] >= 2
    assert host.world.stores["policy"].version == 8  # 64 steps of 8 decisions, over three lives
    assert [message.reason for message in host.world.reported(Done)] == ["64 steps"]
    committed = host.world.commits["policy"].read()
    assert committed is not None
    assert (committed[1]["counters"].tolist(), committed[2]["steps"]) == ([8, 8], 64)
    one.kill()


@pytest.mark.parametrize("committed", [True, False])
def test_versions_grow_even_if_a_state_was_lost(
    inproc: Stage, training: Callable[..., Training], committed: bool
) -> None:
    if committed:
        inproc.world.commits["policy"].write(
            4, {"parameters": np.zeros(1, np.float32), "counters": np.array([4, 4])}, {"steps": 32}
        )
    store = inproc.world.stores["policy"]
    store.push(9, np.zeros(1, np.float32))
    one = training()
    one.start()
    one.train_to(10)
    version, parameters = store.pull() or (0, np.zeros(1))
    assert (version, parameters.tolist()) == (10, [5.0 if committed else 1.0])


def test_progress_grows_over_the_run(inproc: Stage, training: Callable[..., Training]) -> None:
    one = training(target_steps=32)
    worker = one.start()
    results: list[PollResult] = []
    until(lambda: FINISHED in results, lambda: results.append(one.poll()))
    assert worker._trainer.progress == [0.0, 0.25, 0.5, 0.75]  # type: ignore[attr-defined]
    assert one.poll() == FINISHED


def test_a_skipped_update_is_noted_and_three_in_a_row_end_the_run(
    inproc: Stage, training: Callable[..., Training]
) -> None:
    one = training(skip=(1, 3, 4, 6, 7, 8))
    one.start()
    one.train_to(6)  # never three in a row so far
    store = inproc.world.stores["policy"]
    assert (store.pull() or (0, np.zeros(1)))[1].tolist() == [3.0]
    assert one.context.meter.get(Counter.SKIPPED_UPDATES) == 3
    assert "update 2 had a loss or gradient that is not finite: skipped" in inproc.world.reported(Notice)[0].text
    with pytest.raises(RunBroken, match="3 updates in a row"):
        until(lambda: False, one.poll)
    committed = inproc.world.commits["policy"].read()
    assert committed is not None
    assert committed[1]["counters"][1] == 3  # the last good parameters


def test_another_rank_waits_until_the_version_is_published(inproc: Stage, training: Callable[..., Training]) -> None:
    one = training(size=2)
    store = inproc.world.stores["policy"]
    store.push(0, np.zeros(1, np.float32))
    one.start(index=1)
    until(lambda: one.worker is not None and one.worker._version == 1, one.poll)
    for _ in range(5):
        assert one.poll() == WORKED
    assert one.worker is not None
    assert one.worker._version == 1  # rank 0 has not published, so nothing is admitted
    assert inproc.world.commits["policy"].version == -1  # nor does this rank commit
    store.push(1, np.ones(1, np.float32))
    until(lambda: one.worker is not None and one.worker._version == 2, one.poll)
