"""Throughput of SRL and other libraries on this machine: alternating runs, medians, ratios.

    python benchmarks/peers.py --peers DIRECTORY --workload cartpole --repeats 3 [--with clean sb3 sf rllib sbx torchrl]
        [--others 0.1]

DIRECTORY holds the peers' scripts (clean.py, sb3.py, sf.py, rllib.py, offpolicy_*.py), each of which prints a line
`RESULT {json}` with `fps`: decisions consumed by the learner per second, before frame-skip. With `--others`, a
turn during which other programs used more cores than that is repeated, at most five times, and the least disturbed one
counts.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil

# The best settings found for each peer on two cores.
PEERS = {
    "clean": {
        "cartpole": "clean.py cartpole --envs 128 --threads 1",
        "pong": "clean.py pong --envs 32 --mb 256",
        "halfcheetah": "clean.py halfcheetah --envs 64 --threads 1",
    },
    "sb3": {
        "cartpole": "sb3.py cartpole --envs 64 --threads 1",
        "pong": "sb3.py pong --envs 8",
        "halfcheetah": "sb3.py halfcheetah --envs 8 --threads 1",
        "sac-halfcheetah": "offpolicy_sac.py sb3",
        "dqn-cartpole": "offpolicy_dqn.py sb3 cartpole",
        "dqn-pong": "offpolicy_dqn.py sb3 pong",
        "dqn-pong-bfloat16": "offpolicy_dqn.py sb3 pong",
    },
    "sbx": {
        "sac-halfcheetah": "offpolicy_sac.py sbx",
        "dqn-cartpole": "offpolicy_dqn.py sbx cartpole",
    },
    "torchrl": {"sac-halfcheetah": "offpolicy_sac.py torchrl"},
    "sf": {
        "cartpole": "sf.py cartpole --workers 2 --envs 128 --splits 1 --batched 1 --mb 4096",
        "pong": "sf.py pong --workers 2 --envs 8 --splits 2 --mb 256",
        "halfcheetah": "sf.py halfcheetah --workers 2 --envs 16 --splits 2",
    },
    "rllib": {
        "cartpole": "rllib.py cartpole --runners 2 --envs 32",
        "pong": "rllib.py pong --runners 2 --envs 8",
        "halfcheetah": "rllib.py halfcheetah --runners 2 --envs 16",
    },
}


def run_srl(workload: str, seconds: float, extra: list[str]) -> dict[str, float]:
    command = [str(Path(sys.executable).with_name("srl")), "bench", "throughput", "--workload", workload]
    command += ["--seconds", str(seconds), "--warmup", "4", "--json", *extra]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=True)
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def run_peer(directory: Path, peer: str, workload: str, seconds: float) -> dict[str, float]:
    words = PEERS[peer][workload].split()
    command = ["python3", *words, "--window", str(seconds), "--warm", "6"]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=900, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    if not lines:
        raise RuntimeError(f"{peer} printed no result; the end of its output:\n{done.stderr[-2000:]}")
    result: dict[str, float] = json.loads(lines[-1].removeprefix("RESULT "))
    return result


def undisturbed(measure: Callable[[], dict[str, float]], limit: float) -> dict[str, float]:
    """Return the result of a measurement in subprocesses, with `others`: the cores that other programs used."""
    found: list[dict[str, float]] = []
    while not found or (found[-1]["others"] > limit and len(found) < 6):
        began, busy, own = time.monotonic(), _busy_seconds(), _own_seconds()
        result = measure()
        others = (_busy_seconds() - busy) - (_own_seconds() - own)
        found.append({**result, "others": max(0.0, others) / (time.monotonic() - began)})
    return min(found, key=lambda one: one["others"])


def _busy_seconds() -> float:
    """Return the CPU seconds of all programs."""
    times = psutil.cpu_times()
    return sum(times) - times.idle - getattr(times, "iowait", 0.0) - getattr(times, "guest", 0.0)


def _own_seconds() -> float:
    """Return the CPU seconds of this process and of those that it started and that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=Path, required=True)
    parser.add_argument("--workload", choices=list(PEERS["sb3"]), default="cartpole")
    parser.add_argument("--with", dest="names", nargs="+", choices=list(PEERS), default=["clean"])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--others", type=float, default=math.inf)
    arguments, extra = parser.parse_known_args()
    for name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):  # every library chooses the code for this processor
        os.environ.pop(name, None)
    directory, workload, seconds = arguments.peers, arguments.workload, arguments.seconds
    rates: dict[str, list[float]] = {"srl": [], **{name: [] for name in arguments.names}}
    for turn in range(arguments.repeats):
        for name in rates:
            if name == "srl":
                result = undisturbed(lambda: run_srl(workload, seconds, extra), arguments.others)
            else:
                result = undisturbed(lambda: run_peer(directory, name, workload, seconds), arguments.others)  # noqa: B023
            rates[name].append(result["fps"])
            print(
                f"turn {turn + 1}: {name:6} {result['fps']:>12,.0f} /s   (others: {result['others']:.2f} cores)",
                flush=True,
            )
    ours = statistics.median(rates["srl"])
    print(f"\n{arguments.workload}: medians of {arguments.repeats} alternating runs of {arguments.seconds:.0f} s")
    for name, found in rates.items():
        middle = statistics.median(found)
        spread = f"{min(found):,.0f} - {max(found):,.0f}"
        print(f"  {name:6} {middle:>12,.0f} /s   ({spread})   srl is {ours / middle:.2f}x")


if __name__ == "__main__":
    main()
