"""The options of `srl bench`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class BenchOptions:
    """Workload and sizes of a benchmark."""

    workload: str = "cartpole"
    """Workload: `cartpole`, `pong` or `halfcheetah` (PPO), `sac-halfcheetah`, `dqn-cartpole`, `dqn-pong` or
    `dqn-pong-bfloat16`, with the networks, batches and epochs of the comparison with other libraries;
    `apex-cartpole`; or any environment, as for `srl train`."""
    seconds: float = 30.0
    """Duration of the measurement after the warm-up, in seconds."""
    warmup: float = 5.0
    """Time from the first update to the start of the measurement, in seconds."""
    inference: Literal["inline", "host", "remote"] = "inline"
    """Where inference runs, as for `srl train`."""
    actors: int | None = None
    """Number of actors. Default: the workload's."""
    lanes: int | None = None
    """Environment copies per lane group. Default: the workload's."""
    ring: int | None = None
    """Lane groups per actor."""
    replay: Literal["inline", "host", "remote"] = "inline"
    """Where the replay of off-policy workloads is, as for `srl train`."""
    trainers: int = 1
    """Number of data-parallel trainers."""
    max_lag: int = 1
    """Bound on the staleness of data, in versions."""
    workers: int = 10_000
    """Number of simulated workers, which register and report but do nothing (`control` only)."""
    hosts: int = 100
    """Number of simulated hosts (`control` only)."""
    json: bool = False
    """Print one line of JSON."""

    def __post_init__(self) -> None:
        if not self.seconds > 0.0:
            raise ValueError(f"seconds must be positive, found {self.seconds}")
