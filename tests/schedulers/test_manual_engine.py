"""The agent of the controller's own host dies, and is brought back; hosts that go, in literals."""

from __future__ import annotations

import secrets
from pathlib import Path

import numpy as np
import psutil
from support.fake_agents import Nobody
from support.idle_worker import IdleConfig, TellingConfig

from srl.api.control import Notice, Ready
from srl.api.experiment import Resources
from srl.api.scheduler import Died, Event, HostEvent, WorkerMessage
from srl.api.worker import Place
from srl.schedulers.engines.manual import ManualEngine
from srl.schedulers.engines.retries import MAX_SECONDS, Retries
from srl.schedulers.hosts.fleet import Hosting
from srl.schedulers.hosts.losses import DESERTED_SECONDS, HOLD_SECONDS, Losses
from srl.schedulers.hosts.messages import AGENTS, Messages, codec
from srl.schedulers.hosts.scheduler import HostsScheduler
from srl.schedulers.hosts.starts import MAX_AT_ONCE, START_SECONDS, Starts
from srl.schedulers.local.run_memory import RunMemory
from srl.testing.contexts import until
from srl.transports.tcp import TcpTransport


def agents() -> list[psutil.Process]:
    children = psutil.Process().children()
    return [child for child in children if "srl.schedulers.agent.join" in child.cmdline()]


def test_an_agent_that_was_killed_is_started_again_and_workers_find_their_place_there(tmp_path: Path) -> None:
    secret, memory = secrets.token_bytes(32), RunMemory.create(["policy"])
    listener = TcpTransport(secret, AGENTS, encrypt=True, codec=codec).listen("the controller", Messages)
    path = (str(Path(__file__).parents[1]),)
    hosting = Hosting("test", secrets.token_bytes(32), path=path, keep_up=lambda store: None)
    engine = ManualEngine(tmp_path / "agent.log")
    scheduler = HostsScheduler(hosting, memory, listener, secret, engine, 1, tmp_path)
    events: list[Event] = []

    def wait(wanted: Event) -> None:
        until(lambda: wanted in events, lambda: events.extend(scheduler.poll(0.05)))

    try:
        first, second = Place("actors", 0, 0), Place("actors", 0, 1)
        scheduler.start(first, IdleConfig(), Resources(), 7)
        wait(WorkerMessage(first, Ready()))
        (agent,) = agents()
        host = scheduler.hosts()[0]
        agent.kill()
        wait(Died(first, f"its host {host} is lost", blameless=True))
        store = scheduler.parameters()["policy"]
        store.push(3, np.zeros(2, np.float32), ("past-0",))
        store.push(5, np.ones(2, np.float32))
        scheduler.start(second, TellingConfig(), Resources(), 8)
        wait(WorkerMessage(second, Notice("{'past-0': 3, 'latest': 5}")))  # what the host that joined was given
        wait(WorkerMessage(second, Ready()))
        del store
        assert not any(isinstance(event, HostEvent) and event.fatal for event in events)
        assert any(isinstance(event, HostEvent) and "ended (killed by SIGKILL)" in event.text for event in events)
    finally:
        scheduler.close()
        memory.close()
    assert not agents()


def test_one_agent_that_ends_before_all_have_joined_is_no_reason_to_give_up(tmp_path: Path) -> None:
    secret, memory, engine = secrets.token_bytes(32), RunMemory.create(["policy"]), Nobody()
    listener = TcpTransport(secret, AGENTS, encrypt=True, codec=codec).listen("the controller", Messages)
    scheduler = HostsScheduler(Hosting("test", secret), memory, listener, secret, engine, 1, tmp_path)
    engine.problem = "the agent on node7 ended with code 1"
    assert scheduler.poll(0.0) == [HostEvent(engine.problem)]
    engine.vain = True
    assert scheduler.poll(0.0) == [HostEvent(engine.problem, fatal=True)]
    scheduler.close()
    memory.close()


def test_what_fails_twice_or_is_refused_is_tried_in_vain() -> None:
    retries = Retries(2.0)
    retries.begun(0.0)
    retries.ended(1.0)
    assert not retries.in_vain
    retries.ended(2.0, refused=True)
    assert retries.in_vain
    retries.begun(3.0)
    retries.ended(4.0 + MAX_SECONDS)  # it had lasted
    assert not retries.in_vain
    retries.begun(40.0)
    retries.ended(41.0)
    assert retries.in_vain


def test_what_fails_again_and_again_is_tried_ever_later_and_told_twice() -> None:
    retries, now, waits = Retries(2.0), 0.0, []
    for _ in range(6):
        retries.begun(now)
        told = retries.ended(now)
        waits.append((next(seconds for seconds in range(100) if retries.due(now + seconds)), told))
        now += waits[-1][0]
    assert waits == [(2, True), (4, True), (8, False), (16, False), (30, False), (30, False)]
    retries.begun(now)
    assert retries.ended(now + MAX_SECONDS + 1.0)  # it had lasted
    assert retries.due(now + MAX_SECONDS + 3.0)


def test_the_work_of_many_lost_hosts_is_not_piled_onto_the_others_at_once() -> None:
    losses = Losses()
    losses.lost(0.0)
    assert not losses.hold(0.0, num_hosts=1)  # one of two: the other takes over
    losses.lost(1.0)
    assert losses.hold(1.0, num_hosts=5)  # two of seven
    assert not losses.hold(1.0 + HOLD_SECONDS, num_hosts=5)
    assert not losses.hold(1.0, num_hosts=8)  # two of ten
    losses.lost(62.0)  # the others are forgotten
    assert not losses.hold(62.0, num_hosts=4)


def test_a_host_begins_a_few_workers_anew_at_a_time() -> None:
    starts = Starts()
    assert all(starts.begin("a", ("actors", index), 0.0) for index in range(MAX_AT_ONCE))
    assert not starts.begin("a", ("actors", 9), 1.0)
    assert starts.begin("b", ("actors", 9), 1.0)
    starts.over("a", ("actors", 2))
    assert starts.begin("a", ("actors", 10), 2.0)
    assert not starts.begin("a", ("actors", 11), 2.0)
    assert starts.begin("a", ("actors", 11), START_SECONDS)  # the first hang


def test_a_run_without_hosts_waits_for_a_while_and_gives_up() -> None:
    losses = Losses()
    assert not losses.deserted(0.0, num_hosts=1)
    assert not losses.deserted(1.0, num_hosts=0)
    assert not losses.deserted(1.0 + DESERTED_SECONDS, num_hosts=0)
    assert losses.deserted(1.1 + DESERTED_SECONDS, num_hosts=0)
    assert not losses.deserted(70.0, num_hosts=1)
    assert not losses.deserted(100.0, num_hosts=0)
