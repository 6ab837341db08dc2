"""Resource usage of worker processes."""

from __future__ import annotations

import time

import psutil

from srl.api.scheduler import Usage

STOPPED = (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)
FRESH_SECONDS = 0.2


class UsageMeters:
    """Measurements of workers' resource usage, each reused for FRESH_SECONDS. A CPU percentage covers the time since
    the worker's previous measurement."""

    def __init__(self, host: str = "") -> None:
        self._host = host
        self._processes: dict[str, psutil.Process] = {}
        self._measured: dict[str, tuple[float, int, Usage]] = {}  # time, pid, usage

    def measure(self, worker: str, pid: int) -> Usage:
        if not pid:
            return Usage(self._host)
        measured, known_pid, usage = self._measured.get(worker, (0.0, 0, None))
        if usage is not None and known_pid == pid and time.monotonic() - measured < FRESH_SECONDS:
            return usage
        usage = self._measure(worker, pid)
        self._measured[worker] = (time.monotonic(), pid, usage)
        return usage

    def _measure(self, worker: str, pid: int) -> Usage:
        try:
            process = self._processes.get(worker)
            if process is None or process.pid != pid:
                process = self._processes[worker] = psutil.Process(pid)
            with process.oneshot():
                stopped = process.status() in STOPPED
                return Usage(self._host, process.cpu_percent(), process.memory_info().rss / 2**20, stopped)
        except psutil.Error:
            self.forget(worker)
            return Usage(self._host)

    def forget(self, worker: str) -> None:
        self._processes.pop(worker, None)
        self._measured.pop(worker, None)
