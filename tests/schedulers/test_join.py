"""A host joins a run whose controller does not answer, or loses it."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import ExitStack

import pytest
from support.waiting import PATIENCE

from srl.schedulers.agent.join import HostResources, NoController, join
from srl.schedulers.engines.ray import RayAgent
from srl.schedulers.hosts.agent_connections import AgentConnections
from srl.schedulers.hosts.messages import AGENTS, AgentSettings, Messages, codec
from srl.transports.tcp import TcpTransport


def test_a_network_that_drops_everything_is_not_taken_for_a_refusal() -> None:
    """An agent retries if it cannot reach the controller, but not if the controller refuses it."""
    with ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(4):  # a full backlog: the kernel silently drops every further connection
            client = stack.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(server.getsockname())
        with pytest.raises(NoController, match="no controller at"):
            join(f"127.0.0.1:{server.getsockname()[1]}", bytes(32), HostResources(), connect_seconds=0.2)


def test_an_agent_on_ray_that_lost_the_controller_joins_again_and_ends_with_the_run() -> None:
    """Agents on Slurm and those of `srl agent` use the same function."""
    listener = TcpTransport(bytes(32), AGENTS, encrypt=True, codec=codec).listen("the controller", Messages)
    address = listener.address.removeprefix("tcp:")
    agents = AgentConnections(AgentSettings("run", bytes(32)), ["policy"], listener)
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
    assert RayAgent().serve(address, bytes(32), 2.0, 0.0, "fast") == 0
    thread.join()
    assert len(joined) == 2
