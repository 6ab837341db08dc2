"""The choice of a host for a worker. Decisions only; nothing is started here."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

from srl.api.experiment import Resources
from srl.api.worker import WorkerId

EPSILON = 1e-6


@dataclass
class PlacedWorker:
    """A worker of a multi-host run, placed or waiting for a host."""

    worker_id: WorkerId
    config: Any
    policy: str  # policy whose state this worker commits; empty if it is not a trainer
    resources: Resources
    seed: int
    row: int  # row in the meter table
    host: str = ""  # empty while the worker waits for a host, and after its death
    alive: bool = True

    @property
    def key(self) -> tuple[str, int]:
        return self.worker_id.group, self.worker_id.index


class DoesNotFit(ValueError):
    """The hosts cannot hold these workers."""


@dataclass
class HostCapacity:
    """Resources of a host, and how much of them is in use."""

    host: str
    cpus: float
    gpus: float = 0.0
    memory_mb: int = 0  # 0: unknown, so memory is not checked
    used_cpus: float = 0.0
    used_gpus: float = 0.0
    used_mb: int = 0
    labels: tuple[str, ...] = ()
    has_controller: bool = False
    leaving: bool = False  # the host accepts no workers

    @property
    def free_share(self) -> float:
        return 1.0 - self.used_cpus / max(self.cpus, EPSILON)

    def take(self, needs: Resources, sign: int = 1) -> None:
        self.used_cpus += sign * needs.cpu
        self.used_gpus += sign * needs.gpu
        self.used_mb += sign * needs.memory_mb

    def give_back(self, needs: Resources) -> None:
        self.take(needs, -1)

    def fits(self, needs: Resources, *, empty: bool = False, share_cpus: bool = False) -> bool:
        """Return whether a worker fits on this host, or would if it were `empty`. `share_cpus` ignores CPU limits."""
        in_use = 0 if empty else 1
        if self.leaving:
            return False
        if needs.node and not any(fnmatchcase(name, needs.node) for name in (self.host, *self.labels)):
            return False
        if not share_cpus and needs.cpu > self.cpus - in_use * self.used_cpus + EPSILON:
            return False
        if needs.gpu > self.gpus - in_use * self.used_gpus + EPSILON:
            return False
        return not self.memory_mb or needs.memory_mb <= self.memory_mb - in_use * self.used_mb


def choose(
    hosts: list[HostCapacity],
    needs: Resources,
    previous: str = "",
    share_cpus: bool = False,
    with_controller: bool = False,
) -> HostCapacity | None:
    """Choose a host for a worker: its previous host if it fits there, otherwise the one with the largest fraction of
    free CPUs. A worker that needs no GPU or no label prefers hosts without one. `with_controller` prefers the
    controller's host to those with more free CPUs. Return None if the worker has to wait."""
    for share in (False, True) if share_cpus else (False,):
        fitting = [host for host in hosts if host.fits(needs, share_cpus=share)]
        for host in fitting:
            if host.host == previous:
                return host
        if fitting:

            def preference(host: HostCapacity) -> tuple[int, bool, float]:
                return _features_left_to_others(host, needs), with_controller and host.has_controller, host.free_share

            return max(fitting, key=preference)
    return None


def _features_left_to_others(host: HostCapacity, needs: Resources) -> int:
    """Count the kinds of scarce features (GPUs, labels) that this choice does not waste."""
    return (needs.gpu > 0 or not host.gpus) + (needs.node != "" or not host.labels)


def check(hosts: list[HostCapacity], needs: Resources, worker: str) -> None:
    """Raise DoesNotFit if no host could hold this worker, even when empty."""
    if not any(host.fits(needs, empty=True) for host in hosts):
        offers = "; ".join(
            f"{host.host}: {host.cpus:g} CPUs, {host.gpus:g} GPUs"
            + (f", {host.memory_mb} MB" if host.memory_mb else "")
            for host in hosts
        )
        raise DoesNotFit(f"no host can hold {worker}, which needs {describe(needs)}; hosts have {offers or 'nothing'}")


def check_all(
    hosts: list[HostCapacity], workers: list[tuple[str, Resources]], with_controller: Collection[str] = ()
) -> None:
    """Raise DoesNotFit if these workers (name, needs), placed in this order, do not all fit. Those named in
    `with_controller` prefer the controller's host."""
    trial = [replace(host) for host in hosts]
    for worker, needs in workers:
        check(trial, needs, worker)
    for worker, needs in workers:
        chosen = choose(trial, needs, with_controller=worker in with_controller)
        if chosen is None:
            total = sum(needs.cpu for _, needs in workers)
            raise DoesNotFit(
                f"no host has room for {worker} ({describe(needs)}): {len(workers)} workers need {total:g} CPUs, and "
                f"{len(hosts)} hosts have {sum(host.cpus for host in hosts):g}; use fewer workers or more hosts"
            )
        chosen.take(needs)


def workers_to_move(hosts: list[HostCapacity], placed: Sequence[PlacedWorker]) -> list[PlacedWorker]:
    """Choose workers to move from hosts with overcommitted CPUs to hosts with room."""
    trial = {host.host: replace(host) for host in hosts}
    moving = []
    for worker in placed:
        crowded = trial.get(worker.host)
        if crowded is None or crowded.used_cpus <= crowded.cpus + EPSILON:
            continue
        target = choose([other for other in trial.values() if other is not crowded], worker.resources)
        if target is not None:
            target.take(worker.resources)
            crowded.give_back(worker.resources)
            moving.append(worker)
    return moving


def why_waiting(hosts: list[HostCapacity], needs: Resources, share_cpus: bool = False) -> str:
    """Return why no host can take a worker, or an empty string if one has room or there are no hosts."""
    hosts = [host for host in hosts if not host.leaving]
    if not hosts or any(host.fits(needs, share_cpus=share_cpus) for host in hosts):
        return ""
    if not any(host.fits(Resources(0, node=needs.node), empty=True) for host in hosts):
        return f"no remaining host is named {needs.node}"
    for need in (Resources(0, gpu=needs.gpu), Resources(0, memory_mb=needs.memory_mb)):
        if not any(host.fits(need, empty=True) for host in hosts):
            return f"no remaining host has {describe(need)}"
    return f"no remaining host has room for {describe(needs)}"


def describe(needs: Resources) -> str:
    counts = {"CPU": needs.cpu, "GPU": needs.gpu}
    parts = [f"{count:g} {unit}{'' if count == 1 else 's'}" for unit, count in counts.items() if count]
    if needs.memory_mb:
        parts.append(f"{needs.memory_mb} MB")
    if needs.node:
        parts.append(f"a host named {needs.node}")
    return ", ".join(parts)
