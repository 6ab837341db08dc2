"""What a run was made with: versions, commits and hardware, stored in machine.json."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import socket
import sys
from pathlib import Path

PACKAGES = ("torch", "numpy", "gymnasium", "pettingzoo", "ale-py", "mujoco", "envpool", "minigrid")


def describe_machine(version: str) -> dict[str, str]:
    """Describe the software and hardware of this process; `version` is that of SRL."""
    found = {
        "host": socket.gethostname(),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "srl": version,
        "srl_commit": _commit(Path(__file__).parent),
        "commit": _commit(Path.cwd()),
        "command": " ".join(sys.argv),
        "cpu": _cpu(),
        "cores": str(len(os.sched_getaffinity(0))),
        "gpu": ", ".join(_gpus()),
    }
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {name: value for name, value in found.items() if value}


def _commit(directory: Path) -> str:
    """Return the commit of the Git repository that contains a directory, read from its files; empty without one."""
    for parent in (directory, *directory.parents):
        git = parent / ".git"
        try:
            if git.is_file():  # a worktree or a submodule
                git = Path(git.read_text().removeprefix("gitdir:").strip())
            if not (git / "HEAD").is_file():
                continue
            head = (git / "HEAD").read_text().strip()
            if not head.startswith("ref: "):
                return head
            name = head.removeprefix("ref: ")
            common = git / (git / "commondir").read_text().strip() if (git / "commondir").is_file() else git
            if (common / name).is_file():
                return (common / name).read_text().strip()
            for line in (common / "packed-refs").read_text().splitlines():
                if line.endswith(f" {name}"):
                    return line.split()[0]
        except OSError:
            pass
        if git.exists():
            return ""
    return ""


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def _gpus() -> list[str]:
    models = []
    for path in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information")):
        try:
            lines = path.read_text().splitlines()
        except OSError:
            continue
        models += [line.partition(":")[2].strip() for line in lines if line.startswith("Model:")]
    return models
