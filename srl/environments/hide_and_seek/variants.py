"""Named variants of the game, and the packages they need."""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Mapping
from typing import Any

from srl.base.errors import nearest
from srl.environments.hide_and_seek.options import GameOptions

PACKAGES = ("mujoco", "numba")
COMMAND = 'pip install "srl-rl[hide-and-seek]"'
PETTINGZOO_IS_MISSING = (
    "hide-and-seek as a PettingZoo environment needs pettingzoo, which is not installed; "
    'pip install "srl-rl[hide-and-seek,pettingzoo]"'
)
_FULL = GameOptions()
_QUADRANT = GameOptions(
    scenario="quadrant",
    num_boxes=2,
    num_elongated=0,
    num_ramps=1,
    lock_ramps=False,
    horizon=80,
    bounds=(0.1, 0.1, 5.9, 5.9),
    penalize_objects_out=True,
    hiders_start="uniform",
    seekers_start="outside",
)
_LARGE = dataclasses.replace(_FULL, num_hiders=(1, 3), num_seekers=(1, 3), max_others=5)
_ALONE = GameOptions(
    num_hiders=1, num_seekers=0, num_elongated=0, num_ramps=0, preparation=0.0, bounds=None, hiders_start="uniform"
)

VARIANTS: Mapping[str, GameOptions] = {
    "quadrant": _QUADRANT,
    "full": _FULL,
    "reproduce": _LARGE,
    "large": dataclasses.replace(_LARGE, scale=1.5, horizon=360),
    "larger": dataclasses.replace(_LARGE, scale=2.0, horizon=480),
    "food": dataclasses.replace(_FULL, num_food=4, num_food_clusters=1, reward="joint_mean"),
    "lock-and-return": dataclasses.replace(
        _ALONE, task="lock-and-return", num_rooms=6, random_rooms=False, num_boxes=1, horizon=120
    ),
    "sequential-lock": dataclasses.replace(
        _ALONE, task="sequential-lock", scenario="var_tri", door_size=0, num_boxes=4, num_ramps=3, horizon=120
    ),
    "blueprint": dataclasses.replace(_ALONE, task="blueprint", scenario="empty", num_boxes=8, horizon=150),
    "shelter": dataclasses.replace(_ALONE, task="shelter", scenario="empty", num_boxes=8, num_elongated=3, horizon=240),
}


IMAGE_OPTIONS = ("view", "image_size")
"""Rendering options, passed along with the game's: `map` or `camera`, and the side length in pixels."""


def image_options(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name in IMAGE_OPTIONS}


def game_options(variant: str, options: Mapping[str, Any]) -> GameOptions:
    """Return a named game's options with changes. Raise ValueError, suggesting the nearest name, for unknown names."""
    if variant not in VARIANTS:
        raise ValueError(f"no game hide-and-seek/{variant}{nearest(variant, VARIANTS)}")
    fields = [field.name for field in dataclasses.fields(GameOptions)]
    known = (*fields, *IMAGE_OPTIONS)
    for name in options:
        if name not in known:
            raise ValueError(f"environment hide-and-seek/{variant} has no option {name!r}{nearest(name, known)}")
    return dataclasses.replace(VARIANTS[variant], **{name: options[name] for name in options if name in fields})


def check_installed(variant: str) -> None:
    """Raise ImportError, with the command to install them, if packages are missing."""
    missing = [package for package in PACKAGES if importlib.util.find_spec(package) is None]
    if missing:
        raise ImportError(
            f"environment hide-and-seek/{variant} needs {' and '.join(missing)}, which is not installed; {COMMAND}"
        )
