"""What a run says at its end: what was reached, where its files are, what to do next."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console
from rich.text import Text

from srl.api.status import RunStatus
from srl.terminal.drawing import sparkline
from srl.terminal.figures import count, duration, figure, rate

LABEL = 14
HEADLINES = {
    "finished": ("finished", "bold green"),
    "stopped": ("stopped before its end", "bold yellow"),
    "failed": ("failed", "bold red"),
}


def final_report(status: RunStatus, facts: Mapping[str, str] | None = None) -> Text:
    """`facts` are further lines, e.g. `{"best return": "499.1 at step 180,224"}`, shown with what was reached."""
    words, style = HEADLINES.get(status.state, (status.state, "bold"))
    text = Text("\n")
    text.append(f" {status.environment} · {status.algorithm}: {words}", style).append("\n\n")
    for label, value in {**_reached(status), **(facts or {})}.items():
        _row(text, label, value)
    text.append("\n")
    for label, value in _files(Path(status.path)).items():
        _row(text, label, value)
    if status.bottleneck and status.advice:
        text.append("\n")
        _row(text, "bottleneck", status.bottleneck)
        _row(text, "to be faster", status.advice)
    text.append("\n")
    for purpose, command in _next_commands(status).items():
        _row(text, purpose, command, "bold cyan")
    return text


def print_report(console: Console, status: RunStatus, facts: Mapping[str, str] | None = None) -> None:
    """Paths and commands are there to be copied: they are neither cut nor wrapped."""
    console.print(final_report(status, facts), soft_wrap=True)


def _reached(status: RunStatus) -> dict[str, str]:
    rows = {}
    if status.return_mean is not None:
        rows["return"] = f"{figure(status.return_mean)}  {sparkline(status.return_curve, 24)}  (mean of 100 episodes)"
    if (evaluation := status.evaluation) is not None:
        rows["evaluation"] = (
            f"{figure(evaluation.return_mean)} at step {count(evaluation.step)}, "
            f"best {figure(evaluation.best_return)} at step {count(evaluation.best_step)}"
        )
    steps = count(status.steps)
    if status.steps < status.target_steps:
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
    return {"files": f"{_short(path)}/", "": "config.json, metrics.jsonl, tensorboard/, checkpoints/, logs/"}


def _next_commands(status: RunStatus) -> dict[str, str]:
    run = shlex.quote(_short(Path(status.path)))
    if status.state == "finished":
        return {
            "score it": f"srl eval {run}",
            "watch it act": f"srl record {run}",
            "train on": f"srl resume {run} --steps {2 * (status.target_steps or status.steps)}",
            "see curves": f"srl plot {run}",
        }
    if status.state == "failed":
        return {"what failed": f"tail {run}/logs/*.log", "go on": f"srl resume {run}"}
    return {
        "go on": f"srl resume {run}",
        "score it": f"srl eval {run}",
        "watch it act": f"srl record {run}",
        "see curves": f"srl plot {run}",
    }


def _row(text: Text, label: str, value: str, style: str = "") -> None:
    text.append(f" {label:<{LABEL}}", "dim").append(f"{value}\n", style)


def _short(path: Path) -> str:
    """Relative to where the user stands, if that is shorter to type."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative
