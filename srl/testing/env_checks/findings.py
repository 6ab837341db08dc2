"""What a checker found wrong, and the text that tells it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Finding:
    severity: Literal["error", "warning"]
    """An error spoils training or stops it; a warning may be meant so."""
    wanted: str
    found: str
    advice: str


class Findings:
    """Collects findings; the same mistake, made at every step, counts once."""

    def __init__(self) -> None:
        self.all: list[Finding] = []

    def error(self, wanted: str, found: str, advice: str) -> None:
        self.add(Finding("error", wanted, found, advice))

    def warning(self, wanted: str, found: str, advice: str) -> None:
        self.add(Finding("warning", wanted, found, advice))

    @property
    def have_errors(self) -> bool:
        return has_errors(self.all)

    def add(self, finding: Finding) -> None:
        if all(finding.wanted != other.wanted for other in self.all):
            self.all.append(finding)


def has_errors(findings: Sequence[Finding]) -> bool:
    return any(finding.severity == "error" for finding in findings)


def report(findings: Sequence[Finding], name: str) -> str:
    """All findings as text, errors first."""
    errors = [finding for finding in findings if finding.severity == "error"]
    warnings = [finding for finding in findings if finding.severity == "warning"]
    if not findings:
        return f"{name}: nothing wrong was found"
    lines = [f"{name}: {_count(errors, 'error')}, {_count(warnings, 'warning')}"]
    for finding in (*errors, *warnings):
        lines += [
            "",
            f"{finding.severity}: wanted {finding.wanted}",
            f"  found: {finding.found}",
            f"  do:    {finding.advice}",
        ]
    return "\n".join(lines)


def _count(findings: Sequence[Finding], word: str) -> str:
    return f"{len(findings) or 'no'} {word}{'' if len(findings) == 1 else 's'}"
