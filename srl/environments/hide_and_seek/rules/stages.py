"""The six stages of Baker et al. (2019), detected from an episode's statistics.

The metric `stage_NAME` is the fraction of episodes that show a stage. The thresholds are ours; with them,
random players, which bump into boxes and see each other by chance, rarely show a stage (for numbers, see the
documentation). Stages may overlap, appear and disappear.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np

from srl.base.tree import Array
from srl.environments.hide_and_seek.options import GameOptions

EpisodeStatistics: TypeAlias = Mapping[str, Array]
"""Episode statistics by name, each [N]."""

CHASE_SPEED = 2.0  # m/s; the largest possible speed is 8
CARRIED = 2.0  # m


def _ramp_defense(found: EpisodeStatistics, options: GameOptions) -> Array:
    if options.lock_ramps:
        return found["num_ramp_lock_prep"] >= max(options.num_ramps, 1)
    return found["max_ramp_move_prep"] > CARRIED


STAGES: Mapping[str, Callable[[EpisodeStatistics, GameOptions], Array]] = {
    # A seeker runs after the hiders that it sees, or keeps one in sight.
    "chasing": lambda found, _: (found["approach_speed"] > CHASE_SPEED) | (found["longest_sight_share"] > 0.5),
    # A box was locked during preparation, and no hider was ever seen.
    "forts": lambda found, _: (found["num_box_lock_prep"] >= 1) & (found["never_seen"] > 0),
    # A seeker is on top of an object for more than a moment.
    "ramp_use": lambda found, _: found["seeker_high_share"] > 0.05,
    # Seekers cannot use a ramp: all are locked, or, if ramps cannot be locked, one was carried away.
    "ramp_defense": _ramp_defense,
    # An agent is on top of a box and moves it by holding it.
    "surfing": lambda found, _: found["surf_share"] > 0.01,
    # Almost all boxes are locked and cannot be surfed on.
    "surf_defense": lambda found, _: found["box_lock_share_prep"] > 0.7,
}
"""The stages, in the order in which the agents in the paper reached them."""


def stages(found: EpisodeStatistics, options: GameOptions) -> dict[str, Array]:
    """Return `stage_NAME` for each stage: 1 if an episode shows it, otherwise 0."""
    return {f"stage_{name}": np.asarray(shows(found, options), np.float64) for name, shows in STAGES.items()}
