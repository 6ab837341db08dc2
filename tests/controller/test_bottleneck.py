"""When a bottleneck is measured, with literal statuses: not during compilation, nor while a worker is replaced."""

from __future__ import annotations

import msgspec

from srl.api.status import RunStatus, Settings, WorkerStatus
from srl.controller.bottleneck import Bottleneck


def worker(group: str, incarnation: int = 0, state: str = "running", **busy: float) -> WorkerStatus:
    return WorkerStatus(f"{group}/0", group, hash(group), incarnation, state, busy)


def status(*workers: WorkerStatus) -> RunStatus:
    return RunStatus("r", "Pendulum-v1", "sac", "/r", "running", settings=Settings(batch=16), workers=list(workers))


ACTOR = worker("actors", env=0.95, waiting=0.05)
TRAINER = worker("trainers", update=0.3, waiting=0.7)
REPLAY = worker("replay", other=0.1, waiting=0.9)
WAITS = [worker("actors", waiting=1.0), worker("trainers", waiting=1.0)]


def test_the_others_are_not_measured_while_a_worker_is_replaced() -> None:
    forgotten: list[float] = []
    bottleneck = Bottleneck(lambda: forgotten.append(now))
    for now in (0.0, 0.5, 1.0, 1.5):
        found = bottleneck.of(status(ACTOR, TRAINER, REPLAY), now, True)
    assert found[0].startswith("environment: ")
    assert forgotten == [0.0]
    for now in (2.0, 3.0, 4.0):
        assert bottleneck.of(status(*WAITS, worker("replay", state="ended")), now, True) == found
    reads = worker("replay", 1, other=0.17, waiting=0.05)
    for now in (5.0, 5.9):
        assert bottleneck.of(status(*WAITS, reads), now, True) == found
    assert forgotten == [0.0, 2.0, 3.0, 4.0, 5.0], "what they did meanwhile does not count"
    now = 6.0
    busy = [
        worker("actors", waiting=1.0),
        worker("trainers", update=0.99, waiting=0.01),
        worker("replay", 1, waiting=1),
    ]
    assert bottleneck.of(status(*busy), now, True)[0].startswith("trainer: 99 % busy")


def test_one_of_many_workers_does_not_stop_the_measurement() -> None:
    bottleneck = Bottleneck(lambda: None)
    many = [msgspec.structs.replace(ACTOR, name=f"actors/{index}") for index in range(30)]
    bottleneck.of(status(*many, TRAINER), 0.0, True)
    many[3] = msgspec.structs.replace(many[3], incarnation=1)
    assert bottleneck.of(status(*many, TRAINER), 1.0, True)[0]


def test_nothing_is_advised_while_functions_are_compiled() -> None:
    bottleneck = Bottleneck(lambda: None)
    compiles = msgspec.structs.replace(worker("trainers", update=1.0), compiling=True)
    for learning in (False, True):
        for now in range(5):
            found = bottleneck.of(status(worker("actors", waiting=1.0), compiles), float(now), learning)
            assert found == ("compiling the update (once per installation)", "")
    assert bottleneck.of(status(*WAITS), 5.5, True) == ("", ""), "the time of the compilation does not count"
    plays = msgspec.structs.replace(ACTOR, compiling=True)
    found = bottleneck.of(status(plays, TRAINER), 6.0, True)
    assert found == ("compiling code of actors (once per installation)", "")
