"""The six stages of Baker et al. (2019), detected from the statistics of an episode.

An episode shows a stage or does not; the share of such episodes is `episodes/stage_NAME` in the metrics of a run. The
thresholds are ours. With them random players, which bump into boxes and see each other by chance, show a stage in few
episodes (numbers are in the documentation). Stages may overlap, appear and disappear.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np

from srl.base.tree import Array
from srl.environments.hide_and_seek.options import GameOptions

Facts: TypeAlias = Mapping[str, Array]
"""Statistics of episodes, [N] each."""

CHASE_SPEED = 2.0  # m/s; the largest possible speed is 8
CARRIED = 2.0  # m


def _chasing(facts: Facts, options: GameOptions) -> Array:
    """A seeker runs after the hiders that it sees, or keeps one in sight."""
    return (facts["approach_speed"] > CHASE_SPEED) | (facts["longest_sight_share"] > 0.5)


def _forts(facts: Facts, options: GameOptions) -> Array:
    """A box was locked in preparation, and no hider was ever seen."""
    return (facts["num_box_lock_prep"] >= 1) & (facts["never_seen"] > 0)


def _ramp_use(facts: Facts, options: GameOptions) -> Array:
    """A seeker is on top of an object for more than a moment."""
    return np.asarray(facts["seeker_high_share"] > 0.05)


def _ramp_defense(facts: Facts, options: GameOptions) -> Array:
    """Seekers cannot use a ramp: all are locked, or, if ramps cannot be locked, one was carried away."""
    if options.lock_ramps:
        return np.asarray(facts["num_ramp_lock_prep"] >= max(options.num_ramps, 1))
    return np.asarray(facts["max_ramp_move_prep"] > CARRIED)


def _surfing(facts: Facts, options: GameOptions) -> Array:
    """An agent is on top of a box and moves it by holding it."""
    return np.asarray(facts["surf_share"] > 0.01)


def _surf_defense(facts: Facts, options: GameOptions) -> Array:
    """Almost all boxes are locked and cannot be surfed on."""
    return np.asarray(facts["box_lock_share_prep"] > 0.7)


STAGES: Mapping[str, Callable[[Facts, GameOptions], Array]] = {
    "chasing": _chasing,
    "forts": _forts,
    "ramp_use": _ramp_use,
    "ramp_defense": _ramp_defense,
    "surfing": _surfing,
    "surf_defense": _surf_defense,
}
"""The stages in the order in which the agents of the paper reached them."""


def stages(facts: Facts, options: GameOptions) -> dict[str, Array]:
    """Return `stage_NAME` for each stage: 1 if an episode shows it, otherwise 0."""
    return {f"stage_{name}": shows(facts, options).astype(np.float64) for name, shows in STAGES.items()}
