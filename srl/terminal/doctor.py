"""What this machine offers to a run, and what to set because of it: `srl doctor`."""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from srl.storage import ROOT
from srl.storage.disk import explain
from srl.terminal.extras import extras_of
from srl.terminal.machine import Limits, limits, parent_death_signal_works, pidfd_works, shared_memory_works

OK, WARN, FAIL = "ok", "warn", "fail"
MARKS = {OK: ("✓", "green"), WARN: ("!", "yellow"), FAIL: ("✗", "bold red")}
GIB = 2**30


@dataclass(frozen=True)
class Fact:
    name: str
    state: str
    """ok | warn | fail"""
    found: str
    todo: str = ""


def examine(root: Path = ROOT) -> list[Fact]:
    """Look at everything; an examination that breaks becomes a fact, too. Imports torch, which takes a second."""
    machine = limits()
    facts: list[Fact] = []
    examinations: list[Callable[[], Fact | list[Fact]]] = [
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
    for examination in examinations:
        try:
            found = examination()
        except Exception as error:
            found = Fact("doctor", WARN, f"could not look: {type(error).__name__}: {error}", "please report this")
        facts += found if isinstance(found, list) else [found]
    return facts


def healthy(facts: list[Fact]) -> bool:
    """Whether runs will work; warnings are no reason that they would not."""
    return all(fact.state != FAIL for fact in facts)


def doctor_table(facts: list[Fact]) -> RenderableType:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for fact in facts:
        mark, style = MARKS[fact.state]
        text = Text(fact.found)
        if fact.todo:
            text.append(f"\n→ {fact.todo}", "cyan")
        table.add_row(Text(f" {mark}", style), Text(fact.name, "bold"), text)
    return Group(table, _summary(facts))


def _summary(facts: list[Fact]) -> Text:
    num_failed = sum(fact.state == FAIL for fact in facts)
    num_warned = sum(fact.state == WARN for fact in facts)
    if num_failed:
        return Text(f"\n {num_failed} of {len(facts)} things must be mended before a run can work", "bold red")
    if num_warned:
        return Text(f"\n ready; {num_warned} of {len(facts)} things could be better", "yellow")
    return Text("\n all is well", "bold green")


def _cores(machine: Limits) -> Fact:
    found = f"{machine.cores:g} usable of {machine.cores_of_machine}"
    if machine.cpu_quota is not None and machine.cpu_quota < machine.cores_allowed:
        found += f" (the container may use {machine.cpu_quota:g}, but programs see {machine.cores_allowed})"
        return Fact("cores", WARN, found, f"keep workers within the quota: --actors {_num_actors(machine)}")
    if machine.cores < 2:
        return Fact("cores", WARN, found, "actor and trainer will take turns; 2 cores or more let them overlap")
    return Fact("cores", OK, found)


def _load(machine: Limits, load: float) -> Fact:
    if load > 0.5 * machine.cores:
        return Fact(
            "load", WARN, f"{load:.1f} before any run of yours", "other programs use these cores: expect less speed"
        )
    return Fact("load", OK, f"{load:.1f}")


def _memory(machine: Limits) -> Fact:
    found = f"{machine.memory_free / GIB:.1f} GiB free of {machine.memory / GIB:.1f}"
    if machine.memory_free < 0.5 * GIB:
        return Fact("memory", FAIL, found, "a run needs about 1 GiB; free some memory")
    if machine.memory_free < 2 * GIB:
        return Fact("memory", WARN, found, "keep runs small: --actors 1 --lanes 16")
    return Fact("memory", OK, found)


def _shared_memory() -> Fact:
    try:
        usage = shutil.disk_usage("/dev/shm")
        shm = f"/dev/shm {usage.free / GIB:.1f} GiB free of {usage.total / GIB:.1f}"
    except OSError:
        shm = "no /dev/shm"
    error = shared_memory_works()
    if error:
        return Fact("shared memory", FAIL, f"memfd cannot be used ({error}); {shm}", "run with --scheduler inline")
    return Fact("shared memory", OK, f"memfd works, /dev/shm is not needed; {shm}")


def _processes() -> Fact:
    missing = [] if parent_death_signal_works() else ["parent-death signal (PR_SET_PDEATHSIG)"]
    missing += [] if pidfd_works() else ["pidfd"]
    if missing:
        todo = "a killed run may leave processes behind: look with `srl ps`; Linux 5.3 or later has both"
        return Fact("processes", WARN, f"{' and '.join(missing)} not available", todo)
    return Fact("processes", OK, "parent-death signal and pidfd work: a killed run leaves nothing behind")


def _open_files(machine: Limits) -> Fact:
    if machine.num_files < 1024:
        return Fact("open files", WARN, f"at most {machine.num_files}", "ulimit -n 4096")
    return Fact("open files", OK, f"at most {machine.num_files}")


def _num_processes(machine: Limits) -> Fact:
    if machine.num_processes is None:
        return Fact("user processes", OK, "no limit")
    found = f"at most {machine.num_processes}"
    return (
        Fact("user processes", OK, found)
        if machine.num_processes >= 512
        else Fact("user processes", WARN, found, "each worker needs a process and some threads: ulimit -u 4096")
    )


def _runs(root: Path) -> Fact:
    place = root.expanduser().resolve()
    while not place.exists():
        place = place.parent
    try:
        with tempfile.TemporaryFile(dir=place) as file:
            file.write(b"x")
            file.flush()
        free = shutil.disk_usage(place).free
    except OSError as error:
        return Fact("runs", FAIL, f"cannot write to {root.absolute()}", explain(error))
    found = f"{root.absolute()} is writable, {free / GIB:.1f} GiB free"
    if free < 0.05 * GIB:
        return Fact("runs", FAIL, found, "free some space or choose another place with --root")
    if free < GIB:
        return Fact("runs", WARN, found, "checkpoints may fill the disk: free some space")
    return Fact("runs", OK, found)


def _versions() -> Fact:
    from importlib.metadata import PackageNotFoundError, version

    def told(package: str) -> str:
        try:
            return f"{package} {version(package)}"
        except PackageNotFoundError:
            return f"{package} missing"

    packages = [told(package) for package in ("srl", "torch", "gymnasium", "numpy")]
    found = ", ".join([f"Python {platform.python_version()}", *packages, f"Linux {platform.release()}"])
    if any(package.endswith("missing") for package in packages[1:]):
        return Fact("versions", FAIL, found, "pip install srl")
    return Fact("versions", OK, found)


def _torch(machine: Limits) -> list[Fact]:
    import torch  # the one place of the terminal that needs it

    threads = torch.get_num_threads()
    found = f"{threads} threads of its own; SRL sets them per worker"
    facts = [Fact("torch threads", OK, found)]
    if threads > max(1, machine.cores):
        facts = [Fact("torch threads", WARN, found, f"in programs of your own: OMP_NUM_THREADS={int(machine.cores)}")]
    if torch.cuda.is_available():
        names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
        return [*facts, Fact("GPU", OK, ", ".join(names), "policies answer on it with --inference host")]
    if Path("/proc/driver/nvidia/version").exists() or shutil.which("nvidia-smi"):
        todo = "pip install torch --index-url https://download.pytorch.org/whl/cu128"
        return [*facts, Fact("GPU", WARN, f"there is one, but torch {torch.__version__} cannot use it", todo)]
    return [*facts, Fact("GPU", OK, "none; actors decide on the cores they step on (--inference inline)")]


def _extras() -> list[Fact]:
    """Nobody needs all of them, so that one is missing is no reason to warn."""
    extras = extras_of()
    complete = [extra for extra, missing in extras.items() if not missing]
    lacking = [extra for extra, missing in extras.items() if missing]
    facts = [Fact("extras", OK, ", ".join(complete) or "none")]
    if lacking:
        told = ", ".join(f"{extra} ({', '.join(extras[extra])})" for extra in lacking)
        facts.append(Fact("other extras", OK, told, "pip install 'srl[NAME]' for what you want"))
    return facts


def _suggestion(machine: Limits) -> Fact:
    """What is not given is chosen well; only a quota of the container, which programs do not see, must be told."""
    unseen = machine.cpu_quota is not None and machine.cpu_quota < machine.cores_allowed
    return Fact("to begin with", OK, "srl train CartPole-v1" + (f" --actors {_num_actors(machine)}" if unseen else ""))


def _num_actors(machine: Limits) -> int:
    """A core stays for the trainer."""
    return max(1, int(machine.cores) - 1)
