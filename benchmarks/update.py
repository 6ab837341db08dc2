"""Rates of PPO's update and inference on one core: `python benchmarks/update.py [workload ...]`."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from srl.algorithms.ppo.config import PPOConfig
from srl.api.policy import Policy
from srl.api.spaces import Box, Discrete, Space
from srl.api.trainer import Trajectory
from srl.base.tree import Array


@dataclass(frozen=True)
class Workload:
    observation: Space
    action: Space
    num_steps: int
    num_lanes: int
    minibatch: int
    inference_sizes: tuple[int, ...]


WORKLOADS = {
    "cartpole": Workload(Box((4,)), Discrete(2), 16, 256, 1024, (64, 256)),
    "halfcheetah": Workload(Box((17,)), Box((6,)), 32, 128, 1024, (64, 256)),
    "pong": Workload(Box((4, 84, 84), "uint8"), Discrete(6), 16, 64, 256, (32,)),
}


def random_observation(space: Space, rng: np.random.Generator, *leading: int) -> Array:
    assert isinstance(space, Box)
    if space.dtype == "uint8":
        return rng.integers(0, 256, (*leading, *space.shape), np.uint8)
    return rng.standard_normal((*leading, *space.shape), np.float32)


def synthetic_trajectory(workload: Workload, policy: Policy, rng: np.random.Generator) -> Trajectory:
    """Return a batch with random observations and rewards, decisions of the policy, and an episode end (followed by an
    idle row) every hundred rows."""
    rows, lanes = workload.num_steps + 1, workload.num_lanes
    observation = random_observation(workload.observation, rng, rows, lanes)
    first = np.zeros((rows, lanes), bool)
    decisions = [policy.act(observation[t], None, first[t]) for t in range(rows)]
    terminated = rng.random((rows, lanes)) < 0.01
    acting = np.ones((rows, lanes), bool)
    acting[1:] = ~terminated[:-1]
    return Trajectory(
        observation,
        {key: np.stack([np.asarray(decision[key]) for decision in decisions]) for key in decisions[0]},
        rng.standard_normal((rows, lanes), np.float32),
        terminated,
        np.zeros((rows, lanes), bool),
        acting,
        first,
        np.zeros((rows, lanes), np.int32),
    )


def best_seconds(call: Callable[[], object], seconds: float) -> tuple[float, float]:
    """Return the fastest and the median duration of calls within `seconds`."""
    call()
    durations = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(durations) < 5:
        start = time.perf_counter()
        call()
        durations.append(time.perf_counter() - start)
    return min(durations), float(np.median(durations))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workloads", nargs="*", default=list(WORKLOADS))
    parser.add_argument("--seconds", type=float, default=3.0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{'workload':12} {'what':22} {'best ms':>9} {'median ms':>9} {'best /s':>12} {'median /s':>12}")
    for name in arguments.workloads:
        workload = WORKLOADS[name]
        rng = np.random.default_rng(1)
        batch_size = workload.num_steps * workload.num_lanes
        minibatches = batch_size // workload.minibatch
        config = PPOConfig(epochs=1, num_minibatches=minibatches, learning_rate_schedule="constant")
        policy = config.build_policy(workload.observation, workload.action, 1)
        trainer = config.build_trainer(workload.observation, workload.action, 1)
        batch = synthetic_trajectory(workload, policy, rng)

        def report(what: str, samples: int, call: Callable[[], object], name: str = name) -> None:
            best, median = best_seconds(call, arguments.seconds)
            rates = f"{samples / best:12,.0f} {samples / median:12,.0f}"
            print(f"{name:12} {what:22} {best * 1e3:9.3f} {median * 1e3:9.3f} {rates}", flush=True)

        what = f"update {batch_size}/{workload.minibatch}"
        report(what, batch.num_decisions, lambda trainer=trainer, batch=batch: trainer.step(batch, 0.0))
        for size in workload.inference_sizes:
            observation = random_observation(workload.observation, rng, size)
            first = np.zeros(size, bool)
            report(f"act {size}", size, lambda p=policy, o=observation, f=first: p.act(o, None, f))


if __name__ == "__main__":
    main()
