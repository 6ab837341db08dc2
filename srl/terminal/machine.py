"""Limits of this machine, as reported by the kernel and the container."""

from __future__ import annotations

import ctypes
import os
import resource
from dataclasses import dataclass
from pathlib import Path

PR_GET_PDEATHSIG = 2


@dataclass(frozen=True)
class Limits:
    cores_of_machine: int
    cores_allowed: int  # by CPU affinity (taskset, cpusets)
    cpu_quota: float | None  # the container's CPU limit in cores; None if it has none
    memory: int
    memory_free: int
    num_files: int
    num_processes: int | None  # None if there is no limit

    @property
    def cores(self) -> float:
        """Cores that a run can use."""
        return self.cores_allowed if self.cpu_quota is None else min(self.cores_allowed, self.cpu_quota)


def limits() -> Limits:
    import psutil

    memory = psutil.virtual_memory()
    limit = memory_limit()
    total = memory.total if limit is None else min(memory.total, limit[0])
    free = memory.available if limit is None else min(memory.available, limit[1])
    processes = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    return Limits(
        cores_of_machine=os.cpu_count() or 1,
        cores_allowed=len(os.sched_getaffinity(0)),
        cpu_quota=cpu_quota(),
        memory=total,
        memory_free=free,
        num_files=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        num_processes=None if processes == resource.RLIM_INFINITY else processes,
    )


def cpu_quota(root: Path = Path("/sys/fs/cgroup"), own: str | None = None) -> float | None:
    """Return the lowest CPU quota of our cgroup and its parents, in cores; None if there is none."""
    quotas = []
    for group in _groups(root, own):
        words = _words(group / "cpu.max")
        if len(words) == 2 and words[0] != "max":
            quotas.append(int(words[0]) / int(words[1]))
    quota, period = _words(root / "cpu" / "cpu.cfs_quota_us"), _words(root / "cpu" / "cpu.cfs_period_us")
    if quota and period and int(quota[0]) > 0:
        quotas.append(int(quota[0]) / int(period[0]))
    return min(quotas, default=None)


def memory_limit(root: Path = Path("/sys/fs/cgroup"), own: str | None = None) -> tuple[int, int] | None:
    """Return the container's memory limit and how much of it is free, in bytes; None if there is no limit."""
    pairs = []
    for group in _groups(root, own):
        limit, used = _words(group / "memory.max"), _words(group / "memory.current")
        if limit and used and limit[0] != "max":
            pairs.append((int(limit[0]), max(0, int(limit[0]) - int(used[0]))))
    return min(pairs, key=lambda pair: pair[1], default=None)


def shared_memory_works(nbytes: int = 1 << 20) -> str:
    """Return the kernel's error message, or an empty string if shared memory works."""
    try:
        descriptor = os.memfd_create("srl-doctor", os.MFD_CLOEXEC)
        try:
            os.posix_fallocate(descriptor, 0, nbytes)
        finally:
            os.close(descriptor)
    except OSError as error:
        return error.strerror or str(error)
    return ""


def parent_death_signal_works() -> bool:
    signal = ctypes.c_int()
    try:
        return int(ctypes.CDLL(None).prctl(PR_GET_PDEATHSIG, ctypes.byref(signal), 0, 0, 0)) == 0
    except (OSError, AttributeError):
        return False


def pidfd_works() -> bool:
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (OSError, AttributeError):
        return False
    return True


def _groups(root: Path, own: str | None) -> list[Path]:
    """Return the directories of our cgroup and its parents (cgroup v2)."""
    if own is None:
        lines = [line.split(":", 2) for line in _lines(Path("/proc/self/cgroup"))]
        own = next((parts[2] for parts in lines if len(parts) == 3 and parts[0] == "0"), "/")
    group = root / own.strip("/")
    return [group, *(parent for parent in group.parents if parent.is_relative_to(root))]


def _words(path: Path) -> list[str]:
    return " ".join(_lines(path)).split()


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
