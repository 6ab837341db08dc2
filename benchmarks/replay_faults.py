"""Killed and stopped workers in runs that learn from replay: `python benchmarks/replay_faults.py --count 50`.

Two graphs on one machine: a replay inside each of two trainers (`inline`), and two trainers that draw from two replay
workers through buffer workers (`host`), both with two actors and a policy worker, n-step returns and priorities. `srl
chaos` kills (SIGKILL) or stops (SIGSTOP) one worker after the other and checks that all recover, that versions only
grow, that every update in the journal follows from the last one and no block is used twice, that no memory loses a
complete block, and that gradient steps keep their ratio to decisions. Fails (1) if one of these does not hold.
"""

from __future__ import annotations

import argparse
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

RUN = (
    *("--env-arg", "seconds=0.002", "--recipe", "none", "--algo", "dqn", "--lanes", "4", "--horizon", "4", "--journal"),
    *(
        "--actors",
        "2",
        "--trainers",
        "2",
        "--inference",
        "host",
        "--algo.hidden-sizes",
        "16",
        "--algo.batch-size",
        "16",
    ),
    *(
        "--algo.learning-starts",
        "200",
        "--algo.updates-per-decision",
        "0.1",
        "--algo.n-step",
        "3",
        "--algo.prioritized",
    ),
    *("--algo.replay-size", "1000000"),
)
GRAPHS = {
    "inline": (),
    "host": ("--replay", "host", "--replay-workers", "2", "--graph", f"{Path(__file__).resolve()}:with_buffers"),
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


def disturb(graph: str, count: int, every: float, seed: int) -> int:
    """Return the exit code of `srl chaos`."""
    with job(*RUN, *GRAPHS[graph], env=SLEEPY) as run:
        home = run.home
        place = ("--root", str(home / "runs"))
        plan = ("--faults", "kill,stop", "--count", str(count), "--every", str(every), "--seed", str(seed))
        command = (SRL, "chaos", "latest", *plan, *place)
        code = subprocess.call(command, env={**os.environ, "XDG_RUNTIME_DIR": str(home)})
        status = run.wait(lambda status: True)
        for memory in status.replay:
            print(f"{memory.name}: {memory.size:,} decisions, {memory.reached} of {memory.wanted} gradient steps each")
        print(f"{status.steps:,} decisions learned from in {status.version:,} updates", flush=True)
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
