"""Ray as an engine: Ray actors, one per bundle of a placement group, serve as the run's agents.

Ray places and restarts the actors. Workers communicate through srl's streams, not through Ray.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from srl.base.errors import last_line
from srl.schedulers.agent.join import HostResources, keep_joining
from srl.schedulers.engines.components import Component
from srl.schedulers.hosts.engine import Engine, Retries
from srl.transports.join_ticket import JoinTicket

CONNECT_SECONDS = 3.0
PLACEMENT_SECONDS = 30.0
POLL_SECONDS = 1.0
REJOIN_SECONDS = 60.0
NODES_SECONDS = 5.0  # interval between checks of Ray's nodes
FIRST_RETRY_SECONDS = 2.0
LABEL_AMOUNT = 0.001
"""Amount of a custom resource that a bundle requests: it selects nodes while reserving almost nothing."""
EPSILON = 1e-6
MAX_TRIES = 10_000  # attempts to fit bundles of different shapes onto the nodes before the decision is left to Ray
MAX_DEPTH = 200
AUTH_MODE = "RAY_AUTH_MODE"
NO_TOKEN = (
    "Ray requires no token: anyone who can reach its ports can run code on its nodes. Start it with "
    "RAY_AUTH_MODE=token, or use a network that only its nodes can access, and say so with --private-network"
)


class RayError(RuntimeError):
    """Ray is not installed or has no room for the run; the message says which."""


def check_ray(address: str) -> None:
    """Raise RayError if Ray is not installed or does not listen at the address. Ray itself would retry for a minute."""
    _require_token(address)
    _import_ray()
    if not address or address == "auto":
        return
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise RayError(f"expected the address of Ray as host:port, e.g. 10.0.0.1:6379; found {address!r}")
    try:
        socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise RayError(f"no Ray at {address}: {error}") from error


class RayAgent:
    """The Ray actor on a node: serves until the run ends or Ray reclaims the node (SIGTERM). It rejoins after losing
    the controller, and Ray calls it again after a restart."""

    def serve(self, ticket: JoinTicket, cpus: float, gpus: float, label: str) -> int:
        resources = HostResources(cpus=cpus, gpus=gpus, labels=(label,) if label else ())
        return keep_joining(lambda: ticket, resources, REJOIN_SECONDS, print)


@dataclass
class _Slot:
    """An actor and its current call, which lasts as long as the agent serves."""

    actor: Any
    new_ticket: Callable[[], JoinTicket]
    arguments: tuple[Any, ...]
    call: Any = None
    retries: Retries = field(default_factory=lambda: Retries(FIRST_RETRY_SECONDS))

    def serve(self) -> None:
        # Passed per call: Ray stores constructor arguments, which would include the ticket, on its head node.
        self.call = self.actor.serve.remote(self.new_ticket(), *self.arguments)
        self.retries.started(time.monotonic())


class RayEngine(Engine):
    """Engine that connects to Ray and checks that the run fits. Without an address, it uses the cluster that
    RAY_ADDRESS names or, failing that, the one on this machine, which it starts if necessary."""

    def __init__(self, address: str, parts: Sequence[Component]) -> None:
        needs_token = _require_token(address)
        self._ray = _import_ray()
        self._bundles = [part for part in parts for _ in range(part.nodes)]
        self._slots: list[_Slot] = []
        self._placement: Any = None
        self._polled = self._nodes_checked = 0.0
        self._missing = ""
        self._thread = ThreadPoolExecutor(1)  # Ray's head may be slow to answer
        self._check: Future[str] | None = None
        check_ray(address)
        if needs_token:
            _make_token()
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        # For a cluster started here: at Ray's default niceness of 15, other programs would starve the workers.
        os.environ.setdefault("RAY_worker_niceness", "0")
        try:
            self._ray.init(
                address=address or None,
                log_to_driver=False,
                logging_level="ERROR",
                **({} if address or os.environ.get("RAY_ADDRESS") else {"include_dashboard": False}),
            )
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise RayError(f"cannot connect to Ray{f' at {address}' if address else ''}: {error}") from error
        if os.environ.get(AUTH_MODE, "").lower() != "token":
            self.warning = NO_TOKEN
        try:
            self._check_nodes()
        except BaseException:
            self._ray.shutdown()
            raise

    @property
    def own_host(self) -> str:
        """Address of this machine within the cluster."""
        return str(self._ray.util.get_node_ip_address())

    def _check_nodes(self) -> None:
        nodes = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        check_bundles([bundle(part) for part in self._bundles], nodes)

    def start(self, new_ticket: Callable[[], JoinTicket]) -> None:
        util = self._ray.util
        self._placement = util.placement_group([bundle(part) for part in self._bundles], strategy="SPREAD")
        if not self._placement.wait(PLACEMENT_SECONDS):
            self._check_nodes()  # a node may have been lost meanwhile
            free = describe(self._ray.available_resources())
            raise RayError(
                f"Ray did not reserve nodes for this run within {PLACEMENT_SECONDS:.0f} s: others use them, and only "
                f"{free} is free"
            )
        kind = self._ray.remote(RayAgent)
        for index, part in enumerate(self._bundles):
            strategy = util.scheduling_strategies.PlacementGroupSchedulingStrategy(self._placement, index)
            actor = kind.options(
                num_cpus=part.cpus,
                num_gpus=part.gpus,
                scheduling_strategy=strategy,
                max_restarts=-1,
                max_task_retries=-1,
            ).remote()
            slot = _Slot(actor, new_ticket, (float(part.cpus), float(part.gpus), part.constraint))
            slot.serve()
            self._slots.append(slot)

    def poll(self) -> str | None:
        """Restart agents that ended before the run. Ray itself restarts only those that died, and waits silently when
        no node has room for them."""
        now = time.monotonic()
        if now - self._polled < POLL_SECONDS:
            return None
        self._polled = now
        problems = self._missing_nodes(now)
        calls = [slot.call for slot in self._slots if slot.call is not None]
        done = self._ray.wait(calls, num_returns=len(calls), timeout=0)[0] if calls else []
        for slot in self._slots:
            if slot.call in done:
                how, slot.call = self._how_ended(slot.call), None
                problems += [how] if slot.retries.ended(now) else []
            elif slot.call is None and slot.retries.due(now):
                slot.serve()
        return "; ".join(problems) or None

    def _missing_nodes(self, now: float) -> list[str]:
        """Return a report if the remaining nodes have too little room; each change is reported once."""
        if self._check is None and now - self._nodes_checked >= NODES_SECONDS:
            self._check = self._thread.submit(self._check_remaining)
        if self._check is None or not self._check.done():
            return []
        before, self._missing = self._missing, self._check.result()
        self._check, self._nodes_checked = None, now
        return [self._missing] if self._missing not in ("", before) else []

    def _check_remaining(self) -> str:
        try:
            self._check_nodes()
        except RayError as error:
            return f"Ray has lost a node: {error}"
        except (self._ray.exceptions.RayError, RuntimeError):
            return self._missing  # the head does not answer, so nothing new is known about the nodes
        return ""

    def _how_ended(self, call: Any) -> str:
        try:
            self._ray.get(call)
        except self._ray.exceptions.RayError as error:
            return f"an agent on Ray failed: {last_line(str(error), type(error).__name__)}"
        return "an agent on Ray was asked to leave"

    def start_failed(self) -> bool:
        return bool(self._missing) or any(slot.retries.hopeless for slot in self._slots)

    def hint(self) -> str:
        return "see `ray status` for nodes that are missing or in use"

    def close(self) -> None:
        for slot in self._slots:
            self._ray.kill(slot.actor)
        if self._placement is not None:
            self._ray.util.remove_placement_group(self._placement)
        self._thread.shutdown()
        self._ray.shutdown()


def _require_token(address: str) -> bool:
    """Make Ray require a token if it will be started here. Return whether the token is in the default file. Ray reads
    this setting when it is imported."""
    started_elsewhere = address or os.environ.get("RAY_ADDRESS") or (_ray_folder() / "ray_current_cluster").exists()
    if started_elsewhere or os.environ.setdefault(AUTH_MODE, "token").lower() != "token":
        return False
    return not (os.environ.get("RAY_AUTH_TOKEN") or os.environ.get("RAY_AUTH_TOKEN_PATH"))


def _make_token() -> None:
    """Create the token in the file that Ray's own commands read. Ray would create it readable for all users."""
    path = Path.home() / ".ray" / "auth_token"
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_hex(32))


def _ray_folder() -> Path:
    """Return the directory in which Ray records the cluster of this machine."""
    return Path(os.environ.get("RAY_TMPDIR") or tempfile.gettempdir()) / "ray"


def _import_ray() -> Any:
    try:
        import ray
        import ray.util.scheduling_strategies
    except ImportError as error:
        raise RayError("Ray is not installed; run `pip install 'srl-rl[ray]'` on every host") from error
    return ray


# Check that a run fits on Ray's nodes, without calls to Ray.


def bundle(part: Component) -> dict[str, float]:
    """Return the resources that a host of this kind reserves."""
    wanted: dict[str, float] = {"CPU": part.cpus}
    if part.gpus:
        wanted["GPU"] = part.gpus
    if part.memory_mb:
        wanted["memory"] = part.memory_mb * 2**20
    if part.constraint:
        wanted[part.constraint] = LABEL_AMOUNT
    return wanted


def check_bundles(bundles: Sequence[Mapping[str, float]], nodes: Sequence[Mapping[str, float]]) -> None:
    """Raise RayError if the bundles do not fit even on otherwise idle nodes: Ray would wait forever."""
    available = "; ".join(map(describe, nodes))
    for wanted in bundles:
        room = sum(_times(wanted, node) for node in nodes)
        if not room:
            raise RayError(f"no node of Ray can hold {describe(wanted)}; its nodes have {available or 'nothing'}")
        as_large = sum(_times(wanted, other) > 0 for other in bundles)  # each of them takes up one such place
        if as_large > room:
            raise RayError(
                f"this run needs {as_large} hosts with {describe(wanted)} or more, but Ray's nodes have room for "
                f"{room}: {available}; use fewer workers"
            )
    for key in {key: None for wanted in bundles for key in wanted}:
        needed, existing = (sum(one.get(key, 0.0) for one in each) for each in (bundles, nodes))
        if needed > existing + EPSILON:
            raise RayError(
                f"this run needs {describe({key: needed})} on {len(bundles)} hosts, but Ray's {len(nodes)} nodes have "
                f"{describe({key: existing})}; use fewer workers"
            )
    if not _fit(bundles, nodes):
        shapes = "; ".join(map(describe, bundles))
        raise RayError(
            f"the {len(bundles)} hosts of this run ({shapes}) do not fit together on Ray's nodes: {available}; "
            "use fewer workers"
        )


def _fit(bundles: Sequence[Mapping[str, float]], nodes: Sequence[Mapping[str, float]]) -> bool:
    """Return whether a search, largest bundles first, finds a placement; True if the search takes too long."""
    keys = {key for wanted in bundles for key in wanted}
    free = [{key: node.get(key, 0.0) for key in keys} for node in nodes]
    ordered = sorted(bundles, key=lambda wanted: [wanted.get(key, 0.0) for key in ("GPU", "CPU", "memory")])
    tries = MAX_TRIES

    def place(left: int) -> bool:
        nonlocal tries
        if not left:
            return True
        wanted = ordered[left - 1]
        failed = []
        for node in free:
            if not _times(wanted, node) or node in failed:
                continue
            tries -= 1
            if tries < 0:
                return True
            before = dict(node)
            node.update({key: node[key] - amount for key, amount in wanted.items()})
            if place(left - 1):
                return True
            node.update(before)
            failed.append(before)  # a node with the same resources left would fail as well
        return False

    return len(ordered) > MAX_DEPTH or place(len(ordered))


def _times(wanted: Mapping[str, float], available: Mapping[str, float]) -> int:
    """Return how many times `wanted` fits into `available`."""
    return min(int(available.get(key, 0.0) / amount + EPSILON) for key, amount in wanted.items() if amount)


def describe(resources: Mapping[str, float]) -> str:
    """Format resources as `2 CPU + 1 GPU + 4000 MB`."""
    hidden = ("node:", "memory", "object_store_memory")
    named = [f"{amount:g} {key}" for key, amount in resources.items() if not key.startswith(hidden)]
    if resources.get("memory"):
        named.append(f"{resources['memory'] / 2**20:.0f} MB")
    return " + ".join(named) or "nothing"
