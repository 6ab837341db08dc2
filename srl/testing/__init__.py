"""Fakes, probe environments and checkers that users can run on their own code."""

from __future__ import annotations

import importlib
from typing import Any

_MODULES = {
    "check_algorithm": "srl.testing.algorithm_checks",
    "check_algo": "srl.checks.algorithm",  # it trains, so it is in a higher layer; this module re-exports it
    "check_environment": "srl.testing.env_checks.environment",
    "check_lanes": "srl.testing.env_checks.lanes",
    "perfect_play": "srl.testing.solved_games",
    "check_worker": "srl.testing.worker_checks",
}

__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(importlib.import_module(_MODULES[name]), name)
    raise AttributeError(f"module 'srl.testing' has no attribute {name!r}; it offers {', '.join(__all__)}")
