"""Hide-and-seek (Baker et al. 2019) on a current MuJoCo: the game, its harder maps, and its transfer tasks.

In SRL, use ids such as ``hide-and-seek/quadrant``. Other libraries can use :func:`parallel_env` (a PettingZoo parallel
environment), :func:`env` (its turn-based version) and :class:`TransferTask` (a Gymnasium environment for the
single-agent tasks).
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from srl.environments.hide_and_seek.lanes import HideAndSeekConfig, HideAndSeekLanes
from srl.environments.hide_and_seek.options import GameOptions
from srl.environments.hide_and_seek.variants import VARIANTS

if TYPE_CHECKING:
    from srl.environments.hide_and_seek.gymnasium_env import TransferTask
    from srl.environments.hide_and_seek.pettingzoo_env import HideAndSeek

__all__ = [
    "VARIANTS",
    "GameOptions",
    "HideAndSeek",
    "HideAndSeekConfig",
    "HideAndSeekLanes",
    "TransferTask",
    "env",
    "parallel_env",
]


def parallel_env(variant: str = "quadrant", render_mode: str | None = None, **options: Any) -> HideAndSeek:
    """Return the named game as a PettingZoo parallel environment."""
    from srl.environments.hide_and_seek.pettingzoo_env import HideAndSeek

    return HideAndSeek(variant, render_mode, **options)


def env(variant: str = "quadrant", render_mode: str | None = None, **options: Any) -> Any:
    """Return the named game as a PettingZoo AEC environment."""
    game = parallel_env(variant, render_mode, **options)  # raises if PettingZoo is missing
    from pettingzoo.utils.conversions import parallel_to_aec

    return parallel_to_aec(game)


def __getattr__(name: str) -> Any:
    """Import a class on first use, because its module needs PettingZoo or registers ids with Gymnasium."""
    modules = {"HideAndSeek": "pettingzoo_env", "TransferTask": "gymnasium_env"}
    if name in modules:
        return getattr(importlib.import_module(f"{__name__}.{modules[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
