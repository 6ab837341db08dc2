"""What the dashboard costs a run that is shown, and how far a page is behind it.

    python benchmarks/dashboard_training.py --windows 5 --seconds 10
    python benchmarks/dashboard_training.py --browser

CartPole trains all the time. The server is stopped (SIGSTOP) in every other window, in the order ABBA. In the others a
client gets the events of the run's page and asks for its curves whenever the page would. With `--browser`, the client
is Chromium on the same machine, which draws as well; usually it is on another one. A page is behind by the age of the
first update that it does not show.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

NAME = "shown"
CURVES = "name=return&name=length&name=train_fps"
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"]


class Run:
    """The updates of the run: their numbers, steps and times."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self.rows: list[tuple[int, int, float]] = []

    def read(self) -> None:
        with suppress(FileNotFoundError), self._path.open("rb") as file:
            file.seek(self._offset)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                self._offset += len(line)
                row = json.loads(line)
                if row.get("kind") == "update":
                    self.rows.append((row["update"], row["step"], row["time"]))

    def speed(self, begin: float, end: float) -> float:
        """Return the steps learned per second between two times."""
        rows = [row for row in self.rows if begin <= row[2] <= end]
        return (rows[-1][1] - rows[0][1]) / (rows[-1][2] - rows[0][2])


class Client:
    """Does what a page does, without drawing."""

    def __init__(self, base: str, token: str) -> None:
        self._base, self._token = base, token
        self.shown = 0
        for target in (self._follow, self._curves):
            threading.Thread(target=self._until_closed, args=(target,), daemon=True).start()

    def _until_closed(self, target: Callable[[], None]) -> None:
        with suppress(OSError):
            target()

    def _open(self, path: str) -> Any:
        headers = {"Authorization": f"Bearer {self._token}"}
        return urllib.request.urlopen(urllib.request.Request(f"{self._base}/api/{path}", headers=headers))

    def _follow(self) -> None:
        for line in self._open(f"events?key={NAME}"):
            if line.startswith(b"data: ") and "status" in (news := json.loads(line[6:])):
                self.shown = news["status"]["updates"]

    def _curves(self) -> None:
        while True:
            found = json.load(self._open(f"series?key={NAME}&{CURVES}&x=steps"))
            time.sleep(found["seconds"])


@contextmanager
def started(command: list[str], **options: Any) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen([sys.executable, "-m", "srl", *command], text=True, **options)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGCONT)
        process.send_signal(signal.SIGINT)
        process.wait()


def behind(run: Run, shown: Callable[[], int], seconds: float) -> list[float]:
    """Return, at many times, for how long the page has not shown an update that was made."""
    found, end = [], time.time() + seconds
    while time.time() < end:
        now, number = time.time(), shown()
        run.read()
        missing = [at for update, _, at in run.rows[-5000:] if update > number]
        found.append(now - missing[0] if missing else 0.0)
        time.sleep(0.02)
    return found


def measure(run: Run, processes: list[psutil.Process], shown: Callable[[], int], windows: int, seconds: float) -> None:
    server = processes[0]
    before = server.cpu_times()
    ages = behind(run, shown, seconds)
    after = server.cpu_times()
    share = (after.user + after.system - before.user - before.system) / seconds
    print(f"server {100 * share:.1f} % of a core, {server.memory_info().rss / 1e6:.0f} MB", flush=True)
    print(f"page behind by {statistics.median(ages):.2f} s (median), {max(ages):.2f} s (highest)", flush=True)
    speeds: dict[bool, list[float]] = {True: [], False: []}
    for index in range(2 * windows):
        is_open = index % 4 in (0, 3)
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGCONT if is_open else signal.SIGSTOP)
        time.sleep(1.5)  # what was late is sent
        begin = time.time()
        time.sleep(seconds)
        run.read()
        speeds[is_open].append(run.speed(begin, time.time()))
    for is_open, each in speeds.items():
        print(f"{'open  ' if is_open else 'closed'} {' '.join(f'{speed / 1000:.1f}k' for speed in each)} steps/s")
    ratio = statistics.median(speeds[True]) / statistics.median(speeds[False])
    print(f"median with the dashboard open: {100 * ratio:.1f} % of that without", flush=True)


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # ends what it started
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--windows", type=int, default=5, help="windows with the dashboard, and as many without")
    parser.add_argument("--seconds", type=float, default=10.0, help="length of a window")
    parser.add_argument("--browser", action="store_true", help="open the page in Chromium on this machine")
    a = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="srl-dashboard-"))
    train = ["train", "CartPole-v1", "--root", str(root), "--name", NAME, "--steps", str(10**12)]
    try:
        silent = started(train, stdout=subprocess.DEVNULL)
        with silent, started(["dashboard", str(root)], stdout=subprocess.PIPE) as server:
            assert server.stdout is not None
            address = ""
            while not address.startswith("http"):
                address = server.stdout.readline().strip()
            base, _, token = address.partition("/?token=")
            run = Run(root / NAME / "metrics.jsonl")
            while len(run.rows) < 300:
                time.sleep(0.2)
                run.read()
            processes = [psutil.Process(server.pid)]
            if not a.browser:
                client = Client(base, token)
                time.sleep(3)
                measure(run, processes, lambda: client.shown, a.windows, a.seconds)
                return
            from playwright.sync_api import sync_playwright

            with sync_playwright() as running:
                browser = running.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
                page = browser.new_page()
                page.goto(f"{address}#/run/{NAME}")
                page.locator("canvas").first.wait_for()
                figure = page.locator(".figures div", has_text="updates").locator("b")
                own = psutil.Process(os.getpid()).children(recursive=True)
                processes += [process for process in own if "chrom" in process.name()]
                measure(run, processes, lambda: int(figure.inner_text().replace(",", "")), a.windows, a.seconds)
                for process in processes:
                    process.send_signal(signal.SIGCONT)
                browser.close()
    finally:
        shutil.rmtree(root)


if __name__ == "__main__":
    main()
