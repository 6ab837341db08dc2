"""The end of a run and the table of runs, as text."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console, RenderableType

from srl.api.status import RunStatus, WorkerStatus
from srl.terminal.report import final_report, print_report
from srl.terminal.tables import ps_table

Snapshot = Callable[..., RunStatus]

FINISHED = """
 CartPole-v1 · ppo: finished

 return        312.4  ▁▁▂▂▂▃▃▃▃▄▄▄▅▅▅▆▆▆▆▇▇▇██  (mean of 100 episodes)
 steps         1,000,448 in 128 updates, 4,211 episodes
 time          12.3 s, first update after 2.1 s
 speed         97.7k/s trained
 best          499.1 at step 901,120

 files         runs/CartPole-v1-ppo-1-20260131-235959/
               config.json, metrics.jsonl, tensorboard/, checkpoints/, logs/

 bottleneck    trainer: 96 % busy, actors wait 20 %
 to be faster  make each update cheaper: --ppo.num-minibatches 2

 score it      srl eval runs/CartPole-v1-ppo-1-20260131-235959
 watch it act  srl record runs/CartPole-v1-ppo-1-20260131-235959
 train on      srl resume runs/CartPole-v1-ppo-1-20260131-235959 --steps 2000000
 see curves    srl plot runs/CartPole-v1-ppo-1-20260131-235959
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
"""


def text_of(renderable: RenderableType, width: int = 80) -> str:
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(renderable)
    return "".join(f"{line.rstrip()}\n" for line in console.export_text().splitlines())


def test_a_finished_run_tells_what_it_reached_where_it_is_and_what_comes_next(
    snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "runs" / "CartPole-v1-ppo-1-20260131-235959"
    status = snapshot(state="finished", steps=1_000_448, path=str(path))
    assert final_report(status, {"best": "499.1 at step 901,120"}).plain == FINISHED


def test_the_speed_of_a_resumed_run_leaves_out_what_was_learnt_before(snapshot: Snapshot) -> None:
    text = final_report(snapshot(state="finished", steps=105_120, first_steps=100_000)).plain
    assert "resumed       at step 100,000" in text
    assert "speed         500/s trained" in text


def test_a_failed_run_points_at_its_logs_and_how_to_go_on(snapshot: Snapshot) -> None:
    text = final_report(snapshot(state="failed", restarts=3, return_mean=None)).plain
    assert "CartPole-v1 · ppo: failed" in text
    assert "steps         524,288 of 1,000,000" in text
    assert "restarted workers 3" in text
    assert "what failed   tail /runs/CartPole-v1-ppo-1-20260131-235959/logs/*.log" in text
    assert "go on         srl resume /runs/CartPole-v1" in text


def test_commands_are_not_cut_on_a_narrow_terminal_and_strange_paths_are_quoted(snapshot: Snapshot) -> None:
    console = Console(width=30, record=True, file=io.StringIO())
    print_report(console, snapshot(state="stopped", path="/a place/run"))
    assert " go on         srl resume '/a place/run'\n" in console.export_text()


def test_ps_lists_runs_and_the_workers_of_those_alive(snapshot: Snapshot) -> None:
    runs = [snapshot(), snapshot(run="pong-1", state="finished", return_mean=None)]
    assert text_of(ps_table(runs)) == PS
    assert "actors/0" not in text_of(ps_table(runs, workers=False))


def test_ps_without_runs_says_how_to_start_one() -> None:
    assert text_of(ps_table([])) == "no runs; start one: srl train CartPole-v1\n"


def test_ps_shows_a_worker_that_has_not_started(snapshot: Snapshot) -> None:
    text = text_of(ps_table([snapshot(workers=[WorkerStatus("actors/0", "actors")])]))
    assert "actors/0    -  starting  ················  -" in text
