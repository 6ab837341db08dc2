"""The six stages of Baker et al. (2019), told from the statistics of episodes. The thresholds are ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

Means: TypeAlias = Mapping[str, float]

STAGES: Mapping[str, Callable[[Means], bool]] = {
    # Seekers find hiders: random players see one in about a tenth of the steps.
    "chasing": lambda mean: mean["seen_share"] > 0.25,
    # Hiders move boxes, lock them while they prepare, and are not found.
    "forts": lambda mean: mean["num_box_lock_prep"] > 0.8 and mean["never_seen"] > 0.2,
    # Seekers stand on something where hiders wait behind walls.
    "ramp use": lambda mean: mean["seeker_high_share"] > 0.05,
    # Hiders carry the ramps away, or lock them, before seekers may move.
    "ramp defence": lambda mean: mean["num_ramp_lock_prep"] > 0.8 or mean["max_ramp_move_prep"] > 1.5,
    # Somebody stands on a box and moves it by holding it.
    "surfing": lambda mean: mean["surf_share"] > 0.01,
    # Nothing is left to surf on.
    "surf defence": lambda mean: mean["box_lock_share_prep"] > 0.7,
}


class StageDetector:
    """Running means of the statistics, and which stages show in them now. Stages overlap, and come and go."""

    def __init__(self, decay: float = 0.999) -> None:
        if not 0 < decay < 1:
            raise ValueError(f"decay must be between 0 and 1, not {decay}")
        self._decay, self._weight = decay, 0.0
        self._sums: dict[str, float] = {}

    def add(self, facts: Means) -> None:
        """Take in the statistics of one episode."""
        self._weight = self._decay * self._weight + 1
        for name, value in facts.items():
            self._sums[name] = self._decay * self._sums.get(name, 0.0) + float(value)

    def means(self) -> dict[str, float]:
        return {name: total / self._weight for name, total in self._sums.items()}

    def present(self) -> list[str]:
        """The stages that show, earliest first."""
        means = self.means()
        return [name for name, shows in STAGES.items() if means and shows(means)]
