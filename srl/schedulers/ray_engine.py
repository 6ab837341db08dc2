"""Ray as an engine: its actors, one in each bundle of a placement group, become the agents of a run.

Ray finds the places and begins actors anew; what workers say to each other goes through our own streams.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from srl.base.text import last_line
from srl.schedulers.joining import Offer, keep_joining
from srl.schedulers.retries import Retries
from srl.schedulers.slurm import Component

REACH_SECONDS = 3.0
PLACE_SECONDS = 30.0
LOOK_SECONDS = 1.0
REJOIN_SECONDS = 60.0
FIRST_RETRY_SECONDS = 2.0
SLIVER = 0.001
"""Of a custom resource that marks nodes: asking for it says where, not how much."""
EPSILON = 1e-6


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
    """What runs in Ray's process on a node: an agent, until the run is over or Ray wants the node for others (SIGTERM).
    One that lost the controller joins again. Called again after a restart."""

    def serve(self, address: str, secret: bytes, cpus: float, gpus: float, label: str) -> int:
        offer = Offer(cpus=cpus, gpus=gpus, labels=(label,) if label else ())
        return keep_joining(address, secret, offer, REJOIN_SECONDS, print)


@dataclass
class _Seat:
    """An actor, and its call that lasts as long as the agent serves."""

    actor: Any
    arguments: tuple[Any, ...]
    call: Any = None
    retries: Retries = field(default_factory=lambda: Retries(FIRST_RETRY_SECONDS))

    def serve(self) -> None:
        # An argument of a call goes to that process only; those of constructors are kept by Ray's head.
        self.call = self.actor.serve.remote(*self.arguments)
        self.retries.begun(time.monotonic())


class RayEngine:
    def __init__(self, address: str, parts: Sequence[Component]) -> None:
        """Connects, and checks that there is room. Without an address: the cluster that RAY_ADDRESS names, or the one
        of this machine, which is started if there is none."""
        self._ray = _import_ray()
        self._bundles = [part for part in parts for _ in range(part.nodes)]
        self._address = address
        self._seats: list[_Seat] = []
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
            nodes = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
            check_room([_bundle(part) for part in self._bundles], nodes)
        except BaseException:
            self._ray.shutdown()
            raise

    @property
    def own_host(self) -> str:
        """The address of this machine within the cluster."""
        return str(self._ray.util.get_node_ip_address())

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
            seat = _Seat(actor, (address, secret, float(part.cpus), float(part.gpus), part.constraint))
            seat.serve()
            self._seats.append(seat)

    def poll(self) -> str | None:
        """Agents that ended before the run are called again: Ray itself does so only for those that died."""
        now = time.monotonic()
        if now - self._looked < LOOK_SECONDS:
            return None
        self._looked = now
        problem = None
        calls = [seat.call for seat in self._seats if seat.call is not None]
        done = self._ray.wait(calls, num_returns=len(calls), timeout=0)[0] if calls else []
        for seat in self._seats:
            if seat.call in done:
                what, seat.call = self._how_ended(seat.call), None
                problem = what if seat.retries.ended(now) else problem
            elif seat.call is None and seat.retries.due(now):
                seat.serve()
        return problem

    def _how_ended(self, call: Any) -> str:
        try:
            self._ray.get(call)
        except self._ray.exceptions.RayError as error:
            return f"an agent on Ray failed: {last_line(str(error), type(error).__name__)}"
        return "an agent on Ray was asked to leave"

    def in_vain(self) -> bool:
        return any(seat.retries.in_vain for seat in self._seats)

    def hint(self, address: str) -> str:
        return "see `ray status` for nodes that are missing or taken"

    def close(self) -> None:
        for seat in self._seats:
            self._ray.kill(seat.actor)
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


def check_room(bundles: Sequence[Mapping[str, float]], nodes: Sequence[Mapping[str, float]]) -> None:
    """Raises RayError if Ray could not even place these when nobody else used its nodes: it would wait for ever. If
    bundles of different shapes fit beside each other is left to Ray."""
    offers = "; ".join(map(_offer, nodes))
    for wanted in bundles:
        room = sum(_times(wanted, node) for node in nodes)
        if not room:
            raise RayError(f"no node of Ray could ever hold {_offer(wanted)}; there are {offers}")
        as_large = sum(_times(wanted, other) > 0 for other in bundles)  # each of them takes a place of this size
        if as_large > room:
            raise RayError(
                f"this run wants {as_large} hosts with {_offer(wanted)} or more, and Ray's nodes have room for {room}: "
                f"{offers}; ask for fewer workers"
            )
    for key in {key: None for wanted in bundles for key in wanted}:
        total, there = (sum(one.get(key, 0.0) for one in all_of_them) for all_of_them in (bundles, nodes))
        if total > there + EPSILON:
            raise RayError(
                f"this run wants {_offer({key: total})} on {len(bundles)} hosts, and Ray's {len(nodes)} nodes have "
                f"{_offer({key: there})}; ask for fewer workers"
            )


def _times(wanted: Mapping[str, float], there: Mapping[str, float]) -> int:
    """How often one fits into the other."""
    return min(int(there.get(key, 0.0) / amount + EPSILON) for key, amount in wanted.items() if amount)


def _bundle(part: Component) -> dict[str, float]:
    wanted: dict[str, float] = {"CPU": part.cpus}
    if part.gpus:
        wanted["GPU"] = part.gpus
    if part.memory_mb:
        wanted["memory"] = part.memory_mb * 2**20
    if part.constraint:
        wanted[part.constraint] = SLIVER
    return wanted


def _offer(resources: Mapping[str, float]) -> str:
    hidden = ("memory", "object_store_memory")
    named = [
        f"{amount:g} {key}" for key, amount in resources.items() if not key.startswith("node:") and key not in hidden
    ]
    if resources.get("memory"):
        named.append(f"{resources['memory'] / 2**20:.0f} MB")
    return " + ".join(named) or "nothing"
