"""Trains CartPole and saves a frame of the live view: python docs/images/live_view.py docs/images/live-view.svg"""

from __future__ import annotations

import io
import re
import sys
import tempfile
from html import unescape
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI

import srl
from srl.api.status import RunStatus
from srl.terminal.frame import frame

WIDTH, HEIGHT = 100, 22
SHOWN = 0.16  # share of the run's steps after which the frame is taken


def svg_of(status: RunStatus) -> str:
    """Return the frame as SVG that loads nothing from other servers."""
    console = Console(width=WIDTH, height=HEIGHT, record=True, file=io.StringIO(), force_terminal=True)
    console.print(frame(status, WIDTH, HEIGHT))
    svg = console.export_svg(title="srl train CartPole-v1 --steps 3000000", theme=MONOKAI, unique_id="live-view")
    svg = re.sub(r'x="([\d.]+)" y="([\d.]+)" textLength="([\d.]+)"([^>]*)>([^<]+)<', placed, svg)
    svg = re.sub(r"@font-face \{.*?\}", "", svg, flags=re.DOTALL)
    return re.sub(r"[ \t]+$", "", svg.replace("Fira Code", "DejaVu Sans Mono, Menlo, Consolas"), flags=re.MULTILINE)


def placed(found: re.Match[str]) -> str:
    """Return a text with a position for every character, because fonts differ in the width of bars and dots."""
    start, y, length, rest, text = found.groups()
    if unescape(text).isascii():
        return found[0]
    size = float(length) / len(unescape(text))
    positions = " ".join(f"{float(start) + index * size:g}" for index in range(len(unescape(text))))
    return f'x="{positions}" y="{y}"{rest}>{text}<'


if __name__ == "__main__":
    statuses: list[RunStatus] = []

    class Stop(srl.Callback):
        def on_update(self, record):  # type: ignore[no-untyped-def]
            if statuses and statuses[-1].steps >= SHOWN * statuses[-1].target_steps:
                self.run.stop("the frame is complete")

    with tempfile.TemporaryDirectory() as root:
        srl.train("CartPole-v1", steps=3_000_000, root=root, on_status=statuses.append, callbacks=[Stop()])
    running = [status for status in statuses if status.state == "running" and status.bottleneck]
    Path(sys.argv[1]).write_text(svg_of(running[-1]))
