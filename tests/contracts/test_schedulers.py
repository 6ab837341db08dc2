"""The contract of schedulers: workers behave the same wherever they run."""

from __future__ import annotations

import itertools
import random
import secrets
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.fake_agents import new_identity
from support.waiting import until

from srl.api.control import Done, Failure, Names, Notice, Ready, Register, Stop, ToWorker
from srl.api.experiment import Resources
from srl.api.scheduler import Died, Event, HostEvent, Scheduler, TakeoverRecord, Usage, WorkerMessage
from srl.api.transport import Message
from srl.api.worker import FINISHED, IDLE, WORKED, Context, PollResult, RunBroken, WorkerConfig, WorkerId
from srl.base.meter import Counter, Meter
from srl.base.process import interrupt
from srl.base.state import NotResumable
from srl.experiments.session.launch import train
from srl.schedulers.engines.manual import ManualEngine
from srl.schedulers.hosts.agent_connections import listen_for_agents
from srl.schedulers.hosts.messages import AgentSettings
from srl.schedulers.hosts.scheduler import HostsScheduler
from srl.schedulers.inline import InlineScheduler
from srl.schedulers.local.run_memory import RunMemory
from srl.schedulers.local.scheduler import ProcessScheduler
from srl.schedulers.local.worker_logs import LogFiles
from srl.storage import checkpoints

PATH = (str(Path(__file__).parent), str(Path(__file__).parents[1]))
"""Where worker processes find this module and `support`."""


class Ping(Message, frozen=True):
    number: int


@dataclass(frozen=True)
class ScriptedConfig(WorkerConfig):
    """A worker whose behavior is named by `what`."""

    what: str

    def build(self, context: Context) -> Scripted:
        return Scripted(self.what, context)


class Scripted:
    def __init__(self, what: str, context: Context) -> None:
        self._what = what
        self._context = context
        self._listener = context.listen("here", Ping) if what == "listen" else None
        if what == "refuse":
            raise ValueError("this cannot be built")

    def poll(self) -> PollResult:
        self._context.meter.add(Counter.PROGRESS)
        match self._what:
            case "finish":
                self._context.report(Done("everything"))
                return FINISHED
            case "raise":
                raise RuntimeError("an accident")
            case "break":
                raise RunBroken("forever")
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


class Harness:
    """A scheduler and its events so far."""

    def __init__(self, scheduler: Scheduler, memory: RunMemory) -> None:
        self.scheduler = scheduler
        self.memory = memory
        self.events: list[Event] = []

    def start(self, what: str, group: str = "actors", incarnation: int = 0, seed: int = 7) -> WorkerId:
        worker_id = WorkerId(group, 0, incarnation)
        self.scheduler.start(worker_id, ScriptedConfig(what), Resources(), seed)
        return worker_id

    def wait(self, condition: Callable[[Event], bool]) -> Event:
        def found() -> Event | None:
            return next((event for event in self.events if condition(event)), None)

        event: Event = until(found, lambda: self.events.extend(self.scheduler.poll(0.05)))
        return event

    def message(self, worker_id: WorkerId, kind: type[Any]) -> Any:
        event = self.wait(
            lambda e: isinstance(e, WorkerMessage) and e.worker_id == worker_id and isinstance(e.message, kind)
        )
        assert isinstance(event, WorkerMessage)
        return event.message

    def died(self, worker_id: WorkerId) -> Died:
        event = self.wait(lambda e: isinstance(e, Died) and e.worker_id == worker_id)
        assert isinstance(event, Died)
        return event


@pytest.fixture(params=["inline", "processes", "hosts"])
def harness(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Harness]:
    memory = RunMemory.create(["policy"])
    scheduler: Scheduler
    if request.param == "inline":
        scheduler = InlineScheduler(memory)
    elif request.param == "hosts":
        (tmp_path / "logs").mkdir()
        listener, join_file = listen_for_agents("test", new_identity(), tmp_path / "join")
        settings = AgentSettings("test", secrets.token_bytes(32), path=PATH)
        engine = ManualEngine(tmp_path / "agent.log", join_file.path)
        scheduler = HostsScheduler(settings, memory, listener, join_file, engine, 1, LogFiles(tmp_path / "logs"))
    else:
        (tmp_path / "logs").mkdir()
        scheduler = ProcessScheduler("test", memory, tmp_path / "r", LogFiles(tmp_path / "logs"), path=PATH)
    made = Harness(scheduler, memory)
    yield made
    scheduler.close()
    scheduler.close()  # idempotent
    memory.close()
    made.__dict__.clear()


SLOW_ON_HOSTS = pytest.mark.parametrize(
    "harness", ["inline", "processes", pytest.param("hosts", marks=pytest.mark.slow)], indirect=True
)
"""For what other tests show on hosts, too: each starts an agent and a zygote."""


class MinimalScheduler(Scheduler):
    """Implements only the abstract methods."""

    def start(self, worker_id: WorkerId, config: WorkerConfig, resources: Resources, seed: int) -> None: ...

    def send(self, worker_ids: Sequence[WorkerId], message: ToWorker) -> None: ...

    def kill(self, worker_id: WorkerId) -> None: ...

    def poll(self, timeout: float) -> list[Event]:
        return []

    def meter(self, worker_id: WorkerId) -> Meter:
        return Meter.unshared()

    def close(self) -> None: ...


def test_a_minimal_scheduler_has_defaults_for_everything_else() -> None:
    scheduler, worker_id, record = MinimalScheduler(), WorkerId("actors", 0, 0), TakeoverRecord("127.0.0.1:1", [])
    scheduler.check_room([("actors/0", Resources(cpu=1000))])
    assert (scheduler.pid(worker_id), scheduler.usage(worker_id), scheduler.dump(worker_id)) == (0, Usage(), "")
    assert not scheduler.inline
    assert scheduler.parameters() == {}
    with pytest.raises(ValueError, match="inside the scheduler's process"):
        scheduler.signal(worker_id, 9)
    for attempt in (scheduler.state, lambda: scheduler.restore({})):
        with pytest.raises(NotResumable, match="MinimalScheduler does not"):
            attempt()
    assert scheduler.takeover_record() is None
    scheduler.takeover_recorded(record)
    with pytest.raises(ConnectionError, match="end together with"):
        scheduler.find_orphans([], 0.0)
    with pytest.raises(ValueError, match="cannot adopt actors/0"):
        scheduler.adopt(worker_id, ScriptedConfig("idle"), Resources(), 0)
    scheduler.finish_takeover(0.0)


@SLOW_ON_HOSTS
def test_only_inline_workers_are_saved_with_everything_in_progress(harness: Harness) -> None:
    worker_id = harness.start("idle")
    harness.message(worker_id, Ready)
    if harness.scheduler.inline:
        assert harness.scheduler.state() == {}  # an idle worker has none
    else:
        with pytest.raises(NotResumable):
            harness.scheduler.state()
    assert harness.scheduler.takeover_record() is None  # workers end with this scheduler


def test_a_worker_is_ready_works_and_ends_when_it_is_stopped(harness: Harness) -> None:
    worker_id = harness.start("idle")
    assert harness.message(worker_id, Ready) == Ready()
    meter = harness.scheduler.meter(worker_id)
    until(lambda: meter.get(Counter.PROGRESS) > 3, lambda: harness.scheduler.poll(0.01))
    harness.scheduler.send([worker_id], Stop())
    assert harness.died(worker_id).clean


@SLOW_ON_HOSTS
def test_a_worker_that_has_finished_reports_it_and_ends(harness: Harness) -> None:
    worker_id = harness.start("finish")
    assert harness.message(worker_id, Done).reason == "everything"
    assert harness.died(worker_id).clean


@SLOW_ON_HOSTS
@pytest.mark.parametrize(("what", "fatal"), [("raise", False), ("break", True)])
def test_a_worker_that_fails_reports_the_reason_and_dies(harness: Harness, what: str, fatal: bool) -> None:
    worker_id = harness.start(what)
    failure = harness.message(worker_id, Failure)
    assert failure.fatal is fatal
    assert {"raise": "an accident", "break": "forever"}[what] in failure.text
    assert not harness.died(worker_id).clean


def test_a_worker_that_cannot_be_built_is_a_fatal_failure(harness: Harness) -> None:
    failure = harness.message(harness.start("refuse"), Failure)
    assert failure.fatal
    assert "this cannot be built" in failure.text


def test_a_killed_worker_is_reported_and_can_be_replaced(harness: Harness) -> None:
    worker_id = harness.start("idle")
    harness.message(worker_id, Ready)
    harness.scheduler.kill(worker_id)
    assert not harness.died(worker_id).clean
    replacement = harness.start("finish", incarnation=1)
    assert harness.died(replacement).clean
    harness.scheduler.kill(worker_id)  # it is gone already: nothing happens
    harness.scheduler.send([worker_id], Stop())


@pytest.mark.parametrize("harness", ["processes"], indirect=True)
def test_workers_that_die_with_a_killed_zygote_are_not_blamed(harness: Harness) -> None:
    """Otherwise the kills of a few zygotes within a minute would end the run."""
    worker_id = harness.start("idle")
    harness.message(worker_id, Ready)
    assert isinstance(harness.scheduler, ProcessScheduler)
    harness.scheduler._handle.process.kill()
    died = harness.died(worker_id)
    assert died.blameless
    assert not died.clean
    event = harness.wait(lambda e: isinstance(e, HostEvent))
    assert isinstance(event, HostEvent)
    assert "zygote" in event.text
    assert "SIGKILL" in event.text
    assert harness.died(harness.start("finish", incarnation=1)).clean


@pytest.mark.parametrize("harness", ["processes"], indirect=True)
def test_interrupts_at_any_moment_leave_a_scheduler_that_can_be_polled_and_closed(harness: Harness) -> None:
    scheduler, rng, num_interrupts = harness.scheduler, random.Random(3), 0

    def interrupted(call: Callable[[], object]) -> None:
        nonlocal num_interrupts
        try:
            signal.setitimer(signal.ITIMER_REAL, rng.uniform(0.0001, 0.004))
            call()
            signal.setitimer(signal.ITIMER_REAL, 0.0)
        except KeyboardInterrupt:
            num_interrupts += 1

    def poll() -> None:
        interrupted(lambda: scheduler.poll(0.001))

    def is_gone(worker_id: WorkerId) -> bool:
        return not scheduler.pid(worker_id)

    harness.message(harness.start("idle", "trainers"), Ready)
    before = signal.signal(signal.SIGALRM, lambda *_: interrupt())
    try:
        for incarnation in itertools.count():  # a fast machine finishes more calls before their interrupt
            if incarnation >= 20 and num_interrupts > 20:
                break
            worker_id = WorkerId("actors", 0, incarnation)
            interrupted(partial(harness.start, "idle", incarnation=incarnation))
            until(partial(scheduler.pid, worker_id), poll)
            scheduler.kill(worker_id)
            until(partial(is_gone, worker_id), poll)
        interrupted(scheduler.close)
        scheduler.close()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def test_endpoints_are_registered_and_names_delivered(harness: Harness) -> None:
    listening = harness.start("listen", "trainers")
    register = harness.message(listening, Register)
    assert register.name == "here"
    asking = harness.start("names")
    harness.message(asking, Ready)
    harness.scheduler.send([asking], Names({register.name: register.address}))
    assert harness.message(asking, Notice).text == "here"


@SLOW_ON_HOSTS
def test_parameters_and_seeds_are_shared_through_the_memory_of_the_run(harness: Harness) -> None:
    if isinstance(harness.scheduler, HostsScheduler):
        pytest.skip("each host has its own memory; tests/system/test_hosts.py covers how versions reach the others")
    worker_id = harness.start("publish", seed=42)
    store = harness.memory.parameters["policy"]
    harness.message(worker_id, Ready)
    until(lambda: store.version == 0, lambda: harness.scheduler.poll(0.01))
    pulled = store.pull()
    assert pulled is not None
    assert pulled[1].tolist() == [42.0] * 3


SIZES = {"env_args": {}, "steps": 512, "actors": 1, "lanes": 4, "horizon": 16, "inference": "inline"}


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


def test_one_synchronous_actor_in_its_own_process_gives_the_same_bits(
    inline_run: dict[str, np.ndarray], tmp_path: Path
) -> None:
    in_processes = trained(tmp_path, "processes", scheduler="processes", max_lag=0, ring=1, seed=3)
    assert_equal_bits(in_processes, inline_run)


@pytest.mark.parametrize(
    "algorithm", ["impala", pytest.param("ppg", marks=pytest.mark.slow), pytest.param("a2c", marks=pytest.mark.slow)]
)
def test_other_algorithms_with_normalizers_give_the_same_bits_in_processes(algorithm: str, tmp_path: Path) -> None:
    normalized = {"normalize_observation": True, "normalize_return": "popart"}
    options = {"algo": algorithm, algorithm: normalized, "max_lag": 0, "ring": 1, "seed": 3}
    runs = [trained(tmp_path, kind, scheduler=kind, **options) for kind in ("inline", "processes")]
    assert_equal_bits(*runs)
    assert {"policy/observation_moments", "policy/return_moments"} <= set(runs[0])
