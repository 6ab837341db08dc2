"""The list of all runs contains the state of each."""

from __future__ import annotations

import json
import os
from pathlib import Path

from srl.api.status import RunStatus
from srl.storage.run_directory import RunDirectory, create, write_group
from srl.storage.run_listing import list_runs


def make(root: Path, name: str, at: int) -> RunDirectory:
    run = create(root, name)
    run.write_config({"environment": "CartPole-v1"})
    os.utime(run.config, (at, at))
    return run


def test_runs_are_listed_with_their_states_newest_last(tmp_path: Path) -> None:
    running = make(tmp_path, "running", 400)
    ended = make(tmp_path, "ended", 100)
    ended.write_status(RunStatus("ended", "CartPole-v1", "ppo", "", state="stopped", steps=64, return_mean=21.5))
    os.utime(ended.status, (300, 300))
    write_group(tmp_path / "sweep", {})
    killed = make(tmp_path / "sweep", "killed", 50)
    records = [{"step": step, "return": step / 2} for step in (10, 20)]
    killed.metrics.write_text("".join(json.dumps(record) + "\n" for record in records) + '{"step": 3')
    os.utime(killed.metrics, (200, 200))
    queued = make(tmp_path, "queued", 500)
    (queued.path / "cluster").mkdir()
    (queued.path / "cluster" / "job").write_text("17")
    canceled, ran_later = make(tmp_path, "canceled", 600), make(tmp_path, "ran-later", 700)
    for run in (canceled, ran_later):
        (run.path / "cluster").mkdir()
        outcome = run.path / "cluster" / "outcome.json"
        outcome.write_text('{"state": "stopped", "reason": "srl stop"}')
        os.utime(outcome, (650, 650))
    ran_later.metrics.write_text('{"step": 5}\n')
    os.utime(ran_later.metrics, (800, 800))
    (tmp_path / "foreign").mkdir()

    with running.locked():
        runs = list_runs(tmp_path)
    assert [(run.run, run.state, run.steps, run.return_mean, run.when) for run in runs] == [
        ("killed", "killed", 20, 10.0, 200),
        ("ended", "stopped", 64, 21.5, 300),
        ("running", "running", 0, None, 400),
        ("queued", "submitted", 0, None, 500),
        ("canceled", "stopped", 0, None, 600),
        ("ran-later", "killed", 5, None, 800),
    ]
    assert runs[0].path == str(killed.path)
    assert list_runs(tmp_path / "nowhere") == []


def test_strange_rows_and_names_hide_no_run(tmp_path: Path) -> None:
    good = make(tmp_path, "good", 100)
    good.metrics.write_text('{"step": 10, "return": 2.5}\n')
    for index, line in enumerate(
        ["[" * 200_000, '{"step": "x", "return": 1}', '{"step": 1, "return": "q", "episodes": "z"}']
    ):
        make(tmp_path, f"strange-{index}", 200 + index).metrics.write_text(f"{line}\n")
    make(tmp_path, "deep", 300).status.write_text("[" * 200_000)
    for name in ("metrics", "status"):
        os.mkfifo(getattr(make(tmp_path, f"{name}-pipe", 350), name))  # reading one waits for its writer
    make(tmp_path, "renamed", 400).path.rename(os.fsdecode(os.fsencode(tmp_path) + b"/bad\xff"))
    found = {run.run: run.return_mean for run in list_runs(tmp_path)}
    names = ["good", "strange-0", "strange-1", "strange-2", "deep", "metrics-pipe", "status-pipe", "bad\\xff"]
    assert found == {**dict.fromkeys(names), "good": 2.5}
