"""Two hosts that resume a run at the same time: how often exactly one becomes the owner of the run directory.

Each host is a process in its own PID namespace that sees the directory through its own FUSE mount (bindfs), where
kernel locks are local to the mount, as on some network file systems. The previous owner was killed, released the
directory, or never existed. Needs root and bindfs.

    python benchmarks/run_ownership.py --rounds 200
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from srl.storage import run_ownership
from srl.storage.run_ownership import Owned, acquire

HOSTS = 2


def attempt(directory: Path, start: float) -> None:
    """Try to become the owner at time `start`, keep the directory until standard input ends, and release it."""
    run_ownership.BEAT_SECONDS, run_ownership.LEASE_SECONDS = 0.2, 5.0
    while time.time() < start:
        pass
    try:
        ownership = acquire(directory)
    except Owned:
        print("refused", flush=True)
        return
    print(f"owns {ownership.epoch}", flush=True)
    sys.stdin.read()
    ownership.check()
    ownership.release()


def host(directory: Path, start: float = 0.0) -> subprocess.Popen[str]:
    """Start an attempt on a host of its own."""
    unshare = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    own = [sys.executable, __file__, "--attempt", str(directory), str(start)]
    return subprocess.Popen([*unshare, *own], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def answer(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--attempt", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.attempt:
        attempt(Path(given.attempt[0]), float(given.attempt[1]))
        return
    wins: dict[int, int] = {}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for name in ("shared", *(f"mount{number}" for number in range(HOSTS))):
            (folder / name).mkdir()
        for number in range(HOSTS):
            mount = folder / f"mount{number}"
            subprocess.run(["bindfs", "--no-allow-other", str(folder / "shared"), str(mount)], check=True)
            stack.callback(subprocess.run, ["umount", str(mount)], check=True)
        for number in range(given.rounds):
            (folder / "shared" / str(number)).mkdir()
            paths = [folder / f"mount{index}" / str(number) for index in range(HOSTS)]
            if number % 3:
                first = host(random.choice(paths))
                assert answer(first) == "owns 1"
                if number % 3 == 2:
                    first.kill()
                first.communicate()
            start = time.time() + 1.0
            hosts = [host(path, start + random.random() * 0.002) for path in paths]
            answers = [answer(process) for process in hosts]
            for process in hosts:
                process.communicate()
            won = sum(text.startswith("owns") for text in answers)
            wins[won] = wins.get(won, 0) + 1
            if won != 1 or any(process.returncode for process in hosts):
                print(f"round {number}: {answers}", flush=True)
    print(f"{given.rounds} rounds; number of owners -> rounds: {wins}")


if __name__ == "__main__":
    main()
