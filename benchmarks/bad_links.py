"""Bad links between hosts: `python benchmarks/bad_links.py` (root).

A run over three hosts, network namespaces on a switch, requests decisions and sends blocks over TCP. The links of two
hosts lose 5 % of their packets, deliver them 100 ms late in each direction, out of order or twice, or carry 1 Mbit/s;
then they work again. Prints the speed undisturbed, with each kind of link, and from ten seconds after it. Fails (1) if
no update is made with a bad link, if a host or worker is lost, if the speed afterwards is below `--share` of the
undisturbed speed, or if an update is lost, doubled or too old by the journal.
"""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import ExitStack
from pathlib import Path

from jobs import SLEEPING, SLEEPY, Job, job
from link_relay import Quality, Relay, relay
from namespaces import cluster

from srl.storage.update_journal import check, read

GRAPH = ("--actors", "3", "--inference", "remote", "--policies", "2", "--journal", "--batch", "192")
LINKS = {
    "5 % lost": Quality(loss=0.05),
    "100 ms late": Quality(delay=0.1),
    "10 % out of order": Quality(late=0.1),
    "10 % twice": Quality(twice=0.1),
    "1 Mbit/s": Quality(rate=125_000),
    "all at once": Quality(0.02, 0.05, 0.05, 0.05, 250_000),
}
SETTLE_SECONDS = 10.0


def speed(run: Job, seconds: float) -> tuple[float, int]:
    """Return the steps per second, and the number of updates."""
    first, began = run.wait(lambda status: True), time.monotonic()
    time.sleep(seconds)
    last = run.wait(lambda status: True)
    return (last.steps - first.steps) / (time.monotonic() - began), last.version - first.version


def disturb(run: Job, links: list[Relay], name: str, seconds: float, share: float) -> list[str]:
    """Try one kind of link. Return what went wrong."""
    restarts = run.wait(lambda status: True).restarts
    before, _ = speed(run, seconds)
    for link in links:
        link.set(LINKS[name])
    during, updates = speed(run, 2 * seconds)
    for link in links:
        link.set(Quality())
    time.sleep(SETTLE_SECONDS)
    after, _ = speed(run, seconds)
    lost = run.wait(lambda status: True).restarts - restarts
    print(f"| {name} | {before:,.0f} | {during:,.0f} | {updates} | {after:,.0f} | {lost} |", flush=True)
    wrong = [f"{name}: no update"] if not updates else []
    wrong += [f"{name}: {lost} workers were restarted"] if lost else []
    return wrong + ([f"{name}: {after / before:.0%} of the speed afterwards"] if after < share * before else [])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10.0, help="duration of a measurement; twice for bad links")
    parser.add_argument("--share", type=float, default=0.95, help="least share of the speed, ten seconds afterwards")
    parser.add_argument("--links", nargs="*", default=list(LINKS), choices=list(LINKS))
    arguments = parser.parse_args()
    wrong: list[str] = []
    with cluster(3, "--cpus", "4") as places, ExitStack() as stack:
        links = [stack.enter_context(relay(places.hosts, index)) for index in (1, 2)]
        run = stack.enter_context(job(*GRAPH, *SLEEPING, *places.options, env=SLEEPY, enter=places.enter))
        print("| links | steps/s before | with them | updates | ten seconds after | restarts |")
        print("|---|---|---|---|---|---|", flush=True)
        for name in arguments.links:
            wrong += disturb(run, links, name, arguments.seconds, arguments.share)
        status = run.wait(lambda status: True)
        found = check(read(Path(status.path) / "journal.jsonl"), status.max_lag)
        wrong += [f"journal: {text}" for text in found[:5]]
        print(f"{status.version} updates; journal {'WRONG' if found else 'clean'}; refused {status.refused}")
    for text in wrong:
        print(f"FAILED {text}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
