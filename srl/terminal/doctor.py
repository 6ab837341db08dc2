"""`srl doctor`: machine checks and recommended settings."""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, metadata, requires, version
from pathlib import Path

from packaging.requirements import Requirement
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

import srl
from srl.base.files import explain_os_error
from srl.storage import ROOT
from srl.terminal.machine import Limits, limits, parent_death_signal_works, pidfd_works, shared_memory_works

OK, WARN, FAIL = "ok", "warn", "fail"
MARKS = {OK: ("✓", "green"), WARN: ("!", "yellow"), FAIL: ("✗", "bold red")}
GIB = 2**30
DISTRIBUTION = "srl-rl"  # `srl` on PyPI is another project
BUNDLES = ("all", "dev")  # extras that only combine others


@dataclass(frozen=True)
class Finding:
    """Result of one check."""

    name: str
    verdict: str  # ok | warn | fail
    found: str
    todo: str = ""  # advice, if any


def examine(root: Path = ROOT) -> list[Finding]:
    """Run all checks. A check that raises is reported as a warning. Imports torch, which takes about a second."""
    machine = limits()
    findings: list[Finding] = []
    checks: list[Callable[[], Finding | list[Finding]]] = [
        lambda: _cores(machine),
        lambda: _load(machine, os.getloadavg()[0]),
        lambda: _memory(machine),
        _shared_memory,
        _processes,
        lambda: _open_files(machine),
        lambda: _num_processes(machine),
        lambda: _runs(root),
        _versions,
        lambda: _torch(machine),
        _extras,
        lambda: _suggestion(machine),
    ]
    for check in checks:
        try:
            found = check()
        except Exception as error:
            found = Finding("doctor", WARN, f"check failed: {type(error).__name__}: {error}", "please report this")
        findings += found if isinstance(found, list) else [found]
    return findings


def healthy(findings: list[Finding]) -> bool:
    """Return whether all checks passed or only warned."""
    return all(finding.verdict != FAIL for finding in findings)


def doctor_table(findings: list[Finding]) -> RenderableType:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for finding in findings:
        mark, style = MARKS[finding.verdict]
        text = Text(finding.found)
        if finding.todo:
            text.append(f"\n→ {finding.todo}", "cyan")
        table.add_row(Text(f" {mark}", style), Text(finding.name, "bold"), text)
    return Group(table, _summary(findings))


def _summary(findings: list[Finding]) -> Text:
    num_failed = sum(finding.verdict == FAIL for finding in findings)
    num_warned = sum(finding.verdict == WARN for finding in findings)
    if num_failed:
        return Text(f"\n {num_failed} of {len(findings)} checks failed: fix them before you start a run", "bold red")
    if num_warned:
        return Text(f"\n ready; {num_warned} of {len(findings)} checks have a recommendation", "yellow")
    return Text("\n ready: all checks passed", "bold green")


def _cores(machine: Limits) -> Finding:
    found = f"{machine.cores:g} usable of {machine.cores_of_machine}"
    if machine.cpu_quota is not None and machine.cpu_quota < machine.cores_allowed:
        found += f" (the container is limited to {machine.cpu_quota:g}, but programs see {machine.cores_allowed})"
        return Finding("cores", WARN, found, f"stay within the limit: --actors {_num_actors(machine)}")
    if machine.cores < 2:
        return Finding("cores", WARN, found, "actor and trainer take turns; with 2 or more cores they overlap")
    return Finding("cores", OK, found)


def _finding(name: str, found: str, *problems: tuple[bool, str, str]) -> Finding:
    """Return a finding for the first problem that exists, or OK. A problem is given as (exists, verdict, advice)."""
    for exists, verdict, todo in problems:
        if exists:
            return Finding(name, verdict, found, todo)
    return Finding(name, OK, found)


def _load(machine: Limits, load: float) -> Finding:
    busy = load > 0.5 * machine.cores
    return _finding("load", f"{load:.1f}", (busy, WARN, "other programs use these cores: expect lower speed"))


def _memory(machine: Limits) -> Finding:
    return _finding(
        "memory",
        f"{machine.memory_free / GIB:.1f} GiB free of {machine.memory / GIB:.1f}",
        (machine.memory_free < 0.5 * GIB, FAIL, "a run needs about 1 GiB; free some memory"),
        (machine.memory_free < 2 * GIB, WARN, "keep runs small: --actors 1 --lanes 16"),
    )


def _shared_memory() -> Finding:
    try:
        usage = shutil.disk_usage("/dev/shm")
        shm = f"/dev/shm {usage.free / GIB:.1f} GiB free of {usage.total / GIB:.1f}"
    except OSError:
        shm = "no /dev/shm"
    error = shared_memory_works()
    if error:
        return Finding("shared memory", FAIL, f"memfd does not work ({error}); {shm}", "run with --scheduler inline")
    return Finding("shared memory", OK, f"memfd works, /dev/shm is not needed; {shm}")


def _processes() -> Finding:
    missing = [] if parent_death_signal_works() else ["parent-death signal (PR_SET_PDEATHSIG)"]
    missing += [] if pidfd_works() else ["pidfd"]
    if missing:
        todo = "a killed run may leave processes behind: check with `srl ps`; Linux 5.3 or later has both"
        return Finding("processes", WARN, f"{' and '.join(missing)} not available", todo)
    return Finding("processes", OK, "parent-death signal and pidfd work: a killed run leaves nothing behind")


def _open_files(machine: Limits) -> Finding:
    return _finding("open files", f"at most {machine.num_files}", (machine.num_files < 1024, WARN, "ulimit -n 4096"))


def _num_processes(machine: Limits) -> Finding:
    if (most := machine.num_processes) is None:
        return Finding("user processes", OK, "no limit")
    todo = "each worker needs a process and some threads: ulimit -u 4096"
    return _finding("user processes", f"at most {most}", (most < 512, WARN, todo))


def _runs(root: Path) -> Finding:
    folder = root.expanduser().resolve()
    while not folder.exists():
        folder = folder.parent
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"x")
            file.flush()
        free = shutil.disk_usage(folder).free
    except OSError as error:
        return Finding("runs", FAIL, f"cannot write to {root.absolute()}", explain_os_error(error))
    return _finding(
        "runs",
        f"{root.absolute()} is writable, {free / GIB:.1f} GiB free",
        (free < 0.05 * GIB, FAIL, "free some space or choose another folder with --root"),
        (free < GIB, WARN, "checkpoints may fill the disk: free some space"),
    )


def _versions() -> Finding:
    def with_version(package: str) -> str:
        try:
            return f"{package} {version(package)}"
        except PackageNotFoundError:
            return f"{package} missing"

    packages = [with_version(package) for package in ("torch", "gymnasium", "numpy")]
    found = ", ".join(
        [f"Python {platform.python_version()}", f"srl {srl.__version__}", *packages, f"Linux {platform.release()}"]
    )
    missing = any(package.endswith("missing") for package in packages)
    return _finding("versions", found, (missing, FAIL, "pip install srl-rl"))


def _torch(machine: Limits) -> list[Finding]:
    import torch  # the only check that needs it

    threads = torch.get_num_threads()
    found = f"{threads} by default; SRL sets the number per worker"
    todo = f"in your own programs: OMP_NUM_THREADS={int(machine.cores)}"
    findings = [_finding("torch threads", found, (threads > max(1, machine.cores), WARN, todo))]
    if torch.cuda.is_available():
        names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
        return [*findings, Finding("GPU", OK, ", ".join(names), "to run inference on it: --inference host")]
    if Path("/proc/driver/nvidia/version").exists() or shutil.which("nvidia-smi"):
        todo = "pip install torch --index-url https://download.pytorch.org/whl/cu128"
        return [*findings, Finding("GPU", WARN, f"found, but torch {torch.__version__} cannot use it", todo)]
    return [*findings, Finding("GPU", OK, "none; inference runs on the CPU inside each actor (--inference inline)")]


def _extras() -> list[Finding]:
    """List installed and missing extras. No run needs all of them, so a missing one is not a warning."""
    extras = extras_of()
    complete = [extra for extra, missing in extras.items() if not missing]
    lacking = [extra for extra, missing in extras.items() if missing]
    findings = [Finding("extras", OK, ", ".join(complete) or "none")]
    if lacking:
        listed = ", ".join(f"{extra} ({', '.join(extras[extra])})" for extra in lacking)
        findings.append(Finding("other extras", OK, listed, "to install one: pip install 'srl-rl[NAME]'"))
    return findings


def _suggestion(machine: Limits) -> Finding:
    """Suggest a first command. The defaults suit this machine, except that they ignore a container's CPU quota."""
    unseen = machine.cpu_quota is not None and machine.cpu_quota < machine.cores_allowed
    return Finding("first run", OK, "srl train CartPole-v1" + (f" --actors {_num_actors(machine)}" if unseen else ""))


def _num_actors(machine: Limits) -> int:
    """Return the number of actors that leaves one core for the trainer."""
    return max(1, int(machine.cores) - 1)


def extras_of(package: str = DISTRIBUTION) -> dict[str, list[str]]:
    """Return each extra's missing packages, such as `ale-py` or `mujoco>=3.4 (3.2 is installed)`."""
    names = metadata(package).get_all("Provides-Extra") or []
    return {name: sorted(set(_missing(package, name))) for name in sorted(names) if name not in BUNDLES}


def _missing(package: str, extra: str) -> Iterator[str]:
    for line in requires(package) or []:
        wanted = Requirement(line)
        if wanted.marker is None or not wanted.marker.evaluate({"extra": extra}) or wanted.marker.evaluate():
            continue  # not part of this extra
        try:
            found = version(wanted.name)
        except PackageNotFoundError:
            yield wanted.name
            continue
        if not wanted.specifier.contains(found, prereleases=True):
            yield f"{wanted.name}{wanted.specifier} ({found} is installed)"
        for inner in wanted.extras:
            yield from _missing(wanted.name, inner)
