"""One frame of the live view: a status as styled text that fits the terminal."""

from __future__ import annotations

from collections.abc import Iterable

from rich.text import Text

from srl.api.status import ReplayStatus, RunStatus, StreamStatus, WorkerStatus
from srl.terminal.drawing import bar, braille, split
from srl.terminal.formatting import count, duration, figure, first_facts, percent, rate, short

PHASES = {
    "env": "green",
    "inference": "cyan",
    "update": "magenta",
    "publish": "yellow",
    "other": "blue",
    "waiting": "bright_black",
}
STATES = {"running": "green", "finished": "bold green", "stopped": "yellow", "failed": "bold red"}
LEFT = 34  # columns for the figures to the left of the curve
SHOWN_FACTS = 3  # statistics of the environment in the view
LABEL = 11
MAX_LABEL = 22
MAX_CURVES = 3
PLAYED = ("return", "length", "episodes", "env", "lag")  # rows that a run without actors does not have


def frame(status: RunStatus, width: int, height: int) -> Text:
    """Return at most `height` rows and `width` columns. If not all workers fit, their groups are shown instead."""
    width, height = max(40, width), max(12, height)
    lines = [_title(status, width), _progress(status, width), Text()]
    summary = _summary(status)
    advice = _advice(status, width)
    names = [stream.name for stream in status.streams] + [memory.name for memory in status.replay]
    names += [worker.name for worker in status.workers]
    label = min(MAX_LABEL if width >= 80 else LABEL, max(LABEL, *map(len, names))) if names else LABEL
    streams = [_stream_line(stream, width, label) for stream in status.streams]
    streams += [_replay_line(memory, width, label, bool(status.settings.recorded)) for memory in status.replay]
    room = height - len(lines) - len(summary) - len(advice) - 2
    streams = streams[: max(0, min(len(streams), room - 3))]
    workers = _workers(status.workers, width, max(0, room - len(streams) - 1), label)
    lines += _beside(summary, _curves(status, width - LEFT, len(summary)))
    if streams or workers:
        lines += [Text(), *streams, *workers]
        if workers and len(lines) + len(advice) + 1 < height:
            lines.append(_legend(status.workers, label))
    lines += [Text(), *advice] if advice else []
    free = height - len(lines) - 1
    if status.messages and free > 0:
        lines.append(Text())
        lines += [_fit(Text(f" · {message}", "dim"), width) for message in status.messages[-min(free, 4) :]]
    joined = Text("\n").join(_fit(line, width) for line in lines[:height])
    joined.no_wrap, joined.overflow = True, "crop"
    return joined


def _title(status: RunStatus, width: int) -> Text:
    title = Text().append(" SRL ", "bold reverse")
    title.append(f" {status.environment}", "bold").append(f" · {status.algorithm}")
    right = Text().append(status.state, STATES.get(status.state, "yellow"))
    right.append(f"  {duration(status.elapsed)} ", "dim")
    room = width - title.cell_len - right.cell_len - 2
    if room >= 12:
        title.append(f"  {_fit(Text(status.run), room - 2).plain}", "dim")
    return _between(title, right, width)


def _progress(status: RunStatus, width: int) -> Text:
    share = min(1.0, status.steps / status.target_steps) if status.target_steps else 0.0
    if status.target_steps:
        text = f" {percent(share):>5}  {count(status.steps)} / {count(status.target_steps)}"
    else:
        text = f"  {count(status.steps)} steps"
    left = remaining(status)
    text += f"  {left} left" if left else ""
    length = max(8, width - len(text) - 2)
    filled = round(share * length)
    line = Text(" ").append("━" * filled, "green").append("─" * (length - filled), "bright_black")
    return line.append(text)


def remaining(status: RunStatus) -> str:
    """Return the estimated time left at the current speed, or an empty string if unknown."""
    todo = status.target_steps - status.steps
    if status.state != "running" or todo <= 0 or status.train_fps <= 0:
        return ""
    return duration(todo / status.train_fps)


def _summary(status: RunStatus) -> list[Text]:
    lag_style = "bold red" if status.lag_max > status.max_lag else ""
    rows = [
        *_returns(status),
        *([("length", figure(status.length_mean), "")] if len(status.policies) <= 1 else []),
        *[(name, figure(value), "") for name, value in first_facts(status.facts, SHOWN_FACTS)],
        ("episodes", count(status.episodes), ""),
        ("env", rate(status.env_fps), "bold"),
        ("train", rate(status.train_fps), "bold"),
        ("updates", count(status.updates), ""),
        ("lag", f"{status.lag_mean:.1f}  max {status.lag_max} of {status.max_lag}", lag_style),
    ]
    if status.settings.recorded:
        rows = [row for row in rows if row[0] not in PLAYED]
    failures = [f"{status.restarts} workers"] if status.restarts else []
    failures += [f"{status.lane_failures} lanes"] if status.lane_failures else []
    rows.append(("failures", ", ".join(failures) or "none", "bold yellow" if failures else "dim"))
    if status.refused:
        rows.append(("refused", f"{count(sum(status.refused.values()))} connections", "bold yellow"))
    return [_fit(_labeled(label, value, style), LEFT - 1) for label, value, style in rows]


def _returns(status: RunStatus) -> list[tuple[str, str, str]]:
    """Return the rows for returns and evaluations: those of the run, or one row per policy if there are several."""
    if len(status.policies) > 1:
        rows = [("return", "mean, evaluation", "dim")]
        for name, policy in status.policies.items():
            evaluated = figure(policy.evaluation.return_mean) if policy.evaluation is not None else "-"
            kind = "" if policy.learning else "  frozen"
            rows.append((f" {name}", f"{figure(policy.return_mean)}, {evaluated}{kind}", "bold green"))
        return rows
    rows = [("return", figure(status.return_mean), "bold green" if status.return_mean is not None else "dim")]
    if (evaluation := status.evaluation) is not None:
        interval = f" ± {figure(evaluation.return_interval)}" if evaluation.return_interval is not None else ""
        at = f"@ {short(evaluation.step)}"
        text = f"{figure(evaluation.return_mean)}{interval} {at}"
        if len(text) > LEFT - LABEL - 3:  # the step matters more than the interval
            text = f"{figure(evaluation.return_mean)} {at}"
        rows.append(("eval", text, "bold cyan"))
    return rows


def _curves(status: RunStatus, width: int, height: int) -> list[Text]:
    """Draw the curve of the mean return; with several learning policies, one curve below the other."""
    curves = {name: policy.return_curve for name, policy in status.policies.items() if policy.learning}
    if len(curves) < 2:
        return _curve(status.return_curve, width, height)
    shown = dict(list(curves.items())[:MAX_CURVES])
    rows = height // len(shown) - 1
    lines = []
    for name, curve in shown.items():
        lines += [Text(name, "dim"), *_curve(curve, width, rows)]
    return lines


def _curve(curve: list[float], width: int, height: int) -> list[Text]:
    points = [point for point in curve if point == point]
    if not points:
        blank = [Text()] * height
        return [*blank[: height // 2], Text("no episode has ended yet", "dim italic"), *blank[height // 2 + 1 :]]
    high, low = figure(max(points)), figure(min(points))
    margin = max(len(high), len(low))
    lines = []
    for row, dots in enumerate(braille(points, max(4, width - margin - 3), height)):
        label = high if row == 0 else low if row == height - 1 else ""
        axis = f"{label:>{margin}} {'┤' if label else '│'}"
        lines.append(Text().append(axis, "dim").append(dots, "green"))
    return lines


def _beside(left: list[Text], right: list[Text]) -> list[Text]:
    rows = []
    for index, text in enumerate(left):
        row = text.copy()
        row.append(" " * (LEFT - row.cell_len))
        rows.append(row.append_text(right[index]) if index < len(right) else row)
    return rows


def _stream_line(stream: StreamStatus, width: int, label: int) -> Text:
    line = Text(f" {stream.name[:label]:<{label + 1}}")
    if stream.kind == "request":
        return _fit(line.append(f"{stream.batch_mean:.1f} lanes per batch", "dim"), width)
    line.append(bar(stream.filled, _bar_width(width, label)).replace(" ", "·"), "blue")
    line.append(f" {percent(stream.filled):>5} of the next batch", "dim")
    if stream.dropped:
        line.append(f", {count(stream.dropped)} dropped", "yellow")
    return _fit(line, width)


def _replay_line(memory: ReplayStatus, width: int, label: int, recorded: bool) -> Text:
    line = Text(f" {memory.name[:label]:<{label + 1}}")
    share, bound = memory.size / memory.capacity, memory.max_target_age
    age = "" if bound is None else f", target age {memory.target_age} of {bound}"
    line.append(bar(share, max(6, _bar_width(width, label) - len(age))).replace(" ", "·"), "blue")
    line.append(f" {percent(share):>5} of {count(memory.capacity)}", "dim")
    if recorded:
        return _fit(line.append(" recorded decisions", "dim"), width)
    if memory.reached is None:
        return _fit(line.append(f", learning starts in {count(memory.warmup)}", "dim"), width)
    return _fit(line.append(f"{age}, {memory.reached:.3g} of {memory.wanted:.3g} updates/decision", "dim"), width)


def _bar_width(width: int, label: int) -> int:
    return max(6, min(48, width - label - 42))


def _workers(workers: list[WorkerStatus], width: int, room: int, label: int) -> list[Text]:
    """Return one line per worker, or per group if the workers do not fit."""
    if len(workers) <= room:
        return [_worker_line(w.name, w.state, w.busy, w.incarnation, width, label) for w in workers]
    groups: dict[str, list[WorkerStatus]] = {}
    for worker in workers:
        groups.setdefault(worker.group, []).append(worker)
    lines = []
    for group, members in groups.items():
        phases = {phase: sum(m.busy.get(phase, 0.0) for m in members) / len(members) for phase in PHASES}
        state = next((m.state for m in members if m.state != "running"), "running")
        incarnations = sum(m.incarnation for m in members)
        name = f"{group} ×{len(members)}" if len(members) > 1 else members[0].name
        lines.append(_worker_line(name, state, phases, incarnations, width, label))
    return lines[:room]


def _worker_line(name: str, state: str, busy: dict[str, float], incarnation: int, width: int, label: int) -> Text:
    line = Text(f" {name[: label + 1]:<{label + 1}}")
    length = _bar_width(width, label)
    if state != "running" or not busy:
        line.append("·" * length, "bright_black").append(f"  {state}", STATES.get(state, "yellow"))
    else:
        line.append_text(stacked(busy, length))
        line.append("  ").append_text(_largest(busy))
    if incarnation:
        line.append(f"  ↻{incarnation}", "yellow")
    return _fit(line, width)


def stacked(busy: dict[str, float], width: int) -> Text:
    """Return the fractions of time as a bar with one color per phase; the rest is waiting time."""
    shares = {phase: busy.get(phase, 0.0) for phase in PHASES if phase != "waiting"}
    cells = split(shares, width)
    line = Text()
    for phase, length in cells.items():
        line.append("█" * length, PHASES[phase])
    return line.append("·" * (width - sum(cells.values())), PHASES["waiting"])


def _largest(busy: dict[str, float]) -> Text:
    largest = sorted((phase for phase in PHASES if busy.get(phase, 0.0) >= 0.005), key=lambda p: -busy[p])[:3]
    line = Text()
    for phase in largest:
        line.append(f"{phase} {100 * busy[phase]:.0f}  ", PHASES[phase])
    line.rstrip()
    return line


def _legend(workers: Iterable[WorkerStatus], label: int) -> Text:
    seen = {phase for worker in workers for phase, share in worker.busy.items() if share > 0}
    line = Text(" " * (label + 2))
    for phase in (phase for phase in PHASES if phase in seen):
        line.append("· " if phase == "waiting" else "■ ", PHASES[phase]).append(f"{phase}   ", "dim")
    line.rstrip()
    return line


def _advice(status: RunStatus, width: int) -> list[Text]:
    lines = []
    if status.bottleneck:
        lines.append(_fit(_labeled("bottleneck", status.bottleneck, "bold"), width))
    if status.advice:
        lines.append(_fit(_labeled("try", status.advice, "bold cyan"), width))
    return lines


def _labeled(label: str, value: str, style: str) -> Text:
    # Appended to an empty text, because a style of the text itself would also apply to the other parts.
    return Text().append(f" {label[:LABEL]:<{LABEL + 1}}", "dim").append(value, style)


def _between(left: Text, right: Text, width: int) -> Text:
    left = _fit(left, width - right.cell_len - 1)
    return left.append(" " * (width - left.cell_len - right.cell_len)).append_text(right)


def _fit(text: Text, width: int) -> Text:
    if not text.plain.isprintable():  # a message may contain control characters that move the cursor
        text = Text("".join(char if char.isprintable() else " " for char in text.plain), text.style)
    if text.cell_len > width:
        text = text.copy()
        text.truncate(width, overflow="ellipsis")
    return text
