"""Components of a job: the kinds of nodes that an experiment needs, and how many of each."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from srl.api.experiment import WorkerGroup
from srl.schedulers.hosts.placement import EPSILON, DoesNotFit, HostCapacity, check_all

ANY_NODE = (True, "")  # kind of node for groups that need neither a GPU nor a certain node
AMOUNTS = ("cpu", "gpu", "memory_mb")


@dataclass(frozen=True)
class Component:
    """Nodes of one kind. A Slurm job with several components is a heterogeneous job."""

    nodes: int
    cpus: int  # CPUs of each node
    gpus: int = 0
    memory_mb: int = 0
    constraint: str = ""  # the `node` of the groups' resources: a feature of nodes in Slurm, a custom resource in Ray


def components(groups: Sequence[WorkerGroup], hosts: int) -> list[Component]:
    """Divide `hosts` nodes among the groups of an experiment. Groups that need the same kind of node share a component.
    Each component has one node, except for the one that needs the most CPUs (of those without a GPU, if there are any),
    which gets all others. With fewer hosts than kinds, groups that run on any node share a component with others."""
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
    """Divide the needs of these groups evenly if workers fit that way; otherwise round up every group's share."""
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
