"""Overhead of lanes compared with the bare environment: `python benchmarks/environments.py`.

Both are stepped in turns with the same random actions, and the medians are compared. Times are CPU seconds of this
process (the thread of Atari's C++ environment among them), so that a busy machine disturbs less.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np

from srl.environments.mujoco.callbacks import log_warnings
from srl.environments.registry import lanes_config

ROUNDS = 15
SHORT_ROUNDS = 201  # of a few milliseconds each, so that noise affects both sides alike


def lanes_steps(name: str, actions: Any, **options: Any) -> Callable[[], None]:
    lanes = lanes_config(name, **options).build(actions.shape[1])
    lanes.reset(0)

    def run() -> None:
        for action in actions:
            lanes.step((action,))

    return run


def vector_steps(environment: Any, actions: Any) -> Callable[[], None]:
    environment.reset(seed=0)

    def run() -> None:
        for action in actions:
            environment.step(action)

    return run


def plain_steps(name: str, actions: Any) -> Callable[[], None]:
    log_warnings()
    copies = [gymnasium.make(name, disable_env_checker=True) for _ in range(actions.shape[1])]
    for seed, copy in enumerate(copies):
        copy.reset(seed=seed)

    def run() -> None:
        for action in actions:
            for copy, one in zip(copies, action, strict=True):
                _, _, terminated, truncated, _ = copy.step(one)
                if terminated or truncated:
                    copy.reset()

    return run


def compare(
    title: str, actions: Any, bare: Callable[[], None], lanes: Callable[[], None], rounds: int = ROUNDS
) -> None:
    count = actions.shape[0] * actions.shape[1]
    rates: dict[str, list[float]] = {"bare": [], "lanes": []}
    for _ in range(rounds):
        for which, run in (("bare", bare), ("lanes", lanes)):
            begun = time.process_time()
            run()
            rates[which].append(count / (time.process_time() - begun))
    one, other = statistics.median(rates["bare"]), statistics.median(rates["lanes"])
    print(f"{title:<44} bare {one:>11,.0f}/s   lanes {other:>11,.0f}/s   overhead {one / other - 1:>+7.1%}", flush=True)


def main() -> None:
    from ale_py.vector_env import AtariVectorEnv

    random = np.random.default_rng(0)
    print(f"environment steps per CPU second, medians of {ROUNDS} or {SHORT_ROUNDS} alternating rounds")
    actions = random.integers(0, 2, (100, 256))
    bare = vector_steps(gymnasium.make_vec("CartPole-v1", 256), actions)
    compare("CartPole-v1, 256 lanes, native vector", actions, bare, lanes_steps("CartPole-v1", actions), SHORT_ROUNDS)
    torques = random.uniform(-1, 1, (20, 64, 6)).astype(np.float32)
    bare = plain_steps("HalfCheetah-v5", torques)
    compare("HalfCheetah-v5, 64 lanes, native", torques, bare, lanes_steps("HalfCheetah-v5", torques))
    torques = random.uniform(-1, 1, (20, 16, 1)).astype(np.float32)
    bare = plain_steps("Pendulum-v1", torques)
    compare("Pendulum-v1, 16 lanes, plain Gymnasium", torques, bare, lanes_steps("Pendulum-v1", torques), SHORT_ROUNDS)
    buttons = random.integers(0, 6, (20, 32))
    bare = vector_steps(AtariVectorEnv("pong", 32, num_threads=1, repeat_action_probability=0.25), buttons)
    compare("ALE/Pong-v5, 32 lanes, C++", buttons, bare, lanes_steps("ALE/Pong-v5", buttons))


if __name__ == "__main__":
    main()
