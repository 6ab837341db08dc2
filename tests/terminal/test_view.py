"""The views: their content, that they fit the terminal, that they never raise, and how often they draw."""

from __future__ import annotations

import io
import math
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from rich.console import Console
from support.manual_clock import ManualClock

from srl.api.status import (
    EvaluationStatus,
    PolicyStatus,
    ReplayStatus,
    RunStatus,
    Settings,
    StreamStatus,
    WorkerStatus,
)
from srl.terminal.frame import frame
from srl.terminal.report import final_report
from srl.terminal.view import LiveView, LogView, RunConsole, log_line, new_messages, view_for, watching

Snapshot = Callable[..., RunStatus]

FRAME = """\
 SRL  CartPole-v1 · ppo  CartPole-v1-ppo-1-20260131-235959      running  12.3 s
 ━━━━━━━━━━━━━━━━━━━━───────────────────  52 %  524,288 / 1,000,000  2.3 s left

 return      312.4                317.0 ┤                                 ⢀⡠⠤⠒⠉
 length      312.4                      │                            ⢀⣀⠤⠒⠊⠁
 episodes    4,211                      │                        ⣀⠤⠔⠊⠁
 env         210k/s                     │                   ⣀⠤⠔⠊⠉
 train       205k/s                     │              ⣀⡠⠔⠒⠉
 updates     128                        │         ⢀⡠⠔⠒⠉
 lag         1.0  max 1 of 1            │    ⢀⡠⠤⠒⠉⠁
 failures    none                  20.0 ┤⣀⠤⠒⠊⠁

 samples     █████████████▌·············  50 % of the next batch
 actors/0    ██████████████████████·····  env 40  inference 30  waiting 20
 actors/1    ██████████████████████·····  env 40  inference 30  waiting 20  ↻1
 trainers/0  ██████████████████████████·  update 90  publish 4  waiting 4
             ■ env   ■ inference   ■ update   ■ publish   ■ other   · waiting

 bottleneck  trainer: 96 % busy, actors wait 20 %
 try         make each update cheaper: --algo.num-minibatches 2

 · actors/1 died: killed by SIGKILL; restarting it"""


def plain(status: RunStatus, width: int, height: int) -> list[str]:
    return [line.rstrip() for line in frame(status, width, height).plain.split("\n")]


def test_a_frame_at_80_columns_looks_like_this(snapshot: Snapshot) -> None:
    assert plain(snapshot(), 80, 24) == FRAME.split("\n")


@pytest.mark.parametrize(("width", "height"), [(40, 12), (60, 16), (80, 23), (80, 24), (120, 30), (250, 70)])
@pytest.mark.parametrize("num_actors", [1, 5, 40])
def test_a_frame_always_fits(snapshot: Snapshot, width: int, height: int, num_actors: int) -> None:
    status = snapshot(
        num_actors,
        run="r" * 64,
        environment="some.long.module.name:make_my_environment",
        messages=["日本語 " * 60, "two\nlines", "\x1b[2Jescape"] * 3,
        streams=[StreamStatus("a_stream_with_a_long_name" * 3, "push", filled=7.0, dropped=10**9)] * 3,
        restarts=10**6,
        lane_failures=10**9,
    )
    text = frame(status, width, height)
    console = Console(width=width, height=height, record=True, file=io.StringIO())
    lines = console.render_lines(text, pad=False)
    assert len(lines) <= height
    assert all(line.cell_len <= width for line in text.split("\n"))
    assert "\x1b" not in text.plain


def test_styles_of_labels_do_not_leak_into_values(snapshot: Snapshot) -> None:
    console = Console(width=80, force_terminal=True, color_system="standard", file=io.StringIO(), record=True)
    console.print(frame(snapshot(), 80, 24))
    text = console.export_text(styles=True)
    assert "\x1b[1;7m SRL \x1b[0m\x1b[1m CartPole-v1\x1b[0m · ppo" in text
    assert "\x1b[2m try         \x1b[0m\x1b[1;36mmake each update cheaper" in text


def test_many_workers_become_a_line_per_group(snapshot: Snapshot) -> None:
    lines = plain(snapshot(num_actors=40), 100, 24)
    assert any(line.startswith(" actors ×40  ███") for line in lines)
    assert any(line.startswith(" trainers/0  ███") for line in lines)


def test_restarts_and_failed_lanes_are_shown(snapshot: Snapshot) -> None:
    lines = plain(snapshot(restarts=2, lane_failures=3, refused={"silent": 4, "protocol": 1}), 120, 24)
    assert any("failures    2 workers, 3 lanes" in line for line in lines)
    assert any("refused     5 connections" in line for line in lines)


@pytest.mark.parametrize(
    "changes",
    [
        {"return_curve": [math.nan, math.inf], "return_mean": math.nan},
        {"return_curve": [1.0], "target_steps": 0, "train_fps": math.inf, "elapsed": math.nan},
        {"steps": -5, "env_fps": -1.0, "lag_mean": math.nan},
        {"workers": [WorkerStatus("x/0", "x", state="failed"), WorkerStatus("y/0", "y", busy={"env": math.nan})]},
        {"streams": [StreamStatus("s", "push", filled=math.nan)]},
    ],
)
def test_unusual_values_do_not_break_the_views(snapshot: Snapshot, changes: dict[str, Any]) -> None:
    status = snapshot(**changes)
    assert frame(status, 80, 24).plain
    assert log_line(status)


def test_an_empty_status_is_drawn() -> None:
    assert plain(RunStatus("r", "e", "a", "/p"), 80, 24)[0].endswith("starting  0.0 s")


def test_the_live_view_draws_at_most_four_times_a_second(snapshot: Snapshot) -> None:
    clock, file = ManualClock(), io.StringIO()
    view = LiveView(Console(width=80, height=24, force_terminal=True, file=file), clock=clock)
    for _ in range(100):
        view.update(snapshot())
        clock.advance(0.01)
    view.close()
    assert file.getvalue().count("episodes") in (4, 5), "closing draws the last frame again"


class BrokenFile(io.StringIO):
    def write(self, text: str) -> int:
        raise OSError("the terminal is gone")


def test_views_never_raise(snapshot: Snapshot) -> None:
    for console in (Console(file=BrokenFile(), force_terminal=True), Console(file=BrokenFile())):
        for view in (LiveView(console), LogView(console)):
            view.update(snapshot())
            view.close()


def test_a_run_continues_when_the_reader_of_its_output_is_gone(snapshot: Snapshot) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as file:
        with watching(RunConsole(file=file)) as (update, finish):
            update(snapshot())
            finish(snapshot(state="finished"))
        file.write("discarded")


def test_a_log_line_before_the_first_update_says_how_far_it_is(snapshot: Snapshot) -> None:
    text = "first update: actors have made 8 of the 64 decisions of a batch"
    early = snapshot(seconds_to_first_update=None, bottleneck=text, advice="")
    assert f"(52 %)  {text}  return" in log_line(early)
    compiles = snapshot(bottleneck="compiling the update (once per installation)", advice="")
    assert "(52 %)  compiling the update (once per installation)  return" in log_line(compiles)


def test_a_log_line_names_the_workers_for_which_a_run_waits(snapshot: Snapshot) -> None:
    workers = [WorkerStatus("actors/0", "actors", state="running"), WorkerStatus("trainers/0", "trainers", rss_mb=1830)]
    assert "  waiting for trainers/0 (1,830 MB)  " in log_line(snapshot(state="starting", workers=workers))
    assert "waiting for" not in log_line(snapshot(workers=workers))


def test_the_format_of_a_log_line(snapshot: Snapshot) -> None:
    assert log_line(snapshot()) == (
        " 12.3 s  steps 524,288/1,000,000 (52 %)  return 312.4  env 210k/s train 205k/s lag 1.0  2.3 s left"
    )
    assert log_line(snapshot(state="stopped", restarts=1, return_mean=None, target_steps=0)) == (
        " 12.3 s  stopped  steps 524,288  env 210k/s train 205k/s lag 1.0  restarts 1"
    )


def test_the_log_has_a_line_per_interval_each_message_once_and_the_bottleneck_when_it_changes(
    snapshot: Snapshot,
) -> None:
    clock, console = ManualClock(), Console(width=60, file=io.StringIO(), record=True)
    view = LogView(console, interval=5.0, clock=clock)
    for second in range(11):
        messages = ["actors/1 died"] if second >= 3 else []
        bottleneck = f"trainer: {second} % busy"
        view.update(snapshot(elapsed=float(second), messages=messages, bottleneck=bottleneck, advice="--trainers 2"))
        clock.advance(1.0)
    lines = console.export_text().splitlines()
    assert [line[:30] for line in lines] == [
        "  0.0 s  steps 524,288/1,000,0",
        "         bottleneck trainer: 0",
        "  3.0 s  actors/1 died",
        "  5.0 s  steps 524,288/1,000,0",
        " 10.0 s  steps 524,288/1,000,0",
    ]


def test_new_messages_are_those_after_the_overlap_with_the_previous_list() -> None:
    assert new_messages([], ["a"]) == ["a"]
    assert new_messages(["a", "b"], ["b", "c"]) == ["c"]
    assert new_messages(["a", "b"], ["a", "b"]) == []
    assert new_messages(["a", "a"], ["a", "a", "a"]) == ["a"]
    assert new_messages(["x"], ["y"]) == ["y"]


def test_a_terminal_gets_a_live_frame_and_a_file_gets_lines() -> None:
    assert isinstance(view_for(Console(file=io.StringIO())), LogView)
    assert isinstance(view_for(Console(file=io.StringIO(), force_terminal=True, _environ={"TERM": "xterm"})), LiveView)
    assert isinstance(view_for(Console(file=io.StringIO(), force_terminal=True, _environ={"TERM": "dumb"})), LogView)


def test_the_terminal_imports_no_heavy_package() -> None:
    program = (
        "import sys\n"
        "import srl.terminal.view, srl.terminal.report, srl.terminal.tables, srl.terminal.doctor\n"
        "import srl.storage.run_directory, srl.storage.checkpoints, srl.storage.metric_sinks, srl.base.config\n"
        "print([m for m in ('torch', 'gymnasium', 'tensorboard', 'safetensors') if m in sys.modules])\n"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert found.strip() == "[]"


def two_policies(snapshot: Snapshot) -> RunStatus:
    evaluation = EvaluationStatus(3, 500_000, 40, 10, 5.5, 0.5, 20.0, 6.5, 400_000)
    curve = [float(i) for i in range(50)]
    policies = {
        "hiders": PolicyStatus(return_mean=3.25, return_curve=curve, evaluation=evaluation),
        "seekers": PolicyStatus(return_mean=-3.25, return_curve=[-point for point in curve]),
        "bystanders": PolicyStatus(learning=False, return_mean=0.0),
    }
    return snapshot(
        policies=policies,
        streams=[StreamStatus(f"samples/{name}/0", "push", filled=0.5) for name in ("hiders", "seekers")],
        workers=[WorkerStatus(f"trainers-{name}/0", "t", state="running") for name in ("hiders", "seekers")],
    )


def test_a_long_evaluation_loses_its_interval_not_its_step(snapshot: Snapshot) -> None:
    for mean, shown in ((-90.3, "eval        -90.3 ± 91.7 @ 48.7k "), (-1090.3, "eval        -1,090.3 @ 48.7k ")):
        found = EvaluationStatus(3, 48_700, 40, 10, mean, 91.7, 20.0, 6.5, 400_000)
        text = "\n".join(plain(snapshot(policies={"policy": PolicyStatus(evaluation=found)}), 80, 26))
        assert shown in text, text


def test_a_frame_shows_every_policy(snapshot: Snapshot) -> None:
    text = "\n".join(plain(two_policies(snapshot), 80, 26))
    for shown in (" hiders     3.25, 5.50", " seekers    -3.25, -", " bystanders 0.00, -  frozen", "49.0 ┤", "-49.0 ┤"):
        assert shown in text, shown
    for name in ("samples/hiders/0", "samples/seekers/0", "trainers-hiders/0", "trainers-seekers/0"):
        assert name in text


def test_a_log_line_shows_every_policy(snapshot: Snapshot) -> None:
    line = log_line(two_policies(snapshot))
    assert "return hiders 3.25, seekers -3.25, bystanders 0.00  eval hiders 5.50 at 500k" in line


def test_the_report_shows_every_policy(snapshot: Snapshot) -> None:
    text = final_report(two_policies(snapshot)).plain
    assert " return seekers    -3.25  " in text
    assert " eval hiders       5.50 at step 500,000" in text


def test_a_run_on_recorded_data_shows_gradient_steps_and_nothing_that_plays(snapshot: Snapshot) -> None:
    memory = ReplayStatus("replay/0", size=5000, capacity=5000, num_bytes=1 << 20, wanted=0.0)
    status = snapshot(settings=Settings(batch=100, recorded=1), replay=[memory], streams=[], return_mean=None)
    lines = plain(status, 80, 24)
    labels = [line.split()[0] for line in lines if line]
    assert not {"return", "length", "episodes", "env", "lag"} & set(labels)
    assert any("100 % of 5,000 recorded decisions" in line for line in lines)
    assert "env" not in log_line(status)
    assert "train 205k/s" in log_line(status)
    assert "gradient steps" in final_report(status).plain
