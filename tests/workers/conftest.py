"""Actors whose polls the tests call themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.rigs import ActorRig


@pytest.fixture
def rig() -> Iterator[Callable[..., ActorRig]]:
    rigs: list[ActorRig] = []

    def make(*args: Any, **options: Any) -> ActorRig:
        rigs.append(ActorRig(*args, **options))
        return rigs[-1]

    yield make
    for one in rigs:
        one.close()
    rigs.clear()
