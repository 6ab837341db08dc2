"""The agent of the controller's own host: it is started again when it dies, and may outlive its controller."""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest
from support.fake_agents import FakeEngine, new_identity
from support.idle_worker import IdleConfig, VersionReporterConfig
from support.waiting import until

from srl.api.control import Notice, Ready
from srl.api.experiment import Resources
from srl.api.scheduler import Died, Event, HostEvent, WorkerMessage
from srl.api.worker import WorkerId
from srl.schedulers.engines import manual
from srl.schedulers.engines.manual import MODULE, ManualEngine, OrphanAgent, find_agent, record_agent
from srl.schedulers.hosts.agent_connections import listen_for_agents
from srl.schedulers.hosts.engine import MAX_RETRY_SECONDS, Retries
from srl.schedulers.hosts.messages import AgentSettings
from srl.schedulers.hosts.scheduler import HostsScheduler
from srl.schedulers.local.run_memory import RunMemory
from srl.schedulers.local.worker_logs import LogFiles

NO_CONTROLLER = "127.0.0.1:1"


def agents() -> list[psutil.Process]:
    return [child for child in psutil.Process().children() if MODULE in child.cmdline()]


def test_a_killed_agent_is_started_again_and_gets_workers(tmp_path: Path) -> None:
    memory = RunMemory.create(["policy"])
    listener, join_file = listen_for_agents("test", new_identity(), tmp_path / "join")
    settings = AgentSettings("test", secrets.token_bytes(32), path=(str(Path(__file__).parents[1]),))
    engine = ManualEngine(tmp_path / "agent.log", join_file.path)
    scheduler = HostsScheduler(
        settings, memory, listener, join_file, engine, 1, LogFiles(tmp_path), retention=lambda store: None
    )
    events: list[Event] = []

    def wait(wanted: Event) -> None:
        until(lambda: wanted in events, lambda: events.extend(scheduler.poll(0.05)))

    try:
        first, second = WorkerId("actors", 0, 0), WorkerId("actors", 0, 1)
        scheduler.start(first, IdleConfig(), Resources(), 7)
        wait(WorkerMessage(first, Ready()))
        (agent,) = agents()
        host = scheduler.hosts()[0]
        agent.kill()
        wait(Died(first, f"its host {host} is lost", blameless=True))
        store = scheduler.parameters()["policy"]
        store.push(3, np.zeros(2, np.float32), ("past-0",))
        store.push(5, np.ones(2, np.float32))
        scheduler.start(second, VersionReporterConfig(), Resources(), 8)
        wait(WorkerMessage(second, Notice("{'past-0': 3, 'latest': 5}")))  # the new host got the archived versions
        wait(WorkerMessage(second, Ready()))
        del store
        assert not any(isinstance(event, HostEvent) and event.fatal for event in events)
        assert any(isinstance(event, HostEvent) and "ended (killed by SIGKILL)" in event.text for event in events)
    finally:
        scheduler.close()
        memory.close()
    assert not agents()


def test_a_run_that_waits_for_its_hosts_fails_only_if_an_agent_keeps_failing(tmp_path: Path) -> None:
    settings, memory, engine = AgentSettings("test", bytes(32)), RunMemory.create(["policy"]), FakeEngine()
    listener, join_file = listen_for_agents("test", new_identity(), tmp_path / "join")
    scheduler = HostsScheduler(settings, memory, listener, join_file, engine, 1, LogFiles(tmp_path))
    engine.problem = "the agent on node7 ended with code 1"
    assert scheduler.poll(0.0) == [HostEvent(engine.problem)]
    engine.failed = True
    assert scheduler.poll(0.0) == [HostEvent(engine.problem, fatal=True)]
    scheduler.close()
    memory.close()


def test_retries_are_hopeless_after_two_failures_in_a_row_or_a_refusal() -> None:
    retries = Retries(2.0)
    retries.started(0.0)
    retries.ended(1.0)
    assert not retries.hopeless
    retries.ended(2.0, refused=True)
    assert retries.hopeless
    retries.started(3.0)
    retries.ended(4.0 + MAX_RETRY_SECONDS)  # it had run for long
    assert not retries.hopeless
    retries.started(40.0)
    retries.ended(41.0)
    assert retries.hopeless


def test_retries_come_ever_later_and_only_two_failures_in_a_row_are_reported() -> None:
    retries, now, delays = Retries(2.0), 0.0, []
    for _ in range(6):
        retries.started(now)
        reported = retries.ended(now)
        delays.append((next(seconds for seconds in range(100) if retries.due(now + seconds)), reported))
        now += delays[-1][0]
    assert delays == [(2, True), (4, True), (8, False), (16, False), (30, False), (30, False)]
    retries.started(now)
    assert retries.ended(now + MAX_RETRY_SECONDS + 1.0)  # it had run for long
    assert retries.due(now + MAX_RETRY_SECONDS + 3.0)


@pytest.fixture
def orphan() -> Iterator[subprocess.Popen[bytes]]:
    """A process that does not end by itself."""
    process = subprocess.Popen([sys.executable, "-I", "-S", "-c", "input()"], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.communicate()


@pytest.fixture
def record(orphan: subprocess.Popen[bytes], tmp_path: Path) -> Path:
    path = tmp_path / "agent.json"
    record_agent(orphan.pid, path)
    return path


def next_engine(record: Path) -> ManualEngine:
    """The engine of a controller that takes over the run."""
    engine = ManualEngine(record.with_name("agent.log"), record.with_name("join"), record=record, takeover=True)
    engine.start(lambda: new_identity().ticket("run", NO_CONTROLLER))
    return engine


def test_an_orphan_agent_is_watched_and_replaced_when_it_ends(orphan: subprocess.Popen[bytes], record: Path) -> None:
    before, engine = record.read_bytes(), next_engine(record)
    assert engine.poll() is None
    orphan.kill()
    problem = until(engine.poll)
    assert "the agent of this host ended (exit code unknown)" in problem
    until(lambda: record.read_bytes() != before, engine.poll)
    engine.close()


def test_an_orphan_agent_that_hangs_is_killed(
    orphan: subprocess.Popen[bytes], record: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manual, "CLOSE_SECONDS", 0.01)
    engine = next_engine(record)
    engine.close()
    assert orphan.poll() is None, "the run was not taken over yet"
    engine.poll()
    engine.close()
    assert orphan.wait() == -9


def test_a_process_that_reuses_the_id_of_an_agent_is_not_taken_for_it(record: Path) -> None:
    found = find_agent(record)
    assert isinstance(found, OrphanAgent)
    found.close()
    known = json.loads(record.read_bytes())
    for other in ({"start_ticks": known["start_ticks"] + 1}, {"boot": "another"}):
        record.write_text(json.dumps({**known, **other}))
        assert find_agent(record) is None


def test_no_agent_is_started_if_the_previous_one_may_still_run(record: Path) -> None:
    record.write_bytes(b"half a rec")
    with pytest.raises(OSError, match="is not the record of an agent"):
        find_agent(record)
    engine = next_engine(record)
    assert engine.poll() is None
    assert engine.poll() is None
    engine.close()
    assert record.read_bytes() == b"half a rec"
