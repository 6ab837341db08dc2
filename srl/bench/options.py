"""The options of `srl bench`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class BenchOptions:
    workload: str = "cartpole"
    """cartpole, pong or halfcheetah: networks, batch and epochs as in the comparison with other libraries; or any
    environment, as for `srl train`."""
    seconds: float = 30.0
    """How long to measure, after the warm-up."""
    warmup: float = 5.0
    """Seconds from the first update to the beginning of the measurement."""
    inference: Literal["inline", "host", "remote"] = "inline"
    """Who decides, as for `srl train`."""
    actors: int | None = None
    """Actors; None: as the workload says."""
    lanes: int | None = None
    """Environment copies in a group; None: as the workload says."""
    ring: int | None = None
    """Groups in an actor's ring."""
    trainers: int = 1
    """Data-parallel trainers."""
    max_lag: int = 1
    """Bound of the staleness."""
    workers: int = 10_000
    """`control`: light-weight workers, which register and report but do nothing."""
    hosts: int = 100
    """`control`: hosts that they are on."""
    json: bool = False
    """Print one line of JSON."""
