"""Killed and stopped workers in runs that learn from replay: `python benchmarks/replay_faults.py --count 50`.

Three graphs on one machine: a replay inside each of two trainers (`inline`), two trainers that draw from two replay
workers through buffer workers (`host`), both with two actors and a policy worker, n-step returns and priorities; and
MuZero with two replay workers and two reanalyze workers (`reanalyze`), whose targets must not be older than their bound
in any row of system.jsonl. `srl chaos` kills (SIGKILL) or stops (SIGSTOP) one worker after the other and checks that
all recover, that versions only grow, that every update in the journal follows from the last one and no block is used
twice, that no memory loses a complete block, and that gradient steps keep their ratio to decisions. Fails (1) if one of
these does not hold.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jobs import SLEEPY, SRL, job

import srl
from srl.api.dataflow import BatchFunction, BatchTransform
from srl.api.experiment import Experiment
from srl.api.spaces import Space

COMMON = (
    *("--env-arg", "seconds=0.002", "--recipe", "none", "--lanes", "4", "--journal", "--actors", "2"),
    *("--trainers", "2", "--algo.hidden-sizes", "16", "--algo.batch-size", "16", "--algo.replay-size", "1000000"),
    *("--algo.learning-starts", "200", "--algo.updates-per-decision", "0.1", "--algo.n-step", "3"),
)
DQN = ("--algo", "dqn", *COMMON, "--horizon", "4", "--inference", "host", "--algo.prioritized")
MAX_TARGET_AGE = 6
MUZERO = (
    *("--algo", "muzero", *COMMON, "--horizon", "8", "--algo.simulations", "4", "--algo.latent-size", "16"),
    *("--algo.bootstrap", "search", "--algo.max-target-age", str(MAX_TARGET_AGE)),
)
GRAPHS = {
    "inline": DQN,
    "host": (*DQN, "--replay", "host", "--replay-workers", "2", "--graph", f"{Path(__file__).resolve()}:with_buffers"),
    "reanalyze": (*MUZERO, "--replay", "host", "--replay-workers", "2", "--reanalyze-workers", "2"),
}


@dataclass(frozen=True)
class Unchanged(BatchTransform):
    """Batches as they are."""

    def build(self, observation: Space, action: Space) -> BatchFunction:
        def keep(batch: Any, random: np.random.Generator) -> Any:
            return batch

        return keep


def with_buffers(experiment: Experiment) -> Experiment:
    return srl.with_buffer_workers(experiment, "buffers", Unchanged())


def ages_hold(path: Path) -> bool:
    """Print the highest age of targets in any row, and return whether the bound held and targets were reanalyzed."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    ages = [value for row in rows for name, value in row.items() if name.endswith("/target_age")]
    searched = max(row.get("reanalyzed", 0.0) for row in rows)
    print(
        f"target age at most {max(ages, default=0):g} of {MAX_TARGET_AGE} in {len(ages)} rows; {searched:,.0f} searched"
    )
    return bool(ages) and max(ages) <= MAX_TARGET_AGE and searched > 0


def disturb(graph: str, count: int, every: float, seed: int) -> int:
    """Return the exit code of `srl chaos`."""
    with job(*GRAPHS[graph], env=SLEEPY) as run:
        home = run.home
        place = ("--root", str(home / "runs"))
        plan = ("--faults", "kill,stop", "--count", str(count), "--every", str(every), "--seed", str(seed))
        command = (SRL, "chaos", "latest", *plan, *place)
        code = subprocess.call(command, env={**os.environ, "XDG_RUNTIME_DIR": str(home)})
        status = run.wait(lambda status: True)
        for memory in status.replay:
            print(f"{memory.name}: {memory.size:,} decisions, {memory.reached} of {memory.wanted} gradient steps each")
        print(f"{status.steps:,} decisions learned from in {status.version:,} updates", flush=True)
        if graph == "reanalyze" and not ages_hold(next((home / "runs").iterdir()) / "system.jsonl"):
            return 1
        if "starts empty" in run.output():
            print("a replay started empty")
            return 1
        return code


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=50, help="faults in each graph")
    parser.add_argument("--every", type=float, default=4.0, help="seconds between faults")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=GRAPHS, help="one of the graphs (default: both)")
    arguments = parser.parse_args()
    codes = []
    for graph in [arguments.only] if arguments.only else GRAPHS:
        print(f"{graph}:", flush=True)
        codes.append(disturb(graph, arguments.count, arguments.every, arguments.seed))
    return max(codes)


if __name__ == "__main__":
    sys.exit(main())
