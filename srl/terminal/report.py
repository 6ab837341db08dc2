"""The report at the end of a run: results, files, and commands to run next."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

from rich.console import Console
from rich.text import Text

from srl.api.block import RETURN
from srl.api.status import EPISODE_WINDOW, EvaluationStatus, RunStatus, describe_refused
from srl.base.errors import in_one_line
from srl.base.files import describe_losses
from srl.storage import checkpoints
from srl.storage.curves import flat_options
from srl.storage.run_directory import RunDirectory
from srl.terminal.drawing import sparkline
from srl.terminal.formatting import count, duration, figure, first_facts, has_return, plural, rate, relative_path

ENV_ARGS = "run.env_args."
LABEL = 14
SHOWN_FACTS = 6  # statistics of the environment in the report; metrics.jsonl has all of them
FILES = ("config.json", "metrics.jsonl", "episodes.bin", "tensorboard/", "checkpoints/", "logs/")
HEADLINES = {
    "finished": ("finished", "bold green"),
    "stopped": ("stopped early", "bold yellow"),
    "failed": ("failed", "bold red"),
}
REASONS = {"finished": "reason", "stopped": "stopped by", "failed": "error"}


def final_report(status: RunStatus) -> Text:
    words, style = HEADLINES.get(status.state, (status.state, "bold"))
    text = Text("\n")
    text.append(f" {status.environment} · {status.algorithm}: {words}", style).append("\n\n")
    results = _results(status)
    width = max(LABEL, *(len(label) + 1 for label in results))
    for label, value in results.items():
        _row(text, label, value, width=width)
    text.append("\n")
    _row(text, "files", f"{relative_path(Path(status.path))}/")
    if files := [name for name in FILES if (Path(status.path) / name).exists()]:
        _row(text, "", ", ".join(files))
    if status.bottleneck and status.advice:
        text.append("\n")
        _row(text, "bottleneck", status.bottleneck)
        _row(text, "try", status.advice)
    commands = _next_commands(status)
    text.append("\n" if commands else "")
    for purpose, command in commands.items():
        _row(text, purpose, command, "bold cyan")
    return text


def print_report(console: Console, status: RunStatus) -> None:
    """Print the report without truncating or wrapping, so that paths and commands can be copied."""
    console.print(final_report(status), soft_wrap=True)


def _results(status: RunStatus) -> dict[str, str]:
    rows = {}
    complete = status.steps >= status.target_steps
    if status.reason and not (status.state == "finished" and complete):
        rows[REASONS.get(status.state, "reason")] = in_one_line(status.reason)
    several = len(status.policies) > 1
    best = checkpoints.kept_best(Path(status.path) / "checkpoints")
    if several:
        for name, policy in status.policies.items():
            rows[f"return {name}"] = _return(policy.return_mean, policy.return_curve, policy.episodes)
    elif status.return_mean is not None:
        rows["return"] = _return(status.return_mean, status.return_curve, status.episodes)
    elif status.updates and not status.episodes and not status.settings.recorded:
        rows["return"] = "none: no episode has ended"
    for name, policy in status.policies.items():
        if policy.facts:
            means = ", ".join(f"{fact} {figure(mean)}" for fact, mean in first_facts(policy.facts, SHOWN_FACTS))
            averaged = min(EPISODE_WINDOW, policy.episodes)
            rows[f"episodes {name}" if several else "episodes"] = f"{means}  (means of {averaged})"
        if policy.evaluation is not None:
            rows[f"eval {name}" if several else "evaluation"] = _evaluation(
                policy.evaluation, policy.version, status, best.get(name)
            )
    steps = count(status.steps)
    if not complete:
        steps += f" of {count(status.target_steps)}"
    if status.settings.recorded:
        rows["gradient steps"] = f"{steps} in {plural(status.updates, 'update')}"
    else:
        rows["steps"] = f"{steps} in {plural(status.updates, 'update')}, {plural(status.episodes, 'episode')}"
    if status.first_steps:
        rows["resumed"] = f"at step {count(status.first_steps)}"
    first = status.seconds_to_first_update
    rows["time"] = duration(status.elapsed) + (f", first update after {duration(first)}" if first is not None else "")
    training = status.elapsed - (first or 0.0)
    trained = status.steps - status.first_steps
    rows["speed"] = f"{rate(trained / training if training > 0 else 0.0)} trained"
    if status.restarts or status.lane_failures:
        rows["failures"] = f"{plural(status.restarts, 'worker restart')}, {plural(status.lane_failures, 'failed lane')}"
    if status.losses:
        rows["not recorded"] = f"{describe_losses(status.losses)} (disk errors)"
    if status.lost_rows:
        lost = ", ".join(f"{plural(rows, 'row')} by {sink}" for sink, rows in status.lost_rows.items())
        rows["not accepted"] = f"{lost}; metrics.jsonl has them"
    if status.lost_calls:
        lost = ", ".join(f"{plural(calls, 'call')} of {name}" for name, calls in status.lost_calls.items())
        rows["not called"] = f"{lost}: too slow"
    if status.refused:
        rows["refused"] = describe_refused(status.refused)
    return rows


def _return(mean: float | None, curve: list[float], episodes: int) -> str:
    averaged = plural(min(EPISODE_WINDOW, episodes), "episode")
    return f"{figure(mean)}  {sparkline(curve, 24)}  (mean of {averaged})"


def _evaluation(
    evaluation: EvaluationStatus, last_version: int, status: RunStatus, best: tuple[str, float, int] | None
) -> str:
    text = f"{figure(evaluation.return_mean)} at step {count(evaluation.step)}"
    if best is not None and best[0] != RETURN:
        text += f", best checkpoint {_score(*best)}"
    elif best is not None and evaluation.count > 1:
        text += f", best {figure(best[1])} at step {count(best[2])}"
    wanted = last_version // (status.settings.eval_versions or last_version + 1)
    if 2 * evaluation.count < wanted:
        text += (
            f"; {evaluation.count} of {wanted} evaluations: --eval-share {status.settings.eval_share:g} allows no more"
        )
    if evaluation.version < last_version:
        text += "; the final policy was not evaluated (`srl eval`)"
    if evaluation.truncated:
        text += f"; {evaluation.truncated} of {evaluation.episodes} episodes were truncated at --eval-max-steps"
    return text


def _score(by: str, score: float, step: int) -> str:
    lowest = by.startswith("-")  # less is better
    return f"{by.removeprefix('-')} {figure(-score if lowest else score)} at step {count(step)}"


def _next_commands(status: RunStatus) -> dict[str, str]:
    """Return suggested commands by purpose. Before the first update there is nothing to resume or evaluate."""
    path = Path(status.path)
    run = shlex.quote(relative_path(path))
    commands: dict[str, str] = {}
    if status.state == "failed" and any((path / "logs").glob("*.log")):
        commands["read the logs"] = f"srl logs {run}"
    if status.state == "failed" and status.lane_failures and ":" in status.environment:
        commands["check env"] = f"srl check-env {shlex.quote(status.environment)}{_environment_options(path)}"
    if status.updates and checkpoints.latest(path / "checkpoints") is not None:
        done = status.state == "finished" or status.steps >= status.target_steps
        target = status.target_steps if status.steps < 2 * status.target_steps else status.steps
        steps = f" --steps {2 * target}" if done else ""
        resume = {"train longer" if done else "resume": f"srl resume {run}{steps}"}
        use = {"evaluate": f"srl eval {run}", "record video": f"srl record {run}"}
        commands |= {**use, **resume} if status.state == "finished" else {**resume, **use}
    if has_return(status):
        commands["plot curves"] = f"srl plot {run}"
    return commands


def _environment_options(path: Path) -> str:
    """Return the options of a run's environment as flags."""
    try:
        run = flat_options(RunDirectory(path).read_raw_config())
    except (OSError, ValueError):
        return ""
    options = {name.removeprefix(ENV_ARGS): value for name, value in run.items() if name.startswith(ENV_ARGS)}
    words = [f"{name}={value if isinstance(value, str) else json.dumps(value)}" for name, value in options.items()]
    return "".join(f" --env-arg {shlex.quote(word)}" for word in words)


def _row(text: Text, label: str, value: str, style: str = "", width: int = LABEL) -> None:
    text.append(f" {label:<{width}}", "dim").append(f"{value}\n", style)
