"""The live view of a run in a notebook: a bar, figures and the curve of the return, updated in place."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from srl.api.status import RunStatus
from srl.terminal.formatting import count, duration, has_return, percent, rate, return_of
from srl.terminal.frame import remaining

WIDTH, HEIGHT = 480, 110  # of a curve, in pixels
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")


def in_notebook() -> bool:
    """Return whether this process is the kernel of a notebook, which can display HTML."""
    ipython: Any = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and hasattr(shell, "kernel")


def status_html(status: RunStatus) -> str:
    """Return a run at one moment as HTML."""
    share = min(1.0, status.steps / status.target_steps) if status.target_steps else 0.0
    goal = f" of {count(status.target_steps)} ({percent(share)})" if status.target_steps else ""
    figures = [f"{count(status.steps)}{goal} steps", duration(status.elapsed)]
    if status.state == "running" and (left := remaining(status)):
        figures.append(f"{left} left")
    if status.state == "running":
        figures.append(f"{rate(status.train_fps)}")
    if has_return(status):
        figures.append(f"return {return_of(status)}")
    if status.restarts:
        figures.append(f"{status.restarts} restarts")
    title = f"{escape(status.environment)} · {escape(status.algorithm)} · {escape(status.state)}"
    reason = f" ({escape(status.reason.splitlines()[0])})" if status.reason else ""
    bar = (
        '<div style="width:480px;height:6px;background:#ddd;border-radius:3px">'
        f'<div style="width:{share:.1%};height:6px;background:{COLORS[0]};border-radius:3px"></div></div>'
    )
    curves = {name: policy.return_curve for name, policy in status.policies.items() if policy.learning}
    parts = [f"<b>{title}</b>{reason}", bar, escape(" · ".join(figures)), curves_svg(curves)]
    return (
        '<div style="font-family:sans-serif;font-size:13px;line-height:1.6">'
        + "<br>".join(filter(None, parts))
        + "</div>"
    )


def curves_svg(curves: Mapping[str, Sequence[float]]) -> str:
    """Return curves of mean returns as an SVG image, or an empty string if there are no points yet."""
    known = {name: values for name, values in curves.items() if len(values) > 1}
    if not known:
        return ""
    low = min(min(values) for values in known.values())
    high = max(max(values) for values in known.values())
    span = (high - low) or 1.0
    lines = []
    for (name, values), color in zip(known.items(), COLORS * len(known), strict=False):
        points = " ".join(
            f"{WIDTH * i / (len(values) - 1):.1f},{HEIGHT - 5 - (HEIGHT - 10) * (value - low) / span:.1f}"
            for i, value in enumerate(values)
        )
        label = f"<title>{escape(name)}</title>" if len(known) > 1 else ""
        lines.append(f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="1.5">{label}</polyline>')
    scale = "".join(
        f'<text x="4" y="{y}" font-size="10" fill="#888">{value:.4g}</text>'
        for y, value in ((12, high), (HEIGHT - 4, low))
    )
    return f'<svg width="{WIDTH}" height="{HEIGHT}" style="border-bottom:1px solid #ccc">{"".join(lines)}{scale}</svg>'
