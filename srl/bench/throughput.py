"""Benchmark of training throughput, and of how workers spend their time."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil

from srl.algorithms.dqn.config import ApeXConfig, DQNConfig
from srl.algorithms.ppo.config import PPOConfig
from srl.algorithms.sac.config import SACConfig
from srl.api.algorithm import AlgorithmConfig
from srl.api.status import RunStatus
from srl.bench.options import BenchOptions
from srl.experiments.options.keywords import make_options
from srl.experiments.options.train_options import TrainOptions
from srl.experiments.session.launch import start

ENDLESS = 10**12
PPO = PPOConfig(epochs=1, num_minibatches=4, learning_rate=2.5e-4)
STARTS = 1000  # decisions before an off-policy algorithm learns
NATURE = DQNConfig(
    learning_rate=1e-4,
    batch_size=32,
    double=False,
    updates_per_decision=0.25,
    target_update=250,
    learning_starts=STARTS,
    body="nature",
    update_threads=2,
)


@dataclass(frozen=True)
class Workload:
    """Settings for a comparison with other libraries: same networks, same batch. PPO uses one epoch of four
    minibatches."""

    env: str
    lanes: int
    horizon: int
    batch: int
    actors: int
    algorithm: AlgorithmConfig = PPO


WORKLOADS = {
    "cartpole": Workload("CartPole-v1", lanes=256, horizon=16, batch=4096, actors=1),
    "pong": Workload("PongNoFrameskip-v4", lanes=8, horizon=64, batch=1024, actors=2),
    "halfcheetah": Workload("HalfCheetah-v5", lanes=128, horizon=16, batch=4096, actors=2),
    "sac-halfcheetah": Workload("HalfCheetah-v5", 4, 4, 16, 1, SACConfig(learning_starts=STARTS)),
    "dqn-cartpole": Workload(
        "CartPole-v1",
        lanes=16,
        horizon=16,
        batch=256,
        actors=1,
        algorithm=DQNConfig(learning_rate=2.3e-3, double=False, target_update=128, learning_starts=STARTS),
    ),
    "dqn-pong": Workload("PongNoFrameskip-v4", 4, 8, 32, 1, NATURE),
    "apex-cartpole": Workload("CartPole-v1", 16, 16, 512, 2, ApeXConfig(learning_starts=STARTS)),
    "dqn-pong-bfloat16": Workload("PongNoFrameskip-v4", 4, 8, 32, 1, replace(NATURE, precision="bfloat16")),
}


def measure(what: str, options: BenchOptions) -> dict[str, Any]:
    from srl.bench.actor import raw_actor
    from srl.bench.control import control
    from srl.bench.ring import ring

    kinds: dict[str, Callable[[BenchOptions], dict[str, Any]]] = {
        "throughput": throughput,
        "ring": ring,
        "actor": raw_actor,
        "control": control,
    }
    return kinds[what](options)


def options_for(settings: BenchOptions) -> tuple[str, TrainOptions]:
    """Return a workload's environment and options, with command-line overrides applied."""
    known = WORKLOADS.get(settings.workload)
    shared: dict[str, Any] = {"steps": ENDLESS, "checkpoint_seconds": float(ENDLESS)}
    shared |= {name: getattr(settings, name) for name in ("inference", "ring", "replay", "trainers", "max_lag")}
    if known is None:
        options = make_options(actors=settings.actors, lanes=settings.lanes, algorithm=PPOConfig(epochs=1), **shared)
        return settings.workload, options
    actors = settings.actors or known.actors
    # An inference request for twice the lanes costs the same.
    lanes = settings.lanes or known.lanes * (1 if settings.inference == "inline" else 2)
    horizon = known.horizon
    while lanes * horizon * actors > known.batch and horizon > 1:  # each batch contains a part from every actor
        horizon //= 2
    return known.env, make_options(
        actors=actors, lanes=lanes, horizon=horizon, batch=known.batch, algorithm=known.algorithm, **shared
    )


class ThroughputMeasurement:
    """A status callback that measures a run after its warm-up and then interrupts it."""

    def __init__(self, warmup: float, seconds: float) -> None:
        self._warmup = warmup
        self._seconds = seconds
        self._first: tuple[float, RunStatus, float] | None = None
        self._updated: float | None = None
        self.result: dict[str, Any] | None = None

    def __call__(self, status: RunStatus) -> None:
        now = time.monotonic()
        if status.updates and self._updated is None:
            self._updated = now
        if self._updated is None or self.result is not None:
            return
        if self._first is None:
            if now - self._updated >= self._warmup:
                self._first = (now, status, _tree_cpu_seconds())
            return
        began, before, cpu_before = self._first
        if (span := now - began) >= self._seconds:
            cpu = 100 * (_tree_cpu_seconds() - cpu_before) / span
            rss, pss = _tree_memory_mb()
            self.result = {
                "fps": round((status.steps - before.steps) / span, 1),
                "env_fps": round(status.env_fps, 1),
                "cpu_percent": round(cpu, 1),
                "rss_mb": round(rss),
                "pss_mb": round(pss),
                "lag_mean": round(status.lag_mean, 3),
                "lag_max": status.lag_max,
                "first_update_s": round(status.seconds_to_first_update or 0.0, 2),
                "busy": _busy(status),
                "workers": {w.name: {k: round(v, 3) for k, v in w.busy.items()} for w in status.workers},
                "window_s": round(span, 1),
            }
            raise KeyboardInterrupt


def throughput(settings: BenchOptions) -> dict[str, Any]:
    """Measure how many decisions per second trainers consume, not counting skipped frames."""
    env, options = options_for(settings)
    window = ThroughputMeasurement(settings.warmup, settings.seconds)
    with tempfile.TemporaryDirectory(prefix="srl-bench-") as root:
        start(env, options, "bench", Path(root), window, psutil.Process().create_time())
    if window.result is None:
        raise RuntimeError("the run ended before it could be measured")
    return {"workload": settings.workload, **window.result, "settings": _settings(options)}


def _settings(options: TrainOptions) -> dict[str, Any]:
    names = ("inference", "actors", "lanes", "ring", "horizon", "batch", "replay", "trainers", "max_lag")
    return {name: options.value(name) for name in names if options.value(name) is not None}


def _busy(status: RunStatus) -> dict[str, float]:
    """Return the fraction of time spent in each phase, averaged over all workers."""
    shares: dict[str, float] = {}
    for worker in status.workers:
        for phase, share in worker.busy.items():
            shares[phase] = shares.get(phase, 0.0) + share / len(status.workers)
    return {phase: round(share, 3) for phase, share in sorted(shares.items())}


def _tree() -> list[psutil.Process]:
    own = psutil.Process()
    return [own, *own.children(recursive=True)]


def _tree_cpu_seconds() -> float:
    return sum(times.user + times.system for times in (process.cpu_times() for process in _tree()))


def _tree_memory_mb() -> tuple[float, float]:
    """Return the resident memory of all processes, counting shared pages per process (RSS) and only once (PSS)."""
    memories = [process.memory_full_info() for process in _tree()]
    return sum(memory.rss for memory in memories) / 2**20, sum(memory.pss for memory in memories) / 2**20


def describe(result: dict[str, Any]) -> str:
    """Format a measurement as lines of text."""
    return "\n".join(f"{name:16} {value}" for name, value in result.items())
