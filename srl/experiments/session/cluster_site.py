"""Site of a multi-host run: the address at which agents join, their secret, and the engine that starts them."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from srl.api.experiment import WorkerGroup
from srl.controller.takeover import ControllerState
from srl.experiments.graph.standard import pool_of
from srl.experiments.options.train_options import TrainOptions
from srl.populations.opponent_pool import OpponentPool
from srl.schedulers.engines.components import components
from srl.schedulers.engines.manual import ManualEngine
from srl.schedulers.engines.ray import RayEngine
from srl.schedulers.hosts.engine import Engine
from srl.schedulers.hosts.messages import AGENTS, AgentSettings, Messages, codec
from srl.schedulers.hosts.scheduler import HostsScheduler
from srl.schedulers.local.run_memory import RunMemory
from srl.transports.join_secret import DEFAULT, find_or_make_secret
from srl.transports.tcp import TcpTransport

LOOPBACK = "127.0.0.1"
UNPROTECTED = (
    "the trainers' own connections (gloo, NCCL) are neither authenticated nor encrypted, with --encrypt or without: "
    "use a network that only their hosts can access"
)


@dataclass(frozen=True)
class ClusterSite:
    """Address, secret and engine of a multi-host run."""

    engine: Engine
    join_secret: bytes = field(repr=False)
    host: str = "127.0.0.1"  # address of this machine at which agents join
    port: int = 0
    address_folder: Path | None = None  # folder with the address of this run, for commands on other machines
    superseded: Callable[[], bool] = lambda: False
    """Whether another process has taken over this run, so that this one must not write to its directory."""
    headless: float = 0.0  # seconds for which hosts continue without a controller
    takeover: Mapping[str, int] | None = None  # for hosts that have lost their controller: see `AgentConnections`


def site_of(
    options: TrainOptions, groups: Sequence[WorkerGroup], logs: Path, takeover: ControllerState | None = None
) -> ClusterSite | None:
    """Return the site that the options describe, or None for a run on this machine only. `takeover` is the state of a
    controller that died."""
    cluster = options.cluster
    if options.workers.scheduler == "ray":
        host, port = parse_address(cluster.bind)
        ray = RayEngine(cluster.address, components(groups, cluster.hosts))
        host = ray.own_host if host == LOOPBACK else host
        return ClusterSite(ray, secrets.token_bytes(32), host, port)
    if options.workers.scheduler != "hosts":
        return None
    host, port = parse_address(takeover.cluster.address if takeover else cluster.bind)
    secret = find_or_make_secret(cluster.secret_file or DEFAULT)
    record = logs.with_name("agent.json") if cluster.headless > 0 else None
    manual = ManualEngine(logs / "agent.log", None, cluster.secret_file, record, takeover is not None)
    reports = takeover.cluster.reports if takeover else None
    return ClusterSite(manual, secret, host, port, headless=cluster.headless, takeover=reports)


def hosts_scheduler(
    site: ClusterSite, run: str, options: TrainOptions, memory: RunMemory, logs: Path, preload: tuple[str, ...]
) -> HostsScheduler:
    path, cluster, pool = tuple(entry for entry in sys.path if entry), options.cluster, pool_of(options)
    settings = AgentSettings(run, secrets.token_bytes(32), preload, path, cluster.encrypt, site.headless)
    transport = TcpTransport(site.join_secret, AGENTS, site.host, site.port, encrypt=True, codec=codec)
    try:
        listener = transport.listen("the controller", Messages)
    except BaseException:
        site.engine.close()  # it is already connected to its cluster
        raise
    return HostsScheduler(
        settings,
        memory,
        listener,
        site.join_secret,
        site.engine,
        cluster.hosts,
        logs,
        cluster.hosts_timeout,
        None if pool is None else lambda store: OpponentPool(pool, store).refresh(),  # as on hosts that joined early
        site.takeover,
    )


def warning(options: TrainOptions, site: ClusterSite | None) -> str:
    """Return a warning if several trainers have unprotected connections in a run that is encrypted or reachable from
    other machines; otherwise an empty string."""
    exposed = site is not None and (options.cluster.encrypt or not site.host.startswith("127."))
    return UNPROTECTED if exposed and options.workers.trainers > 1 else ""


def parse_address(text: str) -> tuple[str, int]:
    """Split an address like `10.0.0.1:7700` into host and port; a missing port is 0, which means any free port."""
    host, separator, port = text.rpartition(":")
    if not separator:
        return text, 0
    if not host or not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"expected an address like 10.0.0.1:7700, found {text!r}")
    return host, int(port)
