"""The examination of a machine: what is read where, and what follows from it."""

from __future__ import annotations

import io
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from srl.terminal import doctor, extras
from srl.terminal.doctor import FAIL, OK, WARN, Fact, doctor_table, examine, healthy
from srl.terminal.extras import BUNDLES, extras_of
from srl.terminal.machine import Limits, cpu_quota, limits, memory_bound

GIB = 2**30
MACHINE = Limits(8, 8, None, 16 * GIB, 12 * GIB, 4096, None)


def test_this_machine_is_examined_without_a_question_left_open(tmp_path: Path) -> None:
    facts = examine(tmp_path / "runs")
    names = [fact.name for fact in facts]
    for name in ("cores", "memory", "shared memory", "processes", "open files", "runs", "versions", "GPU", "extras"):
        assert names.count(name) == 1
    assert not [fact for fact in facts if fact.name == "doctor"]
    assert all(fact.todo for fact in facts if fact.state != OK)
    assert not (tmp_path / "runs").exists()


def test_an_examination_that_breaks_does_not_end_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> Fact:
        raise RuntimeError("no such thing")

    monkeypatch.setattr(doctor, "_shared_memory", broken)
    facts = examine()
    assert "could not look: RuntimeError: no such thing" in [fact.found for fact in facts]
    assert facts[-1].name == "to begin with"


def test_the_tightest_quota_of_the_container_counts(tmp_path: Path) -> None:
    inner = tmp_path / "outer" / "inner"
    inner.mkdir(parents=True)
    assert cpu_quota(tmp_path, "/outer/inner") is None
    (inner / "cpu.max").write_text("max 100000\n")
    (tmp_path / "outer" / "cpu.max").write_text("150000 100000\n")
    assert cpu_quota(tmp_path, "/outer/inner") == 1.5
    (inner / "memory.max").write_text("1000\n")
    (inner / "memory.current").write_text("400\n")
    assert memory_bound(tmp_path, "/outer/inner") == (1000, 600)


def test_the_old_kind_of_quota_is_read_too(tmp_path: Path) -> None:
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text("200000\n")
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    assert cpu_quota(tmp_path, "/") == 2.0
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text("-1\n")
    assert cpu_quota(tmp_path, "/") is None


def test_usable_cores_are_the_least_of_affinity_and_quota() -> None:
    assert MACHINE.cores == 8
    assert replace(MACHINE, cpu_quota=2.5).cores == 2.5
    assert replace(MACHINE, cores_allowed=2, cpu_quota=4.0).cores == 2
    assert limits().cores >= 0.1


@pytest.mark.parametrize(
    ("fact", "state", "todo"),
    [
        (doctor._cores(MACHINE), OK, ""),
        (doctor._cores(replace(MACHINE, cpu_quota=3.0)), WARN, "--actors 2"),
        (doctor._cores(replace(MACHINE, cores_allowed=1)), WARN, "2 cores or more"),
        (doctor._memory(replace(MACHINE, memory_free=GIB)), WARN, "--actors 1 --lanes 16"),
        (doctor._memory(replace(MACHINE, memory_free=GIB // 4)), FAIL, "free some memory"),
        (doctor._open_files(replace(MACHINE, num_files=256)), WARN, "ulimit -n 4096"),
        (doctor._num_processes(replace(MACHINE, num_processes=100)), WARN, "ulimit -u 4096"),
        (doctor._load(MACHINE, 6.0), WARN, "other programs"),
        (doctor._runs(Path("/proc/srl/storage")), FAIL, ""),
    ],
)
def test_what_is_scarce_comes_with_what_to_do(fact: Fact, state: str, todo: str) -> None:
    assert fact.state == state
    assert todo in fact.todo
    assert bool(fact.todo) == (state != OK)


def test_the_first_command_leaves_to_the_recipe_what_it_knows_better() -> None:
    assert doctor._suggestion(MACHINE).found == "srl train CartPole-v1"
    assert doctor._suggestion(replace(MACHINE, cpu_quota=4.0)).found == "srl train CartPole-v1 --actors 3"


def test_every_extra_of_the_package_is_looked_at() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    known = set(project["optional-dependencies"]) - set(BUNDLES)
    assert set(extras_of()) == known
    assert extras_of()["atari"] == []  # the tests need it


def test_extras_that_are_missing_are_told_with_what_they_lack(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [
        "numpy>=1.26",
        'no-such-package>=1; extra == "games"',
        'numpy>=999; python_version >= "3" and extra == "games"',
        'no-such-package>=1; python_version < "3" and extra == "plot"',
    ]
    monkeypatch.setattr(extras, "requires", lambda package: lines)
    found = extras_of()
    assert found["plot"] == []
    games = list(extras._missing("srl", "games"))
    assert games[0] == "no-such-package"
    assert games[1].startswith("numpy>=999 (")

    monkeypatch.setattr(doctor, "extras_of", lambda: {"games": games[:1], "plot": []})
    assert doctor._extras() == [
        Fact("extras", OK, "plot"),
        Fact("other extras", OK, "games (no-such-package)", "pip install 'srl[NAME]' for what you want"),
    ]


def test_the_table_shows_marks_findings_and_what_to_do() -> None:
    facts = [Fact("cores", OK, "8"), Fact("load", WARN, "6.0", "wait"), Fact("memory", FAIL, "none", "buy some")]
    console = Console(width=60, record=True, file=io.StringIO())
    console.print(doctor_table(facts))
    assert [line.rstrip() for line in console.export_text().splitlines()] == [
        " ✓  cores   8",
        " !  load    6.0",
        "            → wait",
        " ✗  memory  none",
        "            → buy some",
        "",
        " 1 of 3 things must be mended before a run can work",
    ]
    assert not healthy(facts)
    assert healthy(facts[:2])
