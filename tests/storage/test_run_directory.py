"""Run directories: names, files, lookup of runs, and error messages."""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from srl.api.status import RunStatus
from srl.storage.run_directory import (
    RunDirectory,
    RunDirectoryError,
    all_runs,
    check_name,
    create,
    create_default,
    default_name,
    find,
    scan,
    write_group,
)

CONFIG = {
    "environment": "CartPole-v1",
    "lanes": {"type": "x:Lanes", "fields": {}},
    "options": {"type": "x:Options", "fields": {"seed": 1}},
    "policies": {},
}
WALL = time.mktime((2026, 1, 31, 23, 59, 58, 0, 0, -1))


def make(root: Path, name: str, at: int) -> RunDirectory:
    run = create(root, name)
    run.write_config(CONFIG)
    os.utime(run.config, (at, at))
    return run


def test_a_new_run_has_its_folders_and_stores_config_and_status(tmp_path: Path) -> None:
    run = create(tmp_path / "runs", "first")
    assert sorted(path.name for path in run.path.iterdir()) == ["checkpoints", "logs", "tensorboard"]
    run.write_config(CONFIG)
    assert run.read_config() == CONFIG
    assert run.read_status() is None
    status = RunStatus("first", "CartPole-v1", "ppo", str(run.path), steps=5, return_mean=1.5)
    run.write_status(status)
    assert run.read_status() == status
    assert run.log("actors/0") == run.path / "logs" / "actors-0.log"
    assert not list(run.path.glob(".*"))


def test_default_names_are_valid_and_contain_environment_algorithm_seed_and_time() -> None:
    assert default_name("CartPole-v1", "ppo", 3, WALL) == "CartPole-v1-ppo-3-20260131-235958"
    assert default_name("ALE/Pong-v5", "ppo", 3, WALL) == "ALE-Pong-v5-ppo-3-20260131-235958"
    for environment in ("my.module:make", "../../etc", "x" * 200, "/", "日本"):
        check_name(default_name(environment, "a" * 99, 2**63, WALL))


@pytest.mark.parametrize("name", ["", "..", ".hidden", "a/b", "-x", "a b", "x" * 65, "latest", "a\n"])
def test_names_that_leave_the_root_or_are_ambiguous_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError):
        create(tmp_path, name)
    assert not list(tmp_path.iterdir())


def test_the_error_for_an_existing_directory_says_what_to_do(tmp_path: Path) -> None:
    run = create(tmp_path, "mine")
    with pytest.raises(RunDirectoryError, match=r"mine exists; choose another --name$"):
        create(tmp_path, "mine")
    run.write_config(CONFIG)
    with pytest.raises(RunDirectoryError, match=r"mine exists; .* or remove it: it has no checkpoint to resume from$"):
        create(tmp_path, "mine")
    (run.checkpoints / "0001-step-64").mkdir()
    with pytest.raises(RunDirectoryError, match=r"mine exists; choose another --name, .*`srl resume mine`"):
        create(tmp_path, "mine")


def test_a_run_that_ended_before_its_first_update_is_not_latest_and_is_replaced(tmp_path: Path) -> None:
    trained, empty = make(tmp_path, "trained", 100), make(tmp_path, "empty", 200)
    trained.write_status(RunStatus("trained", "CartPole-v1", "ppo", str(trained.path), state="finished", updates=3))
    assert find("latest", tmp_path) == empty  # it may be running
    empty.write_status(RunStatus("empty", "CartPole-v1", "ppo", str(empty.path), state="failed"))
    assert find("latest", tmp_path) == trained
    assert find("latest", tmp_path, include_empty=True) == empty  # to see its logs
    (empty.logs / "actors-0.log").write_text("")
    assert not list(create(tmp_path, "empty").logs.iterdir())
    with pytest.raises(RunDirectoryError, match="trained exists"):
        create(tmp_path, "trained")


def test_runs_of_the_same_second_get_different_names(tmp_path: Path) -> None:
    names = {create_default(tmp_path, "CartPole-v1", "ppo", 1, WALL).name for _ in range(3)}
    assert len(names) == 3


def test_a_root_that_is_a_file_or_read_only_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunDirectoryError, match=r"a file of that name exists; choose another directory with --root"):
        create_default(tmp_path / "file", "e", "a", 1, WALL)
    with pytest.raises(RunDirectoryError, match="cannot create /proc/srl/run"):
        create(Path("/proc/srl"), "run")


def test_runs_are_found_by_name_prefix_path_and_latest(tmp_path: Path) -> None:
    old, new = make(tmp_path, "pong-1", 100), make(tmp_path, "cartpole-1", 200)
    (tmp_path / "foreign").mkdir()
    assert all_runs(tmp_path) == [old, new]
    assert find("latest", tmp_path) == new
    assert find("pong-1", tmp_path) == old
    assert find("po", tmp_path) == old
    assert find(str(old.path), tmp_path / "elsewhere") == old
    assert find(new.path, tmp_path / "elsewhere") == new


def test_what_cannot_be_read_hides_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good, member = make(tmp_path, "good", 100), make(tmp_path / "sweep", "member", 200)
    write_group(tmp_path / "sweep", {})
    write_group(tmp_path / "closed-sweep", {})
    make(tmp_path, "closed", 300)
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "file").touch()
    stat, iterdir = Path.stat, Path.iterdir  # tests may run as root, which reads everything

    def refused(path: Path, **options: bool) -> os.stat_result:
        if path.parent.name == "closed":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return stat(path, **options)

    def refused_list(path: Path) -> Iterator[Path]:
        if path.name == "closed-sweep":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return iterdir(path)

    monkeypatch.setattr(Path, "stat", refused)
    monkeypatch.setattr(Path, "iterdir", refused_list)
    runs, unreadable = scan(tmp_path)
    assert runs == all_runs(tmp_path) == [good, member]
    assert sorted(path.name for path in unreadable) == ["closed", "closed-sweep"]
    assert all("permission denied" in reason for reason in unreadable.values())


def test_a_full_name_is_preferred_to_longer_names(tmp_path: Path) -> None:
    short, _ = make(tmp_path, "a", 1), make(tmp_path, "ab", 2)
    assert find("a", tmp_path) == short


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("p", "2 runs begin with 'p': pang, pong; write more of the name"),
        ("pogn", r"no run 'pogn' in .*; did you mean 'pong'\?"),
        ("./nowhere", "no run directory at"),
        ("", "no run ''"),
    ],
)
def test_a_run_that_is_not_found_is_a_clear_error(tmp_path: Path, what: str, message: str) -> None:
    make(tmp_path, "pang", 1)
    make(tmp_path, "pong", 2)
    with pytest.raises(RunDirectoryError, match=message):
        find(what, tmp_path)


def test_without_any_runs_the_first_command_is_suggested(tmp_path: Path) -> None:
    for what in ("latest", "x"):
        with pytest.raises(RunDirectoryError, match="srl train CartPole-v1"):
            find(what, tmp_path / "runs")


def test_a_damaged_config_or_status_says_so(tmp_path: Path) -> None:
    run = make(tmp_path, "r", 1)
    run.config.write_text("{")
    run.status.write_text("[]")
    with pytest.raises(RunDirectoryError, match="not valid JSON"):
        run.read_config()
    run.config.write_text("[]")
    with pytest.raises(RunDirectoryError, match=r"config\.json must contain the options of a run, found a list"):
        run.read_config()
    run.config.write_text('{"environment": "CartPole-v1", "options": {"algo": "sb3-ppo"}}')
    with pytest.raises(RunDirectoryError, match=r"not written by a run of SRL, .*: it has no 'lanes'"):
        run.read_config()
    assert run.read_raw_config()["environment"] == "CartPole-v1"
    run.config.write_text(json.dumps({**CONFIG, "options": {"algo": "sb3-ppo"}}))
    with pytest.raises(RunDirectoryError, match=r"its 'options' cannot be read"):
        run.read_config()
    with pytest.raises(RunDirectoryError, match="is not the status of a run"):
        run.read_status()
