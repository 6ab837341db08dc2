"""Findings of a checker, and the text report on them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NoReturn

from srl.base.config import from_data, to_data


class CheckStopped(Exception):
    """Further checks would be meaningless; the reason is among the findings."""


@dataclass(frozen=True)
class Finding:
    severity: Literal["error", "warning"]
    """An error breaks or stops training; a warning may be intended behavior."""
    expected: str
    found: str
    fix: str
    """Advice for the author of the code."""


class Findings:
    """A list of findings. A mistake that occurs at every step is listed once."""

    def __init__(self) -> None:
        self.all: list[Finding] = []

    def error(self, expected: str, found: str, fix: str) -> None:
        self.add(Finding("error", expected, found, fix))

    def warning(self, expected: str, found: str, fix: str) -> None:
        self.add(Finding("warning", expected, found, fix))

    def stop(self, expected: str, found: str, fix: str, cause: BaseException | None = None) -> NoReturn:
        """Add an error and end the check."""
        self.error(expected, found, fix)
        raise CheckStopped from cause

    @property
    def have_errors(self) -> bool:
        return has_errors(self.all)

    def add(self, finding: Finding) -> None:
        if all(finding.expected != other.expected for other in self.all):
            self.all.append(finding)


def has_errors(findings: Sequence[Finding]) -> bool:
    return any(finding.severity == "error" for finding in findings)


def check_sendable(findings: Findings, config: Any) -> None:
    """Check that a config stays the same when sent to another process."""
    try:
        received = from_data(json.loads(json.dumps(to_data(config))))
    except (TypeError, ValueError, LookupError, ImportError) as error:
        fix = "use fields of plain data, and define the class at the top level of a module"
        findings.error("a config that can be sent to another process as JSON", str(error), fix)
        return
    if received != config:
        fix = "use a frozen dataclass whose fields are plain data and compare equal"
        findings.error("the same config after it was sent to another process", str(received), fix)


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
