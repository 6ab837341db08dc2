"""SRL beside RLlib on the same Ray cluster of two nodes (root): alternating runs, medians, the ratio.

    python benchmarks/rllib_two_hosts.py --peers DIRECTORY --workload cartpole --turns 2

The nodes are network namespaces with names of their own, on the cores of this machine. DIRECTORY holds RLlib's script
(rllib.py, as for benchmarks/peers.py), `--python` is an interpreter with RLlib and the same Ray as ours. Both
sides have an actor (env runner) on each node, both count decisions that were learnt from.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from jobs import job, rate
from namespaces import ADDRESSES, ENTER, HOSTS, switched
from peers import PEERS

RAY = f"{ADDRESSES[0]}:6379"
CPUS = 2
"""Of each node, for both: SRL's trainer and two actors, RLlib's two runners beside the driver, which learns."""
OURS = {
    "cartpole": ("CartPole-v1", "--lanes", "256", "--horizon", "8", "--batch", "4096"),
    "pong": ("PongNoFrameskip-v4", "--lanes", "8", "--horizon", "64", "--batch", "1024"),
}
SHARED = ("--actors", "2", "--ppo.epochs", "1", "--ppo.num-minibatches", "4", "--inference", "inline")
START_SECONDS = 60.0

DRIVER = """
import os, runpy, sys, ray
init = ray.init
own = {{"py_executable": sys.executable, "env_vars": {{"PYTHONPATH": os.getcwd()}}}}
ray.init = lambda **_: init(address={address!r}, runtime_env=own, log_to_driver=False, logging_level="ERROR")
sys.argv = {words!r}
sys.path.insert(0, os.getcwd())
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""Runs their script as it is; only where it would begin a Ray of its own it gets the cluster."""

COUNT = """
import ray, sys, time
ray.init(address={address!r}, log_to_driver=False, logging_level="ERROR")
deadline = time.monotonic() + {seconds}
while sum(node["Alive"] for node in ray.nodes()) < 2:
    if time.monotonic() > deadline:
        sys.exit("Ray's second node did not come")
    time.sleep(0.1)
"""


@contextlib.contextmanager
def ray_of_two_nodes() -> Iterator[None]:
    with tempfile.TemporaryDirectory(prefix="ray") as directory, switched():
        nodes = []
        try:
            for number, (host, address) in enumerate(zip(HOSTS, ADDRESSES, strict=True)):
                role = (f"--address={RAY}",) if number else ("--head", "--port=6379", "--include-dashboard=false")
                nodes.append(start_node(host, Path(directory), f"--node-ip-address={address}", *role))
                if not number:
                    reach_head()
            wait = COUNT.format(address=RAY, seconds=START_SECONDS)
            subprocess.run([*ENTER, sys.executable, "-c", wait], check=True)
            yield
        finally:
            for node in reversed(nodes):
                node.send_signal(signal.SIGTERM)
            for node in nodes:
                node.wait()


def start_node(host: str, directory: Path, *options: str) -> subprocess.Popen[bytes]:
    ray = str(Path(sys.executable).with_name("ray"))
    named = ("unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', host)
    command = (ray, "start", "--block", f"--num-cpus={CPUS}", "--object-store-memory=200000000", *options)
    with (directory / f"{host}.log").open("wb") as log:
        return subprocess.Popen(
            ["ip", "netns", "exec", host, *named, *command, f"--temp-dir={directory}", "--disable-usage-stats"],
            env={**os.environ, "RAY_worker_niceness": "0", "RAY_AUTH_MODE": "disabled"},
            stdout=log,
            stderr=log,
        )


def reach_head() -> None:
    probe = f"exec 3<>/dev/tcp/{ADDRESSES[0]}/6379"
    wait = f"for _ in $(seq {START_SECONDS * 10:.0f}); do ({probe}) 2>/dev/null && exit; sleep .1; done; exit 1"
    subprocess.run([*ENTER, "bash", "-c", wait], check=True)


def measure_ours(workload: str, seconds: float, warmup: float) -> float:
    env, *options = OURS[workload]
    cluster = ("--scheduler", "ray", "--address", RAY, "--hosts", "2")
    with job(*options, *SHARED, *cluster, env=env, enter=ENTER, updates=3) as run:
        measured = rate(run, warmup, seconds)
        status = run.wait(lambda status: True)
    print("(" + ", ".join(f"{worker.name} on {worker.host}" for worker in status.workers) + ")", flush=True)
    return measured


def measure_theirs(python: Path, directory: Path, workload: str, seconds: float, warmup: float) -> float:
    words = [*PEERS["rllib"][workload].split(), "--window", str(seconds), "--warm", str(warmup)]
    driver = DRIVER.format(address=RAY, words=words)
    done = subprocess.run(
        [*ENTER, str(python), "-c", driver], cwd=directory, capture_output=True, text=True, timeout=300, check=False
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    if not lines:
        raise RuntimeError(f"RLlib printed no result; its last words:\n{done.stdout[-1000:]}{done.stderr[-2000:]}")
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
    with ray_of_two_nodes():
        for _ in range(arguments.turns):
            ours.append(measure_ours(*span))
            theirs.append(measure_theirs(arguments.python.expanduser(), arguments.peers.resolve(), *span))
            print(f"srl {ours[-1]:,.0f} /s, rllib {theirs[-1]:,.0f} /s: {ours[-1] / theirs[-1]:.1f}x", flush=True)
    ratio = statistics.median(ours) / statistics.median(theirs)
    print(f"{arguments.workload}, medians of {len(ours)}: {ratio:.1f}x")


if __name__ == "__main__":
    main()
