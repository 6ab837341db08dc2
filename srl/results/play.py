"""Playing episodes with a run's policies, in this process."""

from __future__ import annotations

from collections.abc import Mapping

from srl.api.lanes import LanesConfig
from srl.api.policy import Policy
from srl.experiments.options.roles import role_patterns
from srl.workers.episode_player import Played, Player

MAX_COPIES = 16


def play(
    environment: LanesConfig,
    policies: Mapping[str, Policy],
    roles: tuple[str, ...],
    episodes: int,
    greedy: bool,
    seed: int,
    max_steps: int,
) -> dict[str, Played]:
    """Policy -> so many episodes of every agent, each cut off after `max_steps` steps."""
    if episodes < 1:
        raise ValueError(f"episodes must be at least 1, found {episodes}")
    copies = min(MAX_COPIES, episodes)
    lanes = environment.build(copies)
    try:
        player = Player(lanes, policies, role_patterns(lanes.spec, roles), greedy, max_steps=max_steps)
        player.play(seed, episodes)
        return player.results()
    finally:
        lanes.close()
