"""What a long report comes down to."""

from __future__ import annotations

from pathlib import Path

HEAD = "Traceback (most recent call last):"


def last_line(text: str, otherwise: str, limit: int | None = 300) -> str:
    """The last line of a traceback or a log says what happened; `otherwise` where there is none."""
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return lines[-1][:limit] if lines else otherwise


def in_one_line(report: str) -> str:
    """The first and the last line of a report: what it is about, and what happened."""
    lines = [line for line in report.strip().splitlines() if line.strip()]
    first = lines[0].removesuffix(HEAD).strip() if lines else ""
    return " ".join([first, *(lines[-1:] if len(lines) > 1 else [])]).strip()[:300]


def last_words(log: Path) -> str:
    """Of a process that wrote into a file, and ended."""
    try:
        text = log.read_text(errors="replace")
    except OSError:
        text = ""
    return last_line(text, "it said nothing")
