"""Milliseconds of CPU time per gradient step of each off-policy algorithm, with random batches and one torch thread.

    .venv/bin/python benchmarks/gradient_steps.py [NAME ...] [--set OPTION=VALUE ...] [--windows 15] [--profile]
    .venv/bin/python benchmarks/gradient_steps.py [NAME ...] --commits    # of committing and publishing an update

Times are the third best of the windows, because other programs use the machine too; `median` is their median.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from srl.algorithms.dqn.config import DQNConfig, RainbowConfig
from srl.algorithms.qmix.config import QMIXConfig, VDNConfig
from srl.algorithms.r2d2.config import R2D2Config
from srl.algorithms.sac.config import SACConfig, TD3Config
from srl.api.dataflow import ReplayBatch, Sequences, batch_of
from srl.api.spaces import Box, Dict, Discrete, Space
from srl.base.snapshot import Snapshot
from srl.base.tree import Array
from srl.bench.throughput import NATURE
from srl.parameters.host import HostParameterStore

VECTOR, IMAGE = Box((17,)), Box((4, 84, 84), "uint8", 0.0, 255.0)
FORCE = Box((6,), "float32", -1.0, 1.0)


@dataclass(frozen=True)
class Case:
    config: Any
    observation: Space
    action: Space
    num_steps: int = 8
    """Gradient steps per update."""


CASES = {
    "sac": Case(SACConfig(), VECTOR, FORCE, 16),
    "td3": Case(TD3Config(), VECTOR, FORCE, 16),
    "redq": Case(SACConfig(num_critics=10, target_critics=2), VECTOR, FORCE, 16),
    "droq": Case(SACConfig(critic_dropout=0.01, critic_layer_norm=True), VECTOR, FORCE, 16),
    "sac-discrete": Case(SACConfig(), VECTOR, Discrete(6), 16),
    "sac-image": Case(SACConfig(batch_size=64), IMAGE, FORCE, 2),
    "dqn": Case(DQNConfig(), VECTOR, Discrete(6), 64),
    "dqn-image": Case(NATURE, IMAGE, Discrete(6)),
    "rainbow": Case(RainbowConfig(), VECTOR, Discrete(6)),
    "r2d2": Case(R2D2Config(), VECTOR, Discrete(6), 2),
    "vdn": Case(VDNConfig(num_agents=4), VECTOR, Discrete(6), 2),
    "qmix": Case(QMIXConfig(num_agents=4), VECTOR, Discrete(6), 2),
}


def random_rows(space: Space, random: np.random.Generator, *leading: int) -> Any:
    if isinstance(space, Dict):
        return {name: random_rows(item, random, *leading) for name, item in space.items.items()}
    if isinstance(space, Discrete):
        return random.integers(0, space.n, leading)
    assert isinstance(space, Box)
    if space.dtype == "uint8":
        return random.integers(0, 256, (*leading, *space.shape), np.uint8)
    return random.uniform(-1.0, 1.0, (*leading, *space.shape)).astype(np.float32)


def random_batch(case: Case, config: Any, random: np.random.Generator) -> ReplayBatch:
    flow = config.dataflow()
    shape: tuple[int, ...] = (case.num_steps, flow.batch)
    arrays: dict[str, Array] = {"weight": np.ones(shape, np.float32)}
    if isinstance(flow.unit, Sequences):
        shape = (case.num_steps, flow.unit.rows + 1, flow.batch * flow.unit.num_agents)
        for name in ("terminated", "truncated", "first"):
            arrays[name] = random.random(shape) < 0.01
        arrays |= {"acting": np.ones(shape, bool), "valid": np.ones(shape, bool)}
        arrays |= _state(case, config, shape)
    else:
        arrays["discount"] = np.full(shape, 0.99, np.float32)
        arrays["next_observation"] = random_rows(case.observation, random, *shape)
    arrays["reward"] = random.standard_normal(shape, np.float32)
    arrays["observation"] = random_rows(case.observation, random, *shape)
    arrays["decision/action"] = random_rows(case.action, random, *shape)
    return batch_of(flow.unit, arrays)


def _state(case: Case, config: Any, shape: tuple[int, ...]) -> dict[str, Array]:
    spec: Any = config.decision_spec(case.observation, case.action).get("state")
    return {} if spec is None else {"state": np.zeros((shape[0], shape[2], *spec.shape), np.float32)}


def measure(name: str, changes: list[str], windows: int, profiled: bool) -> None:
    case = CASES[name]
    config = case.config
    for change in changes:
        option, _, text = change.partition("=")
        old = getattr(config, option, None)
        if old is not None:
            config = config.with_option(option, type(old)(text))
    random = np.random.default_rng(0)
    trainer = config.build_trainer(case.observation, case.action, 0)
    batch = random_batch(case, config, random)
    update: Callable[[], object] = lambda: trainer.step(batch, 0.5)  # noqa: E731
    for _ in range(2):
        update()
    costs = sorted(_timed(update) / case.num_steps * 1e3 for _ in range(windows))
    print(f"{name:16} {costs[2]:8.2f} ms   median {costs[windows // 2]:8.2f} ms", flush=True)
    if profiled:
        with cProfile.Profile() as profile:
            for _ in range(5):
                update()
        pstats.Stats(profile).sort_stats("tottime").print_stats(25)


def measure_commits(name: str, windows: int) -> None:
    case = CASES[name]
    trainer = case.config.build_trainer(case.observation, case.action, 0)
    commits, store = Snapshot.create("commits"), HostParameterStore.create("parameters")
    state, parameters = trainer.state(), trainer.parameters()
    size = sum(array.nbytes for array in state.values())
    version = 0

    def commit() -> None:
        nonlocal version
        version += 1
        commits.write(version, trainer.state(), {})

    def publish() -> None:
        nonlocal version
        version += 1
        store.push(version, parameters)

    figures = [sorted(_timed(call) * 1e3 for _ in range(windows))[2] for call in (commit, publish)]
    print(
        f"{name:16} state {size / 1e6:6.1f} MB: commit {figures[0]:6.3f} ms   publish {figures[1]:6.3f} ms", flush=True
    )
    commits.memory.close()
    store.memory.close()


def _timed(call: Callable[[], object]) -> float:
    begin, number = time.process_time(), 0
    while time.process_time() - begin < 0.2:
        call()
        number += 1
    return (time.process_time() - begin) / number


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(CASES))
    parser.add_argument("--set", nargs="*", default=[], metavar="OPTION=VALUE", help="other options of the algorithm")
    parser.add_argument("--windows", type=int, default=15)
    parser.add_argument("--profile", action="store_true", help="also print where Python spends its time")
    parser.add_argument("--commits", action="store_true", help="measure commits and publications instead")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for name in arguments.names or CASES:
        if arguments.commits:
            measure_commits(name, arguments.windows)
            continue
        measure(name, arguments.set, arguments.windows, arguments.profile)


if __name__ == "__main__":
    main()
