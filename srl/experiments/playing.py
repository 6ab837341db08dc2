"""Playing episodes with a run's policies, in this process."""

from __future__ import annotations

from collections.abc import Mapping

from srl.api.lanes import LanesConfig
from srl.api.policy import Policy
from srl.experiments.role_options import role_patterns
from srl.workers.player import Player

MAX_COPIES = 16


def play(
    environment: LanesConfig,
    policies: Mapping[str, Policy],
    roles: tuple[str, ...],
    episodes: int,
    greedy: bool,
    seed: int,
) -> dict[str, tuple[list[float], list[float]]]:
    """Policy -> returns and lengths of so many episodes of every agent."""
    if episodes < 1:
        raise ValueError(f"episodes must be at least 1, found {episodes}")
    copies = min(MAX_COPIES, episodes)
    lanes = environment.build(copies)
    try:
        player = Player(lanes, policies, role_patterns(lanes.spec, roles), greedy)
        player.play(seed, episodes)
        return player.results()
    finally:
        lanes.close()
