"""Time until the dashboard's pages are drawn in Chromium, and the memory and CPU of its server.

    python benchmarks/dashboard_pages.py --runs 200 --rows 100000

The runs are made up: each has a status and a file of metrics. One file serves several runs, so that they fit on a disk.
"""

from __future__ import annotations

import argparse
import http.client
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec
import psutil

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

NAMES = ("length", "policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction", "explained_variance")
DIFFERENT = 10  # files of metrics
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"]


def rows(count: int) -> str:
    found = []
    for n in range(1, count + 1):
        row = {
            "step": 2048 * n,
            "time": 1e9 + n,
            "kind": "update",
            "policy": "policy",
            "elapsed": n * 0.01,
            "update": n,
        }
        row |= {"return": float(n % 500), "episodes": 3, **dict.fromkeys(NAMES, 1.0 / n)}
        found.append(json.dumps(row) + "\n")
    return "".join(found)


def make_runs(root: Path, count: int, num_rows: int) -> None:
    from dashboard.conftest import status_of

    content = rows(num_rows)
    for index in range(count):
        path = root / f"run{index:04d}"
        (path / "logs").mkdir(parents=True)
        options = {"algo": "ppo", "run": {"seed": index}}
        config = {"environment": "CartPole-v1", "lanes": {}, "options": options, "policies": {"policy": {}}}
        (path / "config.json").write_text(json.dumps(config))
        status = status_of(path, return_curve=[float(x) for x in range(200)])
        (path / "status.json").write_bytes(msgspec.json.encode(status))
        if index < DIFFERENT:
            (path / "metrics.jsonl").write_text(content)
        else:
            (path / "metrics.jsonl").hardlink_to(root / "run0000" / "metrics.jsonl")


def ask_often(address: str, count: int, process: psutil.Process) -> None:
    """Ask for pages, the table, one run and its curves, one after another, as one browser does."""
    place, _, token = address.removeprefix("http://").partition("/?token=")
    paths = ["/", "/api/runs", "/api/run?key=run0000", "/api/workers?key=run0000&group=actors", "/charts.js"]
    began, refused = time.perf_counter(), 0
    connection = http.client.HTTPConnection(place, timeout=60)
    for number in range(count):
        connection.request("GET", paths[number % len(paths)], headers={"Authorization": f"Bearer {token}"})
        answer = connection.getresponse()
        answer.read()
        refused += answer.status != 200
    taken, memory = time.perf_counter() - began, process.memory_info().rss / 1e6
    print(f"{count} requests: {count / taken:.0f} per second, {refused} not answered, server {memory:.0f} MB")


def main() -> None:
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200, help="number of runs")
    parser.add_argument("--rows", type=int, default=100_000, help="rows of metrics in each run")
    parser.add_argument("--turns", type=int, default=3, help="number of runs that are opened, one after another")
    parser.add_argument("--requests", type=int, default=0, help="number of further requests")
    arguments = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="srl-dashboard-"))
    server: subprocess.Popen[str] | None = None
    try:
        make_runs(root, arguments.runs, arguments.rows)
        command = [sys.executable, "-m", "srl", "dashboard", str(root)]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert server.stdout is not None
        address = ""
        while not address.startswith("http"):
            address = server.stdout.readline().strip()
        process = psutil.Process(server.pid)
        with sync_playwright() as running:
            browser = running.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
            for turn in range(arguments.turns):
                page = browser.new_context().new_page()
                began = time.perf_counter()
                page.goto(address)
                page.locator("td.name a").first.wait_for()
                table = time.perf_counter() - began
                began = time.perf_counter()
                page.goto(f"{address.split('/?')[0]}/#/run/run{turn:04d}")
                page.locator("canvas").first.wait_for()
                taken, memory = time.perf_counter() - began, process.memory_info().rss / 1e6
                if turn + 1 < arguments.turns:
                    page.context.close()
                print(f"table of {arguments.runs} runs {table:.2f} s, one run {taken:.2f} s, server {memory:.0f} MB")
            before, began = process.cpu_times(), time.perf_counter()
            time.sleep(10)
            after, taken = process.cpu_times(), time.perf_counter() - began
            share = (after.user + after.system - before.user - before.system) / taken
            print(f"with one run open the server uses {100 * share:.1f} % of a core")
            browser.close()
        if arguments.requests:
            ask_often(address, arguments.requests, process)
    finally:
        if server is not None:
            server.terminate()
            server.wait()
        shutil.rmtree(root)


if __name__ == "__main__":
    main()
