"""Returns with and without faults: `python benchmarks/learning_under_faults.py --seeds 5`.

Every task is trained with the same steps and seeds twice: undisturbed, and with a random fault every `--every` seconds
(`srl chaos`). The score of a run is the mean return of its last 100 training episodes. Prints both means and the 95 %
interval of the difference (paired by seed), and fails (1) if one interval does not contain zero.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from jobs import SRL

from srl.base.statistics import mean_of

TASKS = {
    "CartPole-v1": ("--steps", "400000"),
    "Acrobot-v1": ("--steps", "400000"),
    "Pendulum-v1": ("--steps", "600000"),
}
GRAPH = ("--scheduler", "processes", "--inference", "host", "--actors", "2", "--policies", "1", "--journal")


def score(env: str, seed: int, every: float | None) -> tuple[float, int]:
    """Train once, and return the score and the number of faults that were injected."""
    with tempfile.TemporaryDirectory() as folder:
        own = {**os.environ, "XDG_RUNTIME_DIR": folder}
        where = ("--root", folder)
        command = (SRL, "train", env, "--name", "run", "--seed", str(seed), *GRAPH, *TASKS[env], *where)
        training = subprocess.Popen(command, env=own, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        faults = 0
        if every is not None:
            while training.poll() is None and not (Path(folder) / "run" / "metrics.jsonl").exists():
                time.sleep(0.1)
            plan = ("--faults", "kill,stop,slow", "--every", str(every), "--calm", "0", "--seed", str(seed))
            chaos = subprocess.run((SRL, "chaos", "run", *plan, *where), env=own, capture_output=True, text=True)
            faults = len(re.findall(r"(?m)^\d+: ", chaos.stdout))
        if training.wait() != 0:
            sys.exit(f"{env} with seed {seed} ended with exit code {training.returncode}")
        status = json.loads((Path(folder) / "run" / "status.json").read_text())
        return float(status["return_mean"]), faults


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--every", type=float, default=3.0, help="seconds between faults")
    parser.add_argument("--tasks", nargs="*", default=list(TASKS), choices=list(TASKS))
    arguments = parser.parse_args()
    failed = False
    for env in arguments.tasks:
        pairs = []
        for seed in range(arguments.seeds):
            calm, (disturbed, faults) = score(env, seed, None)[0], score(env, seed, arguments.every)
            pairs.append((calm, disturbed))
            print(f"{env} seed {seed}: {calm:.1f} undisturbed, {disturbed:.1f} with {faults} faults", flush=True)
        means = [mean_of(column) for column in zip(*pairs, strict=True)]
        difference = mean_of([disturbed - calm for calm, disturbed in pairs])
        differs = abs(difference.value) > difference.interval
        failed |= differs
        print(
            f"{env}: {means[0].value:.1f} ± {means[0].interval:.1f} undisturbed, {means[1].value:.1f} ± "
            f"{means[1].interval:.1f} with faults, difference {difference.value:+.1f} ± {difference.interval:.1f}"
            f"{' DIFFERS' if differs else ''}"
        )
    return failed


if __name__ == "__main__":
    sys.exit(main())
