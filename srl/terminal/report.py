"""What a run says at its end: what was reached, where its files are, what to do next."""

from __future__ import annotations

import shlex
from pathlib import Path

from rich.console import Console
from rich.text import Text

from srl.api.status import RunStatus
from srl.base.text import in_one_line
from srl.storage import checkpoints
from srl.terminal.drawing import sparkline
from srl.terminal.formatting import count, duration, figure, rate, shorter

LABEL = 14
HEADLINES = {
    "finished": ("finished", "bold green"),
    "stopped": ("stopped before its end", "bold yellow"),
    "failed": ("failed", "bold red"),
}
REASONS = {"finished": "goal", "stopped": "stopped by", "failed": "what failed"}


def final_report(status: RunStatus) -> Text:
    words, style = HEADLINES.get(status.state, (status.state, "bold"))
    text = Text("\n")
    text.append(f" {status.environment} · {status.algorithm}: {words}", style).append("\n\n")
    for label, value in _reached(status).items():
        _row(text, label, value)
    text.append("\n")
    for label, value in _files(Path(status.path)).items():
        _row(text, label, value)
    if status.bottleneck and status.advice:
        text.append("\n")
        _row(text, "bottleneck", status.bottleneck)
        _row(text, "to be faster", status.advice)
    commands = _next_commands(status)
    text.append("\n" if commands else "")
    for purpose, command in commands.items():
        _row(text, purpose, command, "bold cyan")
    return text


def print_report(console: Console, status: RunStatus) -> None:
    """Paths and commands are there to be copied: they are neither cut nor wrapped."""
    console.print(final_report(status), soft_wrap=True)


def _reached(status: RunStatus) -> dict[str, str]:
    rows = {}
    whole = status.steps >= status.target_steps
    if status.reason and not (status.state == "finished" and whole):
        rows[REASONS.get(status.state, "because")] = in_one_line(status.reason)
    if status.return_mean is not None:
        rows["return"] = f"{figure(status.return_mean)}  {sparkline(status.return_curve, 24)}  (mean of 100 episodes)"
    if (evaluation := status.evaluation) is not None:
        rows["evaluation"] = (
            f"{figure(evaluation.return_mean)} at step {count(evaluation.step)}, "
            f"best {figure(evaluation.best_return)} at step {count(evaluation.best_step)}"
        )
        if evaluation.cut:
            rows["evaluation"] += f"; {evaluation.cut} of {evaluation.episodes} episodes did not end and were cut off"
    steps = count(status.steps)
    if not whole:
        steps += f" of {count(status.target_steps)}"
    rows["steps"] = f"{steps} in {count(status.updates)} updates, {count(status.episodes)} episodes"
    if status.first_steps:
        rows["resumed"] = f"at step {count(status.first_steps)}"
    first = status.seconds_to_first_update
    rows["time"] = duration(status.elapsed) + (f", first update after {duration(first)}" if first is not None else "")
    working = status.elapsed - (first or 0.0)
    trained = status.steps - status.first_steps
    rows["speed"] = f"{rate(trained / working if working > 0 else 0.0)} trained"
    if status.restarts or status.lane_failures:
        rows["failures"] = f"restarted workers {status.restarts}, failed lanes {status.lane_failures}"
    return rows


def _files(path: Path) -> dict[str, str]:
    return {"files": f"{shorter(path)}/", "": "config.json, metrics.jsonl, tensorboard/, checkpoints/, logs/"}


def _next_commands(status: RunStatus) -> dict[str, str]:
    """Only what works: before the first update there is nothing to go on from, nor to look at."""
    path = Path(status.path)
    run = shlex.quote(shorter(path))
    commands: dict[str, str] = {}
    if status.state == "failed" and any((path / "logs").glob("*.log")):
        commands["read its logs"] = f"srl logs {run}"
    if status.updates and checkpoints.latest(path / "checkpoints") is not None:
        done = status.state == "finished" or status.steps >= status.target_steps
        more = f" --steps {2 * (status.target_steps or status.steps)}" if done else ""
        go_on = {"train on" if done else "go on": f"srl resume {run}{more}"}
        look = {"score it": f"srl eval {run}", "watch it act": f"srl record {run}"}
        commands |= {**look, **go_on} if status.state == "finished" else {**go_on, **look}
    if status.return_mean is not None:
        commands["see curves"] = f"srl plot {run}"
    return commands


def _row(text: Text, label: str, value: str, style: str = "") -> None:
    text.append(f" {label:<{LABEL}}", "dim").append(f"{value}\n", style)
