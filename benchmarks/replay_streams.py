"""Whether `srl replay` reaches the parameters of a run bit for bit, and what recording costs.

    python benchmarks/replay_streams.py --updates 200
    python benchmarks/replay_streams.py --cost --windows 30

By default, each of these runs makes updates in processes until it has enough; one actor is killed when a third of them
are made. Then all updates are made again and compared: PPO with an MLP, a CNN and an LSTM, DQN, SAC, PPG, and PPO with
two trainers. `--cost` compares CartPole's throughput with and without recording, in alternating windows of two runs
(benchmarks/checkouts.py, which explains the figures; the bar is a ratio of at least 0.95).
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

import srl
from srl.api.status import RunStatus
from srl.datasets.recorded_streams import RecordedStream

HERE = Path(__file__).resolve()
SMALL: dict[str, Any] = {"recipe": "none", "lanes": 16, "horizon": 16, "actors": 2, "max_lag": 1}
LEARN_EARLY = {"learning_starts": 2000, "updates_per_decision": 0.05}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "ppo, MLP": ("CartPole-v1", {}),
    "ppo, CNN": (f"{HERE}:Images", {"lanes": 8}),
    "ppo, LSTM": ("CartPole-v1", {"memory": "lstm"}),
    "ppo, 2 trainers": ("CartPole-v1", {"trainers": 2}),
    "ppg, MLP": ("CartPole-v1", {"algo": "ppg", "auxiliary_every": 8}),
    "dqn": ("CartPole-v1", {"algo": "dqn", **LEARN_EARLY}),
    "sac": ("Pendulum-v1", {"algo": "sac", **LEARN_EARLY}),
}


class Images(gymnasium.Env[Any, int]):
    """A bright column at a random place; the action that names its half earns 1."""

    observation_space = spaces.Box(0, 255, (36, 36, 1), np.uint8)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._steps = 0
        return self._look(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        reward = float(action == (self._column >= 18))
        self._steps += 1
        return self._look(), reward, self._steps == 20, False, {}

    def _look(self) -> Any:
        self._column = int(self.np_random.integers(36))
        image = self.np_random.integers(0, 100, (36, 36, 1), np.uint8)
        image[:, self._column] = 255
        return image


class Watcher:
    """Kills an actor after a third of the updates, and stops the run after all of them."""

    def __init__(self, updates: int) -> None:
        self.updates, self.killed = updates, 0

    def __call__(self, status: RunStatus) -> None:
        if not self.killed and status.updates >= self.updates // 3:
            pid = next((worker.pid for worker in status.workers if worker.name == "actors/0"), 0)
            if pid:
                os.kill(pid, signal.SIGKILL)
                self.killed = status.updates


class Until(srl.Callback):
    """Ends the run after a number of updates."""

    def __init__(self, updates: int) -> None:
        self._updates = updates

    def on_update(self, row: Any) -> None:
        if row["update"] >= self._updates:
            self.run.stop(f"{self._updates} updates")


def attempt(name: str, updates: int, root: Path) -> bool:
    env, options = CASES[name]
    watcher = Watcher(updates)
    run = srl.train(
        env,
        name=name.replace(", ", "-").replace(" ", "-"),
        root=root,
        steps=1 << 40,
        record_streams=True,
        on_status=watcher,
        callbacks=[Until(updates)],
        **{**SMALL, **options},
    )
    began = time.monotonic()
    done = run.replay()
    seconds = time.monotonic() - began
    stream = RecordedStream(run.path / "streams" / "policy")
    size = sum(path.stat().st_size for path in stream.folder.rglob("*.safetensors")) / 1e6
    equal = sum(one.is_equal for one in done.updates)
    good = equal == len(done.updates) >= updates and bool(watcher.killed)
    print(
        f"{name:16} {equal} of {len(done.updates)} updates equal; actor killed at update {watcher.killed}, "
        f"{run.status.restarts} restart; {size:.1f} MB, replayed in {seconds:.1f} s{'' if good else '  FAILED'}",
        flush=True,
    )
    return good


def cost(windows: int) -> int:
    checkout = str(HERE.parents[1])
    command = [sys.executable, str(HERE.parent / "checkouts.py"), checkout, checkout, "--windows", str(windows)]
    return subprocess.run([*command, "--threads", "--set-after", "record_streams=true"], check=False).returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=200)
    parser.add_argument("--case", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--cost", action="store_true", help="measure the cost of recording instead")
    parser.add_argument("--windows", type=int, default=30)
    a = parser.parse_args()
    if a.cost:
        return cost(a.windows)
    with tempfile.TemporaryDirectory(prefix="srl-streams-") as root:
        results = [attempt(name, a.updates, Path(root)) for name in a.case]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
