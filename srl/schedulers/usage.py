"""What the processes of this host take."""

from __future__ import annotations

import psutil

from srl.api.scheduler import Usage

STOPPED = (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)


class UsageMeters:
    """CPU percentages are over the time since the same worker was last asked about."""

    def __init__(self, host: str = "") -> None:
        self._host = host
        self._processes: dict[str, psutil.Process] = {}

    def measure(self, worker: str, pid: int) -> Usage:
        if not pid:
            return Usage(self._host)
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
