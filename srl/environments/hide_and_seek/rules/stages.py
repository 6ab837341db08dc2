"""The six stages of Baker et al. (2019), told from the statistics of an episode.

An episode shows a stage or does not; a run shows it by the share of its episodes, `episodes/stage_NAME` in its metrics.
The thresholds are ours, such that random players, who bump into boxes and look at each other by chance, show a stage in
few of their episodes: the documentation has the figures. Stages may overlap, come and go.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np

from srl.base.tree import Array
from srl.environments.hide_and_seek.options import GameOptions

Facts: TypeAlias = Mapping[str, Array]
"""Of episodes, [N] each."""

CHASE_SPEED = 2.0  # m/s; who runs as fast as it can reaches 8
CARRIED = 2.0  # m


def _chasing(facts: Facts, options: GameOptions) -> Array:
    """A seeker runs after the hiders that it sees, or does not lose one out of sight."""
    return (facts["approach_speed"] > CHASE_SPEED) | (facts["longest_sight_share"] > 0.5)


def _forts(facts: Facts, options: GameOptions) -> Array:
    """A box was locked in preparation, and nobody was ever found."""
    return (facts["num_box_lock_prep"] >= 1) & (facts["never_seen"] > 0)


def _ramp_use(facts: Facts, options: GameOptions) -> Array:
    """A seeker stands on something for more than a moment."""
    return np.asarray(facts["seeker_high_share"] > 0.05)


def _ramp_defense(facts: Facts, options: GameOptions) -> Array:
    """No ramp is left to seekers: all are locked, or one was carried off where they cannot be."""
    if options.lock_ramps:
        return np.asarray(facts["num_ramp_lock_prep"] >= max(options.num_ramps, 1))
    return np.asarray(facts["max_ramp_move_prep"] > CARRIED)


def _surfing(facts: Facts, options: GameOptions) -> Array:
    """Somebody stands on a box and moves it by holding it."""
    return np.asarray(facts["surf_share"] > 0.01)


def _surf_defense(facts: Facts, options: GameOptions) -> Array:
    """Hardly a box is left to surf on."""
    return np.asarray(facts["box_lock_share_prep"] > 0.7)


STAGES: Mapping[str, Callable[[Facts, GameOptions], Array]] = {
    "chasing": _chasing,
    "forts": _forts,
    "ramp_use": _ramp_use,
    "ramp_defense": _ramp_defense,
    "surfing": _surfing,
    "surf_defense": _surf_defense,
}
"""In the order in which the paper's agents reached them."""


def stages(facts: Facts, options: GameOptions) -> dict[str, Array]:
    """`stage_NAME` for each of them: 1 where an episode shows it, otherwise 0."""
    return {f"stage_{name}": shows(facts, options).astype(np.float64) for name, shows in STAGES.items()}
