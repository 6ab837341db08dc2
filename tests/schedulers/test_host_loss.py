"""Recovery from lost hosts: decisions with given times, and a real scheduler with fake agents."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from support.fake_agents import SECRET, FakeHosts, join_message
from support.idle_worker import IdleConfig
from support.waiting import until

from srl.api.experiment import Resources
from srl.api.scheduler import Died, HostEvent
from srl.api.worker import WorkerId
from srl.schedulers.hosts import host_loss
from srl.schedulers.hosts.host_loss import (
    HOLD_SECONDS,
    MAX_STARTS,
    NO_HOST_SECONDS,
    START_SECONDS,
    WAIT_SECONDS,
    HostLosses,
    StartLimiter,
    WaitReports,
)
from srl.schedulers.hosts.messages import AgentSettings, HostNotice, StartWorker

WAITS = HostEvent("trainers/0 waits: no remaining host has 1 GPU")


def test_workers_of_many_lost_hosts_do_not_move_to_the_others_at_once() -> None:
    losses = HostLosses()
    losses.add(0.0)
    assert not losses.hold(0.0, num_hosts=1)  # one of two: the other takes over
    losses.add(1.0)
    assert losses.hold(1.0, num_hosts=5)  # two of seven
    assert not losses.hold(1.0 + HOLD_SECONDS, num_hosts=5)
    assert not losses.hold(1.0, num_hosts=8)  # two of ten
    losses.add(62.0)  # the others are too long ago
    assert not losses.hold(62.0, num_hosts=4)


def test_a_notice_of_a_host_is_shown_with_its_name(tmp_path: Path) -> None:
    hosts = FakeHosts(tmp_path, AgentSettings("run", SECRET))
    hosts.join(join_message("a")).send(HostNotice("the zygote does not answer; it is replaced"))
    until(lambda: HostEvent("host a: the zygote does not answer; it is replaced") in hosts.events, hosts.poll)
    hosts.close()


def test_a_run_without_hosts_waits_for_a_minute_and_fails() -> None:
    losses = HostLosses()
    assert not losses.no_host_left(0.0, num_hosts=1)
    assert not losses.no_host_left(1.0, num_hosts=0)
    assert not losses.no_host_left(1.0 + NO_HOST_SECONDS, num_hosts=0)
    assert losses.no_host_left(1.1 + NO_HOST_SECONDS, num_hosts=0)
    assert not losses.no_host_left(70.0, num_hosts=1)
    assert not losses.no_host_left(100.0, num_hosts=0)


def test_a_host_starts_only_a_few_replacements_at_a_time() -> None:
    starts = StartLimiter()
    assert all(starts.start("a", ("actors", index), 0.0) for index in range(MAX_STARTS))
    assert not starts.start("a", ("actors", 9), 1.0)
    assert starts.start("b", ("actors", 9), 1.0)
    starts.end("a", ("actors", 2))
    assert starts.start("a", ("actors", 10), 2.0)
    assert not starts.start("a", ("actors", 11), 2.0)
    assert starts.start("a", ("actors", 11), START_SECONDS)  # the first ones hang


def test_the_reason_why_a_worker_waits_is_reported_once_and_after_a_while() -> None:
    waits, trainer, actors = WaitReports(), ("trainers", 0), [("actors", 0), ("actors", 1)]
    assert waits.due([trainer], 0.0) == []
    assert waits.due([trainer, *actors], WAIT_SECONDS) == []
    assert waits.due([trainer, *actors], WAIT_SECONDS + 1.0) == [trainer]
    assert waits.due([trainer, *actors], 2 * WAIT_SECONDS + 1.0) == [trainer, *actors]
    lines = waits.report({trainer: "no GPU", **dict.fromkeys(actors, "no room")})
    assert lines == ["trainers/0 waits: no GPU", "actors/0 and 1 more wait: no room"]
    assert waits.due([trainer, *actors], 99.0) == []
    assert waits.due([], 100.0) == []  # all have found a host
    assert waits.due([trainer], 101.0) == []
    assert waits.due([trainer], 200.0) == [trainer]


def test_a_worker_that_waits_for_the_gpu_of_a_lost_host_is_reported_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_loss, "WAIT_SECONDS", 0.0)
    run = FakeHosts(tmp_path, AgentSettings("run", SECRET))
    first, second = WorkerId("trainers", 0, 0), WorkerId("trainers", 0, 1)
    run.scheduler.start(first, IdleConfig(), Resources(gpu=1), 0)
    fast = run.join(join_message("fast", gpus=1.0))
    assert run.receive(fast, StartWorker).worker_id == first
    run.join(join_message("slow"))
    until(lambda: run.scheduler.hosts() == ["fast", "slow"], run.poll)
    fast.close()
    until(lambda: Died(first, "its host fast is lost", blameless=True) in run.events, run.poll)
    run.scheduler.start(second, IdleConfig(), Resources(gpu=1), 0)
    until(lambda: WAITS in run.events, run.poll)
    other = run.join(join_message("other", gpus=2.0))
    assert run.receive(other, StartWorker).worker_id == second
    assert run.events.count(WAITS) == 1
    run.close()


def test_refused_connections_are_counted_and_reported_when_there_are_ten_times_as_many(tmp_path: Path) -> None:
    run = FakeHosts(tmp_path, AgentSettings("run", SECRET))
    host, port = run.scheduler.address.split(":")
    for count in range(1, 13):
        with socket.create_connection((host, int(port))) as stranger:
            stranger.sendall(b"GET / HTTP/1.1\r\n")
            while run.scheduler.refused() != {"protocol": count}:
                run.poll()
    run.poll()
    texts = [event.text for event in run.events if isinstance(event, HostEvent)]
    assert texts == [
        f"refused 1 connection (1 protocol) at {run.scheduler.address}",
        f"refused 10 connections (10 protocol) at {run.scheduler.address}",
    ]
    run.close()
