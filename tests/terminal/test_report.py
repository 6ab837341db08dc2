"""The report at the end of a run and the tables of runs, as text."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console, RenderableType

from srl.api.status import EvaluationStatus, PolicyStatus, ReplayStatus, RunStatus, Settings, WorkerStatus
from srl.controller.metrics import system_row
from srl.storage.run_listing import ListedRun
from srl.terminal.frame import frame
from srl.terminal.report import final_report, print_report
from srl.terminal.tables import list_of_runs, ps_table
from srl.terminal.view import watching

Snapshot = Callable[..., RunStatus]

FINISHED = """
 CartPole-v1 · ppo: finished

 return        312.4  ▁▁▂▂▂▃▃▃▃▄▄▄▅▅▅▆▆▆▆▇▇▇██  (mean of 100 episodes)
 steps         1,000,448 in 128 updates, 4,211 episodes
 time          12.3 s, first update after 2.1 s
 speed         97.7k/s trained

 files         runs/CartPole-v1-ppo-1-20260131-235959/
               config.json, metrics.jsonl, episodes.bin, tensorboard/, checkpoints/, logs/

 bottleneck    trainer: 96 % busy, actors wait 20 %
 try           make each update cheaper: --algo.num-minibatches 2

 evaluate      srl eval runs/CartPole-v1-ppo-1-20260131-235959
 record video  srl record runs/CartPole-v1-ppo-1-20260131-235959
 train longer  srl resume runs/CartPole-v1-ppo-1-20260131-235959 --steps 2000000
 plot curves   srl plot runs/CartPole-v1-ppo-1-20260131-235959
"""

PS = """\
RUN                                STATE     DONE  RETURN   TRAIN    TIME
CartPole-v1-ppo-1-20260131-235959  running   52 %   312.4  205k/s  12.3 s
pong-1                             finished  52 %       -  205k/s  12.3 s

CartPole-v1-ppo-1-20260131-235959
WORKER      PID  STATE    BUSY                     CPU  MEMORY  RESTARTS
actors/0    100  running  █████████████···  80 %  80 %    0 MB         0
actors/1    101  running  █████████████···  80 %  80 %    0 MB         1
trainers/0  200  running  ███████████████·  96 %   0 %  380 MB         0
bottleneck  trainer: 96 % busy, actors wait 20 %
try         make each update cheaper: --algo.num-minibatches 2
"""


def text_of(renderable: RenderableType, width: int = 80) -> str:
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(renderable)
    return "".join(f"{line.rstrip()}\n" for line in console.export_text().splitlines())


def test_the_report_of_a_finished_run_has_results_files_and_next_commands(
    snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "runs" / "CartPole-v1-ppo-1-20260131-235959"
    (path / "checkpoints" / "0001-step-1000448").mkdir(parents=True)
    for name in ("config.json", "metrics.jsonl", "episodes.bin"):
        (path / name).touch()
    for name in ("tensorboard", "logs"):
        (path / name).mkdir()
    status = snapshot(state="finished", steps=1_000_448, path=str(path), reason="1,000,448 steps")
    assert final_report(status).plain == FINISHED


def test_commands_that_need_a_checkpoint_are_offered_only_if_there_is_one(snapshot: Snapshot, tmp_path: Path) -> None:
    status = snapshot(state="stopped", path=str(tmp_path), reason="SIGINT", return_mean=None)
    text = final_report(status).plain
    assert "stopped by    SIGINT" in text
    assert "srl " not in text
    (tmp_path / "checkpoints" / "0001-step-64").mkdir(parents=True)
    assert f"resume        srl resume {tmp_path}\n" in final_report(status).plain


def test_a_report_lists_only_files_that_exist(snapshot: Snapshot, tmp_path: Path) -> None:
    (tmp_path / "config.json").touch()
    (tmp_path / "checkpoints").mkdir()
    text = final_report(snapshot(state="finished", path=str(tmp_path))).plain
    assert f"/\n{'':15}config.json, checkpoints/\n" in text


@pytest.mark.parametrize(
    ("evaluation", "expected"),
    [
        ({"count": 1, "version": 0, "step": 0}, "23.5 at step 0; the final policy was not evaluated (`srl eval`)\n"),
        ({"count": 1, "version": 5, "step": 500}, "23.5 at step 500\n"),
        ({"count": 2, "version": 5, "step": 500}, "23.5 at step 500\n"),
    ],
)
def test_a_report_says_whether_the_final_policy_was_evaluated(
    snapshot: Snapshot, evaluation: dict[str, Any], expected: str
) -> None:
    common: dict[str, Any] = {"episodes": 10, "return_mean": 23.5, "return_interval": None, "length_mean": 9.0}
    found = EvaluationStatus(**common, best_return=90.0, best_step=300, **evaluation)
    policies = {"policy": PolicyStatus(version=5, evaluation=found)}
    assert f" evaluation    {expected}" in final_report(snapshot(state="finished", policies=policies)).plain


@pytest.mark.parametrize(
    ("kept", "expected"),
    [
        ({"score": 90.0, "steps": 300}, "23.5 at step 500, best 90.0 at step 300\n"),
        ({"score": -0.25, "steps": 300, "by": "-cost"}, "23.5 at step 500, best checkpoint cost 0.25 at step 300\n"),
    ],
)
def test_a_report_names_the_best_checkpoint_that_was_kept(
    snapshot: Snapshot, tmp_path: Path, kept: dict[str, Any], expected: str
) -> None:
    folder = tmp_path / "checkpoints" / "best" / "0001-step-300"
    folder.mkdir(parents=True)
    (folder / "facts.json").write_text(json.dumps({"policies": {"policy": kept}}))
    found = EvaluationStatus(2, 500, 5, 10, 23.5, None, 9.0, 95.0, 100)
    policies = {"policy": PolicyStatus(version=5, evaluation=found)}
    text = final_report(snapshot(state="finished", path=str(tmp_path), policies=policies)).plain
    assert f" evaluation    {expected}" in text


def test_a_report_says_that_evaluations_had_too_little_time(snapshot: Snapshot) -> None:
    found = EvaluationStatus(1, 0, 8, 10, 2.0, None, 9.0, 2.0, 0)
    policies = {"policy": PolicyStatus(version=8, evaluation=found)}
    settings = Settings(eval_versions=2, eval_share=0.03)
    text = final_report(snapshot(state="finished", policies=policies, settings=settings)).plain
    assert " evaluation    2.00 at step 0; 1 of 4 evaluations: --eval-share 0.03 allows no more\n" in text


def test_the_suggested_check_has_the_options_of_the_environment(snapshot: Snapshot, tmp_path: Path) -> None:
    options = {"run": {"env_args": {"mode": "nan", "size": 3, "wide": True}}}
    (tmp_path / "config.json").write_text(json.dumps({"environment": "env.py:make", "options": options}))
    status = snapshot(state="failed", environment="env.py:make", lane_failures=1, path=str(tmp_path))
    expected = "srl check-env env.py:make --env-arg mode=nan --env-arg size=3 --env-arg wide=true\n"
    assert expected in final_report(status).plain


def test_a_goal_reached_early_is_named(snapshot: Snapshot) -> None:
    reason = "mean return 475.2 reached the goal of 475"
    text = final_report(snapshot(state="finished", reason=reason, updates=1)).plain
    assert f"reason        {reason}" in text
    assert " in 1 update, " in text


def test_the_speed_of_a_resumed_run_counts_only_its_own_steps(snapshot: Snapshot) -> None:
    text = final_report(snapshot(state="finished", steps=105_120, first_steps=100_000)).plain
    assert "resumed       at step 100,000" in text
    assert "speed         500/s trained" in text


def test_the_report_of_a_failed_run_has_the_error_and_how_to_resume(snapshot: Snapshot, tmp_path: Path) -> None:
    (tmp_path / "checkpoints" / "0001-step-64").mkdir(parents=True)
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "actors-0.log").write_text("oh no\n")
    reason = "actors/0 died 6 times. The last time: Traceback (most recent call last):\n  File ...\nKeyError: 'x'\n"
    text = final_report(snapshot(state="failed", restarts=3, path=str(tmp_path), reason=reason)).plain
    assert "CartPole-v1 · ppo: failed" in text
    assert "steps         524,288 of 1,000,000" in text
    assert "3 worker restarts" in text
    assert "error         actors/0 died 6 times. The last time: KeyError: 'x'\n" in text
    assert f"read the logs srl logs {tmp_path}\n" in text
    assert f"resume        srl resume {tmp_path}\n" in text


def test_commands_are_not_truncated_on_a_narrow_terminal_and_paths_are_quoted(
    snapshot: Snapshot, tmp_path: Path
) -> None:
    console = Console(width=30, record=True, file=io.StringIO())
    run = tmp_path / "a place" / "run"
    (run / "checkpoints" / "0001-step-64").mkdir(parents=True)
    print_report(console, snapshot(state="stopped", path=str(run)))
    assert f" resume        srl resume '{run}'\n" in console.export_text()


def test_watching_a_run_ends_with_its_report(snapshot: Snapshot) -> None:
    console = Console(width=200, record=True, file=io.StringIO())
    with watching(console) as (observe, finish):
        observe(snapshot())
        finish(snapshot(state="failed"))
    shown, _, report = console.export_text().partition(": failed")
    assert "CartPole-v1" in shown
    assert " bottleneck    trainer" in report


def test_ps_lists_runs_and_the_workers_and_bottleneck_of_those_in_progress(snapshot: Snapshot) -> None:
    runs = [snapshot(), snapshot(run="pong-1", state="finished", return_mean=None)]
    assert text_of(ps_table(runs)) == PS


@pytest.mark.parametrize("age", [0, 3])
def test_the_age_of_reanalyzed_targets_is_shown_with_its_bound(snapshot: Snapshot, age: int) -> None:
    memory = ReplayStatus("replay/0", 50, 100, 1000, 1.0, 0.9, target_age=age, max_target_age=20)
    status = snapshot(replay=[memory])
    assert f"target age  {age} of 20 (replay/0)" in text_of(ps_table([status]))
    assert f", target age {age} of 20, 0.9 of 1 updates/decision" in frame(status, 120, 40).plain
    assert system_row(status)["replay/0/target_age"] == age
    other = snapshot(replay=[ReplayStatus("replay/0", 50, 100, 1000, 1.0, 0.9)])
    assert "target age" not in text_of(ps_table([other]))
    assert "replay/0/target_age" not in system_row(other)


def test_a_list_of_runs_is_neither_truncated_nor_wrapped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    when = time.mktime((2026, 1, 31, 23, 59, 58, 0, 0, -1))
    runs = [
        ListedRun("a" * 64, "finished", 1_000_448, 312.41, when, str(tmp_path / "runs" / ("a" * 64))),
        ListedRun("b", "killed", 0, None, when + 60, str(tmp_path / "runs" / "b")),
    ]
    console = Console(width=40, record=True, file=io.StringIO())
    console.print(list_of_runs(runs), soft_wrap=True)
    _, first, second = console.export_text().splitlines()
    assert first == f"{'a' * 64}  finished  1,000,448   312.4  2026-01-31 23:59  runs/{'a' * 64}"
    assert second.split() == ["b", "killed", "0", "-", "2026-02-01", "00:00", "runs/b"]


def test_ps_shows_a_worker_that_has_not_started(snapshot: Snapshot) -> None:
    text = text_of(ps_table([snapshot(workers=[WorkerStatus("actors/0", "actors")])]))
    assert "actors/0    -  starting  ················  -" in text


def test_the_report_shows_statistics_of_the_environment_and_what_sinks_lost(snapshot: Snapshot) -> None:
    policies = {"policy": PolicyStatus(episodes=4211, facts={"height": 2.0, "is_success": 0.93})}
    status = snapshot(state="finished", policies=policies, lost_rows={"wandb": 3}, lost_calls={"Slow.on_update": 9})
    text = final_report(status).plain
    assert " not called    9 calls of Slow.on_update: too slow\n" in text
    assert "\n episodes      is_success 0.93, height 2.00  (means of 100)\n" in text
    assert "\n not accepted  3 rows by wandb; metrics.jsonl has them\n" in text


def test_the_report_counts_the_episodes_of_a_mean(snapshot: Snapshot) -> None:
    policies = {"policy": PolicyStatus(episodes=12, facts={"height": 2.0})}
    text = final_report(snapshot(state="finished", policies=policies, episodes=12)).plain
    assert "(mean of 12 episodes)" in text
    assert "height 2.00  (means of 12)" in text
    two = {"a": PolicyStatus(episodes=1, return_mean=3.0), "b": PolicyStatus(episodes=500, return_mean=3.0)}
    text = final_report(snapshot(state="finished", policies=two, episodes=501)).plain
    assert "(mean of 1 episode)" in text
    assert "(mean of 100 episodes)" in text
