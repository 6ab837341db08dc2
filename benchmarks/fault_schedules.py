"""Run random schedules of faults on a simulated cluster: python benchmarks/fault_schedules.py --schedules 100000.

Real workers, streams and the real controller run on a virtual clock. Processes and hosts die, freeze and return, links
are slow or cut. After every step versions must not decrease and no worker may crash; after the last fault, updates must
follow within 20 virtual seconds, and the journal must show every update once, with samples used once and in time.
A failure prints its seed; `--first SEED --schedules 1` replays it.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.simulation.schedules import Simulation, Violation

CHUNK = 100


def run_chunk(seeds: range) -> list[str]:
    failures = []
    for seed in seeds:
        try:
            Simulation(seed).run()
        except Violation as violation:
            failures.append(str(violation))
    return failures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schedules", type=int, default=1000, help="Number of schedules")
    parser.add_argument("--first", type=int, default=0, help="Seed of the first schedule")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="Number of processes")
    arguments = parser.parse_args()
    last = arguments.first + arguments.schedules
    chunks = [range(begin, min(begin + CHUNK, last)) for begin in range(arguments.first, last, CHUNK)]
    began, num_failures = time.monotonic(), 0
    with ProcessPoolExecutor(arguments.processes) as pool:
        for failures in pool.map(run_chunk, chunks):
            num_failures += len(failures)
            for failure in failures:
                print(failure, flush=True)
    seconds = time.monotonic() - began
    rate = arguments.schedules / seconds * 3600 / arguments.processes
    print(
        f"{arguments.schedules:,} schedules, {num_failures} failures, {seconds:.0f} s, {rate:,.0f} per hour and process"
    )
    return 1 if num_failures else 0


if __name__ == "__main__":
    sys.exit(main())
