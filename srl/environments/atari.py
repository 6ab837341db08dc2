"""Atari."""

from __future__ import annotations

from typing import Any


def game_of(name: str) -> str | None:
    return None


def config_of(name: str, game: str, kwargs: Any) -> Any: ...
