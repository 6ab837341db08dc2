"""Formatting of numbers and paths for display."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path

from srl.api.status import RunStatus


def count(number: int) -> str:
    """Format as `524,288`."""
    return f"{number:,}"


def plural(number: int, noun: str, ending: str = "s") -> str:
    """Format as `1 update` or `2,000 updates`."""
    return f"{number:,} {noun}{'' if number == 1 else ending}"


def rate(per_second: float) -> str:
    """Format as `930/s`, `21.4k/s`, `210k/s` or `1.25M/s`."""
    if not math.isfinite(per_second) or per_second < 0:
        return "-"
    for size, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if per_second >= 0.9995 * size:
            scaled = per_second / size
            digits = 2 if scaled < 9.995 else 1 if scaled < 99.95 else 0
            return f"{scaled:.{digits}f}{suffix}/s"
    return f"{per_second:.0f}/s" if per_second >= 9.95 or per_second == 0 else f"{per_second:.1f}/s"


def duration(seconds: float) -> str:
    """Format as `12.3 s`, `4:07`, `2:03:04` or `3 d 04:00`."""
    if not math.isfinite(seconds) or seconds < 0:
        return "-"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
    return f"{hours // 24} d {hours % 24:02d}:{minutes:02d}"


def figure(number: float | None) -> str:
    """Format as `312.4`, `-0.05`, `12,345` or `1.2e+07`; a dash for None and NaN."""
    if number is None or math.isnan(number):
        return "-"
    size = abs(number)
    if size >= 1e7 or 0 < size < 0.001:
        return f"{number:.1e}"
    return f"{number:,.0f}" if size >= 10_000 else f"{number:,.1f}" if size >= 9.995 else f"{number:.2f}"


def estimate(number: float, interval: float) -> str:
    """Format a mean and the half-width of its interval with the digits that the interval justifies: `0.482 ± 0.012`.
    Without a finite interval, format only the mean."""
    if not math.isfinite(interval):
        return figure(number)
    if interval > 0:
        decimals = max(0, min(6, 1 - math.floor(math.log10(interval))))
    else:
        decimals = max(1, min(6, 2 - math.floor(math.log10(abs(number) or 1.0))))
    return f"{number:,.{decimals}f} ± {interval:,.{decimals}f}"


def return_of(status: RunStatus) -> str:
    return returns(status.return_mean, {name: policy.return_mean for name, policy in status.policies.items()})


def first_facts(facts: Mapping[str, float], limit: int) -> list[tuple[str, float]]:
    """Return up to `limit` statistics of episodes, success first."""
    return sorted(facts.items(), key=lambda fact: (fact[0] != "is_success", fact[0]))[:limit]


def has_return(status: RunStatus) -> bool:
    return status.return_mean is not None or any(one.return_mean is not None for one in status.policies.values())


def returns(mean: float | None, by_policy: Mapping[str, float | None]) -> str:
    """Format as `312.4` or, with several policies, as `hiders 3.1, seekers -3.1`."""
    each = [f"{name} {figure(value)}" for name, value in by_policy.items()]
    return ", ".join(each) if len(each) > 1 else figure(mean)


def percent(share: float) -> str:
    """Format as `52 %`, rounded down so that 100 % means complete."""
    return f"{math.floor(100 * share + 1e-9)} %" if math.isfinite(share) else "- %"


def short(number: float) -> str:
    """Format the end of an axis as `0`, `250k` or `1.5M`."""
    for size, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= size:
            return f"{number / size:.3g}{suffix}"
    return f"{number:.3g}" if math.isfinite(number) else "-"


def relative_path(path: Path) -> str:
    """Return the path relative to the working directory if inside it, else unchanged."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative
