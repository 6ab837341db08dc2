"""Benchmark of the environment ring: stepping other lane groups hides the delay of inference."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from srl.api.algorithm import AlgorithmConfig
from srl.api.policy import Decision, Policy
from srl.api.spaces import Space, array_spec
from srl.api.trainer import Trainer, TrainerGroup, TrainResult, Trajectory
from srl.base.tree import Array, Tree, TreeSpec
from srl.bench.options import BenchOptions
from srl.environments.random_actions import random_actions

ENV_SECONDS = 0.001
INFERENCE_SECONDS = 0.005
RINGS = (1, 2, 4)
TURNS = 3
"""Number of measurements per ring size, alternating, so that noise from other processes affects all of them."""


@dataclass(frozen=True)
class DistantConfig(AlgorithmConfig):
    """A policy on a busy or remote accelerator: inference takes `seconds` without using this machine's cores."""

    seconds: float = INFERENCE_SECONDS

    def check(self, observation: Space, action: Space) -> None:
        """Accept all spaces."""

    def decision_spec(self, observation: Space, action: Space) -> dict[str, TreeSpec]:
        return {"action": array_spec(action)}

    def build_policy(self, observation: Space, action: Space, seed: int) -> DelayedPolicy:
        return DelayedPolicy(action, seed, self.seconds)

    def build_trainer(self, observation: Space, action: Space, seed: int) -> IdleTrainer:
        return IdleTrainer()


class DelayedPolicy(Policy):
    def __init__(self, action: Space, seed: int, seconds: float) -> None:
        self._space = action
        self._seconds = seconds
        self._generator = np.random.default_rng(seed)

    def act(self, observation: Tree, state: Tree | None, first: Array, *, greedy: bool = False) -> Decision:
        time.sleep(self._seconds)
        return {"action": random_actions(self._space, len(first), self._generator)}

    def load(self, parameters: Array, version: int) -> None:
        self.version = version


class IdleTrainer(Trainer):
    """A trainer that consumes batches without learning."""

    def step(self, batch: Trajectory, progress: float) -> TrainResult:
        return TrainResult(num_decisions=batch.num_decisions)

    def parameters(self) -> Array:
        return np.zeros(1, np.float32)

    def state(self) -> Mapping[str, Array]:
        return {"parameters": np.zeros(1, np.float32)}

    def restore(self, state: Mapping[str, Array]) -> None:
        """Nothing to restore."""

    def join(self, group: TrainerGroup) -> None:
        """Nothing to share."""


def ring(options: BenchOptions) -> dict[str, Any]:
    """Measure decisions per second with 1, 2 and 4 lane groups; steps take 1 ms, inference takes 5 ms. Medians."""
    turns = [[_rate(size, options.seconds / len(RINGS) / TURNS) for size in RINGS] for _ in range(TURNS)]
    rates = {size: statistics.median(turn[index] for turn in turns) for index, size in enumerate(RINGS)}
    gains = {f"gain_{size}": round(rates[size] / rates[1], 2) for size in RINGS[1:]}
    return {
        "env_ms": ENV_SECONDS * 1000,
        "inference_ms": INFERENCE_SECONDS * 1000,
        **{f"fps_{size}": round(rate, 1) for size, rate in rates.items()},
        **gains,
    }


def _rate(size: int, seconds: float) -> float:
    from srl.bench.throughput import ENDLESS, ThroughputMeasurement
    from srl.experiments.options.keywords import make_options
    from srl.experiments.session.launch import start

    window = ThroughputMeasurement(warmup=1.0, seconds=seconds)
    run_options = make_options(
        algo="srl.bench.ring:DistantConfig",
        steps=ENDLESS,
        inference="host",
        actors=1,
        lanes=1,
        ring=size,
        horizon=32,
        batch=32 * size,
        in_flight=size,
        max_lag=1,
        env_args={"seconds": ENV_SECONDS, "length": 1_000_000},
    )
    with tempfile.TemporaryDirectory(prefix="srl-bench-") as root:
        start("srl.testing.environments:Slow", run_options, "ring", Path(root), window)
    assert window.result is not None
    return float(window.result["fps"])
