"""Throughput of the same graph on one host and on two: `python benchmarks/two_hosts.py --turns 2` (root).

CartPole with `--inference host`, two actors, two policy workers and a trainer: first all on this machine, then over two
network namespaces of it, so that the same cores do the same work and the difference is what distance costs. In turns.
"""

from __future__ import annotations

import argparse
import statistics

from jobs import job, rate
from namespaces import cluster

GRAPH = (
    *("--inference", "host", "--actors", "2", "--policies", "2", "--lanes", "256", "--horizon", "8", "--batch", "4096"),
    *("--ppo.epochs", "1", "--ppo.num-minibatches", "4"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--warmup", type=float, default=3.0)
    arguments = parser.parse_args()
    shares = []
    for _ in range(arguments.turns):
        with job(*GRAPH) as run:
            one = rate(run, arguments.warmup, arguments.seconds)
        with cluster(2, "--cpus", "3") as hosts, job(*GRAPH, *hosts.options, enter=hosts.enter) as run:
            two = rate(run, arguments.warmup, arguments.seconds)
            status = run.wait(lambda status: True)
        places = ", ".join(f"{worker.name} on {worker.host}" for worker in status.workers)
        shares.append(two / one)
        print(f"one host {one:,.0f} steps/s, two {two:,.0f}: {two / one:.0%} ({places})", flush=True)
    print(f"median of {len(shares)}: {statistics.median(shares):.0%}")


if __name__ == "__main__":
    main()
