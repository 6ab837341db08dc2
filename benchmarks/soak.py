"""Memory, descriptors and threads of a long run: `python benchmarks/soak.py --minutes 60`.

Growth of each process is the median of the last tenth of the samples minus that of the second tenth: the first is
warm-up. Fails (1) if a process grew by more than --max-mb, or descriptors, threads or /dev/shm grew at all. Options
behind `--` go to `srl train`, e.g. `-- --scheduler hosts --actors 2`. To have faults meanwhile, run `srl chaos` beside
it; then only workers that lived through all of it are judged.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import psutil

SAMPLES = 200


@dataclass
class Track:
    """Samples of one process over time."""

    name: str
    rss_mb: list[float] = field(default_factory=list)
    descriptors: list[int] = field(default_factory=list)
    threads: list[int] = field(default_factory=list)

    def add(self, process: psutil.Process) -> None:
        with process.oneshot():
            self.rss_mb.append(process.memory_info().rss / 2**20)
            self.descriptors.append(process.num_fds())
            self.threads.append(process.num_threads())


def growth(values: list[float] | list[int]) -> float:
    tenth = max(1, len(values) // 10)
    return statistics.median(values[-tenth:]) - statistics.median(values[tenth : 2 * tenth])


def watch(root: psutil.Process, seconds: float) -> tuple[dict[int, Track], list[int]]:
    tracks: dict[int, Track] = {}
    shared: list[int] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end and root.is_running():
        for process in [root, *root.children(recursive=True)]:
            try:
                track = tracks.setdefault(process.pid, Track(" ".join(process.cmdline()[1:3])[-40:] or process.name()))
                track.add(process)
            except psutil.Error:
                continue
        shared.append(len(os.listdir("/dev/shm")))
        time.sleep(seconds / SAMPLES)
    return tracks, shared


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--max-mb", type=float, default=5.0)
    parser.add_argument("--env", default="CartPole-v1")
    parser.add_argument("options", nargs="*", help="options of `srl train`")
    arguments = parser.parse_args()
    home = Path(tempfile.mkdtemp(prefix="srl-soak"))
    command = [str(Path(sys.executable).with_name("srl")), "train", arguments.env, "--steps", "1000000000000"]
    run = subprocess.Popen(
        [*command, "--root", str(home / "runs"), "--name", "soak", *arguments.options],
        env={**os.environ, "XDG_RUNTIME_DIR": str(home)},
        stdout=subprocess.DEVNULL,
    )
    print(f"for `srl ps`, `srl chaos`: export XDG_RUNTIME_DIR={home}", flush=True)
    try:
        tracks, shared = watch(psutil.Process(run.pid), 60.0 * arguments.minutes)
    finally:
        run.send_signal(signal.SIGINT)
        run.wait()
        shutil.rmtree(home)
    bad = growth(shared) > 0
    print("| process | samples | MB | growth MB | descriptors | threads |\n|---|---|---|---|---|---|")
    for pid, track in tracks.items():
        if len(track.rss_mb) < SAMPLES // 2:
            continue  # it did not exist all the time
        grown, more, threads = growth(track.rss_mb), growth(track.descriptors), growth(track.threads)
        bad |= grown > arguments.max_mb or more > 0 or threads > 0
        print(
            f"| {track.name} {pid} | {len(track.rss_mb)} | {track.rss_mb[-1]:.0f} | {grown:+.1f} "
            f"| {track.descriptors[-1]} ({more:+.0f}) | {track.threads[-1]} ({threads:+.0f}) |"
        )
    print(f"/dev/shm: {shared[-1]} entries ({growth(shared):+.0f}); {'NOT ' if bad else ''}constant")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
