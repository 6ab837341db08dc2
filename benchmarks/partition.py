"""A host that cannot be reached for a while, and comes back: `python benchmarks/partition.py --times 4` (root).

Two hosts are network namespaces on a switch, a CartPole run trains over both, and the second's cable is unplugged for
`--seconds`. Says how fast the rest went on, how long after the cable was plugged in again the second host's new workers
had their first update, and whether the journal holds: nothing lost, nothing doubled, nothing too old. With `--sleeping`
the environments sleep instead of computing: the time is then that of reconnecting, not of a busy machine.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from jobs import SLEEPING, SLEEPY, job
from namespaces import cluster

from srl.api.status import RunStatus
from srl.base.statistics import spread
from srl.storage.update_journal import check, read


def there(status: RunStatus) -> list[str]:
    """Return the workers of the second host that have made progress."""
    return [worker.name for worker in status.workers if worker.host.startswith("host1") and worker.progress > 0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=30.0, help="duration of the partition")
    parser.add_argument("--sleeping", action="store_true", help="use environments that sleep instead of CartPole")
    arguments = parser.parse_args()
    env, options = (SLEEPY, SLEEPING) if arguments.sleeping else ("CartPole-v1", ())
    taken: list[float] = []
    shared = ("--journal", "--actors", "2", *options)
    with cluster(2) as hosts, job(*shared, *hosts.options, env=env, enter=hosts.enter) as run:
        for _ in range(arguments.times):
            before = run.wait(lambda status: bool(there(status)))
            hosts.hosts.set_link(1, "down")
            time.sleep(arguments.seconds)
            last = run.wait(lambda status: not there(status))
            hosts.hosts.set_link(1, "up")
            began = time.monotonic()
            back = run.wait(lambda status: bool(there(status)))
            run.wait(lambda status, back=back: status.version > back.version)  # type: ignore[misc]
            taken.append(time.monotonic() - began)
            rate = (last.steps - before.steps) / (last.elapsed - before.elapsed)
            print(f"(healed after {taken[-1]:.1f} s; meanwhile {rate:,.0f} steps/s)", flush=True)
        wrong = check(read(Path(last.path) / "journal.jsonl"), last.max_lag)
    print("| partition of | times | p50 s | p95 s | max s | journal |\n|---|---|---|---|---|---|")
    figures = " | ".join(f"{value:.2f}" for value in spread(taken))
    print(f"| {arguments.seconds:g} s | {len(taken)} | {figures} | {wrong[:3] or 'holds'} |")


if __name__ == "__main__":
    main()
