"""Whether the record of a run is complete and exact, for all schedulers and algorithms, also if something is killed.

    python benchmarks/records.py --runs 20 --seed 0

20 runs have every algorithm once and every scheduler five times. Each run trains on episodes of known length, or on a
data set of them. Some are disturbed at random moments: a worker is killed; or the command is
killed with -9 and the run is resumed (inline and local processes) or taken over with `srl attach` (hosts on loopback).
Checked: one row for every update up to the last published version; in each row, as many episodes as episodes.bin has
for the update; the sum of their lengths and the steps differ by the unfinished episodes only, which are at most one per
lane, and two more per lane for each disturbance. Runs on a data set have no episodes. The first inline run is repeated:
its rows must be the same.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import srl
from srl.storage.run_directory import RunDirectory

LENGTH, LANES = 7, 8
ON_POLICY = ("ppo", "a2c", "impala", "ppg", "ippo", "mappo")
REPLAY = ("dqn", "rainbow", "apex", "r2d2", "sac", "td3", "ddpg", "vdn", "qmix", "dagger")
OFFLINE = ("bc", "iql", "td3bc", "cql")
ALGORITHMS = (*ON_POLICY, *REPLAY, *OFFLINE)
CONTINUOUS = ("sac", "td3", "ddpg", "td3bc")
TEAMS = ("mappo", "vdn", "qmix")
# Runs on Slurm and Ray are recorded by the same controller and agents as runs on hosts, and need a cluster.
SCHEDULERS = {
    "inline": ["--scheduler", "inline"],
    "processes": ["--actors", "2"],
    "two trainers": ["--trainers", "2", "--actors", "2"],
    "hosts": ["--scheduler", "hosts"],
}
STEPS = 40_000
LIMIT = 900


def team() -> Any:
    """Make a game of two agents with a state, for MAPPO, whose episodes have LENGTH steps."""
    from gymnasium import spaces
    from pettingzoo import ParallelEnv

    class Team(ParallelEnv):  # type: ignore[misc]
        metadata: dict[str, Any] = {"name": "team"}
        possible_agents = ("a", "b")
        state_space = spaces.Box(0.0, LENGTH, (1,))

        def observation_space(self, agent: str) -> Any:
            return spaces.Box(0.0, LENGTH, (1,))

        def action_space(self, agent: str) -> Any:
            return spaces.Discrete(2)

        def state(self) -> Any:
            return np.full(1, self.t, np.float32)

        def reset(self, seed: int | None = None, options: Any = None) -> Any:
            self.agents, self.t = list(self.possible_agents), 0
            return dict.fromkeys(self.agents, self.state()), {agent: {} for agent in self.agents}

        def step(self, actions: Any) -> Any:
            self.t += 1
            present, ended = self.agents, self.t == LENGTH
            self.agents = [] if ended else present
            each = [dict.fromkeys(present, value) for value in (self.state(), 1.0, ended, False)]
            return *each, {agent: {} for agent in present}

    return Team()


def point() -> Any:
    """Make an environment with real-valued actions whose episodes have LENGTH steps."""
    import gymnasium

    class Point(gymnasium.Env):  # type: ignore[misc, type-arg]
        observation_space = gymnasium.spaces.Box(0.0, LENGTH, (1,))
        action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            super().reset(seed=seed)
            self.t = 0
            return np.zeros(1, np.float32), {}

        def step(self, action: Any) -> Any:
            self.t += 1
            return np.full(1, self.t, np.float32), -abs(float(action[0])), self.t == LENGTH, False, {}

    return Point()


def expert(observation: Any) -> Any:
    """Return the actions that DAgger imitates."""
    return np.zeros(len(observation), np.int64)


def environment_words(algorithm: str) -> list[str]:
    if algorithm in TEAMS:
        return [f"pettingzoo:{Path(__file__).resolve()}:team"]
    if algorithm in CONTINUOUS:
        return [f"{Path(__file__).resolve()}:point"]
    return ["srl.testing.environments:Tracer", "--env-arg", f"length={LENGTH}"]


def data_set(algorithm: str, root: Path) -> Path:
    """Record the data set that an offline algorithm learns from, unless it is there."""
    name = "point" if algorithm in CONTINUOUS else "tracer"
    data = root / "data" / f"{name}-v0"
    if not data.exists():
        words = ["--steps", "2048", "--scheduler", "inline", "--recipe", "none", "--root", str(root), "--name", name]
        for each in (
            ["train", *environment_words(algorithm), *words, "--sinks"],
            ["collect", name, "--root", str(root), "--sample", "--steps", "7000", "--out", str(data)],
        ):
            subprocess.run([sys.executable, "-m", "srl", *each], check=True, capture_output=True)
    return data


@dataclass
class Trial:
    name: str
    scheduler: str
    algorithm: str
    disturbance: str  # none, worker or command
    root: Path
    steps: int = STEPS
    disturbances: int = 0

    def words(self) -> list[str]:
        where = ["--root", str(self.root), "--name", self.name, "--algo", self.algorithm, "--recipe", "none"]
        where += ["--sinks", "--checkpoint-seconds", "1"]
        words = ["train", *environment_words(self.algorithm), *where]
        if self.algorithm in OFFLINE:
            steps = str(self.steps // 20)
            options = ["--data", str(data_set(self.algorithm, self.root)), "--steps", steps, "--batch", "20"]
            scheduler = [word for word in SCHEDULERS[self.scheduler] if word not in ("--actors", "2")]
            scheduler += ["2"] if "--trainers" in scheduler else []
            return [*words, *options, "--algo.batch-size", "32", "--algo.hidden-sizes", "16", *scheduler]
        batch = "512" if self.algorithm in TEAMS else "256"
        words += ["--steps", str(self.steps), "--lanes", str(LANES), "--horizon", "16", "--batch", batch]
        if self.algorithm in REPLAY:
            words += ["--algo.learning-starts", "1000", "--algo.updates-per-decision", "0.02"]
            words += ["--algo.hidden-sizes", "16"]
        if self.algorithm == "dagger":
            words += ["--expert", f"{Path(__file__).resolve()}:expert"]
        return [*words, *SCHEDULERS[self.scheduler]]

    @property
    def directory(self) -> RunDirectory:
        return RunDirectory(self.root / self.name)

    def conduct(self, draw: random.Random) -> None:
        """Run to the end, with the disturbance at a random moment after the first checkpoint."""
        command = start(self.words())
        deadline = time.monotonic() + LIMIT
        if self.disturbance != "none":
            saved = self.directory.checkpoints
            while command.poll() is None and not any(saved.glob("0*")) and time.monotonic() < deadline:
                time.sleep(0.01)
            time.sleep(draw.uniform(0.0, 1.0))
            if command.poll() is None:
                if self.disturbance == "worker":
                    self.disturbances = kill_worker(self.name, self.root, draw)
                else:
                    self.disturbances = 1
                    command.send_signal(signal.SIGKILL)
                    command.wait()
                    again = "attach" if self.scheduler == "hosts" else "resume"
                    command = start([again, self.name, "--root", str(self.root)])
        text, _ = command.communicate(timeout=LIMIT)
        # A command that is killed between its last update and its end leaves nothing to resume.
        if command.returncode and "steps already" not in text:
            raise RuntimeError(f"{self.name} exited with {command.returncode}:\n{text[-2000:]}")

    def errors(self) -> list[str]:
        found = srl.load_run(self.directory.path)
        metrics = as_arrays(found.metrics())
        is_update = metrics["kind"] == "update"
        updates = metrics["update"][is_update]
        (policy,) = found.status.policies.values()
        errors = []
        if updates.tolist() != list(range(1, policy.version + 1)):
            missing = sorted({*range(1, policy.version + 1)} - {*updates.tolist()})
            errors.append(f"{len(updates)} rows for {policy.version} updates; missing: {missing[:10]}")
        if self.algorithm in OFFLINE:
            return errors
        episodes, counts = as_arrays(found.episodes()), metrics["episodes"][is_update]
        kept = np.bincount(episodes["update"].astype(int), minlength=policy.version + 1)[1:]
        if kept.tolist() != counts.tolist():
            errors.append(f"rows count {int(counts.sum())} episodes, episodes.bin has {int(kept.sum())}")
        unfinished = metrics["step"][is_update][-1] - episodes["length"].sum()
        lanes = LANES * (1 if self.scheduler in ("inline", "hosts") else 2)
        if self.scheduler == "hosts":
            lanes = LANES * json.loads(self.directory.config.read_text())["sizes"]["actors"]
        lanes *= 2 if self.algorithm in TEAMS else 1
        bound = lanes * LENGTH * (1 + 2 * self.disturbances)
        if not (-2 * lanes * LENGTH * self.disturbances <= unfinished <= bound):
            errors.append(f"{unfinished:.0f} steps in no episode; at most {bound} are possible")
        return errors

    def rows(self) -> list[dict[str, Any]]:
        lines = self.directory.metrics.read_text().splitlines()
        return [{**json.loads(line), "time": 0, "elapsed": 0} for line in lines]


def as_arrays(table: Any) -> dict[str, Any]:
    """Return the columns of a table, which is a DataFrame if pandas is installed."""
    return {name: np.asarray(table[name]) for name in table}


def start(words: list[str]) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "srl", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def kill_worker(name: str, root: Path, draw: random.Random) -> int:
    """Kill one of the run's workers. Return their number: 0 if the run has just ended."""
    command = [sys.executable, "-m", "srl", "ps", "--json", "--root", str(root)]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    own = [status for line in lines if (status := json.loads(line))["run"] == name]
    workers = [w for status in own for w in status["workers"] if w["pid"] and w["group"] in ("actors", "trainers")]
    with contextlib.suppress(ProcessLookupError):  # the run has just ended
        if workers:
            os.kill(draw.choice(workers)["pid"], signal.SIGKILL)
            return 1
    return 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--first", type=int, default=0, help="number of the first run")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=STEPS)
    settings = parser.parse_args()
    draw = random.Random(settings.seed)
    failed = 0
    with tempfile.TemporaryDirectory(prefix="srl-records-") as folder:
        for number in range(settings.first, settings.first + settings.runs):
            scheduler = list(SCHEDULERS)[number % len(SCHEDULERS)]
            algorithm = ALGORITHMS[number % len(ALGORITHMS)]
            kinds = ["none", "command"] if scheduler == "inline" else ["none", "worker", "command"]
            disturbance = kinds[number // len(SCHEDULERS) % len(kinds)]
            trial = Trial(f"run{number}", scheduler, algorithm, disturbance, Path(folder), settings.steps)
            try:
                trial.conduct(draw)
                errors = trial.errors()
            except (RuntimeError, OSError, ValueError, subprocess.SubprocessError) as error:
                errors = [str(error)]
            if number == 0:
                again = Trial("again", scheduler, algorithm, "none", Path(folder), settings.steps)
                again.conduct(draw)
                errors += [] if again.rows() == trial.rows() else ["the same run wrote other rows"]
            failed += bool(errors)
            what = "; ".join(errors) or "complete and exact"
            killed = disturbance if trial.disturbances else "none"
            print(f"{number:3} {scheduler:<13} {algorithm:<7} killed: {killed:<8} {what}", flush=True)
    print(f"{settings.runs - failed} of {settings.runs} records are complete and exact")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
