"""The contract of schedulers: the same experiment, wherever it runs."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from srl.api.control import Done, Failure, Names, Notice, Ready, Register, Stop
from srl.api.experiment import Resources
from srl.api.scheduler import Died, Event, Scheduler, WorkerMessage
from srl.api.transport import Message
from srl.api.worker import FINISHED, IDLE, WORKED, Context, Place, PollResult, WorkerConfig
from srl.base.meter import Counter
from srl.experiments.session.train import train
from srl.schedulers.engines.manual import ManualEngine
from srl.schedulers.hosts.fleet import AgentSettings
from srl.schedulers.hosts.messages import AGENTS, Messages, codec
from srl.schedulers.hosts.scheduler import HostsScheduler
from srl.schedulers.inline import InlineScheduler
from srl.schedulers.local.run_memory import RunMemory
from srl.schedulers.local.scheduler import ProcessScheduler
from srl.storage import checkpoints
from srl.testing.contexts import until
from srl.transports.tcp import TcpTransport
from srl.workers.errors import RunBroken


class Hello(Message, frozen=True):
    number: int


@dataclass(frozen=True)
class ActConfig(WorkerConfig):
    """Does as its name says."""

    what: str

    def build(self, context: Context) -> Act:
        return Act(self.what, context)


class Act:
    def __init__(self, what: str, context: Context) -> None:
        self._what = what
        self._context = context
        self._listener = context.listen("here", Hello) if what == "listen" else None
        if what == "refuse":
            raise ValueError("this cannot be built")

    def poll(self) -> PollResult:
        self._context.meter.add(Counter.PROGRESS)
        match self._what:
            case "finish":
                self._context.report(Done("all of it"))
                return FINISHED
            case "raise":
                raise RuntimeError("by accident")
            case "break":
                raise RunBroken("for ever")
            case "names":
                if found := self._context.names.lookup("here"):
                    self._context.report(Notice(" ".join(found)))
                    return FINISHED
            case "publish":
                store = self._context.parameters("policy")
                if store.version < 0:
                    store.push(0, np.full(3, self._context.seed, np.float32))
                return WORKED
        return IDLE

    def close(self) -> None:
        if self._listener is not None:
            self._listener.close()


class Theatre:
    """A scheduler and all that it said."""

    def __init__(self, scheduler: Scheduler, memory: RunMemory) -> None:
        self.scheduler = scheduler
        self.memory = memory
        self.events: list[Event] = []

    def start(self, what: str, group: str = "actors", incarnation: int = 0, seed: int = 7) -> Place:
        place = Place(group, 0, incarnation)
        self.scheduler.start(place, ActConfig(what), Resources(), seed)
        return place

    def wait(self, condition: Callable[[Event], bool]) -> Event:
        def found() -> Event | None:
            return next((event for event in self.events if condition(event)), None)

        event: Event = until(found, lambda: self.events.extend(self.scheduler.poll(0.05)))
        return event

    def said(self, place: Place, kind: type[Any]) -> Any:
        event = self.wait(lambda e: isinstance(e, WorkerMessage) and e.place == place and isinstance(e.message, kind))
        assert isinstance(event, WorkerMessage)
        return event.message

    def died(self, place: Place) -> Died:
        event = self.wait(lambda e: isinstance(e, Died) and e.place == place)
        assert isinstance(event, Died)
        return event


@pytest.fixture(params=["inline", "processes", "hosts"])
def theatre(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Theatre]:
    memory = RunMemory.create(["policy"])
    scheduler: Scheduler
    if request.param == "inline":
        scheduler = InlineScheduler(memory)
    elif request.param == "hosts":
        (tmp_path / "logs").mkdir()
        secret = secrets.token_bytes(32)
        listener = TcpTransport(secret, AGENTS, encrypt=True, codec=codec).listen("the controller", Messages)
        settings = AgentSettings("test", secrets.token_bytes(32), path=(str(Path(__file__).parent),))
        scheduler = HostsScheduler(
            settings, memory, listener, secret, ManualEngine(tmp_path / "agent.log"), 1, tmp_path / "logs"
        )
    else:
        (tmp_path / "logs").mkdir()
        here = str(Path(__file__).parent)
        scheduler = ProcessScheduler("test", memory, tmp_path / "r", tmp_path / "logs", path=[here])
    made = Theatre(scheduler, memory)
    yield made
    scheduler.close()
    scheduler.close()  # idempotent
    memory.close()
    made.__dict__.clear()


def test_it_keeps_the_protocol(theatre: Theatre) -> None:
    assert isinstance(theatre.scheduler, Scheduler)


def test_a_worker_is_ready_works_and_leaves_when_told(theatre: Theatre) -> None:
    place = theatre.start("idle")
    assert theatre.said(place, Ready) == Ready()
    meter = theatre.scheduler.meter(place)
    until(lambda: meter.get(Counter.PROGRESS) > 3, lambda: theatre.scheduler.poll(0.01))
    theatre.scheduler.send([place], Stop())
    assert theatre.died(place).clean


def test_a_worker_that_has_finished_says_so_and_leaves(theatre: Theatre) -> None:
    place = theatre.start("finish")
    assert theatre.said(place, Done).reason == "all of it"
    assert theatre.died(place).clean


@pytest.mark.parametrize(("what", "fatal"), [("raise", False), ("break", True)])
def test_a_worker_that_fails_says_why_and_dies(theatre: Theatre, what: str, fatal: bool) -> None:
    place = theatre.start(what)
    failure = theatre.said(place, Failure)
    assert failure.fatal is fatal
    assert {"raise": "by accident", "break": "for ever"}[what] in failure.text
    assert not theatre.died(place).clean


def test_what_cannot_be_built_is_fatal(theatre: Theatre) -> None:
    failure = theatre.said(theatre.start("refuse"), Failure)
    assert failure.fatal
    assert "this cannot be built" in failure.text


def test_a_killed_worker_is_reported_and_its_place_can_be_taken(theatre: Theatre) -> None:
    place = theatre.start("idle")
    theatre.said(place, Ready)
    theatre.scheduler.kill(place)
    assert not theatre.died(place).clean
    heir = theatre.start("finish", incarnation=1)
    assert theatre.died(heir).clean
    theatre.scheduler.kill(place)  # long gone: nothing happens
    theatre.scheduler.send([place], Stop())


def test_endpoints_are_registered_and_names_delivered(theatre: Theatre) -> None:
    listening = theatre.start("listen", "trainers")
    register = theatre.said(listening, Register)
    assert register.name == "here"
    asking = theatre.start("names")
    theatre.said(asking, Ready)
    theatre.scheduler.send([asking], Names({register.name: register.address}))
    assert theatre.said(asking, Notice).text == "here"


def test_parameters_and_seeds_are_shared_through_the_memory_of_the_run(theatre: Theatre) -> None:
    if isinstance(theatre.scheduler, HostsScheduler):
        pytest.skip("each host has its own memory; what trainers commit reaches the others, see test_hosts")
    place = theatre.start("publish", seed=42)
    store = theatre.memory.parameters["policy"]
    theatre.said(place, Ready)
    until(lambda: store.version == 0, lambda: theatre.scheduler.poll(0.01))
    pulled = store.pull()
    assert pulled is not None
    assert pulled[1].tolist() == [42.0] * 3


SIZES = {"env_args": {}, "steps": 1024, "actors": 1, "lanes": 4, "horizon": 16, "inference": "inline"}


def trained(root: Path, name: str, **options: Any) -> dict[str, np.ndarray]:
    """The state of the trainer in the last checkpoint."""
    run = train("CartPole-v1", root=root, name=name, **{**SIZES, **options})
    assert run.state == "finished"
    newest = checkpoints.latest(run.path / "checkpoints")
    assert newest is not None
    return dict(checkpoints.read(newest)[0])


def assert_equal_bits(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> None:
    assert set(one) == set(other)
    for key in one:
        assert one[key].tobytes() == other[key].tobytes(), key


@pytest.fixture(scope="module")
def inline_run(tmp_path_factory: pytest.TempPathFactory) -> dict[str, np.ndarray]:
    return trained(tmp_path_factory.mktemp("runs"), "inline", scheduler="inline", max_lag=0, ring=1, seed=3)


def test_two_inline_runs_with_one_seed_are_bit_equal(inline_run: dict[str, np.ndarray], tmp_path: Path) -> None:
    again = trained(tmp_path, "again", scheduler="inline", max_lag=0, ring=1, seed=3)
    assert_equal_bits(again, inline_run)
    other = trained(tmp_path, "other", scheduler="inline", max_lag=0, ring=1, seed=4)
    assert (other["policy/parameters"] != inline_run["policy/parameters"]).any()


def test_inline_runs_repeat_with_lag_a_ring_and_policy_workers_too(tmp_path: Path) -> None:
    options = {"scheduler": "inline", "max_lag": 1, "ring": 2, "actors": 2, "inference": "host", "seed": 1}
    assert_equal_bits(trained(tmp_path, "one", **options), trained(tmp_path, "two", **options))


def test_one_synchronous_actor_in_a_process_of_its_own_gives_the_same_bits(
    inline_run: dict[str, np.ndarray], tmp_path: Path
) -> None:
    asynchronous = trained(tmp_path, "processes", scheduler="processes", max_lag=0, ring=1, seed=3)
    assert_equal_bits(asynchronous, inline_run)


@pytest.mark.parametrize(
    "algorithm", ["impala", pytest.param("ppg", marks=pytest.mark.slow), pytest.param("a2c", marks=pytest.mark.slow)]
)
def test_so_do_other_algorithms_with_their_normalizers(algorithm: str, tmp_path: Path) -> None:
    normalized = {"normalize_observation": True, "normalize_return": "popart"}
    options = {"algo": algorithm, algorithm: normalized, "max_lag": 0, "ring": 1, "seed": 3}
    runs = [trained(tmp_path, kind, scheduler=kind, **options) for kind in ("inline", "processes")]
    assert_equal_bits(*runs)
    assert {"policy/observation_moments", "policy/return_moments"} <= set(runs[0])
