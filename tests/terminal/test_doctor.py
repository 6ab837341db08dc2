"""`srl doctor`: the checks of a machine and the advice that follows from them."""

from __future__ import annotations

import io
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from srl.terminal import doctor
from srl.terminal.doctor import BUNDLES, FAIL, OK, WARN, Finding, doctor_table, examine, extras_of, healthy
from srl.terminal.machine import Limits, cpu_quota, limits, memory_limit

GIB = 2**30
MACHINE = Limits(8, 8, None, 16 * GIB, 12 * GIB, 4096, None)


def test_every_check_succeeds_on_this_machine(tmp_path: Path) -> None:
    findings = examine(tmp_path / "runs")
    names = [finding.name for finding in findings]
    for name in ("cores", "memory", "shared memory", "processes", "open files", "runs", "versions", "GPU", "extras"):
        assert names.count(name) == 1
    assert not [finding for finding in findings if finding.name == "doctor"]
    assert all(finding.todo for finding in findings if finding.verdict != OK)
    assert not (tmp_path / "runs").exists()


def test_a_check_that_raises_does_not_stop_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> Finding:
        raise RuntimeError("no such thing")

    monkeypatch.setattr(doctor, "_shared_memory", broken)
    findings = examine()
    assert "check failed: RuntimeError: no such thing" in [finding.found for finding in findings]
    assert findings[-1].name == "first run"


def test_the_lowest_quota_of_the_container_counts(tmp_path: Path) -> None:
    inner = tmp_path / "outer" / "inner"
    inner.mkdir(parents=True)
    assert cpu_quota(tmp_path, "/outer/inner") is None
    (inner / "cpu.max").write_text("max 100000\n")
    (tmp_path / "outer" / "cpu.max").write_text("150000 100000\n")
    assert cpu_quota(tmp_path, "/outer/inner") == 1.5
    (inner / "memory.max").write_text("1000\n")
    (inner / "memory.current").write_text("400\n")
    assert memory_limit(tmp_path, "/outer/inner") == (1000, 600)


def test_quotas_of_cgroup_version_1_are_read_too(tmp_path: Path) -> None:
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text("200000\n")
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    assert cpu_quota(tmp_path, "/") == 2.0
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text("-1\n")
    assert cpu_quota(tmp_path, "/") is None


def test_usable_cores_are_the_minimum_of_affinity_and_quota() -> None:
    assert MACHINE.cores == 8
    assert replace(MACHINE, cpu_quota=2.5).cores == 2.5
    assert replace(MACHINE, cores_allowed=2, cpu_quota=4.0).cores == 2
    assert limits().cores >= 0.1


@pytest.mark.parametrize(
    ("finding", "verdict", "todo"),
    [
        (doctor._cores(MACHINE), OK, ""),
        (doctor._cores(replace(MACHINE, cpu_quota=3.0)), WARN, "--actors 2"),
        (doctor._cores(replace(MACHINE, cores_allowed=1)), WARN, "2 or more cores"),
        (doctor._memory(replace(MACHINE, memory_free=GIB)), WARN, "--actors 1 --lanes 16"),
        (doctor._memory(replace(MACHINE, memory_free=GIB // 4)), FAIL, "free some memory"),
        (doctor._open_files(replace(MACHINE, num_files=256)), WARN, "ulimit -n 4096"),
        (doctor._num_processes(replace(MACHINE, num_processes=100)), WARN, "ulimit -u 4096"),
        (doctor._load(MACHINE, 6.0), WARN, "other programs"),
        (doctor._runs(Path("/proc/srl/storage")), FAIL, ""),
    ],
)
def test_every_warning_comes_with_advice(finding: Finding, verdict: str, todo: str) -> None:
    assert finding.verdict == verdict
    assert todo in finding.todo
    assert bool(finding.todo) == (verdict != OK)


def test_the_suggested_command_sets_only_what_a_container_limit_requires() -> None:
    assert doctor._suggestion(MACHINE).found == "srl train CartPole-v1"
    assert doctor._suggestion(replace(MACHINE, cpu_quota=4.0)).found == "srl train CartPole-v1 --actors 3"


def test_every_extra_of_the_package_is_checked() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    known = set(project["optional-dependencies"]) - set(BUNDLES)
    assert set(extras_of()) == known
    assert extras_of()["atari"] == []  # the tests need it


def test_incomplete_extras_are_listed_with_their_missing_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [
        "numpy>=1.26",
        'no-such-package>=1; extra == "games"',
        'numpy>=999; python_version >= "3" and extra == "games"',
        'no-such-package>=1; python_version < "3" and extra == "plot"',
    ]
    monkeypatch.setattr(doctor, "requires", lambda package: lines)
    found = extras_of()
    assert found["plot"] == []
    games = list(doctor._missing(doctor.DISTRIBUTION, "games"))
    assert games[0] == "no-such-package"
    assert games[1].startswith("numpy>=999 (")

    monkeypatch.setattr(doctor, "extras_of", lambda: {"games": games[:1], "plot": []})
    assert doctor._extras() == [
        Finding("extras", OK, "plot"),
        Finding("other extras", OK, "games (no-such-package)", "to install one: pip install 'srl-rl[NAME]'"),
    ]


def test_the_table_shows_marks_findings_and_advice() -> None:
    findings = [
        Finding("cores", OK, "8"),
        Finding("load", WARN, "6.0", "wait"),
        Finding("memory", FAIL, "none", "buy some"),
    ]
    console = Console(width=60, record=True, file=io.StringIO())
    console.print(doctor_table(findings))
    assert [line.rstrip() for line in console.export_text().splitlines()] == [
        " ✓  cores   8",
        " !  load    6.0",
        "            → wait",
        " ✗  memory  none",
        "            → buy some",
        "",
        " 1 of 3 checks failed: fix them before you start a run",
    ]
    assert not healthy(findings)
    assert healthy(findings[:2])
