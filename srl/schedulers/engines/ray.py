"""Ray as an engine: its actors, one in each bundle of a placement group, become the agents of a run.

Ray finds the places and begins actors anew; what workers say to each other goes through our own streams.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from srl.base.errors import last_line
from srl.schedulers.agent.join import Offer, keep_joining
from srl.schedulers.engines.ray_resources import RayError, bundle, check_room, described
from srl.schedulers.engines.retries import Retries
from srl.schedulers.engines.slurm_commands import Component

REACH_SECONDS = 3.0
PLACE_SECONDS = 30.0
LOOK_SECONDS = 1.0
REJOIN_SECONDS = 60.0
ROOM_SECONDS = 5.0
"""Between two looks at which of Ray's nodes are still there."""
FIRST_RETRY_SECONDS = 2.0


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
        self._looked = self._room_looked = 0.0
        self._missing = ""
        self._looker = ThreadPoolExecutor(1)  # Ray's head may take its time to answer
        self._look: Future[str] | None = None
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
        check_room([bundle(part) for part in self._bundles], nodes)

    def start(self, address: str, secret: bytes) -> None:
        util = self._ray.util
        self._group = util.placement_group([bundle(part) for part in self._bundles], strategy="SPREAD")
        if not self._group.wait(PLACE_SECONDS):
            self._check_room()  # a node may be lost since
            free = described(self._ray.available_resources())
            raise RayError(
                f"Ray had no free place for this run within {PLACE_SECONDS:.0f} s: others use its nodes, {free} is free"
            )
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
        """Agents that ended before the run are called again: Ray itself does so only for those that died, and waits
        without a word if no node has room for them any more."""
        now = time.monotonic()
        if now - self._looked < LOOK_SECONDS:
            return None
        self._looked = now
        problems = self._what_is_missing(now)
        calls = [seat.call for seat in self._seats if seat.call is not None]
        done = self._ray.wait(calls, num_returns=len(calls), timeout=0)[0] if calls else []
        for seat in self._seats:
            if seat.call in done:
                what, seat.call = self._how_ended(seat.call), None
                problems += [what] if seat.retries.ended(now) else []
            elif seat.call is None and seat.retries.due(now):
                seat.serve()
        return "; ".join(problems) or None

    def _what_is_missing(self, now: float) -> list[str]:
        """If the nodes that are still there have too little room. Once for each change."""
        if self._look is None and now - self._room_looked >= ROOM_SECONDS:
            self._look = self._looker.submit(self._look_for_room)
        if self._look is None or not self._look.done():
            return []
        before, self._missing = self._missing, self._look.result()
        self._look, self._room_looked = None, now
        return [self._missing] if self._missing not in ("", before) else []

    def _look_for_room(self) -> str:
        try:
            self._check_room()
        except RayError as error:
            return f"Ray has lost a node: {error}"
        except (self._ray.exceptions.RayError, RuntimeError):
            return self._missing  # its head does not answer: that says nothing about the nodes
        return ""

    def _how_ended(self, call: Any) -> str:
        try:
            self._ray.get(call)
        except self._ray.exceptions.RayError as error:
            return f"an agent on Ray failed: {last_line(str(error), type(error).__name__)}"
        return "an agent on Ray was asked to leave"

    def in_vain(self) -> bool:
        return bool(self._missing) or any(seat.retries.in_vain for seat in self._seats)

    def hint(self, address: str) -> str:
        return "see `ray status` for nodes that are missing or taken"

    def close(self) -> None:
        for seat in self._seats:
            self._ray.kill(seat.actor)
        if self._group is not None:
            self._ray.util.remove_placement_group(self._group)
        self._looker.shutdown()
        self._ray.shutdown()


def _import_ray() -> Any:
    try:
        import ray
        import ray.util.scheduling_strategies
    except ImportError as error:
        raise RayError("Ray is not installed: pip install 'srl[ray]', on every host") from error
    return ray
