"""Site of a multi-host run: the address at which agents join, what admits them, and the engine that starts them."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from srl.api.experiment import WorkerGroup
from srl.controller.takeover import ControllerState
from srl.experiments.graph.standard import pool_of
from srl.experiments.options.train_options import TrainOptions
from srl.populations.opponent_pool import OpponentPool
from srl.schedulers.engines.components import components
from srl.schedulers.engines.manual import ManualEngine
from srl.schedulers.engines.ray import RayEngine
from srl.schedulers.hosts.agent_connections import listen_for_agents
from srl.schedulers.hosts.engine import Engine
from srl.schedulers.hosts.messages import AgentSettings
from srl.schedulers.hosts.scheduler import HostsScheduler
from srl.schedulers.local.run_memory import RunMemory
from srl.schedulers.local.worker_logs import LogStore
from srl.transports.join_ticket import IDENTITY, JOIN, Identity

LOOPBACK = "127.0.0.1"
UNPROTECTED = (
    "the trainers' own connections (gloo, NCCL) are neither authenticated nor encrypted, with --encrypt or without: "
    "use a network that only their hosts can access, and say so with --private-network"
)


@dataclass(frozen=True)
class ClusterSite:
    """Address, identity and engine of a multi-host run."""

    engine: Engine
    identity: Identity
    join_file: Path
    host: str = "127.0.0.1"  # address of this machine at which agents join
    port: int = 0
    address_folder: Path | None = None  # folder with the address of this run, for commands on other machines
    headless: float = 0.0  # seconds for which hosts continue without a controller
    takeover: Mapping[str, int] | None = None  # for hosts that have lost their controller: see `AgentConnections`


def site_of(
    options: TrainOptions, groups: Sequence[WorkerGroup], logs: Path, takeover: ControllerState | None = None
) -> ClusterSite | None:
    """Return the site that the options describe, or None for a run on this machine only. `takeover` is the state of a
    controller that died."""
    cluster, identity = options.cluster, logs.with_name(IDENTITY)
    join_file = (Path(cluster.join_file).expanduser() if cluster.join_file else logs.with_name(JOIN)).absolute()
    if options.workers.scheduler == "ray":
        host, port = parse_address(cluster.bind)
        ray = RayEngine(cluster.address, components(groups, cluster.hosts))
        host = ray.own_host if host == LOOPBACK else host
        return ClusterSite(ray, Identity.create(identity), join_file, host, port)
    if options.workers.scheduler != "hosts":
        return None
    host, port = parse_address(takeover.cluster.address if takeover else cluster.bind)
    record = logs.with_name("agent.json") if cluster.headless > 0 else None
    manual = ManualEngine(logs / "agent.log", join_file, None, record, takeover is not None)
    reports = takeover.cluster.reports if takeover else None
    # If the controller was killed, its agents know the certificate, and return to whoever has it. Without a takeover, a
    # certificate in the run directory may be known to whoever made that directory.
    known = Identity(identity) if takeover is not None and identity.exists() else Identity.create(identity)
    return ClusterSite(manual, known, join_file, host, port, headless=cluster.headless, takeover=reports)


def hosts_scheduler(
    site: ClusterSite, run: str, options: TrainOptions, memory: RunMemory, logs: LogStore, preload: tuple[str, ...]
) -> HostsScheduler:
    path, cluster, pool = tuple(entry for entry in sys.path if entry), options.cluster, pool_of(options)
    settings = AgentSettings(
        run,
        secrets.token_bytes(32),
        preload,
        path,
        cluster.encrypt,
        site.headless,
        os.path.abspath(options.workers.replay_dir) if options.workers.replay_dir else "",
    )
    try:
        listener, join_file = listen_for_agents(run, site.identity, site.join_file, site.host, site.port)
    except BaseException:
        site.engine.close()  # it is already connected to its cluster
        logs.close()
        raise
    return HostsScheduler(
        settings,
        memory,
        listener,
        join_file,
        site.engine,
        cluster.hosts,
        logs,
        cluster.hosts_timeout,
        None if pool is None else lambda store: OpponentPool(pool, store).refresh(),  # as on hosts that joined early
        site.takeover,
    )


def warnings(options: TrainOptions, site: ClusterSite | None) -> list[str]:
    """Return warnings about connections that are not protected in a run that is encrypted or reachable from other
    machines, unless its network is private."""
    if site is None or options.cluster.private_network:
        return []
    exposed = options.cluster.encrypt or not site.host.startswith("127.")
    found = [UNPROTECTED] if exposed and options.workers.trainers > 1 else []
    return [*found, site.engine.warning] if site.engine.warning else found


def parse_address(text: str) -> tuple[str, int]:
    """Split an address like `10.0.0.1:7700` into host and port; a missing port is 0, which means any free port."""
    host, separator, port = text.rpartition(":")
    if not separator:
        return text, 0
    if not host or not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"expected an address like 10.0.0.1:7700, found {text!r}")
    return host, int(port)
