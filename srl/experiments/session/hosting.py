"""From options to a scheduler over hosts: where it listens, who may join, who starts the agents."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from srl.api.experiment import WorkerGroup
from srl.api.scheduler import Engine
from srl.api.transport import Listener
from srl.controller.control_socket import remote_listener
from srl.controller.takeover import ControllerState
from srl.experiments.graph.standard import pool_of
from srl.experiments.options.train_options import TrainOptions
from srl.populations.pool import Pool
from srl.schedulers.agent.secret import DEFAULT, find_or_make_secret
from srl.schedulers.engines.components import components
from srl.schedulers.engines.manual import ManualEngine
from srl.schedulers.engines.ray import RayEngine
from srl.schedulers.hosts.fleet import AgentSettings
from srl.schedulers.hosts.messages import AGENTS, Messages, codec
from srl.schedulers.hosts.replicas import Retention
from srl.schedulers.hosts.scheduler import HostsScheduler
from srl.schedulers.local.run_memory import RunMemory
from srl.transports.tcp import TcpTransport

LOOPBACK = "127.0.0.1"
UNGUARDED = (
    "the trainers' own connections (gloo, NCCL) are neither authenticated nor encrypted, with --encrypt or without: "
    "let nobody else into the network between their hosts"
)


@dataclass(frozen=True)
class ClusterSite:
    """Where a run over hosts stands."""

    engine: Engine
    join_secret: bytes = field(repr=False)
    host: str = "127.0.0.1"
    """The address of this machine at which agents join."""
    port: int = 0
    door: Path | None = None
    """Where commands on other machines find the address of this run."""
    superseded: Callable[[], bool] = lambda: False
    """Has somebody else taken this run over? Then we must not touch its directory any more."""
    headless: float = 0.0
    """Seconds that its hosts go on without a controller."""
    attach: Mapping[str, int] | None = None
    """Given where the hosts are there already, without a controller: the `takeover` of `Fleet`."""


def ground_of(
    options: TrainOptions, groups: Sequence[WorkerGroup], logs: Path, attach: ControllerState | None = None
) -> ClusterSite | None:
    """None: the run stays on this machine. `attach` is what a controller left whose place we take."""
    cluster = options.cluster
    if options.workers.scheduler == "ray":
        host, port = parse_address(cluster.bind)
        engine = RayEngine(cluster.address, components(groups, cluster.hosts))
        host = engine.own_host if host == LOOPBACK else host
        return ClusterSite(engine, secrets.token_bytes(32), host, port)
    if options.workers.scheduler != "hosts":
        return None
    host, port = parse_address(attach.cluster.address if attach else cluster.bind)
    secret = find_or_make_secret(cluster.secret_file or DEFAULT)
    record = logs.with_name("agent.json") if cluster.headless > 0 else None
    manual = ManualEngine(logs / "agent.log", None, cluster.secret_file, record, attach is not None)
    reports = attach.cluster.reports if attach else None
    return ClusterSite(manual, secret, host, port, headless=cluster.headless, attach=reports)


def hosts_scheduler(
    ground: ClusterSite, run: str, options: TrainOptions, memory: RunMemory, logs: Path, preload: tuple[str, ...]
) -> HostsScheduler:
    path, cluster = tuple(entry for entry in sys.path if entry), options.cluster
    settings = AgentSettings(run, secrets.token_bytes(32), preload, path, cluster.encrypt, ground.headless)
    transport = TcpTransport(ground.join_secret, AGENTS, ground.host, ground.port, encrypt=True, codec=codec)
    try:
        listener = transport.listen("the controller", Messages)
    except BaseException:
        ground.engine.close()  # it is connected to its cluster already
        raise
    return HostsScheduler(
        settings,
        memory,
        listener,
        ground.join_secret,
        ground.engine,
        cluster.hosts,
        logs,
        cluster.hosts_timeout,
        _retention(options),
        ground.attach,
    )


def _retention(options: TrainOptions) -> Retention | None:
    """How a store keeps opponents, so that a host that joins late gets those that the others have."""
    pool = pool_of(options)
    return None if pool is None else lambda store: Pool(pool, store).refresh()


def warning(options: TrainOptions, ground: ClusterSite | None) -> str:
    """For those who took measures against others in their network; empty if there is nothing to fear."""
    careful = ground is not None and (options.cluster.encrypt or not ground.host.startswith("127."))
    return UNGUARDED if careful and options.workers.trainers > 1 else ""


def open_door(ground: ClusterSite | None) -> Listener | None:
    if ground is None or ground.door is None:
        return None
    return remote_listener(ground.door, ground.join_secret, ground.host)


def parse_address(text: str) -> tuple[str, int]:
    """`10.0.0.1:7700`, or a host alone: then any free port."""
    host, separator, port = text.rpartition(":")
    if not separator:
        return text, 0
    if not host or not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"wanted an address like 10.0.0.1:7700, found {text!r}")
    return host, int(port)
