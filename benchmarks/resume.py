"""Time until the first update of a resumed run: `python benchmarks/resume.py [--env HalfCheetah-v5] [--repeats 3]`.

A short run is trained, then resumed several times by the command, a few updates each. `first_update_s` is what the user
waits, from the command to the end of the first update; `cpu_s` is the CPU time of the whole command and all its
processes, which says more on a machine that others use too.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

STEPS = 30_000


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def command(root: Path, *words: str) -> float:
    """Run `srl` and return its CPU time."""
    before = cpu_seconds()
    subprocess.run([sys.executable, "-m", "srl", *words, "--root", str(root)], check=True, stdout=subprocess.DEVNULL)
    return cpu_seconds() - before


def measure(env: str, repeats: int, options: list[str]) -> dict[str, object]:
    waited, used = [], []
    with tempfile.TemporaryDirectory(prefix="srl-bench-") as place:
        root = Path(place)
        command(root, "train", env, "--steps", str(STEPS), "--name", "run", *options)
        for _ in range(repeats):
            done = json.loads((root / "run" / "status.json").read_text())["steps"]
            used.append(command(root, "resume", "run", "--steps", str(done + 1)))
            status = json.loads((root / "run" / "status.json").read_text())
            assert status["first_steps"] == done
            waited.append(status["seconds_to_first_update"])
    return {
        "env": env,
        "first_update_s": [round(seconds, 2) for seconds in waited],
        "cpu_s": [round(seconds, 2) for seconds in used],
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, epilog="Further words are options of `srl train`.")
    parser.add_argument("--env", default="CartPole-v1")
    parser.add_argument("--repeats", type=int, default=3)
    told, words = parser.parse_known_args()
    print(json.dumps(measure(told.env, told.repeats, words)))
