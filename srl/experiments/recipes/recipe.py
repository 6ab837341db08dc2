"""What a recipe is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

AUTO, NONE = "auto", "none"


@dataclass(frozen=True)
class Setting:
    option: str
    """As `srl.train` knows it; of the algorithm if it begins with `algo.`; if with `env.`, of the environment, where
    that has such an option."""
    value: Any
    why: str


@dataclass(frozen=True)
class Recipe:
    name: str
    about: str
    patterns: tuple[str, ...] = ()
    """Ids or entry points, with `*` for any text. The first recipe that fits is taken."""
    task: tuple[Setting, ...] = ()
    """What the environment asks of every algorithm."""
    ppo: tuple[Setting, ...] = ()
    """What PPO and its multi-agent relatives do with it; other algorithms want other sizes and steps."""
    cores: int = 0
    """The batch is meant for a machine with so many; with fewer it is smaller, unless `--scale` says how large. 0: the
    same everywhere."""
