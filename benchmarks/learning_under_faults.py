"""Returns with and without faults: `python benchmarks/learning_under_faults.py --seeds 5`.

Every task is trained with the same steps and seeds twice: undisturbed, and with a random fault every `--every` seconds
(`srl chaos`). The score of a run is the mean return of 100 episodes that its last policy plays, sampling its actions.
The mean of the last training episodes, which is printed beside it, is no score: a killed actor loses the episodes that
it had begun, so that short episodes are counted more often than long ones. Prints both mean scores and the 95 %
interval of the difference (paired by seed), and fails (1) if one interval does not contain zero. With `--results FILE`
the pairs in the file are not measured again, and `--pairs N` ends after N new ones (2), so that the benchmark can be
run in pieces.
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
from dataclasses import astuple, dataclass
from pathlib import Path

from jobs import SRL

import srl
from srl.base.statistics import mean_of

TASKS = {
    "CartPole-v1": ("--steps", "150000"),
    "Acrobot-v1": ("--steps", "200000"),
    "Pendulum-v1": ("--steps", "150000"),
}
GRAPH = ("--scheduler", "processes", "--inference", "host", "--actors", "2", "--policies", "1", "--journal")


@dataclass
class Score:
    played: float  # mean return of the last policy
    trained: float  # mean return of the last training episodes
    faults: int

    def __str__(self) -> str:
        return f"{self.played:.1f} (in training {self.trained:.1f})"


def score(env: str, seed: int, every: float | None) -> Score:
    """Train once, with a fault every N seconds."""
    with tempfile.TemporaryDirectory() as folder:
        own = {**os.environ, "XDG_RUNTIME_DIR": folder}
        where = ("--root", folder)
        command = (SRL, "train", env, "--name", "run", "--seed", str(seed), *GRAPH, *TASKS[env], *where)
        output = Path(folder) / "output"
        with output.open("wb") as file:
            training = subprocess.Popen(command, env=own, stdout=file, stderr=file)
        faults = 0
        if every is not None:
            while training.poll() is None and not (Path(folder) / "run" / "metrics.jsonl").exists():
                time.sleep(0.1)
            plan = ("--faults", "kill,stop,slow", "--every", str(every), "--calm", "0", "--seed", str(seed))
            chaos = subprocess.run((SRL, "chaos", "run", *plan, *where), env=own, capture_output=True, text=True)
            faults = len(re.findall(r"(?m)^\d+: ", chaos.stdout))
        if training.wait() != 0:
            sys.exit(f"{env} with seed {seed} ended with {training.returncode}:\n{output.read_text()[-3000:]}")
        status = json.loads((Path(folder) / "run" / "status.json").read_text())
        played = srl.evaluate(Path(folder) / "run", episodes=100, greedy=False, trust_code=True)
        return Score(played.mean, float(status["return_mean"]), faults)


class Results:
    """Scores of pairs of runs, kept in a file if there is one."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        lines = path.read_text().splitlines() if path is not None and path.exists() else []
        self._pairs = {
            (env, seed): (Score(*calm), Score(*disturbed)) for env, seed, calm, disturbed in map(json.loads, lines)
        }

    def pair(self, env: str, seed: int) -> tuple[Score, Score] | None:
        return self._pairs.get((env, seed))

    def add(self, env: str, seed: int, pair: tuple[Score, Score]) -> None:
        if self._path is not None:
            with self._path.open("a") as file:
                file.write(json.dumps([env, seed, *map(astuple, pair)]) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--every", type=float, default=2.0, help="seconds between faults")
    parser.add_argument("--tasks", nargs="*", default=list(TASKS), choices=list(TASKS))
    parser.add_argument("--results", type=Path, help="file of the scores, to continue with")
    parser.add_argument("--pairs", type=int, default=sys.maxsize, help="number of new pairs after which to end")
    arguments = parser.parse_args()
    known = Results(arguments.results)
    failed = False
    for env in arguments.tasks:
        pairs, num_faults = [], 0
        for seed in range(arguments.seeds):
            pair = known.pair(env, seed)
            if pair is None:
                if arguments.pairs == 0:
                    return 2
                arguments.pairs -= 1
                pair = score(env, seed, None), score(env, seed, arguments.every)
                known.add(env, seed, pair)
            calm, disturbed = pair
            pairs.append((calm.played, disturbed.played))
            num_faults += disturbed.faults
            print(f"{env} seed {seed}: {calm} undisturbed, {disturbed} with {disturbed.faults} faults", flush=True)
        means = [mean_of(column) for column in zip(*pairs, strict=True)]
        difference = mean_of([disturbed - calm for calm, disturbed in pairs])
        differs = abs(difference.value) > difference.interval
        failed |= differs
        print(
            f"{env}: {means[0].value:.1f} ± {means[0].interval:.1f} undisturbed, {means[1].value:.1f} ± "
            f"{means[1].interval:.1f} with {num_faults} faults, "
            f"difference {difference.value:+.1f} ± {difference.interval:.1f}{' DIFFERS' if differs else ''}"
        )
    return failed


if __name__ == "__main__":
    sys.exit(main())
