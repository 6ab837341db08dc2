"""A host joins a run whose controller does not answer, or loses it."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.fake_agents import new_identity
from support.waiting import PATIENCE, until

from srl.schedulers.agent.join import HostResources, NoController, join
from srl.schedulers.engines.ray import RayAgent
from srl.schedulers.hosts.agent_connections import (
    AgentConnections,
    AgentMessage,
    ConnectionEvent,
    HostJoined,
    listen_for_agents,
)
from srl.schedulers.hosts.messages import AgentHeartbeat, AgentSettings
from srl.schedulers.local.scheduler import ProcessScheduler


def test_a_network_that_drops_everything_is_not_taken_for_a_refusal() -> None:
    """An agent retries if it cannot reach the controller, but not if the controller refuses it."""
    with ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(4):  # a full backlog: the kernel silently drops every further connection
            client = stack.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(server.getsockname())
        ticket = new_identity().ticket("run", f"127.0.0.1:{server.getsockname()[1]}")
        with pytest.raises(NoController, match="no controller at"):
            join(ticket, HostResources(), connect_seconds=0.2)


def test_an_agent_on_ray_that_lost_the_controller_joins_again_and_ends_with_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Agents on Slurm and those of `srl agent` use the same function."""
    monkeypatch.setattr(ProcessScheduler, "ready", True)  # no worker is started, so nothing waits for torch
    listener, join_file = listen_for_agents("run", new_identity(), tmp_path / "join")
    settings = AgentSettings("run", bytes(32), proof=join_file.proof_of_hosts)
    agents = AgentConnections(settings, ["policy"], listener)
    joined: list[str] = []

    def controller() -> None:
        deadline = time.monotonic() + PATIENCE
        while len(joined) < 2 and time.monotonic() < deadline:
            agents.poll(0.05)
            for host in list(agents.hosts.values()):
                if host.relay and host.relay not in joined:
                    joined.append(host.relay)
                    if len(joined) == 1:
                        host.channel.close()  # as after a reset of the network
                        del agents.hosts[host.name]
        agents.close()

    thread = threading.Thread(target=controller)
    thread.start()
    assert RayAgent().serve(join_file.ticket(), 2.0, 0.0, "fast") == 0
    thread.join()
    assert len(joined) == 2


def test_a_host_offers_itself_once_it_can_start_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A trainer that has lost its host must not wait on another one that is still importing torch."""
    ready = threading.Event()
    monkeypatch.setattr(ProcessScheduler, "ready", property(lambda self: ready.is_set()))
    listener, join_file = listen_for_agents("run", new_identity(), tmp_path / "join")
    agents = AgentConnections(AgentSettings("run", bytes(32)), ["policy"], listener)
    agent = threading.Thread(target=RayAgent().serve, args=(join_file.ticket(), 2.0, 0.0, "fast"))
    agent.start()

    def next_event() -> ConnectionEvent:
        events: list[ConnectionEvent] = []
        until(lambda: events, lambda: events.extend(agents.poll(0.05)))
        return events[0]

    first = next_event()
    assert isinstance(first, AgentMessage)
    assert isinstance(first.message, AgentHeartbeat)
    assert not agents.capacities()
    ready.set()
    while not isinstance(next_event(), HostJoined):
        pass
    assert agents.capacities()
    agents.close()
    agent.join()
