"""Run random schedules of faults on a simulated cluster: python benchmarks/fault_schedules.py --schedules 100000.

The real controller, scheduler of hosts, agents, relays, streams, actors, policy workers and trainers run on a virtual
clock. Processes and hosts die, freeze and return; the controller freezes, or dies and is replaced; links are slow, cut
in one or both directions, or lose their connections. After every step versions must not decrease, a durable version
must be the same everywhere and no worker may crash; after the last fault, updates must follow within 20 virtual
seconds, and the journal must show every update once, with samples used once and in time. A failure prints its seed;
`--first SEED --schedules 1` replays it. `--self-test` breaks the code in nine ways, each of which a schedule must
notice.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.simulation.mutations import MUTATIONS
from support.simulation.schedules import Simulation, Violation

CHUNK = 100
SELF_TEST_SCHEDULES = 3000


def run_chunk(seeds: range) -> tuple[list[str], float]:
    """Return the failures, and the CPU time of all schedules."""
    failures, began = [], time.process_time()
    for seed in seeds:
        try:
            Simulation(seed).run()
        except Violation as violation:
            failures.append(str(violation))
        except Exception:
            failures.append(f"seed {seed}: {traceback.format_exc()}")
    return failures, time.process_time() - began


def self_test(number: int) -> str:
    mutation = MUTATIONS[number]
    found = mutation.find(0, SELF_TEST_SCHEDULES)
    noticed = f"not noticed by {SELF_TEST_SCHEDULES} schedules" if found is None else f"schedule {found[0]}: {found[1]}"
    return f"the code forgets {mutation.forgets}\n  {noticed}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schedules", type=int, default=1000, help="Number of schedules")
    parser.add_argument("--first", type=int, default=0, help="Seed of the first schedule")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="Number of processes")
    parser.add_argument("--self-test", action="store_true", help="Break the code on purpose, and report who notices")
    arguments = parser.parse_args()
    with ProcessPoolExecutor(arguments.processes) as pool:
        if arguments.self_test:
            return report_self_test(pool.map(self_test, range(len(MUTATIONS))))
        last = arguments.first + arguments.schedules
        chunks = [range(begin, min(begin + CHUNK, last)) for begin in range(arguments.first, last, CHUNK)]
        num_failures, seconds = 0, 0.0
        for failures, cpu_seconds in pool.map(run_chunk, chunks):
            num_failures += len(failures)
            seconds += cpu_seconds
            for failure in failures:
                print(failure, flush=True)
    rate = arguments.schedules / seconds * 3600
    print(
        f"{arguments.schedules:,} schedules, {num_failures} failures, {seconds / arguments.schedules * 1000:.1f} ms of "
        f"CPU time each: {rate:,.0f} per hour and core"
    )
    return 1 if num_failures else 0


def report_self_test(results: Iterator[str]) -> int:
    missed = 0
    for result in results:
        print(result, flush=True)
        missed += "not noticed" in result
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
