"""The environment ring: how much of an answer's delay is hidden by stepping other groups meanwhile."""

from __future__ import annotations

from typing import Any

from srl.experiments.bench_options import BenchOptions


def ring(options: BenchOptions) -> dict[str, Any]:
    return {}
