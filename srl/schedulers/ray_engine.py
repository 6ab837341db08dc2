"""Ray as an engine: its actors, one in each bundle of a placement group, become the agents of a run.

Ray finds the places and begins actors anew; what workers say to each other goes through our own streams.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Sequence
from typing import Any

from srl.base.text import last_line
from srl.schedulers.joining import Offer, join
from srl.schedulers.slurm import Component

REACH_SECONDS = 3.0
PLACE_SECONDS = 30.0
LOOK_SECONDS = 1.0
SLIVER = 0.001
"""Of a custom resource that marks nodes: asking for it says where, not how much."""


class RayError(RuntimeError):
    """Ray is not there, or has no place for us; the message says what."""


def check_ray(address: str) -> None:
    """Raises RayError if Ray is not installed, or nobody is at the address. Ray itself would try for a minute."""
    _import_ray()
    if not address or address == "auto":
        return
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise RayError(f"wanted an address like 10.0.0.1:6379, found {address!r}")
    try:
        socket.create_connection((host, int(port)), REACH_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise RayError(f"no Ray at {address}: {error}") from error


class HostActor:
    """What runs in Ray's process on a node: an agent, until the run is over. Called again after a restart."""

    def serve(self, address: str, secret: bytes, cpus: float, gpus: float, label: str) -> bool:
        offer = Offer(cpus=cpus, gpus=gpus, labels=(label,) if label else ())
        return join(address, secret, offer).serve()


class RayEngine:
    def __init__(self, address: str, parts: Sequence[Component]) -> None:
        """Connects, and checks that there is room. Without an address: the cluster that RAY_ADDRESS names, or the one
        of this machine, which is started if there is none."""
        self._ray = _import_ray()
        self._bundles = [part for part in parts for _ in range(part.nodes)]
        self._address = address
        self._actors: list[Any] = []
        self._running: list[Any] = []
        self._group: Any = None
        self._looked = 0.0
        check_ray(address)
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        # A Ray that we start ourselves: at its niceness of 15 workers would starve beside any other program.
        os.environ.setdefault("RAY_worker_niceness", "0")
        try:
            self._ray.init(
                address=address or None,
                log_to_driver=False,
                logging_level="ERROR",
                **({} if address or os.environ.get("RAY_ADDRESS") else {"include_dashboard": False}),
            )
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise RayError(f"cannot join Ray{f' at {address}' if address else ''}: {error}") from error
        try:
            self._check_room()
        except BaseException:
            self._ray.shutdown()
            raise

    @property
    def own_host(self) -> str:
        """The address of this machine within the cluster."""
        return str(self._ray.util.get_node_ip_address())

    def _check_room(self) -> None:
        nodes = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        for part in self._bundles:
            wanted = _bundle(part)
            if not any(all(node.get(key, 0.0) >= amount for key, amount in wanted.items()) for node in nodes):
                offers = "; ".join(_offer(node) for node in nodes)
                raise RayError(f"no node of Ray could ever hold {_offer(wanted)}; there are {offers}")
        for key in ("CPU", "GPU"):
            wanted_total = sum(_bundle(part).get(key, 0.0) for part in self._bundles)
            there = sum(node.get(key, 0.0) for node in nodes)
            if wanted_total > there:
                raise RayError(
                    f"this run wants {wanted_total:g} {key}s on {len(self._bundles)} hosts, and Ray's {len(nodes)} "
                    f"nodes have {there:g}; ask for fewer workers"
                )

    def start(self, address: str, secret: bytes) -> None:
        util = self._ray.util
        self._group = util.placement_group([_bundle(part) for part in self._bundles], strategy="SPREAD")
        if not self._group.wait(PLACE_SECONDS):
            raise RayError(f"Ray had no free place for this run within {PLACE_SECONDS:.0f} s: others use its nodes")
        kind = self._ray.remote(HostActor)
        for index, part in enumerate(self._bundles):
            strategy = util.scheduling_strategies.PlacementGroupSchedulingStrategy(self._group, index)
            actor = kind.options(
                num_cpus=part.cpus,
                num_gpus=part.gpus,
                scheduling_strategy=strategy,
                max_restarts=-1,
                max_task_retries=-1,
            ).remote()
            self._actors.append(actor)
            # An argument of a call, which goes to that process only; those of constructors are kept by Ray's head.
            args = (address, secret, float(part.cpus), float(part.gpus), part.constraint)
            self._running.append(actor.serve.remote(*args))

    def poll(self) -> str | None:
        now = time.monotonic()
        if now - self._looked < LOOK_SECONDS or not self._running:
            return None
        self._looked = now
        done, self._running = self._ray.wait(self._running, num_returns=len(self._running), timeout=0)
        for reference in done:
            try:
                self._ray.get(reference)
            except self._ray.exceptions.RayError as error:
                return f"an agent on Ray failed: {last_line(str(error), type(error).__name__)}"
        return None

    def hint(self, address: str) -> str:
        return "see `ray status` for nodes that are missing or taken"

    def close(self) -> None:
        for actor in self._actors:
            self._ray.kill(actor)
        if self._group is not None:
            self._ray.util.remove_placement_group(self._group)
        self._ray.shutdown()


def _import_ray() -> Any:
    try:
        import ray
        import ray.util.scheduling_strategies
    except ImportError as error:
        raise RayError("Ray is not installed: pip install 'srl[ray]', on every host") from error
    return ray


def _bundle(part: Component) -> dict[str, float]:
    wanted: dict[str, float] = {"CPU": part.cpus}
    if part.gpus:
        wanted["GPU"] = part.gpus
    if part.memory_mb:
        wanted["memory"] = part.memory_mb * 2**20
    if part.constraint:
        wanted[part.constraint] = SLIVER
    return wanted


def _offer(resources: dict[str, float]) -> str:
    hidden = ("memory", "object_store_memory")
    named = [
        f"{amount:g} {key}" for key, amount in resources.items() if not key.startswith("node:") and key not in hidden
    ]
    if resources.get("memory"):
        named.append(f"{resources['memory'] / 2**20:.0f} MB")
    return " + ".join(named) or "nothing"
