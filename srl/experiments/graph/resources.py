"""Resources of worker groups: GPUs according to the algorithm's device, and the user's requests."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

from srl.api.algorithm import AlgorithmConfig
from srl.api.experiment import Experiment
from srl.base.errors import nearest

AMOUNTS: dict[str, tuple[Callable[[str], Any], str]] = {
    "cpu": (float, "a number of at least 0"),
    "gpu": (float, "a number of at least 0"),
    "memory_mb": (int, "an integer of at least 0"),
    "node": (str, "a name"),
}
FORM = "GROUP=NAME:AMOUNT,..., e.g. trainers=gpu:1,cpu:4 with names cpu, gpu, memory_mb and node"


def wants_gpu(algorithm: AlgorithmConfig) -> bool:
    """Return whether the config requests a GPU. With `auto`, one is used if it exists, but none is requested."""
    return algorithm.compute_device().partition(":")[0] == "cuda"


def gpu_shares(algorithm: AlgorithmConfig, trainers: int, policies: int) -> tuple[float, float]:
    """Return the number of GPUs per trainer and per policy worker. Each trainer has its own GPU, as NCCL requires;
    policy workers share half of each."""
    if not wants_gpu(algorithm):
        return 0.0, 0.0
    return (0.5, min(1.0, 0.5 * trainers / policies)) if policies else (1.0, 0.0)


def with_resources(experiment: Experiment, requests: tuple[str, ...]) -> Experiment:
    """Return the experiment with the requested resources; the last request for a group wins. Raises ValueError for a
    request with an unknown group, an unknown resource or a wrong amount."""
    resources_of = {group.name: group.resources for group in experiment.groups}
    for request in requests:
        pattern, separator, amounts = request.partition("=")
        if not separator or not pattern or not amounts:
            raise ValueError(f"expected resources as {FORM}; found {request!r}")
        named = [name for name in resources_of if fnmatchcase(name, pattern)]
        if not named:
            raise ValueError(f"resources {request!r}: no group {pattern!r}{nearest(pattern, resources_of)}")
        changes = dict(_amount(part, request) for part in amounts.split(","))
        resources_of.update({name: replace(resources_of[name], **changes) for name in named})
    groups = (replace(group, resources=resources_of[group.name]) for group in experiment.groups)
    return replace(experiment, groups=tuple(groups))


def _amount(part: str, request: str) -> tuple[str, Any]:
    name, _, text = part.partition(":")
    if name not in AMOUNTS:
        raise ValueError(f"resources {request!r}: no resource {name!r}{nearest(name, AMOUNTS)}; expected {FORM}")
    read, expected = AMOUNTS[name]
    try:
        amount = read(text)
    except ValueError:
        amount = None
    if amount is None or not text or (name != "node" and not 0 <= amount < math.inf):
        raise ValueError(f"resources {request!r}: {name} must be {expected}; found {text!r}")
    return name, amount
