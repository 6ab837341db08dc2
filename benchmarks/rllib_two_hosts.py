"""Throughput of SRL and RLlib on the same Ray cluster of two nodes (root): alternating runs, medians, ratio.

    python benchmarks/rllib_two_hosts.py --peers DIRECTORY --workload cartpole --turns 2

The nodes are network namespaces with names of their own, on the cores of this machine. DIRECTORY holds RLlib's script
(rllib.py, as for benchmarks/peers.py), `--python` is an interpreter with RLlib and the same Ray as ours. Both
sides have an actor (env runner) on each node, both count decisions that were learned from.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from jobs import job, rate
from peers import PEERS

sys.path.append(str(Path(__file__).resolve().parent.parent / "tests"))

from support.engines import ray
from support.namespaces import hosts

CPUS = 2
"""Cores per node, for both: SRL has a trainer and two actors, RLlib two runners and the driver, which trains."""
OURS = {
    "cartpole": ("CartPole-v1", "--lanes", "256", "--horizon", "8", "--batch", "4096"),
    "pong": ("PongNoFrameskip-v4", "--lanes", "8", "--horizon", "64", "--batch", "1024"),
}
SHARED = ("--actors", "2", "--ppo.epochs", "1", "--ppo.num-minibatches", "4", "--inference", "inline")

DRIVER = """
import os, runpy, sys, ray
init = ray.init
own = {{"py_executable": sys.executable, "env_vars": {{"PYTHONPATH": os.getcwd()}}}}
ray.init = lambda **_: init(address={address!r}, runtime_env=own, log_to_driver=False, logging_level="ERROR")
sys.argv = {words!r}
sys.path.insert(0, os.getcwd())
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""Runs their script unchanged, except that it connects to the cluster instead of starting its own Ray."""


@dataclass(frozen=True)
class Cluster:
    address: str
    enter: tuple[str, ...]
    """Command prefix that runs a command on the first node."""


def measure_ours(cluster: Cluster, workload: str, seconds: float, warmup: float) -> float:
    env, *options = OURS[workload]
    place = ("--scheduler", "ray", "--address", cluster.address, "--hosts", "2")
    with job(*options, *SHARED, *place, env=env, enter=cluster.enter, updates=3) as run:
        measured = rate(run, warmup, seconds)
        status = run.wait(lambda status: True)
    print("(" + ", ".join(f"{worker.name} on {worker.host}" for worker in status.workers) + ")", flush=True)
    return measured


def measure_theirs(
    cluster: Cluster, workload: str, seconds: float, warmup: float, python: Path, directory: Path
) -> float:
    words = [*PEERS["rllib"][workload].split(), "--window", str(seconds), "--warm", str(warmup)]
    driver = DRIVER.format(address=cluster.address, words=words)
    done = subprocess.run(
        [*cluster.enter, str(python), "-c", driver],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    if not lines:
        raise RuntimeError(f"RLlib printed no result; its output ends:\n{done.stdout[-1000:]}{done.stderr[-2000:]}")
    return float(json.loads(lines[-1].removeprefix("RESULT "))["fps"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=Path, required=True)
    parser.add_argument("--python", type=Path, default=Path("~/.cache/srl-peers/rllib/bin/python"))
    parser.add_argument("--workload", choices=list(OURS), default="cartpole")
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--warmup", type=float, default=4.0)
    arguments = parser.parse_args()
    span = arguments.workload, arguments.seconds, arguments.warmup
    ours, theirs = [], []
    python, directory = arguments.python.expanduser(), arguments.peers.resolve()
    with hosts(2) as nodes, ray(nodes, CPUS) as address:
        cluster = Cluster(address, nodes.enter(0))
        for _ in range(arguments.turns):
            ours.append(measure_ours(cluster, *span))
            theirs.append(measure_theirs(cluster, *span, python, directory))
            print(f"srl {ours[-1]:,.0f} /s, rllib {theirs[-1]:,.0f} /s: {ours[-1] / theirs[-1]:.1f}x", flush=True)
    ratio = statistics.median(ours) / statistics.median(theirs)
    print(f"{arguments.workload}, medians of {len(ours)}: {ratio:.1f}x")


if __name__ == "__main__":
    main()
