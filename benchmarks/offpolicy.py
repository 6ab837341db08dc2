"""Off-policy runs against each other: alternating turns, medians, ratios.

    .venv/bin/python benchmarks/offpolicy.py busy host apex share [--repeats 3] [--seconds 8]

busy      SAC with one of two cores busy elsewhere, against SAC with one core
host      SAC with a replay worker (`--replay host`), against the replay inside the trainer
apex      Ape-X on CartPole, 2 actors: the same comparison
share     time to draw a minibatch of SAC from 10^6 decisions, against the gradient step that learns from it

The recovery of a replay worker is a row of faults.py.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import numpy as np
import torch
from gradient_steps import CASES, random_batch
from peers import run_srl, undisturbed
from replay import SIZE, filled, half_cheetah, random_block

from srl.api.dataflow import Replay, Transitions

Setting = tuple[Callable[[], contextlib.AbstractContextManager[None]], str, list[str]]


@contextlib.contextmanager
def on_core(core: int) -> Iterator[None]:
    """Run what is started here on one core."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextlib.contextmanager
def beside_busy_core() -> Iterator[None]:
    """Keep the last core busy with a process that does nothing else."""
    with on_core(max(os.sched_getaffinity(0))):
        other = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        other.kill()
        other.wait()


PLAIN = contextlib.nullcontext
COMPARISONS: dict[str, tuple[float, Setting, Setting]] = {
    "busy": (0.6, (beside_busy_core, "sac-halfcheetah", []), (lambda: on_core(0), "sac-halfcheetah", [])),
    "host": (
        0.95,
        (PLAIN, "sac-halfcheetah", ["--replay", "host"]),
        (PLAIN, "sac-halfcheetah", ["--replay", "inline"]),
    ),
    "apex": (
        0.7,
        (PLAIN, "apex-cartpole", ["--replay", "host"]),
        (PLAIN, "apex-cartpole", ["--replay", "inline"]),
    ),
}


def compare(name: str, repeats: int, seconds: float, others: float) -> None:
    bar, *settings = COMPARISONS[name]
    rates: tuple[list[float], list[float]] = ([], [])
    for _ in range(repeats):
        for found, (context, workload, options) in zip(rates, settings, strict=True):
            with context():
                limit = others + (1.0 if context is beside_busy_core else 0.0)
                result = undisturbed(lambda: run_srl(workload, seconds, options), limit)  # noqa: B023
            found.append(result["fps"])
    one, other = map(statistics.median, rates)
    print(f"{name:9} {one:8.0f} of {other:8.0f} steps/s: {one / other:.2f} (bar {bar})   {rates}", flush=True)


def share(windows: int = 15) -> None:
    """CPU time, because other programs use the machine too. The update runs in one thread: two do not wait for draws
    less often."""
    torch.set_num_threads(1)
    random = np.random.default_rng(0)
    spec = half_cheetah(4, 4)
    memory = filled(Replay(Transitions(1), 256, SIZE), spec, random_block(spec, random))
    case = CASES["sac"]
    config = case.config.with_option("update_threads", 1)
    trainer = config.build_trainer(case.observation, case.action, 0)
    batch = random_batch(case, config, random)
    arrays = random_block(spec, random)

    def fill_and_draw() -> None:
        memory.insert(arrays, "track", 0)
        memory.draw(case.num_steps, 0.0)

    def cost(call: Callable[[], object], repeats: int) -> float:
        call()
        found = []
        for _ in range(windows):
            begin = time.process_time()
            for _ in range(repeats):
                call()
            found.append((time.process_time() - begin) / repeats / case.num_steps)
        return statistics.median(found)

    draw, step = cost(fill_and_draw, 20), cost(lambda: trainer.step(batch, 0.5), 2)
    print(f"share     {draw * 1e6:8.0f} us of {step * 1e6:8.0f} us per gradient step: {draw / step:.1%} (bar 3%)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+", choices=[*COMPARISONS, "share"])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--others", type=float, default=math.inf, help="see peers.py")
    arguments = parser.parse_args()
    for variable in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):  # as in peers.py
        os.environ.pop(variable, None)
    for name in arguments.names:
        if name == "share":
            share()
        else:
            compare(name, arguments.repeats, arguments.seconds, arguments.others)


if __name__ == "__main__":
    main()
