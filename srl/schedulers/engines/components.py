"""Components of a job: the kinds of nodes that an experiment needs, and how many of each."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from srl.api.experiment import WorkerGroup
from srl.schedulers.hosts.placement import EPSILON, DoesNotFit, HostCapacity, check_all

ANY_NODE = (True, "")  # kind of node for groups that need neither a GPU nor a particular node
AMOUNTS = ("cpu", "gpu", "memory_mb")


@dataclass(frozen=True)
class Component:
    """Nodes of one kind. A Slurm job with several components is a heterogeneous job."""

    nodes: int
    cpus: int  # per node, like the amounts below
    gpus: int = 0
    memory_mb: int = 0
    constraint: str = ""  # `Resources.node` of the groups: a node feature in Slurm, a custom resource in Ray


def components(groups: Sequence[WorkerGroup], hosts: int) -> list[Component]:
    """Divide `hosts` nodes among an experiment's worker groups. Groups that need the same kind of node share a
    component. Each component gets one node, except the one that needs the most CPUs (among those without a GPU, if
    any), which gets the rest. If there are fewer hosts than kinds, groups that can run anywhere share one."""
    kinds: dict[tuple[bool, str], list[WorkerGroup]] = {}
    for group in groups:
        kinds.setdefault((group.resources.gpu == 0, group.resources.node), []).append(group)
    if len(kinds) > hosts and ANY_NODE in kinds:
        anywhere = kinds.pop(ANY_NODE)
        kinds[min(kinds)] += anywhere
    if len(kinds) > hosts:
        raise ValueError(
            f"the worker groups of this experiment need {len(kinds)} kinds of nodes, so at least --hosts {len(kinds)}; "
            f"found --hosts {hosts}"
        )
    ordered = sorted(kinds)
    largest = max(ordered, key=lambda kind: (kind[0], _total(kinds[kind], "cpu")))
    found = []
    for kind in ordered:
        nodes = hosts - len(kinds) + 1 if kind == largest else 1
        found.append(_component(kinds[kind], nodes, kind[1]))
    return found


def _component(groups: list[WorkerGroup], nodes: int, constraint: str) -> Component:
    """Return a component that divides the groups' needs evenly among its nodes if the workers fit that way; otherwise,
    every group's share is rounded up."""
    largest = [max(getattr(group.resources, amount) for group in groups) for amount in AMOUNTS]
    needs = [max(_total(groups, a) / nodes, most) for a, most in zip(AMOUNTS, largest, strict=True)]
    workers = [(group.name, replace(group.resources, node="")) for group in groups for _ in range(group.count)]
    try:
        check_all([HostCapacity(str(node), *_rounded(needs)) for node in range(nodes)], workers)
    except DoesNotFit:
        counts = [math.ceil(group.count / nodes) for group in groups]
        amounts = [[getattr(group.resources, amount) for group in groups] for amount in AMOUNTS]
        needs = [sum(c * a for c, a in zip(counts, amount, strict=True)) for amount in amounts]
    return Component(nodes, *_rounded(needs), constraint)


def _rounded(amounts: Iterable[float]) -> tuple[int, int, int]:
    cpus, gpus, memory_mb = (math.ceil(amount - EPSILON) for amount in amounts)
    return max(1, cpus), gpus, memory_mb


def _total(groups: Iterable[WorkerGroup], amount: str) -> float:
    return float(sum(getattr(group.resources, amount) * group.count for group in groups))
