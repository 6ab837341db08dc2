"""Benchmark of the environment ring: stepping other lane groups hides inference latency."""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path
from typing import Any

from srl.bench.options import BenchOptions
from srl.bench.random_policy import RandomConfig

ENV_SECONDS = 0.001
INFERENCE_SECONDS = 0.005
RINGS = (1, 2, 4)
TURNS = 3  # number of measurements per ring size, alternating, so that noise from other processes affects all of them


def ring(options: BenchOptions) -> dict[str, Any]:
    """Return median decisions per second with 1, 2 and 4 lane groups; a step takes 1 ms, inference 5 ms."""
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
        algo=RandomConfig(INFERENCE_SECONDS),
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
