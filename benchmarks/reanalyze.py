"""Reanalyze workers: searches per second with one worker and with two, how old targets become, and what trainers lose.

    python benchmarks/reanalyze.py --rounds 3
    python benchmarks/reanalyze.py --stalls     # share of time that a busy trainer waits, without and with reanalysis

The environment becomes slow once the replay is filled, so that the workers have the cores for themselves. Targets may
not be older than the newest version, so that they always have work. Prints one line of JSON for each run, and medians.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import gymnasium

import srl

LANES, FILL = 8, 8_000  # rows in the replay when the environment becomes slow
STEP_SECONDS = 0.04


class SlowCartPole(gymnasium.Wrapper):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__(gymnasium.make("CartPole-v1"))
        self._count = 0

    def step(self, action: Any) -> Any:
        self._count += 1
        if self._count > FILL / LANES:
            time.sleep(STEP_SECONDS / LANES)
        return self.env.step(action)


def make() -> Any:
    return SlowCartPole()


def measure(num_workers: int, seconds: float, root: Path) -> dict[str, float]:
    """Return searches per second, and the highest age of targets in any batch that was recorded."""
    steps = FILL + int(seconds / STEP_SECONDS) * LANES
    run = srl.train(
        f"{__file__}:make",
        algo="muzero",
        muzero={"max_target_age": 0, "bootstrap": "search", "batch_size": 8, "updates_per_decision": 1 / 64},
        lanes=LANES,
        horizon=8,
        actors=1,
        steps=steps,
        replay="host",
        reanalyze_workers=num_workers,
        recipe="none",
        root=root,
        name=f"workers-{num_workers}",
        sinks=(),
    )
    rows = [json.loads(line) for line in (run.path / "system.jsonl").read_text().splitlines()]
    rows = [row for row in rows if row.get("reanalyzed")]
    half = rows[len(rows) // 2 :]
    rate = (half[-1]["reanalyzed"] - half[0]["reanalyzed"]) / (half[-1]["elapsed"] - half[0]["elapsed"])
    return {
        "workers": num_workers,
        "searches_per_second": rate,
        "rows": len(half),
        "target_age": max(row.get("replay/0/target_age", 0.0) for row in rows),
    }


def stalls(reanalyzes: bool, steps: int, root: Path) -> dict[str, float]:
    """Return the share of time that a trainer waits which has more to do than the actors, and the highest age."""
    options = {"bootstrap": "search", "updates_per_decision": 1.0, "max_target_age": 20 if reanalyzes else None}
    run = srl.train(
        "CartPole-v1",
        algo="muzero",
        muzero=options,
        lanes=LANES,
        horizon=8,
        actors=1,
        steps=steps,
        replay="host",
        reanalyze_workers=1 if reanalyzes else 0,
        recipe="none",
        root=root,
        name=f"stalls-{reanalyzes}",
        sinks=(),
    )
    rows = [json.loads(line) for line in (run.path / "system.jsonl").read_text().splitlines()]
    rows = [row for row in rows if row.get("train_fps")]
    half = rows[len(rows) // 2 :]
    return {
        "reanalyzes": reanalyzes,
        "trainer_waits": round(statistics.mean(row["busy/trainers/0/waiting"] for row in half), 4),
        "rows": len(half),
        "target_age": max(row.get("replay/0/target_age", 0.0) for row in rows),
        "seconds": round(run.status.elapsed, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--stalls", action="store_true")
    parser.add_argument("--steps", type=int, default=8_000, help="of each run of --stalls")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=20.0)
    options = parser.parse_args()
    if options.stalls:
        for reanalyzes in (False, True):
            with tempfile.TemporaryDirectory() as root:
                print(json.dumps(stalls(reanalyzes, options.steps, Path(root))), flush=True)
        return
    found: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(options.rounds):
        for num_workers, rates in found.items():
            with tempfile.TemporaryDirectory() as root:
                result = measure(num_workers, options.seconds, Path(root))
            rates.append(result["searches_per_second"])
            print(json.dumps(result), flush=True)
    one, two = (statistics.median(rates) for rates in found.values())
    print(json.dumps({"one": round(one), "two": round(two), "ratio": round(two / one, 2)}))


if __name__ == "__main__":
    main()
