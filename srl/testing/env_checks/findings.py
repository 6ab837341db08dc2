"""Findings of a checker, and their report as text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Finding:
    severity: Literal["error", "warning"]
    """An error breaks training or stops it; a warning may be intended."""
    expected: str
    found: str
    fix: str
    """Advice to the author of the environment."""


class Findings:
    """A list of findings. A mistake that occurs at every step is listed once."""

    def __init__(self) -> None:
        self.all: list[Finding] = []

    def error(self, expected: str, found: str, fix: str) -> None:
        self.add(Finding("error", expected, found, fix))

    def warning(self, expected: str, found: str, fix: str) -> None:
        self.add(Finding("warning", expected, found, fix))

    @property
    def have_errors(self) -> bool:
        return has_errors(self.all)

    def add(self, finding: Finding) -> None:
        if all(finding.expected != other.expected for other in self.all):
            self.all.append(finding)


def has_errors(findings: Sequence[Finding]) -> bool:
    return any(finding.severity == "error" for finding in findings)


def report(findings: Sequence[Finding], name: str) -> str:
    """Return all findings as text, errors first."""
    errors = [finding for finding in findings if finding.severity == "error"]
    warnings = [finding for finding in findings if finding.severity == "warning"]
    if not findings:
        return f"{name}: no problems found"
    lines = [f"{name}: {_count(errors, 'error')}, {_count(warnings, 'warning')}"]
    for finding in (*errors, *warnings):
        lines += [
            "",
            f"{finding.severity}: expected {finding.expected}",
            f"  found: {finding.found}",
            f"  fix:   {finding.fix}",
        ]
    return "\n".join(lines)


def _count(findings: Sequence[Finding], word: str) -> str:
    return f"{len(findings) or 'no'} {word}{'' if len(findings) == 1 else 's'}"
