"""What the workers of each group need: by the device that they compute on, and as the user says."""

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
    "memory_mb": (int, "a whole number of at least 0"),
    "node": (str, "a name"),
}
FORM = "GROUP=NAME:AMOUNT,..., e.g. trainers=gpu:1,cpu:4 with names cpu, gpu, memory_mb and node"


def wants_gpu(algorithm: AlgorithmConfig) -> bool:
    """Was a GPU asked for by name? With `auto` it is used where one is found."""
    return algorithm.compute_device().partition(":")[0] == "cuda"


def gpu_shares(algorithm: AlgorithmConfig, trainers: int, policies: int) -> tuple[float, float]:
    """The GPUs of a trainer and of a policy worker. There is one for each trainer, as NCCL wants it; where there are
    policy workers, trainers leave half of theirs to them."""
    if not wants_gpu(algorithm):
        return 0.0, 0.0
    return (0.5, min(1.0, 0.5 * trainers / policies)) if policies else (1.0, 0.0)


def with_needs(experiment: Experiment, wishes: tuple[str, ...]) -> Experiment:
    """The experiment with what the user said about its groups; of several wishes for one the last counts. Raises
    ValueError for what cannot be understood."""
    needs = {group.name: group.resources for group in experiment.groups}
    for wish in wishes:
        pattern, separator, amounts = wish.partition("=")
        if not separator or not pattern or not amounts:
            raise ValueError(f"resources are written {FORM}; found {wish!r}")
        named = [name for name in needs if fnmatchcase(name, pattern)]
        if not named:
            raise ValueError(f"resources {wish!r}: no group {pattern!r}{nearest(pattern, needs)}")
        changes = dict(_amount(part, wish) for part in amounts.split(","))
        needs.update({name: replace(needs[name], **changes) for name in named})
    return replace(experiment, groups=tuple(replace(group, resources=needs[group.name]) for group in experiment.groups))


def _amount(part: str, wish: str) -> tuple[str, Any]:
    name, _, text = part.partition(":")
    if name not in AMOUNTS:
        raise ValueError(f"resources {wish!r}: no resource {name!r}{nearest(name, AMOUNTS)}; they are written {FORM}")
    read, wanted = AMOUNTS[name]
    try:
        amount = read(text)
    except ValueError:
        amount = None
    if amount is None or not text or (name != "node" and not 0 <= amount < math.inf):
        raise ValueError(f"resources {wish!r}: {name} must be {wanted}; found {text!r}")
    return name, amount
