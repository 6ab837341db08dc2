"""A host that cannot be reached for a while, and comes back: `python benchmarks/partition.py --times 4` (root).

Two hosts are network namespaces on a switch, a CartPole run trains over both, and the second's cable is unplugged for
`--seconds`. Says how fast the rest went on, how long after the cable was plugged in again the second host's new workers
had their first update, and whether the journal holds: nothing lost, nothing doubled, nothing too old.
"""

from __future__ import annotations

import argparse
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from faults import job

from srl.api.status import RunStatus
from srl.base.statistics import spread
from srl.runs.journal import check, read

SWITCH, HOSTS = "srlbench-switch", ("srlbench-0", "srlbench-1")
ADDRESS = "10.79.0.1"
ENTER = ("ip", "netns", "exec")


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


@contextmanager
def switched() -> Iterator[None]:
    """Two hosts with an address each, and a switch between them."""
    try:
        for name in (SWITCH, *HOSTS):
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        ip("-n", SWITCH, "link", "add", "bridge", "type", "bridge", "forward_delay", "0", "stp_state", "0")
        ip("-n", SWITCH, "link", "set", "bridge", "up")
        for number, name in enumerate(HOSTS):
            ip("link", "add", "eth0", "netns", name, "type", "veth", "peer", "name", f"port{number}", "netns", SWITCH)
            ip("-n", SWITCH, "link", "set", f"port{number}", "master", "bridge", "up")
            ip("-n", name, "address", "add", f"10.79.0.{number + 1}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")
        yield
    finally:
        for name in (SWITCH, *HOSTS):
            subprocess.run(["ip", "netns", "delete", name], check=False)


def cable(state: str) -> None:
    ip("-n", SWITCH, "link", "set", "port1", state)


def there(status: RunStatus) -> list[str]:
    """The workers of the second host that have done something."""
    return [worker.name for worker in status.workers if worker.host.startswith("second") and worker.progress > 0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=30.0, help="without the second host")
    arguments = parser.parse_args()
    taken: list[float] = []
    with tempfile.TemporaryDirectory() as directory, switched():
        secret = Path(directory) / "secret"
        hosts = ("--scheduler", "hosts", "--hosts", "2", "--bind", f"{ADDRESS}:7700", "--secret-file", str(secret))
        srl = str(Path(sys.executable).with_name("srl"))
        join = [*ENTER, HOSTS[1], srl, "agent", f"{ADDRESS}:7700", "--host", "second", "--secret-file", str(secret)]
        secret.touch(mode=0o600)
        secret.write_bytes(secrets.token_bytes(32))
        agent = subprocess.Popen([*join, "--patience", "60"], stdout=subprocess.DEVNULL)
        try:
            with job("--journal", "--actors", "2", *hosts, enter=(*ENTER, HOSTS[0])) as run:
                for _ in range(arguments.times):
                    before = run.wait(lambda status: bool(there(status)))
                    cable("down")
                    time.sleep(arguments.seconds)
                    last = run.wait(lambda status: not there(status))
                    cable("up")
                    began = time.monotonic()
                    back = run.wait(lambda status: bool(there(status)))
                    run.wait(lambda status, back=back: status.version > back.version)  # type: ignore[misc]
                    taken.append(time.monotonic() - began)
                    rate = (last.steps - before.steps) / (last.elapsed - before.elapsed)
                    print(f"(healed after {taken[-1]:.1f} s; meanwhile {rate:,.0f} steps/s)", flush=True)
                wrong = check(read(Path(last.path) / "journal.jsonl"), last.max_lag)
        finally:
            agent.terminate()
            agent.wait()
    print("| partition of | times | p50 s | p95 s | max s | journal |\n|---|---|---|---|---|---|")
    figures = " | ".join(f"{value:.2f}" for value in spread(taken))
    print(f"| {arguments.seconds:g} s | {len(taken)} | {figures} | {wrong[:3] or 'holds'} |")


if __name__ == "__main__":
    main()
