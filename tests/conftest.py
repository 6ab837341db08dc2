"""What a test leaves behind fails it: processes, threads, descriptors (sockets among them), names in /dev/shm.

Torch has one thread in all tests: results are bit-equal, and the other cores belong to others.
"""

from __future__ import annotations

import contextlib
import gc
import multiprocessing.resource_tracker
import os
import threading
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.stages import Stage
from support.waiting import LOOK_SECONDS

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported
PATIENCE_SECONDS = 30.0
FORGIVEN_THREADS = ("pytest_timeout", "QueueFeeder")
# What libraries open once and keep; also matplotlib's fonts, and a database of onnxruntime.
FORGIVEN_FILES = ("/dev/null", "/dev/urandom", "/usr/", "/lib", "/proc/", "/sys/")
FORGIVEN_PARTS = (".ttf", "/.onnxruntime/")
FAILED = pytest.StashKey[bool]()


def pytest_configure() -> None:
    """Keep tqdm, which Optuna uses, from starting a thread that never ends: tests that fork need a single thread."""
    with contextlib.suppress(ImportError):
        from tqdm import tqdm  # type: ignore[import-untyped]

        tqdm.monitor_interval = 0


def pytest_collection_finish() -> None:
    collect_garbage()


def collect_garbage() -> None:
    """Free cycles, and leave what is alive, mostly modules, out of later collections, which then cost little."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.when == "call":
        item.stash[FAILED] = report.failed
    return report


def descriptors() -> dict[int, str]:
    found = {}
    for entry in os.listdir("/proc/self/fd"):
        try:
            found[int(entry)] = os.readlink(f"/proc/self/fd/{entry}")
        except FileNotFoundError:
            continue  # the one that lists
    return found


def children() -> set[int]:
    return {
        int(child)
        for task in os.listdir("/proc/self/task")
        for child in _read(Path(f"/proc/self/task/{task}/children")).split()
    }


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except FileNotFoundError:
        return ""  # the thread is gone


def belongings() -> dict[str, set[str]]:
    """Everything that a test might leave behind, by kind."""
    threads = {t.name for t in threading.enumerate() if not t.name.startswith(FORGIVEN_THREADS)}
    tracker: Any = multiprocessing.resource_tracker._resource_tracker  # started once, stays
    files = {f"{number} -> {target}" for number, target in descriptors().items() if number != tracker._fd}
    return {
        "threads": threads,
        "processes": {str(child) for child in children() if child != tracker._pid},
        "descriptors": {
            entry
            for entry in files
            if not entry.split(" -> ")[1].startswith(FORGIVEN_FILES)
            and not any(part in entry for part in FORGIVEN_PARTS)
        },
        "shared memory": set(os.listdir("/dev/shm")) if os.path.isdir("/dev/shm") else set(),
    }


@pytest.fixture(autouse=True)
def _nothing_is_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    before = belongings()
    yield
    if request.node.stash.get(FAILED, False):
        return  # its traceback holds on to everything
    if _left(before):
        collect_garbage()
    began, thorough = time.monotonic(), False
    while (left := _left(before)) and time.monotonic() < began + PATIENCE_SECONDS:
        time.sleep(LOOK_SECONDS)
        if not thorough and time.monotonic() > began + 1.0:
            gc.unfreeze()  # a cycle of something that was alive at the last collection
            collect_garbage()
            thorough = True
    if left:
        pytest.fail(f"left behind: {left}")


def _left(before: dict[str, set[str]]) -> dict[str, list[str]]:
    now = belongings()
    return {kind: sorted(now[kind] - before[kind]) for kind in now if now[kind] - before[kind]}


@pytest.fixture(params=["inproc", "host", "tcp"])
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stage]:
    """Both ends of a stream, over each transport."""
    made = Stage(request.param, tmp_path)
    yield made
    made.close()


@pytest.fixture
def inproc(tmp_path: Path) -> Iterator[Stage]:
    made = Stage("inproc", tmp_path)
    yield made
    made.close()


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Stage]:
    made = Stage("host", tmp_path)
    yield made
    made.close()
